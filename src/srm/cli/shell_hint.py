"""What somebody has to type before a stack that was left running can be looked at."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def entering(config: str | Path, *, venv: Path | None = None) -> str:
    """Return lines for a shell, wherever it stands: they find ``srm``, and its properties file.

    Args:
        config: the properties file.
        venv: environment that srm is installed in; this process's by default. One whose ``srm``
            the shell finds already, or that is none, is not entered.
    """
    home = Path(sys.prefix) if venv is None else venv
    activate, found = home / "bin" / "activate", shutil.which("srm")
    lines = [f"  export SRM_CONFIG={shlex.quote(str(Path(config).absolute()))}\n"]
    if activate.is_file() and (found is None or Path(found).parent != home / "bin"):
        lines.insert(0, f"  source {shlex.quote(str(activate))}\n")
    return "".join(lines)
