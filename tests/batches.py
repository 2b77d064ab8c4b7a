"""Record batches as a broker would hold them, made from plain values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from srm.replication import rebuild


@dataclass(frozen=True)
class Record:
    """One record to be encoded."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[rebuild.Header] = field(default_factory=list)


def encode(records: Sequence[Record], codec: int = 0) -> memoryview:
    """Encode records as one dense batch at offset 0."""
    [built] = rebuild.encode(records, codec)
    return built.view


def at_offset(view: memoryview, base_offset: int) -> bytes:
    """Return a batch as the broker stores it at an offset."""
    stored = bytearray(view)
    struct.pack_into(">q", stored, 0, base_offset)
    return bytes(stored)
