"""Shell lines that give access to a stack that was left running."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def entering(config: str | Path, *, venv: Path | None = None) -> str:
    """Return lines for a shell in any folder: they find ``srm``, and its properties file.

    The environment with srm, by default that of this process, is not entered if it is not one, or
    if the shell finds its ``srm`` already.
    """
    home = Path(sys.prefix) if venv is None else venv
    activate, found = home / "bin" / "activate", shutil.which("srm")
    lines = [f"  export SRM_CONFIG={shlex.quote(str(Path(config).absolute()))}\n"]
    if activate.is_file() and (found is None or Path(found).parent != home / "bin"):
        lines.insert(0, f"  source {shlex.quote(str(activate))}\n")
    return "".join(lines)
