"""Compiles the native library and fetches what browsers need, when srm is built or installed.

The system's C compiler does it, where there is one that can; else Zig's, which comes from PyPI.
Where neither can, one line says so and srm works without it, only slower.

``SRM_NATIVE`` changes that: ``off`` asks for neither, and ``TARGET=TAG`` for a wheel of another
platform, made by Zig, as ``aarch64-linux-gnu.2.17=manylinux2014_aarch64``; that fails if it cannot.

What the service's pages load in a browser comes from npm's registry (``NPM_CONFIG_REGISTRY`` names
another), pinned by its hash, and ships in the wheel: nothing is fetched when srm runs.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC", "-g0", "-Wall", "-Wextra")
_LIMIT_S = 300
_WISH = os.environ.get("SRM_NATIVE", "")
_FOLDER = "srm/replication/native"
_NAME = "libsrm.so"

_REGISTRY = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
_VENDOR = "srm/service/static/vendor"
_BROWSER = (
    (
        "uplot/-/uplot-1.6.32.tgz",
        "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        ("dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE"),
    ),
    (
        "swagger-ui-dist/-/swagger-ui-dist-5.35.0.tgz",
        "U06rpMtW9V3XPGOBeamTUSr0Z09jMX4IJuANpE/EZbAhw0G8CgwrzU4YmXkn/h0wCDNsXdGarTNNHC3sU8yVUQ==",
        ("swagger-ui-bundle.js", "swagger-ui.css", "LICENSE"),
    ),
)
"""Tarballs of npm packages, the SHA-512 that the registry tells of each, and the files wanted."""


class NativeLibraryHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts ``libsrm.so`` beside its sources, for an editable install, or into the wheel."""

    def dependencies(self) -> list[str]:
        """Ask for Zig where it may be needed."""
        return [] if _WISH == "off" or ("=" not in _WISH and _installed()) else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch, compile, and make the wheel one for its platform."""
        self._fetch(version, build_data)
        self._build_native(version, build_data)

    def _fetch(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the browser's files beside the pages; a checkout has them after the first time."""
        made = Path(self.root) / "src" / _VENDOR
        try:
            for tarball, digest, names in _BROWSER:
                _unpack(tarball, digest, names, made / tarball.partition("/")[0])
        except (OSError, ValueError) as error:
            if version != "editable":
                raise RuntimeError(f"srm: no files for browsers: {error}") from error
            self.app.display_warning(f"srm: pages without charts, no Swagger UI: {error}")
        if version != "editable":
            build_data["force_include"][str(made)] = _VENDOR

    def _build_native(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root) / "src" / _FOLDER
        target, _, tag = _WISH.partition("=") if "=" in _WISH else ("", "", "")
        made = Path(tempfile.mkdtemp(prefix="srm-native-")) / _NAME
        problem = "SRM_NATIVE is off" if _WISH == "off" else _compile(folder, made, target)
        if version == "editable":
            (folder / _NAME).unlink(missing_ok=True)
        if problem and target:
            raise RuntimeError(f"srm: no native library for {target}: {problem}")
        if problem:
            self.app.display_warning(f"srm: without its native library, so slower: {problem}")
            return
        if version == "editable":
            # A process that has loaded the old one keeps that.
            shutil.move(made, folder / _NAME)
        else:
            build_data["force_include"][str(made)] = f"{_FOLDER}/{_NAME}"
        build_data["pure_python"] = False
        platform = tag or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _unpack(tarball: str, digest: str, names: tuple[str, ...], folder: Path) -> None:
    """Fetch one tarball, unless its files are there: the folder is named only when it is whole."""
    stamp = folder / ".sha512"
    if stamp.is_file() and stamp.read_text() == digest:
        return
    address = f"{_REGISTRY}/{tarball}"
    with urllib.request.urlopen(address, timeout=_LIMIT_S) as answer:  # noqa: S310
        content = answer.read()
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != digest:
        raise ValueError(f"{address} is not what was pinned")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        for name in names:
            member = packed.extractfile(f"package/{name}")
            if member is None:
                raise ValueError(f"{tarball} has no {name}")
            (folder / Path(name).name).write_bytes(member.read())
    stamp.write_text(digest)


def _installed() -> str | None:
    return next((name for name in _COMPILERS if shutil.which(name)), None)


def _compile(folder: Path, made: Path, target: str) -> str:
    """Compile with what there is; return why that was not possible, or nothing."""
    commands = []
    if not target and (compiler := _installed()):
        commands.append([compiler])
    if importlib.util.find_spec("ziglang") is not None:
        # Zig's own default is the processor that it runs on.
        zig = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]
        commands.append([*zig, "-target", target] if target else zig)
    problem = "there is neither a C compiler (cc, gcc, clang) nor ziglang"
    for command in commands:
        sources = map(str, sorted(folder.glob("*.c")))
        whole = [*command, *_FLAGS, "-o", str(made), *sources]
        try:
            subprocess.run(whole, capture_output=True, text=True, check=True, timeout=_LIMIT_S)
        except subprocess.CalledProcessError as error:
            problem = f"{' '.join(command)} failed: {error.stderr.strip()[-300:]}"
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = f"{' '.join(command)} failed: {error}"
        else:
            return ""
    return problem
