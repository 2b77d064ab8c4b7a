"""What a slot says each second: that it is alive, and where its partitions stand.

==============================  =======================================  =========================
key                             value                                    written
==============================  =======================================  =========================
slot:<slot>:<incarnation>       :class:`SlotHeartbeat`                   every second
slot:<slot>:<incarnation>:<n>   :class:`PositionGroup` of partitions     when a position changed,
                                that the slot copies                     and every 30 s
slot:<slot>:<incarnation>:left  :class:`PositionGroup` of partitions     once, when they leave
-<n>                            that it copies no more
==============================  =======================================  =========================

Each process that is a slot is an incarnation, and each key has one writer: the process it names. So
nobody overwrites what another has told, whatever the order in which their records arrive.

**No position is lost, wherever a process is killed.** A position leaves the log in two ways only. A
live process replaces the record of a group by one that lacks a partition: before that it has
written, and the broker has acknowledged, the last position of that partition in a ``left`` group,
which nobody ever writes again. The driver deletes a record: of a process that is superseded, of a
slot that is no more, or a ``left`` one, so nobody writes it any more; and only if each position in
it is either told, at least as far, by a group that a live process keeps writing, or of topics that
are gone (:mod:`srm.domain.flow_state.stale_positions`). A new process begins with new keys, so what
its predecessor told stays until it has told the same itself.

A group holds at most :data:`GROUP_SIZE` partitions, some 12 KB, so no record meets the limit of
a broker (1 MiB), however many partitions a slot has.

Values: ``>BB`` format (4) and kind; then of a heartbeat ``>qqi`` generation, epoch milliseconds and
number of partitions, ``>qq`` when the source was last heard and how fast it grew, and ``>16siq``
remote topic id, partition and end of each log that continues after an open transaction; of a group
varints (:mod:`.varints`), column by column, after the topic ids.
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
    MapEnd,
    PartitionPosition,
)
from srm.domain.offset_map import varints
from srm.domain.offset_map.map_records import topic_id_bytes, topic_id_text
from srm.domain.offset_map.offset_map import Position
from srm.domain.text.json_records import decoding
from srm.errors import IntegrityError

GROUP_SIZE: Final = 64
"""Most partitions in one record."""

FORMAT: Final = 4
_HEARTBEAT, _GROUP = 0, 1
_HEAD = struct.Struct(">BB")
_BEAT = struct.Struct(">qqi")
_SOURCE = struct.Struct(">qq")
_HELD = struct.Struct(">16siq")
_COUNTS = struct.Struct(">HH")
_TOPICS = struct.Struct(">16s16s")
_COLUMNS: Final = 10  # numbers of each entry, before the end of its map
_LEFT = "left-"


def next_incarnation(seen: Iterable[Incarnation], now_ms: int) -> Incarnation:
    """Return the incarnation of a process that starts, after those it has found in the log.

    Args:
        seen: those found.
        now_ms: epoch milliseconds, the least number to take. A log that was lost with its cluster
            names nobody, and what the process before has on its way may yet come to the new one.
    """
    number = max(max((known.number for known in seen), default=0) + 1, now_ms)
    return Incarnation(number, secrets.token_hex(4))


@dataclass(frozen=True, slots=True)
class SlotHeartbeat:
    """Sign of life of the process that is a slot; ``partitions`` are those it copies.

    ``source_heard_ms`` is when the source had last answered for all of them, by the same clock as
    ``time_ms``; 0: never, or not told. ``source_growth`` is the most it grew by then, in offsets a
    second, all these partitions together. ``held_back`` are the ends of their logs, by remote
    topic id and number, where what stands behind a transaction that stays open is not copied.
    """

    slot: str
    incarnation: Incarnation
    generation: int
    time_ms: int
    partitions: int
    source_heard_ms: int = 0
    source_growth: int = 0
    held_back: tuple[HeldBack, ...] = ()

    def key(self) -> bytes:
        """Encode the record key."""
        return SLOT_PREFIX + f"{self.slot}:{self.incarnation}".encode()

    def value(self) -> bytes:
        """Encode the record value."""
        head = _HEAD.pack(FORMAT, _HEARTBEAT)
        beat = _BEAT.pack(self.generation, self.time_ms, self.partitions)
        source = _SOURCE.pack(self.source_heard_ms, self.source_growth)
        held = (_HELD.pack(topic_id_bytes(topic), *rest) for topic, *rest in self.held_back)
        return b"".join((head, beat, source, *held))


@dataclass(frozen=True, slots=True)
class PositionGroup:
    """Positions of some partitions of a slot, all taken at the same moment.

    ``name`` is a number, or that of partitions that have left.
    """

    slot: str
    incarnation: Incarnation
    name: str
    positions: tuple[PartitionPosition, ...]

    @classmethod
    def of_left(
        cls,
        slot: str,
        incarnation: Incarnation,
        number: int,
        positions: Iterable[PartitionPosition],
    ) -> PositionGroup:
        """Make the ``number``-th group of partitions that a process copies no more."""
        return cls(slot, incarnation, f"{_LEFT}{number}", tuple(positions))

    @property
    def has_left(self) -> bool:
        """Whether it is of partitions that have left: it is never written again."""
        return self.name.startswith(_LEFT)

    def key(self) -> bytes:
        """Encode the record key."""
        return SLOT_PREFIX + f"{self.slot}:{self.incarnation}:{self.name}".encode()

    def value(self) -> bytes:
        """Encode the record value."""
        topics: dict[tuple[str, str], int] = {}
        for entry in self.positions:
            topics.setdefault((entry.topic_id, entry.target_topic_id), len(topics))
        rows = [_row(entry, topics) for entry in self.positions]
        ends = [number for entry in self.positions for number in _map_end(entry)]
        columns = (number for column in zip(*rows, strict=True) for number in column)
        return b"".join(
            (
                _HEAD.pack(FORMAT, _GROUP),
                _COUNTS.pack(len(topics), len(self.positions)),
                *(_TOPICS.pack(*map(topic_id_bytes, ids)) for ids in topics),
                _encode_numbers(columns),
                _encode_numbers(ends),
            )
        )


def decode_slot_record(key: bytes, value: bytes) -> SlotHeartbeat | PositionGroup:
    """Decode a record of a slot, of this format.

    Raises:
        IntegrityError: the bytes are not one of the format this version knows.
    """
    with decoding("slot record", value):
        version, kind = _HEAD.unpack_from(value)
        if version != FORMAT or kind not in (_HEARTBEAT, _GROUP):
            raise IntegrityError(
                f"record {key!r} has format {version}.{kind}, this version of srm knows {FORMAT}"
            )
        text = key.decode().removeprefix(SLOT_PREFIX.decode())
        if kind == _HEARTBEAT:
            slot, incarnation = text.rsplit(":", 1)
            generation, time_ms, partitions = _BEAT.unpack_from(value, _HEAD.size)
            at = _HEAD.size + _BEAT.size
            heard_ms, growth = _SOURCE.unpack_from(value, at)
            held = tuple(
                (topic_id_text(topic), number, end)
                for topic, number, end in _HELD.iter_unpack(value[at + _SOURCE.size :])
            )
            process = Incarnation.parse(incarnation)
            known = generation, time_ms, partitions, heard_ms, growth
            return SlotHeartbeat(slot, process, *known, held)
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
        entry.source_leader_epoch,
        entry.producer_id,
        entry.producer_epoch,
        entry.target_leader_epoch,
        int(entry.map_end is not None),
    )


def _map_end(entry: PartitionPosition) -> tuple[int, ...]:
    end = entry.map_end
    if end is None:
        return ()
    return (
        entry.position.target_next - end.target_start,
        end.owner[0] - entry.producer_id,
        end.owner[1] - entry.producer_epoch,
        end.place,
        end.index_place - end.place,
    )


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
    if len(numbers) != count * _COLUMNS + 5 * sum(row[9] for row in rows):
        raise ValueError(f"{len(numbers)} numbers for {count} entries")
    ends = iter(numbers[count * _COLUMNS :])
    return tuple(_entry(topics[row[0]], row, ends) for row in rows)


def _entry(topic: Sequence[str], row: Sequence[int], ends: Iterator[int]) -> PartitionPosition:
    _, number, source, ahead, lag, source_epoch, pid, epoch, target_epoch, has_end = row
    end = None
    if has_end:
        back, owner_id, owner_epoch, place, index = (next(ends) for _ in range(5))
        owner = owner_id + pid, owner_epoch + epoch
        end = MapEnd(source + ahead - back, owner, place, index + place)
    return PartitionPosition(
        topic[0],
        number,
        topic[1],
        Position(source, source + ahead, source + lag),
        source_epoch,
        pid,
        epoch,
        target_epoch,
        end,
    )
