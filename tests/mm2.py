"""Records of MM2 that srm only writes, decoded as MM2's own classes do."""

from __future__ import annotations

import struct

from srm.domain.groups.mm2_records import Heartbeat, OffsetSync
from srm.domain.names.topics import Flow, TopicPartition


def decode_sync(key: bytes, value: bytes) -> OffsetSync:
    topic, end = _string(key, 0)
    [partition] = struct.unpack_from(">i", key, end)
    return OffsetSync(TopicPartition(topic, partition), *struct.unpack(">qq", value))


def decode_heartbeat(key: bytes, value: bytes) -> Heartbeat:
    source, end = _string(key, 0)
    target, _ = _string(key, end)
    _, time_ms = struct.unpack(">hq", value)
    return Heartbeat(Flow(source, target), time_ms)


def _string(data: bytes, at: int) -> tuple[str, int]:
    [size] = struct.unpack_from(">h", data, at)
    end = at + 2 + size
    return data[at + 2 : end].decode(), end
