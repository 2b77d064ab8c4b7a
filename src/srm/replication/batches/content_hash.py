"""The hash of 64 bits by which the records of two logs are compared, under a key of this process.

Python's hash is unfit: Spark sets its key to 0, and then a producer can make two contents collide.
"""

from __future__ import annotations

import os
import struct
from hashlib import blake2b
from typing import Final

_KEYED: Final = blake2b(digest_size=8, key=os.urandom(16))
_LENGTH: Final = struct.Struct(">i")
_HASH: Final = struct.Struct(">q")


def content_hash(*parts: bytes | memoryview | None) -> int:
    """Hash some parts in their order, each with its length: where one ends makes a difference."""
    state = _KEYED.copy()
    for part in parts:
        state.update(_LENGTH.pack(-1 if part is None else len(part)))
        if part:
            state.update(part)
    (hashed,) = _HASH.unpack(state.digest())
    return int(hashed)
