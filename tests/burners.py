"""Busy loops beside tests, so that these meet a machine with half of its cores taken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_MOST_S: Final = 4 * 3600
_LOOP: Final = f"import signal; signal.alarm({_MOST_S})\nwhile True: pass"


@contextmanager
def burners(count: int = 2) -> Iterator[None]:
    """Run busy loops; each ends with the block, or after four hours."""
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
