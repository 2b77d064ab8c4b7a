"""Entry point of ``make bench``; see :mod:`bench.cli`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.cli import main  # noqa: E402 -- the path comes first

if __name__ == "__main__":
    sys.exit(main())
