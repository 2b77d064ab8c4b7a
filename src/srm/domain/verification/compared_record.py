"""A record as it is compared. Importing it costs no numpy: ports and commands need it at once."""

from __future__ import annotations

import struct
from typing import NamedTuple

_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)

Headers = tuple[tuple[str, bytes | None], ...]


class ComparedRecord(NamedTuple):
    """One record of a log; time in epoch ms, set ``by_broker`` (LogAppendTime), if requested."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    by_broker: bool = False


def frame(record: ComparedRecord, *, timestamps: bool = True) -> bytes:
    """Frame the content of a record, not its offset; each part follows its length, null has -1."""
    parts = [_TIMESTAMP.pack(record.timestamp_ms if timestamps else 0)]
    for part in (record.key, record.value):
        parts += _frame(part)
    parts.append(_LENGTH.pack(len(record.headers)))
    for name, value in record.headers:
        parts += _frame(name.encode("utf-8", "surrogateescape"))
        parts += _frame(value)
    return b"".join(parts)


def _frame(part: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if part is None else (_LENGTH.pack(len(part)), part)
