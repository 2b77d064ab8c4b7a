"""Where a group continues when its source is gone: at its last checkpoint, pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from srm.domain.move.positions import PartitionMove
from srm.domain.topics import TopicPartition
from srm.domain.translation import UNKNOWN_LOG, Direction, Log


@dataclass(frozen=True, slots=True)
class GroupCheckpoint:
    """What the target knows of one group in one partition.

    ``upstream`` and ``downstream`` are the partition on the source and on the target, the offsets
    where the group stood on each, next to read; that on the source is not always known. ``log`` is
    that of the target, None where the topic does not exist there. ``target_committed`` is the
    group's offset there now, ``target_is_ours`` whether srm itself has written it.
    """

    upstream: TopicPartition
    downstream: TopicPartition
    direction: Direction
    upstream_offset: int | None
    downstream_offset: int
    log: Log | None
    target_committed: int | None
    target_is_ours: bool


def resume_at(known: GroupCheckpoint) -> PartitionMove:
    """Decide where the group continues in this partition.

    ``lag`` of the result are the offsets that it finds from there on: of those it may have read any
    number on the source.
    """
    log = known.log
    row = PartitionMove(
        topic=known.upstream.topic,
        partition=known.upstream.partition,
        target_topic=known.downstream.topic,
        direction=known.direction,
        state="translated",
        committed=known.upstream_offset,
        lag=0,
        target_committed=known.target_committed,
    )
    if log is None:
        return replace(row, state="no-target", reason=f"there is no topic {row.target_topic}")
    wanted = known.downstream_offset
    if log is UNKNOWN_LOG:
        reason = f"the log of {row.target} cannot be looked at: it has no leader now"
        return replace(row, resume=wanted, reason=reason)
    resume = min(max(wanted, log.start), log.end)
    row = replace(row, resume=resume, lag=log.end - resume)
    if wanted < log.start:
        gone = f"the log of {row.target} begins at {log.start}: what was before is deleted"
        row = replace(row, skipped=log.start - wanted, reason=gone)
    elif wanted > log.end:
        row = replace(row, reason=f"the log of {row.target} has lost its end, it is at {log.end}")
    theirs = known.target_committed
    if theirs is not None and theirs > resume and not known.target_is_ours:
        return replace(row, state="conflict", re_read=theirs - resume)
    return row
