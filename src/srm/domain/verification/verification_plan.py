"""Comparable offsets of two copies of a partition, cut into ranges for many tasks.

Inside a run of the offset map each source offset has one target offset. A source record outside all
runs was not copied. The copy did not write a target record outside all runs::

    source      [10 11 12 13] (14 marker) [15 16 17]
    target  (7)  [8  9 10 11]              [12 13 14]     cut at source 13 = target 11
            foreign, if there is a record at 7
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from zlib import crc32

import numpy as np

from srm.domain.names.record_headers import Transform
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Run, Runs
from srm.domain.offset_map.runs import both_ends, skip_ranges
from srm.errors import UsageError


@dataclass(frozen=True, slots=True)
class RangePlan:
    """Source and target offsets ``[start, end)`` that must hold the same records, and their runs.

    Logs can end before the range, after a loss. ``compacted`` topics may lack records on one side.
    ``timestamps`` is False if the target sets them. ``left_out`` names records not compared.
    ``transform``: what the flow changes; others write to a ``shared`` copy, too. A flow that is not
    ``committed`` copies open and aborted transactions. ``unmapped`` target offsets are of the flow,
    ``only_copied`` ones the source has lost, as a decision says: they are left out.
    """

    topic: str
    partition: int
    remote_topic: str
    source_start: int
    source_end: int
    source_log_end: int
    target_start: int
    target_end: int
    target_log_end: int
    runs: Sequence[Run]
    compacted: bool = False
    timestamps: bool = True
    left_out: str = ""
    decided: tuple[tuple[int, int], ...] = ()
    source_id: str = ""
    target_id: str = ""
    transform: Transform | None = None
    shared: bool = False
    committed: bool = True
    unmapped: tuple[tuple[int, int], ...] = ()
    only_copied: tuple[tuple[int, int], ...] = ()

    @property
    def names(self) -> tuple[str, int, str]:
        return self.topic, self.partition, self.remote_topic

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def settings(self) -> int:
        """Checksum of the settings that decide which records and headers are compared."""
        settings = self.transform and self.transform.settings
        return crc32(repr((settings, self.shared, self.committed)).encode())

    @property
    def copy(self) -> TopicPartition:
        return TopicPartition(self.remote_topic, self.partition)


def plan_partition(
    whole: RangePlan,
    offset_map: OffsetMap,
    target_end_before: int,
    begins: int | None = None,
    cuts: Iterable[tuple[int, int]] = (),
) -> RangePlan | None:
    """Narrow a plan of both logs to all comparable records; None if none of several was copied.

    Source records are left out if they are deleted, after the copy's position, or without a copy on
    the target due to retention; target records likewise. If the source has nothing more to copy,
    the range includes the target's end: no record there can be an unreported copy.

    ``offset_map`` is loaded from the start of the source's log, ``target_end_before`` the target's
    last stable offset, read before it. ``begins``: target offset where records of a former topic
    end. What is ``decided`` are source offsets [from, to) left on the source by decision. ``cuts``:
    source offsets from which on the source lost records, with the end of their copies.
    """
    position = offset_map.known_source_end
    source_start, log_end = whole.source_start, whole.source_log_end
    if source_start < log_end and (position is None or position < source_start):
        return None
    source_end = log_end if position is None else max(position, source_start)
    runs = offset_map.known_runs
    first = offset_map.first
    target_start = target_log_start = whole.target_start
    target_end = offset_map.known_target_end or target_log_start
    if source_end >= log_end:
        target_end = max(target_end, target_end_before)
    if runs and runs[0].target_start < target_log_start:
        source_start = max(source_start, _source_boundary(runs, target_log_start, source_end))
    if first is not None and (first[0] < source_start or first[1] < target_log_start):
        target_start = target_boundary(runs, source_start, target_end)
    left_out = ""
    # Never beyond the known map: the remote topic itself may have been re-created since.
    former_end = 0 if begins is None else begins if first is None else min(begins, first[1])
    if target_start < former_end:
        left_out = (
            f"the topic was re-created: target offsets "
            f"{both_ends(target_start, former_end)} belong to the former one and are left out"
        )
        target_start, target_end = former_end, max(former_end, target_end)
    decided = tuple((a, b) for a, b in sorted(whole.decided) if b > source_start and a < source_end)
    texts = [left_out] if left_out else []
    texts += [f"source offsets {both_ends(a, b)} were excluded by decision" for a, b in decided]
    only = tuple((_end_before(runs, lost, end), end) for lost, end in cuts)
    texts += [f"target offsets {both_ends(a, b)} are lost on the source" for a, b in only if a < b]
    if (following := skip_ranges(source_end, whole.decided)) < log_end:
        texts.append(f"source offsets {both_ends(following, log_end)} are not copied yet")
    return replace(
        whole,
        source_start=source_start,
        source_end=source_end,
        target_start=target_start,
        target_end=max(target_start, target_end),
        runs=clip(runs, source_start, source_end),
        left_out="; ".join(texts),
        decided=decided,
        only_copied=only,
    )


def _end_before(runs: Runs, source_offset: int, target_offset: int) -> int:
    """Return the end on the target of what is mapped before both offsets, 0 without any."""
    before = (runs.source_ends <= source_offset) & (runs.target_ends <= target_offset)
    return int(runs.target_ends[before].max(initial=0))


def newest(plan: RangePlan, records: int) -> RangePlan:
    if records <= 0:
        raise UsageError(f"cannot verify {records} records: give a positive number")
    start = plan.source_start
    for run in reversed(plan.runs):
        if records <= run.count:
            start = run.source_end - records
            break
        records -= run.count
    if start <= plan.source_start:
        return plan
    target_start = target_boundary(plan.runs, start, plan.target_end)
    return part_of(plan, start, plan.source_end, target_start, plan.target_end)


def cut(plan: RangePlan, records: int) -> tuple[RangePlan, ...]:
    """Cut a plan in order; offsets between two runs belong to the part of the earlier one."""
    if records <= 0:
        raise UsageError(f"ranges cannot be cut into parts of {records} records")
    edges = [(plan.source_start, plan.target_start)]
    filled = 0
    for run in plan.runs:
        taken = records - filled
        while taken < run.count:
            edges.append((run.source_start + taken, run.target_start + taken))
            taken += records
        filled = records - (taken - run.count)
    edges.append((plan.source_end, plan.target_end))
    return tuple(
        part_of(plan, source_start, source_end, target_start, target_end)
        for (source_start, target_start), (source_end, target_end) in pairwise(edges)
    )


def target_boundary(runs: Sequence[Run], source_offset: int, end: int) -> int:
    """Return the target offset of the first copy at or after a source offset, or ``end``."""
    index = bisect_right(runs, source_offset, key=lambda run: run.source_end)
    if index == len(runs):
        return end
    return runs[index].target_start + max(0, source_offset - runs[index].source_start)


def _source_boundary(runs: Sequence[Run], target_offset: int, end: int) -> int:
    index = bisect_right(runs, target_offset, key=lambda run: run.target_end)
    if index == len(runs):
        return end
    return runs[index].source_start + max(0, target_offset - runs[index].target_start)


def clip(runs: Iterable[Run], start: int, end: int) -> Runs:
    known = Runs.of(runs)
    inside = slice(
        int(np.searchsorted(known.source_ends, start, side="right")),
        int(np.searchsorted(known.sources, end)),
    )
    kept = known[inside]
    if not len(kept) or start >= end:
        return Runs()
    sources = kept.sources.clip(min=start)
    targets = kept.targets + sources - kept.sources
    return Runs(sources, targets, kept.source_ends.clip(max=end) - sources)


def part_of(
    plan: RangePlan, source_start: int, source_end: int, target_start: int, target_end: int
) -> RangePlan:
    return replace(
        plan,
        source_start=source_start,
        source_end=source_end,
        target_start=target_start,
        target_end=target_end,
        runs=clip(plan.runs, source_start, source_end),
    )
