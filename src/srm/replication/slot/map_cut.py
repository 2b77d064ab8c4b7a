"""The offset map of a target that lost the end of its log, cut at what it still holds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from srm.domain.map_records import BlockKey, MapBlock, last_block
from srm.domain.offset_map import OffsetMap, Run, Translated
from srm.domain.replication_records import AssignedPartition, PartitionPosition, SlotReport
from srm.domain.reported_positions import newest_position, positions_by_copy


@dataclass(frozen=True, slots=True)
class CutState:
    """State records as they would be had the copy never passed the cut.

    ``changed`` are the blocks to write again, ``removed`` those to delete.
    """

    blocks: tuple[MapBlock, ...]
    reports: tuple[SlotReport, ...]
    changed: tuple[MapBlock, ...]
    removed: tuple[BlockKey, ...]


def cut_state(
    assigned: AssignedPartition,
    blocks: Sequence[MapBlock],
    reports: Sequence[SlotReport],
    target_end: int,
) -> CutState:
    """Cut what is known of one copy at a target offset.

    What stood behind it is copied again, so no run may speak of it and no position may pass it.

    Raises:
        IntegrityError: blocks contradict each other.
    """
    own = [
        block
        for block in blocks
        if (block.topic_id, block.partition, block.target_topic_id) == assigned.copy_id
    ]
    cut = {block.block_key: _cut_block(block, target_end) for block in own}
    left = tuple(block for block in cut.values() if block is not None)
    newest = newest_position(positions_by_copy(reports).get(assigned.copy_id, ()))
    kept = _cut_position(own, left, newest, target_end)
    return CutState(
        left,
        tuple(_with_position(report, assigned, kept) for report in reports),
        tuple(block for block in left if block not in own),
        tuple(key for key, block in cut.items() if block is None),
    )


def _cut_block(block: MapBlock, target_end: int) -> MapBlock | None:
    runs = tuple(
        replace(run, count=min(run.count, target_end - run.target_start))
        for run in block.runs
        if run.target_start < target_end
    )
    if runs == block.runs:
        return block
    return replace(block, runs=runs, open_end=False, source_epoch=-1) if runs else None


def _cut_position(
    own: Sequence[MapBlock],
    left: Sequence[MapBlock],
    newest: PartitionPosition | None,
    target_end: int,
) -> PartitionPosition | None:
    """Return the position at the cut; None where no run before it is left."""
    if newest is None or newest.position.target_next <= target_end:
        return newest
    if not left:
        return None
    runs: list[Run] = [run for block in own for run in block.runs]
    known = OffsetMap.of(runs, newest.position, open_end=last_block(own).open_end)
    source_next = known.backward(target_end)
    if not isinstance(source_next, Translated):
        return None
    position = replace(newest.position, source_next=source_next.offset, target_next=target_end)
    return replace(
        newest, position=position, source_leader_epoch=-1, target_leader_epoch=-1, tail=()
    )


def _with_position(
    report: SlotReport, assigned: AssignedPartition, kept: PartitionPosition | None
) -> SlotReport:
    others = tuple(e for e in report.positions if e.copy_id != assigned.copy_id)
    return replace(report, positions=(*others, *((kept,) if kept else ())))
