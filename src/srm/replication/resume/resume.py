"""Find, and prove, the exact position of a partition by walking both logs side by side.

The map is written once a second, so after a crash the target can hold records that are not in it.
From the end of the last known run, each of our batches on the target must be the next batch of the
source. The walk ends at the marker of the new claim, after which no other producer can append.

Our batches are those under a producer id in the map or a report, and those after the marker of a
claim: so they are recognised even without any state. A record at the first offset of an unknown
target was in flight to a deleted topic of the same name, unless a first claim begins with it. A
batch that is not ours is a hole in the map; one of ours that does not match is undecidable: the
partition stops and reports the place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from srm.clock import now_s
from srm.domain.offset_map.runs import both_ends
from srm.errors import UnavailableError
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.claim import LAST_EPOCH, Claim, is_marker
from srm.replication.log_reader import LogReader, OutOfRangeError
from srm.replication.mapping.starts import Start
from srm.replication.resume.evidence import FoundRuns
from srm.replication.resume.find_place import OurBatches, begin_where_logs_meet
from srm.replication.resume.source_lookahead import Comparison
from srm.replication.resume.walk import ProvenPlace, SourceWalk

_MARKER_DEADLINE_S: Final = 30.0
_MOST_FOREIGN: Final = 20
_REPORT_EVERY_S: Final = 1.0
_MOST_RUNS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Resumed(ProvenPlace):
    """The proven position up to the marker, with the runs found on the way, and anomalies.

    ``has_rotated``: the claim has a new producer id, whose marker does not fence the last holder.
    """

    notes: tuple[str, ...] = ()
    has_rotated: bool = False
    former_end: int | None = None


@dataclass(frozen=True, slots=True)
class Walked:
    """Progress of a walk: target offset ``at`` of ``end``; ``settled``: a proven place before."""

    at: int
    end: int
    settled: ProvenPlace | None

    @property
    def text(self) -> str:
        return f"walking the logs: target offset {self.at} of {self.end}"


async def _until_marker(
    reader: LogReader, offset: int, claim: Claim | None, walk: SourceWalk
) -> AsyncIterator[tuple[BatchHeader, int]]:
    """Yield the target's batches and the log's end, up to and with the marker of the claim."""
    log_end = offset
    if claim is None:
        _, log_end = await reader.wire.log_range(reader.partition)
    deadline = now_s() + _MARKER_DEADLINE_S
    while claim is not None or offset < log_end:
        if now_s() >= deadline:
            raise UnavailableError(
                f"{reader.partition}: the marker of our claim did not reach the log in "
                f"{_MARKER_DEADLINE_S:.0f} s"
            )
        try:
            fetched = await reader.fetch(offset)
        except OutOfRangeError as error:
            if error.log_start <= offset:
                # It was cut off after it had been compared with the position: compare again.
                raise UnavailableError(f"{error}: retrying") from error
            offset = error.log_start
            walk.begin_target_at(offset)
            continue
        for batch in batches(fetched.records):
            if batch.last_offset < offset:
                continue
            yield batch, fetched.high_watermark
            offset = batch.last_offset + 1
            if offset >= log_end if claim is None else is_marker(batch, claim):
                return
            deadline = now_s() + _MARKER_DEADLINE_S


async def resume(
    source: LogReader,
    target: LogReader,
    start: Start,
    claim: Claim | None,
    comparison: Comparison,
    progress: Callable[[Walked], None] | None = None,
) -> Resumed:
    """Walk both logs from ``start`` to the marker of the claim; IntegrityError: undecidable.

    Without a marker it ends with the log, without a claim it only finds out whether the position
    can be decided. ``progress`` gets that of a long walk each second, with proven runs that may be
    written at once and are not returned again.
    """
    producer_ids = start.producer_ids | ({claim.producer.id} if claim else set())
    known, met = start, ""
    our_batches = partial(
        OurBatches,
        producer_ids,
        fresh=known.fresh,
        of_another=comparison.is_of_another,
        may_begin=not known.copy_is_gone,
    )
    if start.fresh or not start.has_position:
        start, met = await begin_where_logs_meet(source, target, start, our_batches())
    walk = SourceWalk(source, start, comparison)
    ours = our_batches()
    marked = None if claim is None or claim.begins else claim
    foreign: list[tuple[int, int]] = []
    found = FoundRuns()
    target_next = start.target_next
    reported_at = now_s()
    async for batch, log_end in _until_marker(target, start.target_next, marked, walk):
        walk.meet(batch, target_next)
        target_next = batch.last_offset + 1
        if ours.is_copy(batch):
            await walk.match(batch)
        else:
            walk.pass_over(batch)
            if batch.record_count and not (batch.is_control or comparison.is_shared):
                _note_foreign(foreign, batch)
        if now_s() - reported_at > _REPORT_EVERY_S or walk.waiting_runs > _MOST_RUNS:
            reported_at = now_s()
            settled = walk.settle()
            if settled is not None and (progress is None or _has_rotated(claim, known, ours)):
                # Under the new id no owner would know that the old one has to lapse.
                found.extend(settled.runs)
                settled = None
            if progress is not None:
                progress(Walked(target_next, log_end, settled))
    notes = [
        f"{'foreign records' if at < _MOST_FOREIGN else 'more of them, last'} "
        f"at target offsets {both_ends(first, end)}"
        for at, (first, end) in enumerate(foreign)
    ]
    place = await walk.decide()
    found.extend(place.runs.take())
    notes += [met] if met else []
    if known.has_position and not known.fresh:
        notes += await _gone_unmapped(target, start, place.source_next, found=place.found > 0)
    source_next, source_lineage = place.source_next, walk.source_lineage(place.source_next)
    if not start.has_position and source_next < start.source_next:  # nothing to copy before it
        source_next, source_lineage = start.source_next, start.source_lineage
    return Resumed(
        source_next,
        target_next,
        tuple(found.take()),
        source_lineage,
        walk.target_lineage,
        (*notes, *walk.notes(place)),
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
