"""Find, and prove, the exact position of a partition by walking both logs side by side.

The map is written once a second, so after a crash the target can hold records the map does not
know of. From the end of the last known run, each of our batches on the target must be the next
batch the source would give; the walk ends at the marker of the new claim, after which nobody else
can append (:mod:`srm.replication.resume.walk` compares).

Ours are the batches under a producer id that the map or a report names, and those behind the marker
of a claim: nobody else writes outside of transactions under a producer id that has ended one. So
they are known even when all state is lost and the brokers have forgotten the transactional id.

A claim stands before what is written under it, so a record at the very first offset of a target of
which nothing is known is no copy of ours, whatever its producer id: it was on its way to a topic
that had the name before and was deleted (requests to produce name topics by name).

A batch on the target that is not ours is foreign: a hole in the map, reported. A batch of ours that
does not match is undecidable: the partition stops and says where. Where the target's log begins
behind the known position, the walk begins there: what is gone was not needed to find the position,
except for records at the very end, and those are missing on the target again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.replication_records import PartitionStatus
from srm.domain.offset_map.map_reach import MapTree
from srm.domain.offset_map.map_records import BlockKey
from srm.domain.offset_map.offset_map import Run
from srm.domain.verification.offset_ranges import both_ends
from srm.errors import UnavailableError
from srm.replication.batches import legacy
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.claim.claim import LAST_EPOCH, Claim
from srm.replication.clock import now_s
from srm.replication.ports import ProducerId
from srm.replication.resume.evidence import FoundRuns
from srm.replication.resume.log_reader import LogReader, OutOfRangeError
from srm.replication.resume.source_lookahead import Comparison
from srm.replication.resume.walk import ProvenPlace, SourceWalk
from srm.replication.resume.walk_start import OurBatches, begin_where_logs_meet

_MARKER_DEADLINE_S: Final = 30.0
_MOST_FOREIGN: Final = 20
_TELL_EVERY_S: Final = 1.0
_MOST_RUNS: Final = 1 << 12
"""Runs after which they are handed out before that."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is known before the walk: how far the copy was, and our producer ids.

    ``found`` is the part of the last run that only its former owner's report tells of;
    ``source_epoch`` is the leader epoch of the source batch before the position, or of one that
    the log is known to have held after it, -1 if not known. It is ``fresh`` while nothing is known
    of this topic id: records of ours on the target may be of a topic that had the name before.
    Without a position (``has_position``) both logs are walked from their starts. ``tree`` is the
    end of the map as it is on the log; with ``rewrite_index`` its index is not there. ``garbage``
    are blocks that count no more. If it is ``cut``, the map is to end at this position, whatever
    it holds. After the source was ``truncated`` at ``source_next``, records of ours that it does
    not hold say nothing about those that have taken their offsets. ``target_epoch`` is the leader
    epoch of the target's batch before the position, -1 if not known, and ``written_by`` the claim
    under which that batch was written (see :mod:`srm.replication.claim.target_log`).
    ``has_former`` says that records of a topic are known to have been copied that had the name
    before. ``left_out`` are decisions about ranges of source offsets that are not to be copied.
    ``at_rest`` is what was told last of a partition that did not go on then.
    ``copy_is_gone`` says that records were copied to another remote topic, and none to this one.
    """

    source_next: int
    target_next: int
    producer_ids: frozenset[int] = frozenset()
    found: Run | None = None
    source_epoch: int = -1
    fresh: bool = False
    has_position: bool = True
    tree: MapTree = field(default_factory=MapTree)
    garbage: tuple[BlockKey, ...] = ()
    rewrite_index: bool = False
    cut: bool = False
    truncated: bool = False
    target_epoch: int = -1
    written_by: ProducerId | None = None
    has_former: bool = False
    left_out: tuple[PartitionNotes, ...] = ()
    at_rest: PartitionStatus | None = None
    copy_is_gone: bool = False


NOWHERE: Final = Start(0, 0, fresh=True, has_position=False)
"""Where a partition starts of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The proven position, the runs found on the way, and what is strange about the logs.

    ``source_epoch`` is the leader epoch of the last batch that was found whole, -1 where there is
    none, or where less than a batch was found behind it. ``target_epoch`` is that of the marker.
    The producer id ``has_rotated`` where the claim's is another one because the epochs of the old
    one are used up: the marker does not shut out who still holds the last one.
    """

    source_next: int
    target_next: int
    runs: tuple[Run, ...]
    notes: tuple[str, ...]
    source_epoch: int = -1
    target_epoch: int = -1
    has_rotated: bool = False
    former_end: int | None = None


@dataclass(frozen=True, slots=True)
class Walked:
    """How far a walk is: at target offset ``at`` of ``end``.

    ``settled`` is the proven place before it, if there is one at the moment, with the runs found
    since the last one; ``target_epoch`` is the leader epoch of the target's batch before it.
    """

    at: int
    end: int
    settled: ProvenPlace | None
    target_epoch: int

    @property
    def text(self) -> str:
        """What the status says meanwhile."""
        return f"walking the logs: target offset {self.at} of {self.end}"


async def _until_marker(
    reader: LogReader, offset: int, claim: Claim | None, walk: SourceWalk
) -> AsyncIterator[tuple[BatchHeader, int]]:
    """Yield the target's batches up to, and as the last one, the marker of the claim.

    Without a claim up to the end that the log has now. With each comes the log's end.
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
                raise UnavailableError(f"{error}: asked again") from error
            offset = error.log_start
            walk.begin_target_at(offset)
            continue
        for batch in batches(fetched.records, legacy.convert):
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
        fresh=start.fresh,
        truncated=start.truncated,
        after_cut=start.truncated or start.cut,
    )
    if start.target_next > known[1]:
        walk.begin_target_at(start.target_next)
    return walk


def is_marker(batch: BatchHeader, claim: Claim) -> bool:
    """Whether a batch is the marker of a claim."""
    return (
        batch.is_control
        and batch.producer_id == claim.producer.id
        and batch.producer_epoch == claim.producer.epoch
    )


async def resume(
    source: LogReader,
    target: LogReader,
    start: Start,
    claim: Claim | None,
    comparison: Comparison,
    progress: Callable[[Walked], None] | None = None,
) -> Resumed:
    """Walk both logs from ``start`` to the marker of the claim.

    Args:
        source: reads the source.
        target: reads the target, uncommitted records too.
        start: what is known.
        claim: ours, taken already; None to find out only whether the position can be decided.
        comparison: how records are compared.
        progress: is told each second how far a long walk is; the runs that it gets are proven, and
            not told again in the end. They may be written down at once, with the position.

    Raises:
        IntegrityError: the position cannot be decided.
        UnavailableError: a broker does not answer, or the target lost its end at this moment.
    """
    producer_ids = start.producer_ids | ({claim.producer.id} if claim else set())
    known, met = start, ""
    if start.fresh or not start.has_position:
        start, met = await begin_where_logs_meet(source, target, start, producer_ids)
    walk = _begin_walk(source, start, comparison)
    ours = OurBatches(producer_ids, fresh=known.fresh)
    foreign: list[tuple[int, int]] = []
    found = FoundRuns()
    target_next, target_epoch = start.target_next, -1
    told_at = now_s()
    async for batch, log_end in _until_marker(target, start.target_next, claim, walk):
        target_next, target_epoch = batch.last_offset + 1, batch.leader_epoch
        if ours.is_copy(batch):
            await walk.match(batch)
        else:
            walk.pass_over(batch)
            if batch.record_count and not batch.is_control:
                _note_foreign(foreign, batch)
        if now_s() - told_at > _TELL_EVERY_S or walk.waiting_runs > _MOST_RUNS:
            told_at = now_s()
            settled = walk.settle()
            if settled is not None and (progress is None or _has_rotated(claim, known, ours)):
                # Under the new id nobody would know any more that the old one has to lapse.
                found.extend(settled.runs)
                settled = None
            if progress is not None:
                progress(Walked(target_next, log_end, settled, target_epoch))
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
        place.epoch if not place.copies else -1,
        target_epoch,
        _has_rotated(claim, known, ours),
        place.former.last + 1 if place.former.count and known.has_former else None,
    )


def _note_foreign(foreign: list[tuple[int, int]], batch: BatchHeader) -> None:
    """Add a batch to the ranges that are told; of many the first ones and the last one."""
    first = batch.base_offset
    if foreign and foreign[-1][1] == first:
        first = foreign.pop()[0]
    elif len(foreign) > _MOST_FOREIGN:
        del foreign[-1]
    foreign.append((first, batch.last_offset + 1))


def _has_rotated(claim: Claim | None, known: Start, ours: OurBatches) -> bool:
    """Whether the claim has another producer id because the last epoch of the old one was used."""
    if claim is None:
        return False
    claims = set(ours.claims)
    if known.written_by is not None:
        claims.add((known.written_by.id, known.written_by.epoch))
    return any(
        producer_id != claim.producer.id and epoch >= LAST_EPOCH for producer_id, epoch in claims
    )


async def _gone_unmapped(
    target: LogReader, start: Start, source_next: int, *, found: bool
) -> list[str]:
    """Tell what retention has taken from the target before the map could tell of it."""
    log_start, _ = await target.wire.log_range(target.partition)
    if log_start <= start.target_next:
        return []
    gone = (
        f"target offsets {both_ends(start.target_next, log_start)} were deleted there before they "
        "were in the map"
    )
    if found:
        return [f"{gone}: what stood there, from source offset {start.source_next} on, is a hole"]
    return [f"{gone}: what they held of source offsets from {source_next} on is copied again"]
