"""Where each partition starts: from the records of the state topics to a known position. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from srm.domain.map_records import BlockKey, MapBlock, last_block, missing_before
from srm.domain.offset_map import OffsetMap, Run, coalesce
from srm.domain.replication_records import (
    AssignedPartition,
    CopyId,
    PartitionPosition,
    SlotReport,
)
from srm.domain.reported_positions import newest_position, positions_by_copy
from srm.replication.ports import ProducerId
from srm.replication.slot.resume import Start


def starts(
    partitions: Sequence[AssignedPartition],
    blocks: Sequence[MapBlock],
    reports: Sequence[SlotReport],
    damaged: Sequence[BlockKey] = (),
) -> dict[AssignedPartition, Start]:
    """Find the furthest known position of each partition, and the producer ids that wrote it.

    A position is only ever reported after the runs before it, so both a run's end and a position
    are safe places to start from; the one further along the target wins. Where the runs are lost,
    resume has to begin before them and find them again: at the first block that is ``damaged`` or
    missing, or at the logs' starts where there is a position behind records but no block at all. A
    topic that was created anew (another id) goes on behind what its former self left on the target.
    """
    reported = positions_by_copy(reports)
    written_to: dict[tuple[str, int, str], list[MapBlock]] = defaultdict(list)
    for block in blocks:
        written_to[block.topic, block.partition, block.target_topic_id].append(block)
    broken: dict[tuple[str, int], list[BlockKey]] = defaultdict(list)
    for key in damaged:
        broken[key.topic_id, key.partition].append(key)
    found = {
        wanted: _start(
            wanted,
            written_to[wanted.topic, wanted.partition, wanted.target_topic_id],
            reported,
            tuple(broken[wanted.topic_id, wanted.partition]),
        )
        for wanted in partitions
    }
    return {wanted: start for wanted, start in found.items() if start is not None}


def _start(
    wanted: AssignedPartition,
    same_target: Sequence[MapBlock],
    reported: Mapping[CopyId, Sequence[PartitionPosition]],
    damaged: tuple[BlockKey, ...],
) -> Start | None:
    behind = _behind_former(wanted, same_target, reported)
    reports = reported.get(wanted.copy_id, ())
    producer_ids = frozenset(pid for b in same_target for pid in b.producer_ids)
    producer_ids |= {report.producer_id for report in reports if report.producer_id >= 0}
    current = [b for b in same_target if b.topic_id == wanted.topic_id]
    newest = newest_position(reports)
    missing = missing_before(last_block(current), current) if current else None
    if damaged or missing:
        lost = (*damaged, *((missing,) if missing else ()))
        current = _before(min(key.target_start for key in lost), current)
        newest = None
    elif newest is not None and not current and newest.position.target_next > (behind or 0):
        newest = None
    places = []
    if newest is not None:
        at = newest.position
        places.append((at.target_next, at.source_next, newest.source_leader_epoch))
    found_run = last = None
    if current:
        last = last_block(current)
        written = coalesce(run for b in current for run in b.runs)
        position = newest.position if newest else None
        runs = OffsetMap.of(written, position, open_end=last.open_end).runs
        places.extend((run.target_end, run.source_end, _epoch(run, last)) for run in runs[-1:])
        found_run = _beyond(written[-1], runs[-1]) if runs else None
    if places:
        target_next, source_next, epoch = max(places)
        # Until a record of this topic id is known to be copied, those of a former one may follow.
        fresh = not current
        told = newest if newest and newest.position.target_next == target_next else None
        return Start(
            source_next,
            target_next,
            producer_ids,
            found_run,
            epoch,
            fresh,
            damaged=damaged,
            last_block=last.block_key if last else None,
            target_epoch=told.target_leader_epoch if told else -1,
            written_by=_claim(told),
            has_former=behind is not None,
        )
    if behind is not None:
        return Start(0, behind, producer_ids, fresh=True, damaged=damaged, has_former=True)
    if producer_ids or damaged:
        return Start(0, 0, producer_ids, fresh=True, has_position=False, damaged=damaged)
    return None


def _before(target_offset: int, blocks: Sequence[MapBlock]) -> list[MapBlock]:
    """Return the blocks that begin before an offset and miss nothing that comes before them."""
    following: dict[BlockKey | None, list[MapBlock]] = defaultdict(list)
    for block in blocks:
        if block.runs[0].target_start < target_offset:
            following[block.previous].append(block)
    whole = following[None]  # grows while it is gone through, from the beginnings of chains on
    for block in whole:
        whole += following.pop(block.block_key, ())
    return whole


def _behind_former(
    wanted: AssignedPartition,
    same_target: Sequence[MapBlock],
    reported: Mapping[CopyId, Sequence[PartitionPosition]],
) -> int | None:
    """Return where records of topics end that had the name before, None where there are none."""
    ends = [
        _end(
            [b for b in same_target if b.topic_id == former],
            newest_position(reported.get((former, wanted.partition, wanted.target_topic_id), ())),
        )
        for former in {b.topic_id for b in same_target} - {wanted.topic_id}
    ]
    return max(ends, default=None)


def _end(blocks: Sequence[MapBlock], newest: PartitionPosition | None) -> int:
    """Return the target offset after the last copied record that is known of one topic id."""
    last = last_block(blocks)
    position = newest.position if newest else None
    runs = OffsetMap.of(last.runs, position, open_end=last.open_end).runs
    return max((run.target_end for run in runs), default=0)


def _claim(told: PartitionPosition | None) -> ProducerId | None:
    """Return the claim under which the batch before a position was written, if it is known."""
    if told is None or told.producer_id < 0:
        return None
    return ProducerId(told.producer_id, told.producer_epoch)


def _epoch(run: Run, last: MapBlock) -> int:
    """Return the source's leader epoch at the end of the map's last run, if a block says it."""
    return last.source_epoch if run.target_end == last.runs[-1].target_end else -1


def _beyond(written: Run, extended: Run) -> Run | None:
    """Return what a report adds to the last written run; its own key in the map, if anything."""
    count = extended.count - written.count
    return Run(written.source_end, written.target_end, count) if count > 0 else None
