"""Start position of each partition, from the records of the state topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from srm.domain.flow_state.anomalies import PartitionNotes, in_force
from srm.domain.flow_state.replication_records import PartitionPosition, PartitionStatus
from srm.domain.flow_state.reported_positions import newest_position
from srm.domain.offset_map.lineage import UNKNOWN, Lineage
from srm.domain.offset_map.map_reach import NO_BLOCKS, MapTree
from srm.domain.offset_map.map_rebuild import RebuiltMap
from srm.domain.offset_map.map_records import BlockKey, MapBlock
from srm.domain.offset_map.offset_map import OffsetMap, Run, Translated, Translation
from srm.errors import IntegrityError
from srm.replication.mapping.known_maps import KnownMap
from srm.replication.ports import ProducerId


@dataclass(frozen=True, slots=True)
class Start:
    """Knowledge before the walk: the position of the copy, and our producer ids.

    ``found``: the part of the last run that only its former owner's report has.
    ``fresh``: nothing is known of this topic id: records of ours on the target may belong to a
        former topic of the name.
    ``has_position``: without it both logs are walked from their starts.
    ``tree``: the stored end of the map; with ``rewrite_index`` its index is missing.
    ``cut``: the map has to end at this position, whatever it holds.
    ``truncated``: the source was truncated at ``source_next``: our records that it lacks say
        nothing about their successors.
    ``written_by``: claim of the target's batch before the position (see
        :mod:`srm.replication.claim.target_log`).
    ``has_former``: records of a former topic of the name were copied.
    ``left_out``: decisions about ranges of source offsets that are not copied.
    ``at_rest``: last reported state of a partition that was stopped.
    ``copy_is_gone``: records were copied to another remote topic, and none to this one.
    """

    source_next: int
    target_next: int
    producer_ids: frozenset[int] = frozenset()
    found: Run | None = None
    source_lineage: Lineage = UNKNOWN
    fresh: bool = False
    has_position: bool = True
    tree: MapTree = field(default_factory=MapTree)
    garbage: tuple[BlockKey, ...] = ()
    rewrite_index: bool = False
    cut: bool = False
    truncated: bool = False
    target_lineage: Lineage = UNKNOWN
    written_by: ProducerId | None = None
    has_former: bool = False
    left_out: tuple[PartitionNotes, ...] = ()
    at_rest: PartitionStatus | None = None
    copy_is_gone: bool = False

    def cut_at(self, source_next: int) -> Start:
        """Return the start after the source was truncated at an offset before it."""
        lineage = self.source_lineage.before(source_next)
        return replace(
            self, source_next=source_next, source_lineage=lineage, cut=True, truncated=True
        )


NOWHERE: Final = Start(0, 0, fresh=True, has_position=False)
"""Start of a partition without any known state."""


def start_of(
    known: KnownMap,
    reports: Sequence[PartitionPosition],
    former_reports: Sequence[PartitionPosition] = (),
) -> Start | None:
    """Find the furthest known position of a partition, and the producer ids that wrote it.

    A position is only ever reported after the runs before it, so both a run's end and a position
    are safe starts; the one further along the target wins. Where runs are lost, resume begins
    before them and finds them again: at the first damaged or missing block, or at the logs' starts
    if there is a position after records but no block. A re-created topic (another id) continues
    after what its former self left on the target; ``former_reports`` are of such. Without any
    knowledge the start is None.
    """
    found = known.found
    if isinstance(found, IntegrityError):
        raise found
    former = newest_position(former_reports)
    behind = max(
        (end for end in (known.former_end, former and former.position.target_next) if end),
        default=None,
    )
    producer_ids = _producer_ids(known, found, (*reports, *former_reports))
    newest = newest_position(reports)
    last = found.tree.last
    if newest is not None and not _rests_on_map(newest, found, behind or 0):
        newest = None
    places = []
    if newest is not None:
        at = newest.position
        places.append((at.target_next, at.source_next, newest.source_lineage))
    grown = None
    if last is not None:
        written = OffsetMap.of(last.runs).runs
        position = newest.position if newest else None
        runs = OffsetMap.of(last.runs, position, open_end=last.open_end).runs
        if len(runs):
            end = runs[-1]
            is_written = end == written[-1]
            lineage = last.source_lineage if is_written or newest is None else newest.source_lineage
            places.append((end.target_end, end.source_end, lineage.before(end.source_end)))
            grown = None if is_written else _beyond(written[-1], end)
    # Until a record of this topic id is known to be copied, those of a former one may follow.
    fresh = last is None
    if places:
        target_next, source_next, lineage = max(places, key=lambda place: place[:2])
        told = newest if newest and newest.position.target_next == target_next else None
        return Start(
            source_next,
            target_next,
            producer_ids,
            grown,
            lineage,
            fresh,
            tree=found.tree,
            garbage=found.garbage,
            rewrite_index=found.rewrite,
            target_lineage=newest.target_lineage if newest else UNKNOWN,
            written_by=_claim(told) if told or last is None else _owner(last),
            has_former=behind is not None,
        )
    if behind is not None:
        return Start(0, behind, producer_ids, fresh=True, garbage=found.garbage, has_former=True)
    if producer_ids or found.garbage:
        return Start(0, 0, producer_ids, fresh=True, has_position=False, garbage=found.garbage)
    return None


def cut_start(start: Start, source_next: Translation, target_end: int) -> Start:
    """Return the start at ``source_next``, if the target holds nothing from that offset on."""
    if start.target_next <= target_end:
        return start
    if not isinstance(source_next, Translated):
        last = start.tree.last
        garbage = (*start.garbage, *((last.block_key,) if last else ()))
        return Start(
            0,
            0,
            start.producer_ids,
            has_position=False,
            garbage=garbage,
            left_out=start.left_out,
        )
    held = source_next.offset
    held = min(held, start.source_next) if start.truncated else held
    return replace(
        start,
        source_next=held,
        target_next=target_end,
        source_lineage=start.source_lineage.before(held),
        found=_held_of(start.found, target_end),
        target_lineage=start.target_lineage.before(target_end),
        written_by=None,
        cut=True,
    )


def decided_start(start: Start | None, notes: Iterable[PartitionNotes]) -> Start | None:
    """Return the start of a partition after decisions about it, None if nothing is known.

    One about lost source records holds for its own position alone: a reported cut makes another.
    """
    decided = in_force(notes)
    left_out = (note for note in decided if note.left_out is not None)
    if in_order := tuple(sorted(left_out, key=lambda note: note.left_out or (0, 0))):
        start = replace(start or NOWHERE, left_out=in_order)
    for note in decided:
        if start is None or note.decision != "cut" or note.lost_from is None:
            continue
        if start.has_position and (start.source_next, start.target_next) == (
            note.lost_to,
            note.target_next,
        ):
            start = start.cut_at(note.lost_from)
    return start


def _rests_on_map(newest: PartitionPosition, found: RebuiltMap, behind: int) -> bool:
    """Return whether the found map contains every run before a position."""
    if found.missing is not None:
        return False
    if found.tree.last is not None or newest.map_end == NO_BLOCKS:
        return True
    return newest.position.target_next <= behind


def _producer_ids(
    known: KnownMap, found: RebuiltMap, reports: Sequence[PartitionPosition]
) -> frozenset[int]:
    ids = set(known.former_ids | found.producer_ids)
    ids.update(report.producer_id for report in reports if report.producer_id >= 0)
    if found.tree.last is not None:
        ids.update(found.tree.last.producer_ids)
    return frozenset(ids)


def _claim(told: PartitionPosition | None) -> ProducerId | None:
    """Return the claim under which the batch before a position was written, if it is known."""
    if told is None or told.producer_id < 0:
        return None
    return ProducerId(told.producer_id, told.producer_epoch)


def _owner(last: MapBlock) -> ProducerId | None:
    """Return the claim under which a map's last block was written, if it was one."""
    producer_id, epoch = last.owner
    return ProducerId(producer_id, epoch) if producer_id >= 0 else None


def _held_of(found: Run | None, target_end: int) -> Run | None:
    """Return the part before a target offset of a run that only a report has."""
    if found is None or found.target_start >= target_end:
        return None
    return replace(found, count=min(found.count, target_end - found.target_start))


def _beyond(written: Run, extended: Run) -> Run:
    """Return what a report adds to the last written run."""
    return Run(written.source_end, written.target_end, extended.count - written.count)
