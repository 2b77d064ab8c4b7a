"""Records that slots write: heartbeats and positions.

==============================  =======================================  =========================
key                             value                                    written
==============================  =======================================  =========================
slot:<slot>:<incarnation>       :class:`SlotHeartbeat`                   every second
slot:<slot>:<incarnation>:<n>   :class:`PositionGroup` of partitions     when a position changed,
                                that the slot copies                     and every 30 s
slot:<slot>:<incarnation>:left  :class:`PositionGroup` of partitions     once, when they leave
-<n>                            that it no longer copies
==============================  =======================================  =========================

An incarnation is one process of a slot. Each key has one writer, the process it names, so none
overwrites the reports of another.

**No position is lost, wherever a process is killed.** A position leaves the log in two ways only:

- A live process rewrites a group without a partition. Before that the broker has acknowledged the
  partition's last position in a ``left`` group, which is never written again.
- The driver deletes a record of a superseded process, of a removed slot, or a ``left`` one, once
  each position is reported at least as far by a live process, or its topic is deleted.

Values begin with ``>BB`` format (6) and kind. A heartbeat has ``>qqi`` generation, epoch
milliseconds and number of partitions, ``>qq`` time and growth of the source, then its host after a
byte with the length. ``>16siq`` follow for each log that continues after an open transaction:
remote topic id, partition, end. A group has
topic ids, then varints (:mod:`.varints`), column by column. The end of its map and its lineages
follow for each entry, with each start as a distance to the next one.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from srm.domain.flow_state.replication_records import (
    SLOT_PREFIX,
    HeldBack,
    Incarnation,
    PartitionPosition,
)
from srm.domain.names.topics import topic_id_bytes, topic_id_text
from srm.domain.offset_map import varints
from srm.domain.offset_map.map_records import MapEnd
from srm.domain.offset_map.offset_map import Position
from srm.domain.offset_map.runs import Lineage
from srm.domain.text.documents import decoding
from srm.errors import IntegrityError

GROUP_SIZE: Final = 64
"""Maximum partitions in one record."""

FORMAT: Final = 6
_HEARTBEAT, _GROUP = 0, 1
_HEAD = struct.Struct(">BB")
_BEAT = struct.Struct(">qqi")
_SOURCE = struct.Struct(">qq")
_HELD = struct.Struct(">16siq")
_COUNTS = struct.Struct(">HH")
_TOPICS = struct.Struct(">16s16s")
_COLUMNS: Final = 10  # numbers of each entry, before those of its map's end and lineages
LEFT: Final = "left-"


def next_incarnation(seen: Iterable[Incarnation], now_ms: int) -> Incarnation:
    """Return the incarnation of a starting process, larger than those in the log and the clock.

    A lost log names none, and records of the previous process may still arrive.
    """
    number = max(max((known.number for known in seen), default=0) + 1, now_ms)
    return Incarnation(number, secrets.token_hex(4))


@dataclass(frozen=True, slots=True)
class SlotHeartbeat:
    """Heartbeat of a slot's process, which copies ``partitions``; see :class:`.SlotReport`."""

    slot: str
    incarnation: Incarnation
    generation: int
    time_ms: int
    partitions: int
    source_heard_ms: int = 0
    source_growth: int = 0
    held_back: tuple[HeldBack, ...] = ()
    host: str = ""

    def key(self) -> bytes:
        return SLOT_PREFIX + f"{self.slot}:{self.incarnation}".encode()

    def value(self) -> bytes:
        head = _HEAD.pack(FORMAT, _HEARTBEAT)
        beat = _BEAT.pack(self.generation, self.time_ms, self.partitions)
        source = _SOURCE.pack(self.source_heard_ms, self.source_growth)
        host = self.host.encode()[:255]
        held = (_HELD.pack(topic_id_bytes(topic), *rest) for topic, *rest in self.held_back)
        return b"".join((head, beat, source, bytes([len(host)]), host, *held))


@dataclass(frozen=True, slots=True)
class PositionGroup:
    """Positions of some partitions of a slot at one moment, in a numbered or a ``left`` group."""

    slot: str
    incarnation: Incarnation
    name: str
    positions: tuple[PartitionPosition, ...]

    @property
    def has_left(self) -> bool:
        """Return True for a group of partitions that have left, which is never written again."""
        return self.name.startswith(LEFT)

    def key(self) -> bytes:
        return SLOT_PREFIX + f"{self.slot}:{self.incarnation}:{self.name}".encode()

    def value(self) -> bytes:
        topics: dict[tuple[str, str], int] = {}
        for entry in self.positions:
            topics.setdefault((entry.topic_id, entry.target_topic_id), len(topics))
        rows = [_row(entry, topics) for entry in self.positions]
        rest = [number for entry in self.positions for number in _rest(entry)]
        columns = (number for column in zip(*rows, strict=True) for number in column)
        return b"".join(
            (
                _HEAD.pack(FORMAT, _GROUP),
                _COUNTS.pack(len(topics), len(self.positions)),
                *(_TOPICS.pack(*map(topic_id_bytes, ids)) for ids in topics),
                _encode_numbers(columns),
                _encode_numbers(rest),
            )
        )


def decode_slot_record(key: bytes, value: bytes) -> SlotHeartbeat | PositionGroup:
    with decoding("slot record", value):
        version, kind = _HEAD.unpack_from(value)
        if version != FORMAT or kind not in (_HEARTBEAT, _GROUP):
            raise IntegrityError(
                f"record {key!r} has format {version}.{kind}, this version of srm knows {FORMAT}"
            )
        text = key.decode().removeprefix(SLOT_PREFIX.decode())
        if kind == _HEARTBEAT:
            slot, incarnation = text.rsplit(":", 1)
            beat = _BEAT.unpack_from(value, _HEAD.size)
            at = _HEAD.size + _BEAT.size
            source = _SOURCE.unpack_from(value, at)
            at += _SOURCE.size + 1
            rest = at + value[at - 1]
            held = tuple(
                (topic_id_text(topic), number, end)
                for topic, number, end in _HELD.iter_unpack(value[rest:])
            )
            known = *beat, *source, held, value[at:rest].decode(errors="replace")
            return SlotHeartbeat(slot, Incarnation.parse(incarnation), *known)
        slot, incarnation, name = text.rsplit(":", 2)
        positions = _positions(value, _HEAD.size)
        return PositionGroup(slot, Incarnation.parse(incarnation), name, positions)


def _encode_numbers(numbers: Iterable[int]) -> bytes:
    return varints.encode(varints.fold(np.array(list(numbers), np.int64)))


def _row(entry: PartitionPosition, topics: dict[tuple[str, str], int]) -> tuple[int, ...]:
    position = entry.position
    return (
        topics[entry.topic_id, entry.target_topic_id],
        entry.partition,
        position.source_next,
        position.target_next - position.source_next,
        position.source_end - position.source_next,
        entry.producer_id,
        entry.producer_epoch,
        int(entry.map_end is not None),
        len(entry.source_lineage.starts),
        len(entry.target_lineage.starts),
    )


def _rest(entry: PartitionPosition) -> Iterator[int]:
    """Yield the numbers of an entry that has as many as its row says."""
    if (end := entry.map_end) is not None:
        yield entry.position.target_next - end.target_start
        yield end.owner[0] - entry.producer_id
        yield end.owner[1] - entry.producer_epoch
        yield end.place
        yield end.index_place - end.place
    yield from entry.source_lineage.distances(entry.position.source_next)
    yield from entry.target_lineage.distances(entry.position.target_next)


def _positions(value: bytes, at: int) -> tuple[PartitionPosition, ...]:
    topic_count, count = _COUNTS.unpack_from(value, at)
    at += _COUNTS.size
    topics = [
        tuple(map(topic_id_text, _TOPICS.unpack_from(value, at + _TOPICS.size * index)))
        for index in range(topic_count)
    ]
    folded = varints.decode(value[at + _TOPICS.size * topic_count :])
    numbers = varints.unfold(folded).tolist()
    rows = list(zip(*(numbers[count * i : count * (i + 1)] for i in range(_COLUMNS)), strict=True))
    if len(numbers) != count * _COLUMNS + sum(5 * row[7] + 2 * (row[8] + row[9]) for row in rows):
        raise ValueError(f"{len(numbers)} numbers for {count} entries")
    rest = iter(numbers[count * _COLUMNS :])
    return tuple(_entry(topics[row[0]], row, rest) for row in rows)


def _entry(topic: Sequence[str], row: Sequence[int], rest: Iterator[int]) -> PartitionPosition:
    _, number, source_next, ahead, lag, pid, epoch, has_end, *epochs = row
    target_next = source_next + ahead
    end = None
    if has_end:
        back, owner_id, owner_epoch, place, index = (next(rest) for _ in range(5))
        owner = owner_id + pid, owner_epoch + epoch
        end = MapEnd(target_next - back, owner, place, index + place)
    return PartitionPosition(
        topic_id=topic[0],
        partition=number,
        target_topic_id=topic[1],
        position=Position(source_next, target_next, source_next + lag),
        producer_id=pid,
        producer_epoch=epoch,
        source_lineage=Lineage.from_distances(rest, epochs[0], source_next),
        target_lineage=Lineage.from_distances(rest, epochs[1], target_next),
        map_end=end,
    )
