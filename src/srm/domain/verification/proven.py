r"""Stretches of a partition proven equal before, and the part that is still valid.

A verification need not read equal records of an earlier one again. That holds while both logs are
the same as then, and the map still makes the same pairs of them::

    source    |####### proven before #######|  new  |
    target      |####### proven before #######|  new  |
              first pair           last pair /

A former stretch is no longer valid in these cases: a topic was re-created (it has another id), a
log was truncated below the stretch's end, the map has other or fewer pairs, or less was compared
than now (timestamps, records of one side only). The leader epoch shows a truncation, whatever was
written since. A log that holds an epoch up to an offset holds all records before that offset.

A record changed in place on a broker's disk is not detected. A full verification finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.offset_map.runs import FINGERPRINTS, Runs
from srm.domain.verification.verification_plan import RangePlan, clip, part_of

MOST_STRETCHES: Final = 32
"""Maximum stretches kept of a partition, the latest ones. Several exist if only the newest records
of a busy partition are compared occasionally."""
NO_PAIR: Final = (-1, -1)


@dataclass(frozen=True, slots=True)
class Proven:
    """One stretch of source and target offsets, ends not included, with the same records.

    ``records`` is the number of copied records.
    ``first`` and ``last`` are the outer pairs of source and target offset.
    ``source_mark`` and ``target_mark``: leader epoch, and the offset up to which the log held it.
    ``since_ms`` and ``time_ms`` are the times of the oldest and newest comparison.
    ``decided`` are source offsets [from, to) left on the source by decision, not compared.
    ``pairs`` is the fingerprint of the map's pairs.
    """

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    records: int
    first: tuple[int, int] = NO_PAIR
    last: tuple[int, int] = NO_PAIR
    source_mark: tuple[int, int] = NO_PAIR
    target_mark: tuple[int, int] = NO_PAIR
    since_ms: int = 0
    time_ms: int = 0
    compacted: bool = False
    timestamps: bool = True
    decided: tuple[tuple[int, int], ...] = ()
    pairs: int = 0

    def __post_init__(self) -> None:
        """Convert lists from JSON to tuples."""
        object.__setattr__(self, "decided", tuple((a, b) for a, b in self.decided))
        for name in ("first", "last", "source_mark", "target_mark"):
            first, second = getattr(self, name)
            object.__setattr__(self, name, (int(first), int(second)))

    @classmethod
    def of(
        cls,
        plan: RangePlan,
        source_mark: tuple[int, int],
        target_mark: tuple[int, int],
        time_ms: int,
    ) -> Proven:
        """Note that a range was found equal."""
        runs = Runs.of(plan.runs)
        return cls(
            plan.source_start,
            plan.source_end,
            plan.target_start,
            plan.target_end,
            runs.records,
            (runs[0].source_start, runs[0].target_start) if len(runs) else NO_PAIR,
            (runs[-1].source_end - 1, runs[-1].target_end - 1) if len(runs) else NO_PAIR,
            source_mark,
            target_mark,
            time_ms,
            time_ms,
            plan.compacted,
            plan.timestamps,
            _within(plan.decided, plan.source_start, plan.source_end),
            runs.fingerprint,
        )

    def touches(self, later: Proven) -> bool:
        """Return True if a comparable stretch begins where this one ends."""
        return (self.source_end, self.target_end) == (later.source_start, later.target_start) and (
            self.compacted,
            self.timestamps,
        ) == (later.compacted, later.timestamps)

    def with_next(self, later: Proven) -> Proven:
        """Join an adjoining stretch."""
        return replace(
            self,
            source_end=later.source_end,
            target_end=later.target_end,
            records=self.records + later.records,
            first=self.first if self.records else later.first,
            last=later.last if later.records else self.last,
            source_mark=later.source_mark if later.source_mark[0] >= 0 else self.source_mark,
            target_mark=later.target_mark if later.target_mark[0] >= 0 else self.target_mark,
            decided=_within([*self.decided, *later.decided], self.source_start, later.source_end),
            since_ms=min(self.since_ms, later.since_ms),
            time_ms=max(self.time_ms, later.time_ms),
            pairs=(self.pairs + later.pairs) % FINGERPRINTS,
        )


def join_stretches(stretches: Iterable[Proven]) -> tuple[Proven, ...]:
    """Sort stretches that do not overlap, and join adjoining ones."""
    found: list[Proven] = []
    for stretch in sorted(stretches, key=lambda s: (s.source_start, s.target_start)):
        if found and found[-1].touches(stretch):
            found[-1] = found[-1].with_next(stretch)
        else:
            found.append(stretch)
    return tuple(found[-MOST_STRETCHES:])


@dataclass(frozen=True, slots=True)
class EpochEnds:
    """Offset up to which each log now holds the leader epoch of the last stretch, -1 if none."""

    source: int
    target: int


def last_marks(stretches: Sequence[Proven]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the last marks of source and target; nothing after them was read."""
    sources = [s.source_mark for s in stretches if s.source_mark[0] >= 0]
    targets = [s.target_mark for s in stretches if s.target_mark[0] >= 0]
    return max(sources, default=NO_PAIR, key=_end_of), max(targets, default=NO_PAIR, key=_end_of)


def _end_of(mark: tuple[int, int]) -> int:
    return mark[1]


def still_proven(
    stretches: Sequence[Proven], whole: RangePlan, ends: EpochEnds
) -> tuple[Proven, ...]:
    """Return the valid stretches, without records that the logs no longer hold.

    ``stretches``: of the same two topics, by id.
    ``ends``: of the epochs of :func:`last_marks`.
    """
    source_mark, target_mark = last_marks(stretches)
    if source_mark[1] > ends.source or target_mark[1] > ends.target:
        return ()
    kept = (_valid_part(stretch, whole) for stretch in stretches if _says_enough(stretch, whole))
    return tuple(stretch for stretch in kept if stretch is not None)


def _valid_part(stretch: Proven, whole: RangePlan) -> Proven | None:
    start = max(stretch.source_start, whole.source_start)
    is_cut = stretch.source_end > whole.source_end or stretch.target_end > whole.target_log_end
    if start >= stretch.source_end or is_cut:
        return None
    decisions = (_within(d, start, stretch.source_end) for d in (stretch.decided, whole.decided))
    if len(set(decisions)) > 1:
        return None
    is_whole = start == stretch.source_start
    runs = clip(whole.runs, start, stretch.source_end)
    if not len(runs):
        return stretch if is_whole and not stretch.records else None
    first = runs[0].source_start, runs[0].target_start
    last = runs[-1].source_end - 1, runs[-1].target_end - 1
    if last != stretch.last or runs.records > stretch.records:
        return None
    if is_whole:
        return stretch if runs.fingerprint == stretch.pairs else None
    # A sum of both cannot separate records deleted by retention from those left.
    return replace(
        stretch,
        source_start=start,
        target_start=first[1],
        records=runs.records,
        first=first,
        pairs=runs.fingerprint,
        decided=_within(stretch.decided, start, stretch.source_end),
    )


def _within(ranges: Iterable[tuple[int, int]], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return the part of ranges in ``[start, end)``, with adjoining ones joined."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        low, high = max(first, start), min(last, end)
        if low >= high:
            continue
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def _says_enough(stretch: Proven, whole: RangePlan) -> bool:
    """Return True if at least as much was compared as now, of logs that can be recognized."""
    marked = stretch.source_mark[0] >= 0 and stretch.target_mark[0] >= 0
    return (
        (stretch.timestamps or not whole.timestamps)
        and (whole.compacted or not stretch.compacted)
        and (marked or not stretch.records)
    )


def unproven(plan: RangePlan, stretches: Sequence[Proven]) -> tuple[RangePlan, ...]:
    """Return the parts of a plan outside of stretches, in order.

    ``stretches``: as :func:`still_proven` returns them.
    """
    left = []
    source, target = plan.source_start, plan.target_start
    for stretch in stretches:
        if stretch.source_end <= source and stretch.target_end <= target:
            continue
        if stretch.source_start > source or stretch.target_start > target:
            left.append(part_of(plan, source, stretch.source_start, target, stretch.target_start))
        source, target = stretch.source_end, max(target, stretch.target_end)
    target_end = max(target, plan.target_end)
    if source < plan.source_end or target < target_end:
        left.append(part_of(plan, source, plan.source_end, target, target_end))
    return tuple(left)
