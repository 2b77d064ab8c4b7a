"""Busy loops beside tests, so that these meet a machine with half of its cores taken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOOP: Final = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"


@contextmanager
def burners(count: int = 2) -> Iterator[None]:
    """Run busy loops; each ends with the block or with this process."""
    command = [sys.executable, "-c", _LOOP, str(os.getpid())]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
