"""Start of a walk without a map, and the copies among the target's batches."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from srm.domain.offset_map.lineage import UNKNOWN
from srm.replication.batches import legacy
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.log_reader import LogReader, fetches
from srm.replication.resume.find_place import CommonRecord, NoPlace, find_place

if TYPE_CHECKING:
    from srm.replication.mapping.start_positions import Start


class OurBatches:
    """Recognises copies among the batches of the target, in their order.

    While the copy is ``fresh``, a batch at the very first offset belongs to a former topic of the
    name. A log that held copies and is now empty has lost its end. A batch at its first offset was
    in flight then, and is ours like a batch at any other cut.

    Flows from other clusters may copy into the same name. Their claims look like ours, so what is
    written under a claim of an unknown producer id is ours only if ``is_of_another`` denies that of
    one batch. An empty batch shows nothing: taken for ours, it would pass records of the source.
    """

    def __init__(
        self,
        producer_ids: Collection[int],
        *,
        fresh: bool,
        is_of_another: Callable[[BatchHeader], bool | None] = lambda _claimed: False,
    ) -> None:
        self._ids = producer_ids
        self._fresh = fresh
        self._is_of_another = is_of_another
        self._of_others = dict[tuple[int, int], bool | None]()
        self.claims: set[tuple[int, int]] = set()
        """Producer id and epoch of the markers seen."""
        self._strays: set[tuple[int, int]] = set()

    def is_copy(self, batch: BatchHeader) -> bool:
        """Return whether the batch was written under one of our claims."""
        producer = batch.producer_id, batch.producer_epoch
        if batch.is_control:
            self.claims.add(producer)
            self._strays.discard(producer)
            return False
        if self._fresh and batch.base_offset == 0:
            self._strays.add(producer)
        if producer in self._strays:
            return False
        claimed = producer in self.claims and not batch.is_transactional
        return batch.producer_id in self._ids or (claimed and self.is_of_another(batch) is False)

    def is_of_another(self, batch: BatchHeader) -> bool | None:
        """Return whether a flow from another cluster wrote the batch under its own claim."""
        claim = batch.producer_id, batch.producer_epoch
        if batch.is_transactional or batch.producer_id in self._ids or claim not in self.claims:
            return False
        if claim not in self._of_others:
            found = self._is_of_another(batch)
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
    first record. Copies of other flows, under their claims, do not count.

    ``known``: what an earlier look has found; only what follows it is read.
    ``is_of_another``: whether another flow wrote a batch that is under a claim.
    """
    log_start, log_end = await target.wire.log_range(target.partition)
    # Retention moves the start, and an unclean election may take the end.
    first, end = (min(max(at, log_start), log_end) for at in known or (log_start, log_start))
    ours = OurBatches(producer_ids, fresh=True, is_of_another=is_of_another)
    async for wanted, fetched in fetches(target, end):
        for batch in batches(fetched.records, legacy.convert):
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
    source: LogReader,
    target: LogReader,
    start: Start,
    producer_ids: Collection[int],
    is_of_another: Callable[[BatchHeader], bool | None] = lambda _claimed: False,
) -> tuple[Start, str]:
    """Begin where both logs hold the same, if one begins far after the other; also say so.

    Records of the source are passed only if the target's log was trimmed, and those of the target
    only if the source's was, or a topic had the name before: the others have to be proven.
    Copies without an equal are taken for those of a former topic only where one is known: a filter
    that has changed since looks the same.
    """
    not_met = replace(start, fresh=start.has_former), ""
    target_start, target_end = await target.wire.log_range(target.partition)
    if target_end <= 1:  # a claim precedes what is copied under it
        return not_met
    source_start, _ = await source.wire.log_range(source.partition)
    source_from = max(start.source_next, source_start)
    target_from = max(start.target_next, target_start)
    ours = OurBatches(producer_ids, fresh=start.fresh, is_of_another=is_of_another)
    first_copy: list[int] = []

    def is_copy(batch: BatchHeader) -> bool:
        found = ours.is_copy(batch)
        if found and batch.record_count and not first_copy:
            first_copy.append(batch.base_offset)
        return found

    place = await find_place(source, target, source_from, target_from, is_copy)
    if isinstance(place, NoPlace) or place == CommonRecord(source_from, target_from):
        return not_met
    passes_source, passes_target = (
        place.source_next > source_from,
        place.target_next > target_from,
    )
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
        source_lineage=UNKNOWN,
        target_lineage=UNKNOWN,
    )
    return met, (
        f"without a map: source offset {place.source_next} was found at target offset "
        f"{place.target_next}; the records before them in both logs are not in the map"
    )
