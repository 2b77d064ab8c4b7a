"""First place at which two logs can be compared without a map.

Segments of the two sides are never deleted together, so one log begins far after the other, often
by more than the walk looks ahead::

    source  |0 .......................... 7 000 000 | 7 000 001 ...
    target              |4 000 010 .... 7 000 123 |            begins with the copy of 4 000 001
                        ^ place: source 4 000 001, target 4 000 010

The first records of the target are searched on the source, or else the first ones of the source on
the target, from the earliest offset that their times allow. A record that is there once in each of
them is an anchor; from it both are followed back as long as they agree. Nothing is decided by that:
the walk begins at the place and proves it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from srm.domain.offset_map.runs import UNKNOWN_LINEAGE
from srm.replication.batches.batch import BatchHeader, BatchToSend, batches, content_hash
from srm.replication.batches.records import LoopShare, records_of
from srm.replication.batches.to_send import batches_to_send
from srm.replication.log_reader import LogReader, fetches
from srm.replication.mapping.starts import Start
from srm.replication.ports import DecodedRecord

_FIRST_RECORDS: Final = 10_000
_NOT_AGAIN_RECORDS: Final = 50_000
"""Records behind an anchor among which it must not come again, where times are compared."""
_ANY_TIME: Final = -(2**63)

Content = tuple[int, int]
"""Time, and 64 bits of a hash of key and value; 0 for all times where the target gives its own."""


class CommonRecord(NamedTuple):
    """Place of the first record that both logs hold."""

    source_next: int
    target_next: int


class NoPlace(Enum):
    """Reason for a missing place."""

    NOTHING_IN_COMMON = "the first records of one log are not in the other"
    UNCLEAR = "records occur more than once, so the place is ambiguous"


class _Seen(NamedTuple):
    offset: int
    content: Content


async def find_place(
    source: LogReader,
    target: LogReader,
    source_start: int,
    target_start: int,
    is_ours: Callable[[BatchHeader], bool],
) -> CommonRecord | NoPlace:
    logs = _Logs(source, target, is_ours)
    ours = await _first(logs.copies(target_start))
    if not ours:
        return NoPlace.NOTHING_IN_COMMON
    if logs.own_time:  # perhaps not from the first one on: the topic's settings may have changed
        ours = [_Seen(seen.offset, (0, seen.content[1])) for seen in ours]
    found = await logs.look_up(ours, source, logs.originals, source_start)
    if isinstance(found, tuple):
        return CommonRecord(found[1], found[0])
    if found is NoPlace.UNCLEAR:
        return found
    theirs = await _first(logs.originals(source_start))
    found = await logs.look_up(theirs, target, logs.copies, target_start)
    return CommonRecord(*found) if isinstance(found, tuple) else found


@dataclass(slots=True)
class _Logs:
    """Records of both logs; ``own_time`` is set once the target is seen to give its own times."""

    source: LogReader
    target: LogReader
    is_ours: Callable[[BatchHeader], bool]
    own_time: bool = False
    _turns: LoopShare = field(default_factory=LoopShare)

    async def copies(self, start: int, earliest: int = _ANY_TIME) -> AsyncIterator[_Seen]:
        """Yield the copies on the target, but for batches that are all older than a time."""
        async for offset, fetched in fetches(self.target, start):
            for batch in batches(fetched.records):
                is_ours = batch.last_offset >= offset and self.is_ours(batch)
                if is_ours and batch.record_count and batch.max_timestamp >= earliest:
                    self.own_time = self.own_time or batch.has_log_append_time
                    async for piece in records_of(batch, self._turns, start):
                        for record in piece:
                            yield _Seen(record.offset, self._content(record))

    async def originals(self, start: int, earliest: int = _ANY_TIME) -> AsyncIterator[_Seen]:
        """Yield what the source gives to be copied, but for batches as above."""
        committed = self.source.read_committed
        async for offset, fetched in fetches(self.source, start):
            for outgoing in batches_to_send(fetched, offset, None, read_committed=committed):
                if isinstance(outgoing, BatchToSend) and outgoing.max_timestamp >= earliest:
                    [header] = batches(outgoing.view)
                    offsets = iter(outgoing.offsets())
                    async for piece in records_of(header, self._turns):
                        for record, at in zip(piece, offsets, strict=False):
                            yield _Seen(at, self._content(record))

    def _content(self, record: DecodedRecord) -> Content:
        return 0 if self.own_time else record.timestamp, content_hash(record.key, record.value)

    async def look_up(
        self,
        wanted: Sequence[_Seen],
        log: LogReader,
        read: Callable[[int, int], AsyncIterator[_Seen]],
        start: int,
    ) -> tuple[int, int] | NoPlace:
        """Find the first of some records in the log that does not begin with them.

        Return (their offset, its offset there).
        """
        earliest, own_time = _ANY_TIME, self.own_time
        if wanted and not own_time:
            earliest = min(seen.content[0] for seen in wanted)
            start = max(start, await log.wire.offset_at(log.partition, earliest))
        often = Counter(seen.content for seen in wanted)
        indexes = {seen.content: index for index, seen in enumerate(wanted)}
        passed: deque[_Seen] = deque(maxlen=_FIRST_RECORDS)
        place: tuple[int, int] | None = None
        anchor: Content | None = None
        met, left = False, _NOT_AGAIN_RECORDS
        async for seen in read(start, earliest):
            if place is None:
                met = met or seen.content in often
                if often.get(seen.content) == 1:
                    anchor = seen.content
                    place = _follow_back(wanted, indexes[anchor], passed, seen.offset)
                passed.append(seen)
            elif seen.content == anchor:
                return NoPlace.UNCLEAR
            else:
                left -= 1
                if left <= 0 and not own_time:
                    break
        return place or (NoPlace.UNCLEAR if met else NoPlace.NOTHING_IN_COMMON)


async def _first(records: AsyncIterator[_Seen]) -> list[_Seen]:
    found = []
    async for seen in records:
        found.append(seen)
        if len(found) >= _FIRST_RECORDS:
            break
    return found


def _follow_back(
    wanted: Sequence[_Seen], index: int, passed: deque[_Seen], offset: int
) -> tuple[int, int]:
    place = wanted[index].offset, offset
    for before, there in zip(reversed(wanted[:index]), reversed(passed), strict=False):
        if before.content != there.content:
            break
        place = before.offset, there.offset
    return place


@dataclass(eq=False)
class OurBatches:
    """Recognises copies among the batches of the target, in their order.

    While the copy is ``fresh``, a batch at the very first offset is of a former topic of the name,
    but for the first of a first claim, which has no marker, if the copy ``may_begin`` with that.

    What is written under a claim of an unknown producer id is ours only if ``of_another`` denies
    that of one batch: other flows may copy into the name. An empty batch shows nothing.
    """

    producer_ids: Collection[int]
    _: KW_ONLY
    fresh: bool
    of_another: Callable[[BatchHeader], bool | None] = lambda _claimed: False
    may_begin: bool = True
    claims: set[tuple[int, int]] = field(default_factory=set)
    _of_others: dict[tuple[int, int], bool | None] = field(default_factory=dict)
    _strays: set[tuple[int, int]] = field(default_factory=set)

    def is_copy(self, batch: BatchHeader) -> bool:
        producer = batch.producer_id, batch.producer_epoch
        if batch.is_control:
            self.claims.add(producer)
            self._strays.discard(producer)
            return False
        if self.fresh and batch.base_offset == 0:
            is_first = batch.producer_epoch == batch.base_sequence == 0
            if not (is_first and self.may_begin):
                self._strays.add(producer)
        if producer in self._strays:
            return False
        claimed = producer in self.claims and not batch.is_transactional
        return batch.producer_id in self.producer_ids or (
            claimed and self.is_of_another(batch) is False
        )

    def is_of_another(self, batch: BatchHeader) -> bool | None:
        """Return whether a flow from another cluster wrote the batch under its own claim."""
        claim = batch.producer_id, batch.producer_epoch
        if (
            batch.is_transactional
            or batch.producer_id in self.producer_ids
            or claim not in self.claims
        ):
            return False
        if claim not in self._of_others:
            found = self.of_another(batch)
            if not batch.record_count:
                return found
            self._of_others[claim] = found
        return self._of_others[claim]

    @property
    def own_claims(self) -> set[tuple[int, int]]:
        """The claims but those of flows from other clusters, as far as they wrote anything."""
        return {claim for claim in self.claims if not self._of_others.get(claim)}


async def records_of_others(
    target: LogReader,
    producer_ids: Collection[int],
    known: tuple[int, int] | None = None,
    is_of_another: Callable[[BatchHeader], bool | None] = lambda _claimed: False,
) -> tuple[int, int] | None:
    """Return the offsets [from, to) of records that others wrote to a log without a trace of ours.

    Traces are copies, batches under our producer ids, and the marker of a claim of ours before the
    first record. ``known``: what an earlier look has found; only what follows it is read.
    """
    log_start, log_end = await target.wire.log_range(target.partition)
    # Retention moves the start, and an unclean election may take the end.
    first, end = (min(max(at, log_start), log_end) for at in known or (log_start, log_start))
    ours = OurBatches(producer_ids, fresh=True, of_another=is_of_another)
    async for wanted, fetched in fetches(target, end):
        for batch in batches(fetched.records):
            if batch.last_offset < wanted:
                continue
            is_ours = ours.is_copy(batch) or batch.producer_id in producer_ids
            if is_ours and (first == end or not batch.is_control):
                return None
            if batch.record_count and not (
                is_ours or batch.is_control or ours.is_of_another(batch)
            ):
                first = batch.base_offset if first == end else first
                end = batch.last_offset + 1
    return (first, end) if first < end else None


async def begin_where_logs_meet(
    source: LogReader, target: LogReader, start: Start, ours: OurBatches
) -> tuple[Start, str]:
    """Begin where both logs hold the same, if one begins far after the other; also say so.

    Records of the source are passed only if the target's log was trimmed, and those of the target
    only if the source's was, or a topic had the name before: a changed filter looks the same.
    """
    not_met = replace(start, fresh=start.has_former), ""
    target_start, target_end = await target.wire.log_range(target.partition)
    if not target_end:
        return not_met
    source_start, _ = await source.wire.log_range(source.partition)
    source_from = max(start.source_next, source_start)
    target_from = max(start.target_next, target_start)
    first_copy: list[int] = []

    def is_copy(batch: BatchHeader) -> bool:
        found = ours.is_copy(batch)
        if found and batch.record_count and not first_copy:
            first_copy.append(batch.base_offset)
        return found

    place = await find_place(source, target, source_from, target_from, is_copy)
    if isinstance(place, NoPlace) or place == CommonRecord(source_from, target_from):
        return not_met
    passes_source, passes_target = place.source_next > source_from, place.target_next > target_from
    if passes_source and not target_start:
        return not_met
    if passes_target and not (source_start or start.has_former):
        # Copies before the place are of a topic that had the name before. Where there are none,
        # both logs begin with the same, and what follows is a copy of this topic.
        return replace(start, fresh=place.target_next > first_copy[0]), ""
    met = replace(
        start,
        source_next=place.source_next,
        target_next=place.target_next,
        fresh=False,
        has_position=True,
        source_lineage=UNKNOWN_LINEAGE,
        target_lineage=UNKNOWN_LINEAGE,
    )
    return met, (
        f"without a map: source offset {place.source_next} was found at target offset "
        f"{place.target_next}; the records before them in both logs are not in the map"
    )
