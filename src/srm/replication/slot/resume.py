"""Find, and prove, the exact position of a partition by walking both logs side by side.

The map is written once a second, so after a crash the target can hold records the map does not
know of. From the end of the last known run, each of our batches on the target must be the next
batch the source would give; the walk ends at the marker of the new claim, after which nobody else
can append (:mod:`srm.replication.slot.walk` compares).

Ours are the batches under a producer id that the map or a report names, and those behind the marker
of a claim: nobody else writes outside of transactions under a producer id that has ended one. So
they are known even when all state is lost and the brokers have forgotten the transactional id.

A claim stands before what is written under it, so a record at the very first offset of the target
is no copy of ours, whatever its producer id: it was on its way to a topic that had the name before
and was deleted (requests to produce name topics by name).

A batch on the target that is not ours is foreign: a hole in the map, reported. A batch of ours that
does not match is undecidable: the partition stops and says where. Where the target's log begins
behind the known position, the walk begins there: what is gone was not needed to find the position,
except for records at the very end, and those are missing on the target again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.map_records import BlockKey
from srm.domain.offset_map import Run, coalesce
from srm.errors import IntegrityError, UnavailableError
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.clock import now_s
from srm.replication.ports import ProducerId
from srm.replication.slot.claim import Claim
from srm.replication.slot.find_place import NoPlace, Place, find_place
from srm.replication.slot.log_reader import LogReader, OutOfRangeError
from srm.replication.slot.walk import Comparison, SourceWalk

_MARKER_DEADLINE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Start:
    """What is known before the walk: how far the copy was, and our producer ids.

    ``found`` is the part of the last run that only its former owner's report tells of;
    ``source_epoch`` is the leader epoch of the source batch before the position, -1 if not known.
    It is ``fresh`` while nothing is known of this topic id: records of ours on the target may be
    of a topic that had the name before. Without a position (``has_position``) both logs are walked
    from their starts. ``damaged`` are map blocks to write again; ``last_block`` is the one behind
    which the map goes on. After the source was ``truncated`` at ``source_next``, records of ours
    that it does not hold say nothing about those that have taken their offsets. ``target_epoch`` is
    the leader epoch of the target's batch before the position, -1 if not known, and ``written_by``
    the claim under which that batch was written (see :mod:`srm.replication.slot.target_log`).
    ``has_former`` says that records of a topic are known to have been copied that had the name
    before.
    """

    source_next: int
    target_next: int
    producer_ids: frozenset[int] = frozenset()
    found: Run | None = None
    source_epoch: int = -1
    fresh: bool = False
    has_position: bool = True
    damaged: tuple[BlockKey, ...] = ()
    last_block: BlockKey | None = None
    truncated: bool = False
    target_epoch: int = -1
    written_by: ProducerId | None = None
    has_former: bool = False


@dataclass(frozen=True, slots=True)
class Resumed:
    """The proven position, the runs found on the way, and what is strange about the logs.

    ``source_epoch`` is the leader epoch of the last batch that was found whole, -1 where there is
    none, or where less than a batch was found behind it. ``target_epoch`` is that of the marker.
    """

    source_next: int
    target_next: int
    runs: tuple[Run, ...]
    notes: tuple[str, ...]
    source_epoch: int = -1
    target_epoch: int = -1


async def _until_marker(reader: LogReader, offset: int, claim: Claim) -> AsyncIterator[BatchHeader]:
    """Yield the target's batches up to, and as the last one, the marker of the claim."""
    deadline = now_s() + _MARKER_DEADLINE_S
    while now_s() < deadline:
        try:
            fetched, owner = await reader.fetch(offset)
        except OutOfRangeError as error:
            if error.log_start <= offset:
                # It was cut off after it had been compared with the position: compare again.
                raise UnavailableError(f"{error}: asked again") from error
            offset = error.log_start
            continue
        for batch in batches(fetched.records):
            if batch.last_offset < offset:
                continue
            yield batch
            if _is_marker(batch, claim):
                return
            offset = batch.last_offset + 1
            deadline = now_s() + _MARKER_DEADLINE_S
        del owner
    raise UnavailableError(
        f"{reader.partition}: the marker of our claim did not reach the log in "
        f"{_MARKER_DEADLINE_S:.0f} s"
    )


def _is_marker(batch: BatchHeader, claim: Claim) -> bool:
    return (
        batch.is_control
        and batch.producer_id == claim.producer.id
        and batch.producer_epoch == claim.producer.epoch
    )


class _OurBatches:
    """Knows copies among the batches of the target, which it is shown in their order."""

    def __init__(self, producer_ids: Collection[int]) -> None:
        self._ids = producer_ids
        self._claims: set[tuple[int, int]] = set()
        self._strays: set[tuple[int, int]] = set()

    def is_copy(self, batch: BatchHeader) -> bool:
        """Whether the batch was written under a claim of ours."""
        producer = batch.producer_id, batch.producer_epoch
        if batch.is_control:
            self._claims.add(producer)
            self._strays.discard(producer)
            return False
        if batch.base_offset == 0:
            self._strays.add(producer)
        if producer in self._strays:
            return False
        claimed = producer in self._claims and not batch.is_transactional
        return claimed or batch.producer_id in self._ids


async def _where_logs_meet(
    source: LogReader, target: LogReader, start: Start, claim: Claim, *, accepts_loss: bool
) -> tuple[Start, str]:
    """Begin where both logs hold the same, if one begins far after the other; also say so.

    Records of the source are passed only if the target's log was trimmed, and those of the target
    only if the source's was, or a topic had the name before: the others have to be proven.

    Raises:
        IntegrityError: the logs were trimmed, and hold nothing but what comes again and again.
    """
    source_start, _ = await source.wire.log_range(source.partition)
    target_start, _ = await target.wire.log_range(target.partition)
    source_from = max(start.source_next, source_start)
    target_from = max(start.target_next, target_start)
    ours = _OurBatches(start.producer_ids | {claim.producer.id})
    place = await find_place(source, target, source_from, target_from, ours.is_copy)
    if place is NoPlace.UNCLEAR:
        if (source_start or target_start) and not accepts_loss:
            raise IntegrityError(
                f"{target.partition}: without a map it cannot be told where the logs meet: "
                f"{place.value}: position undecidable, compare with 'srm verify'; "
                "data.loss.policy=continue copies on"
            )
        return replace(start, fresh=start.has_former), ""
    if isinstance(place, NoPlace) or place == Place(source_from, target_from):
        return start, ""
    passes_source, passes_target = (
        place.source_next > source_from,
        place.target_next > target_from,
    )
    if passes_source and not target_start:
        return replace(start, fresh=start.has_former), ""
    if passes_target and not (source_start or start.has_former):
        return start, ""
    met = replace(start, source_next=place.source_next, target_next=place.target_next, fresh=False)
    return met, (
        f"without a map: source offset {place.source_next} was found at target offset "
        f"{place.target_next}; what stands before them in both logs is not in the map"
    )


async def resume(
    source: LogReader,
    target: LogReader,
    start: Start,
    claim: Claim,
    comparison: Comparison,
) -> Resumed:
    """Walk both logs from ``start`` to the marker of the claim.

    Raises:
        IntegrityError: the position cannot be decided.
        UnavailableError: a broker does not answer, or the target lost its end at this moment.
    """
    known, met = start, ""
    if start.fresh or not start.has_position:
        start, met = await _where_logs_meet(
            source, target, start, claim, accepts_loss=comparison.accepts_loss
        )
    walk = SourceWalk(
        source, start.source_next, comparison, fresh=start.fresh, truncated=start.truncated
    )
    ours = _OurBatches(start.producer_ids | {claim.producer.id})
    runs: list[Run] = []
    foreign: list[tuple[int, int]] = []
    target_next, target_epoch = start.target_next, -1
    async for batch in _until_marker(target, start.target_next, claim):
        target_next, target_epoch = batch.last_offset + 1, batch.leader_epoch
        is_copy = ours.is_copy(batch)
        if batch.is_control or batch.record_count == 0:
            continue
        if is_copy:
            runs.extend(await walk.match(batch, start.target_next))
        else:
            adjoins = bool(foreign) and foreign[-1][1] == batch.base_offset
            first = foreign.pop()[0] if adjoins else batch.base_offset
            foreign.append((first, target_next))
    told = [f"foreign records at target offsets {first} to {end}" for first, end in foreign]
    told += [met] if met else []
    if known.has_position and not known.fresh:
        told += await _gone_unmapped(target, start, walk.source_next, found=bool(runs))
    return Resumed(
        walk.source_next,
        target_next,
        coalesce(runs),
        (*told, *walk.notes()),
        walk.source_epoch,
        target_epoch,
    )


async def _gone_unmapped(
    target: LogReader, start: Start, source_next: int, *, found: bool
) -> list[str]:
    """Tell what retention has taken from the target before the map could tell of it."""
    log_start, _ = await target.wire.log_range(target.partition)
    if log_start <= start.target_next:
        return []
    gone = (
        f"target offsets {start.target_next} to {log_start} were deleted there before they were "
        "in the map"
    )
    if found:
        return [f"{gone}: what stood there, from source offset {start.source_next} on, is a hole"]
    return [f"{gone}: what they held of source offsets from {source_next} on is copied again"]
