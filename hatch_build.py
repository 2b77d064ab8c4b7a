"""Compiles the native library when srm is built or installed.

The system's C compiler does it, where there is one; else Zig's, which comes from PyPI. Where
neither is to be had, one line says so and srm works without it, at a higher price.

``SRM_NATIVE_TARGET`` names another platform to compile for, and its wheel tag, as
``aarch64-linux-gnu.2.17=manylinux2014_aarch64``: that takes Zig.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC", "-Wall", "-Wextra")
_LIMIT_S = 300
_TARGET = "SRM_NATIVE_TARGET"


class NativeLibraryHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts ``libsrm.so`` beside its sources, for an editable install and for the wheel."""

    def dependencies(self) -> list[str]:
        """Ask for Zig where it is needed."""
        return [] if _TARGET not in os.environ and _installed() else ["ziglang"]

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Compile, and make the wheel one for this platform."""
        folder = Path(self.root) / "src/srm/replication/native"
        library = folder / "libsrm.so"
        target, _, tag = os.environ.get(_TARGET, "").partition("=")
        problem = _compile(sorted(folder.glob("*.c")), library, target)
        if problem:
            self.app.display_warning(f"srm: without its native library, so slower: {problem}")
            return
        build_data["pure_python"] = False
        platform = tag or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _installed() -> str | None:
    return next((name for name in _COMPILERS if shutil.which(name)), None)


def _compile(sources: list[Path], library: Path, target: str) -> str:
    """Compile; return why that was not possible, or nothing."""
    compiler = None if target else _installed()
    command = [compiler] if compiler else [sys.executable, "-m", "ziglang", "cc"]
    if not compiler and importlib.util.find_spec("ziglang") is None:
        library.unlink(missing_ok=True)
        return "there is neither a C compiler (cc, gcc, clang) nor ziglang"
    if target:
        command += ["-target", target]
    # Made beside it and put in its place: a process that has loaded the old one keeps that.
    made = library.with_suffix(".new")
    command += [*_FLAGS, "-o", str(made), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    if done.returncode != 0:
        library.unlink(missing_ok=True)
        return f"{' '.join(command[:3])} failed: {done.stderr.strip()[-300:]}"
    made.replace(library)
    return ""
