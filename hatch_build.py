"""Build hook: compiles the native library and fetches the browser files of the service's pages.

It uses the system's C compiler if that works, else Zig's from PyPI. If neither works, it prints one
line, and srm runs without the library, only slower.

``SRM_NATIVE=off`` builds without the library. ``SRM_NATIVE=TARGET=TAG`` builds a wheel of another
platform with Zig, or fails: ``aarch64-linux-gnu.2.17=manylinux2014_aarch64``, for example.

The browser files come from npm's registry (``NPM_CONFIG_REGISTRY`` names
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

_BELOW_AIRFLOW = ("dags", "spark_jobs")
"""Folders of a checkout that the wheel has below ``srm_airflow``."""

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
"""Tarballs of npm packages, the SHA-512 of each in the registry, and the files used."""


class NativeLibraryHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts ``libsrm.so`` next to its sources for an editable install, else into the wheel."""

    def dependencies(self) -> list[str]:
        """Require Zig where it may be needed."""
        return [] if _WISH == "off" or ("=" not in _WISH and _installed()) else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch, compile, and tag the wheel for its platform; put DAGs and Spark jobs into it."""
        if version != "editable":
            for name in _BELOW_AIRFLOW:
                build_data["force_include"][str(Path(self.root) / name)] = f"srm_airflow/{name}"
        self._fetch(version, build_data)
        self._build_native(version, build_data)

    def _fetch(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the browser files next to the pages; a checkout keeps them after the first build."""
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
            # A process that has loaded the old library keeps it.
            shutil.move(made, folder / _NAME)
        else:
            build_data["force_include"][str(made)] = f"{_FOLDER}/{_NAME}"
        build_data["pure_python"] = False
        platform = tag or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _unpack(tarball: str, digest: str, names: tuple[str, ...], folder: Path) -> None:
    """Fetch one tarball unless its files exist; the stamp is written after them."""
    stamp = folder / ".sha512"
    if stamp.is_file() and stamp.read_text() == digest:
        return
    address = f"{_REGISTRY}/{tarball}"
    with urllib.request.urlopen(address, timeout=_LIMIT_S) as answer:  # noqa: S310
        content = answer.read()
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != digest:
        raise ValueError(f"{address} does not match its pinned SHA-512")
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
    """Compile with an available compiler; return why that failed, else nothing."""
    commands = []
    if not target and (compiler := _installed()):
        commands.append([compiler])
    if importlib.util.find_spec("ziglang") is not None:
        # By default Zig compiles for the processor of this machine.
        zig = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]
        commands.append([*zig, "-target", target] if target else zig)
    problem = "no C compiler (cc, gcc, clang) and no ziglang found"
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
