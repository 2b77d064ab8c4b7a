"""Takes the end of a source partition away, as an unclean leader election would."""

from __future__ import annotations

import struct
from typing import Final

from srm.stack.kafka import KafkaBroker

_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")


def cut(broker: KafkaBroker, topic: str, partition: int, share: float) -> int:
    """Kill the broker and cut the newest segment of a log after ``share`` of its batches.

    Returns:
        The offset at which the log ends now.
    """
    broker.kill()
    folder = broker.home / "data" / f"{topic}-{partition}"
    segment = max(folder.glob("*.log"))
    data = segment.read_bytes()
    batches: list[tuple[int, int]] = []
    at = 0
    while at + _OFFSET_AND_LENGTH.size <= len(data):
        offset, length = _OFFSET_AND_LENGTH.unpack_from(data, at)
        if length <= 0:
            break
        batches.append((offset, at))
        at += _OFFSET_AND_LENGTH.size + length
    if not batches:
        return int(segment.stem)
    offset, place = batches[int(share * len(batches))]
    with segment.open("r+b") as log:
        log.truncate(place)
    return offset
