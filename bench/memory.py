"""Memory that the host has lent already: else whoever writes first pays for getting it.

A virtual machine gives pages that are free for some seconds back to its host (free page reporting).
The next process that writes to one of them waits for the host, which looks like its own CPU time: a
broker's append of a gigabyte to the page cache cost 1.3 s instead of 0.24 s, and the engine that
was measured first paid it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

_CHUNK: Final = bytes(1 << 20)
_AT_LEAST: Final = 1 << 30
_SHARE_OF_FREE: Final = 0.5


def borrow_memory(folder: Path, size: int) -> None:
    """Write a file of that many bytes, and a gigabyte more, and remove it at once."""
    most = int(psutil.virtual_memory().available * _SHARE_OF_FREE)
    scratch = folder / "scratch"
    with scratch.open("wb", buffering=0) as file:
        for _ in range(0, min(size + _AT_LEAST, most), len(_CHUNK)):
            file.write(_CHUNK)
    scratch.unlink()
