"""Find, and prove, the exact position of a partition by walking both logs side by side.

The map is written once a second, so after a crash the target can hold records that are not in it.
From the end of the last known run, each of our batches on the target must be the next batch of the
source. The walk ends at the marker of the new claim, after which no other producer can append
(:mod:`srm.replication.resume.walk` compares).

Our batches are those under a producer id in the map or a report, and those after the marker of a
claim: a producer id that has ended a transaction writes outside of transactions only here. So they
are recognised even without any state, and after the brokers forgot the transactional id.

A claim precedes what is written under it. So a record at the first offset of an unknown target is
not our copy, whatever its producer id. It was in flight to a deleted topic of the same name, as
produce requests identify topics by name.

A batch on the target that is not ours is foreign: a hole in the map, reported unless others may
write there: producers and flows from other clusters under one name. A batch of ours that
does not match is undecidable: the partition stops and reports the place. A target log that begins
after the known position is walked from its start: the deleted part was not needed to find the
position. Only records at the very end are missing on the target again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from srm.clock import now_s
from srm.domain.offset_map.offset_map import Run
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage, both_ends
from srm.errors import UnavailableError
from srm.replication.batches.batch import BatchHeader, batches, convert
from srm.replication.claim import LAST_EPOCH, Claim, is_marker
from srm.replication.log_reader import LogReader, OutOfRangeError
from srm.replication.mapping.starts import Start
from srm.replication.resume.evidence import FoundRuns
from srm.replication.resume.find_place import OurBatches, begin_where_logs_meet
from srm.replication.resume.source_lookahead import Comparison
from srm.replication.resume.walk import ProvenPlace, SourceWalk

_MARKER_DEADLINE_S: Final = 30.0
_MOST_FOREIGN: Final = 20
_TELL_EVERY_S: Final = 1.0
_MOST_RUNS: Final = 1 << 12
"""Runs after which they are handed out before that."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The proven position, the runs found on the way, and anomalies of the logs.

    ``source_lineage``: of the source before the position; ``target_lineage``: up to the marker.
    ``has_rotated``: the claim has a new producer id, whose marker does not fence the last holder.
    """

    source_next: int
    target_next: int
    runs: tuple[Run, ...]
    notes: tuple[str, ...]
    source_lineage: Lineage = UNKNOWN_LINEAGE
    target_lineage: Lineage = UNKNOWN_LINEAGE
    has_rotated: bool = False
    former_end: int | None = None


@dataclass(frozen=True, slots=True)
class Walked:
    """Progress of a walk: at target offset ``at`` of ``end``.

    ``settled``: the proven place before it, None for now none, with the runs since the last one.
    """

    at: int
    end: int
    settled: ProvenPlace | None
    target_lineage: Lineage

    @property
    def text(self) -> str:
        """Text of the status during the walk."""
        return f"walking the logs: target offset {self.at} of {self.end}"


async def _until_marker(
    reader: LogReader, offset: int, claim: Claim | None, walk: SourceWalk
) -> AsyncIterator[tuple[BatchHeader, int]]:
    """Yield the target's batches and the log's end, up to and with the marker of the claim.

    Without a claim up to the end that the log has now.
    """
    log_end = offset
    if claim is None:
        _, log_end = await reader.wire.log_range(reader.partition)
        if log_end <= offset:
            return
    deadline = now_s() + _MARKER_DEADLINE_S
    while now_s() < deadline:
        try:
            fetched = await reader.fetch(offset)
        except OutOfRangeError as error:
            if error.log_start <= offset:
                # It was cut off after it had been compared with the position: compare again.
                raise UnavailableError(f"{error}: retrying") from error
            offset = error.log_start
            walk.begin_target_at(offset)
            continue
        for batch in batches(fetched.records, convert):
            if batch.last_offset < offset:
                continue
            yield batch, fetched.high_watermark
            offset = batch.last_offset + 1
            if offset >= log_end if claim is None else is_marker(batch, claim):
                return
            deadline = now_s() + _MARKER_DEADLINE_S
    raise UnavailableError(
        f"{reader.partition}: the marker of our claim did not reach the log in "
        f"{_MARKER_DEADLINE_S:.0f} s"
    )


def _begin_walk(source: LogReader, start: Start, comparison: Comparison) -> SourceWalk:
    """Begin at the known position; without one, at the beginning of the target."""
    known = (start.source_next, start.target_next) if start.has_position else (0, 0)
    walk = SourceWalk(
        source,
        known,
        comparison,
        start.source_lineage if start.has_position else UNKNOWN_LINEAGE,
        start.target_lineage if start.has_position else UNKNOWN_LINEAGE,
        fresh=start.fresh,
        truncated=start.truncated,
        cut=start.cut,
    )
    if start.target_next > known[1]:
        walk.begin_target_at(start.target_next)
    return walk


async def resume(
    source: LogReader,
    target: LogReader,
    start: Start,
    claim: Claim | None,
    comparison: Comparison,
    progress: Callable[[Walked], None] | None = None,
) -> Resumed:
    """Walk both logs from ``start`` to the marker of the claim; IntegrityError: undecidable.

    Without a claim it only finds out whether the position can be decided. ``progress`` gets that of
    a long walk each second, with proven runs that are not returned again. They may be written at
    once, with the position.
    """
    producer_ids = start.producer_ids | ({claim.producer.id} if claim else set())
    known, met = start, ""
    if start.fresh or not start.has_position:
        start, met = await begin_where_logs_meet(
            source, target, start, producer_ids, comparison.is_of_another
        )
    walk = _begin_walk(source, start, comparison)
    ours = OurBatches(producer_ids, fresh=known.fresh, is_of_another=comparison.is_of_another)
    foreign: list[tuple[int, int]] = []
    found = FoundRuns()
    target_next = start.target_next
    told_at = now_s()
    async for batch, log_end in _until_marker(target, start.target_next, claim, walk):
        walk.meet(batch, target_next)
        target_next = batch.last_offset + 1
        if ours.is_copy(batch):
            await walk.match(batch)
        else:
            walk.pass_over(batch)
            if batch.record_count and not (batch.is_control or comparison.is_shared):
                _note_foreign(foreign, batch)
        if now_s() - told_at > _TELL_EVERY_S or walk.waiting_runs > _MOST_RUNS:
            told_at = now_s()
            settled = walk.settle()
            if settled is not None and (progress is None or _has_rotated(claim, known, ours)):
                # Under the new id no owner would know that the old one has to lapse.
                found.extend(settled.runs)
                settled = None
            if progress is not None:
                progress(Walked(target_next, log_end, settled, walk.target_lineage))
    told = [
        f"{'foreign records' if at < _MOST_FOREIGN else 'more of them, last'} "
        f"at target offsets {both_ends(first, end)}"
        for at, (first, end) in enumerate(foreign)
    ]
    place = await walk.decide()
    found.extend(place.runs.take())
    told += [met] if met else []
    if known.has_position and not known.fresh:
        told += await _gone_unmapped(target, start, place.source_next, found=place.found > 0)
    return Resumed(
        place.source_next if start.has_position else max(place.source_next, start.source_next),
        target_next,
        tuple(found.take()),
        (*told, *walk.notes(place)),
        walk.source_lineage(place.source_next),
        walk.target_lineage,
        _has_rotated(claim, known, ours),
        place.former.last + 1 if place.former.count and known.has_former else None,
    )


def _note_foreign(foreign: list[tuple[int, int]], batch: BatchHeader) -> None:
    """Add a batch to the reported ranges; of many keep the first ones and the last one."""
    first = batch.base_offset
    if foreign and foreign[-1][1] == first:
        first = foreign.pop()[0]
    elif len(foreign) > _MOST_FOREIGN:
        del foreign[-1]
    foreign.append((first, batch.last_offset + 1))


def _has_rotated(claim: Claim | None, known: Start, ours: OurBatches) -> bool:
    """Return whether the claim has a new producer id because the old one's epochs are used up."""
    if claim is None:
        return False
    claims = ours.own_claims
    if known.written_by is not None:
        claims.add((known.written_by.id, known.written_by.epoch))
    return any(
        producer_id != claim.producer.id and epoch >= LAST_EPOCH for producer_id, epoch in claims
    )


async def _gone_unmapped(
    target: LogReader, start: Start, source_next: int, *, found: bool
) -> list[str]:
    """Describe the unmapped records that retention has deleted on the target."""
    log_start, _ = await target.wire.log_range(target.partition)
    if log_start <= start.target_next:
        return []
    gone = (
        f"target offsets {both_ends(start.target_next, log_start)} were deleted there before they "
        "were in the map"
    )
    if found:
        return [f"{gone}: its records, from source offset {start.source_next} on, are a hole"]
    return [f"{gone}: what they held of source offsets from {source_next} on is copied again"]
