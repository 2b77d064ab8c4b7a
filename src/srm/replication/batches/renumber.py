"""Closing the holes of a batch in place: no record is decoded or moved.

Compaction leaves batches whose records have offsets missing between them, and brokers accept only
dense ones. A record has its offset as a varint, relative to the first of the batch. The new one is
never larger than the old one, so it overwrites the old one in as many bytes. A varint may have more
bytes than necessary (``8a 00`` is 5 as ``0a`` is). Decoders that read byte by byte, as Kafka's
ByteUtils, librdkafka and aiokafka do, accept both.

A record (Kafka's DefaultRecord) begins::

    length varint | attributes i8 | timestampDelta varint | offsetDelta varint | keyLength ...
"""

from __future__ import annotations

from srm.errors import IntegrityError
from srm.replication.batches.batch import HEADER_SIZE, BatchHeader, make_dense


def renumber(batch: BatchHeader) -> list[tuple[int, int]]:
    """Make an uncompressed batch with holes dense, in place, checksum included.

    Its own checksum must have been verified, as the new one makes it valid.

    Returns:
        (first source offset, count) of consecutive records, in order.

    Raises:
        IntegrityError: the records are not what the header says.
    """
    try:
        found = _renumber(batch.view, batch.base_offset)
    except (IndexError, ValueError) as error:
        raise _not_readable(batch) from error
    if sum(count for _, count in found) != batch.record_count:
        raise _not_readable(batch)
    make_dense(batch.view, batch.record_count)
    return found


def _not_readable(batch: BatchHeader) -> IntegrityError:
    return IntegrityError(
        f"batch at offset {batch.base_offset} cannot be read: its records do not match its header"
    )


def _renumber(view: memoryview, base_offset: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at, end = HEADER_SIZE, len(view)
    number = begin = expected = 0
    while at < end:
        low = view[at]
        if low < 0x80:
            record = at + 1
            at = record + (low >> 1)
        else:
            length, record = _varint(view, at)
            at = record + length
        place = record + 1
        while view[place] > 0x7F:
            place += 1
        place += 1
        low = view[place]
        if low < 0x80:
            delta = low >> 1
            view[place] = number << 1
        else:
            delta = _replace(view, place, number)
        if delta != expected:
            if delta < expected:
                raise ValueError("offsets do not ascend")
            if expected:
                found.append((base_offset + begin, expected - begin))
            begin = delta
        expected = delta + 1
        number += 1
    if at > end:
        raise ValueError("the last record reaches past the end of the batch")
    found.append((base_offset + begin, expected - begin))
    return found


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """Return the varint (zigzag) at a place, not negative, and the place after it."""
    value = view[at] & 0x7F
    shift = 0
    while view[at] > 0x7F:
        at += 1
        shift += 7
        value |= (view[at] & 0x7F) << shift
    return value >> 1, at + 1


def _replace(view: memoryview, at: int, number: int) -> int:
    """Return the varint (zigzag) at a place, and write another one over it, in as many bytes."""
    value = shift = 0
    number <<= 1
    while (byte := view[at]) > 0x7F:
        value |= (byte & 0x7F) << shift
        view[at] = number & 0x7F | 0x80
        number >>= 7
        shift += 7
        at += 1
    view[at] = number
    return (value | byte << shift) >> 1
