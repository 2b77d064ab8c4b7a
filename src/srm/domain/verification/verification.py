"""Results of a verification: counts, hashes and the first difference of each partition."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, Literal

from srm.domain.names.topics import Flow
from srm.domain.offset_map.runs import FINGERPRINTS, OffsetSet, Runs
from srm.domain.text.amount import utc
from srm.domain.text.documents import Document, values_of
from srm.domain.verification.verification_plan import RangePlan, clip, part_of
from srm.errors import IntegrityError, SrmError, UnavailableError

Outcome = Literal["equal", "different", "unverified", "failed"]
_RANGE: Final = ("source_start", "source_end", "target_start", "target_end")
DifferenceKind = Literal[
    "missing", "extra", "foreign", "order", "key", "value", "headers", "timestamp"
]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference at two places paired by the offset map; None: outside the map."""

    topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    kinds: tuple[DifferenceKind, ...]

    def __str__(self) -> str:
        places = ((self.source_offset, "source"), (self.target_offset, "target"))
        where = ", ".join(f"{side} offset {at}" for at, side in places if at is not None)
        return f"{self.topic}-{self.partition} {where}: {', '.join(self.kinds)}"


@dataclass(frozen=True, slots=True)
class SideResult:
    """One side of a range: the number of its records, and their hash in order.

    The log held leader ``epoch`` (-1: unknown) of the last read record up to ``reached``.
    """

    records: int
    digest: str
    epoch: int = field(default=-1, compare=False)
    reached: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Result of comparing one range; ``by_bytes``: by batches, without reading single records."""

    source: SideResult
    target: SideResult
    foreign: int
    one_sided: int
    difference: Difference | None
    by_bytes: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionVerification(Document):
    """Verification result for one partition, about the records in both offset ranges.

    ``earlier_records`` were proven equal before, the last at ``earlier_ms``, and not read again.
    The hashes are of all others; they depend on the ranges. ``foreign`` counts target records that
    the copy did not write, ``one_sided`` records of a compacted topic that only one side still has:
    not hashed, no difference. ``outcome`` is ``unverified`` without a copy, ``failed`` if logs or
    map are unusable. ``by_records`` counts source records that ordinary consumers had to read one
    by one.
    """

    KIND = "verification record"
    topic: str
    partition: int
    remote_topic: str
    outcome: Outcome
    time_ms: int
    source_start: int = 0
    source_end: int = 0
    target_start: int = 0
    target_end: int = 0
    source_records: int = 0
    target_records: int = 0
    source_hash: str = ""
    target_hash: str = ""
    foreign: int = 0
    one_sided: int = 0
    difference: Difference | None = None
    reason: str = ""
    earlier_records: int = 0
    earlier_ms: int = 0
    source_id: str = ""
    target_id: str = ""
    proven: tuple[Proven, ...] = ()
    by_records: int = 0

    @property
    def proof(self) -> str:
        if not self.proven:
            return ""
        stretches = [(s.source_start, s.source_end) for s in self.proven]
        if len(stretches) == 1 and stretches[0][0] <= self.source_start:
            text = f"proven to source offset {stretches[0][1]:,}"
        else:
            ranges = ", ".join(f"{a:,} to {b - 1:,}" for a, b in stretches)
            text = f"source offsets {ranges} are proven"
        if not self.earlier_records:
            return text
        return f"{text}, {self.earlier_records:,} records of them earlier ({utc(self.earlier_ms)})"

    def key(self) -> bytes:
        return f"{self.topic}-{self.partition}".encode()


@dataclass(frozen=True, slots=True)
class VerificationSummary:
    """The result of one verification of a flow, by topic and partition."""

    flow: Flow
    partitions: tuple[PartitionVerification, ...]

    @property
    def different(self) -> tuple[PartitionVerification, ...]:
        return tuple(p for p in self.partitions if p.outcome == "different")


def verdict(summary: VerificationSummary) -> SrmError | None:
    """Return the error of a verification: copies differ or are unreadable, not missing."""
    flow, different = summary.flow, summary.different
    if different:
        return IntegrityError(
            f"{flow}: {len(different)} of {len(summary.partitions)} partitions differ, first "
            f"{different[0].difference}"
        )
    failed = [p for p in summary.partitions if p.outcome == "failed"]
    if failed:
        return UnavailableError(
            f"{flow}: {len(failed)} of {len(summary.partitions)} partitions could not be "
            f"compared, first {failed[0].topic}-{failed[0].partition}: {failed[0].reason}"
        )
    return None


def merge(whole: RangePlan, results: Sequence[RangeResult], time_ms: int) -> PartitionVerification:
    difference = next((r.difference for r in results if r.difference is not None), None)
    return PartitionVerification(
        *whole.names,
        outcome="equal" if difference is None else "different",
        time_ms=time_ms,
        **values_of(whole, *_RANGE),
        source_records=sum(r.source.records for r in results),
        target_records=sum(r.target.records for r in results),
        source_hash=_digest_of(r.source.digest for r in results),
        target_hash=_digest_of(r.target.digest for r in results),
        foreign=sum(r.foreign for r in results),
        one_sided=sum(r.one_sided for r in results),
        difference=difference,
        reason=whole.left_out,
        by_records=sum(r.source.records for r in results if not r.by_bytes),
    )


def found_equal(plan: RangePlan, result: RangeResult, time_ms: int) -> Proven | None:
    """Return what was proven equal, None if not; nothing if a log ends before the range."""
    is_short = plan.source_log_end < plan.source_end or plan.target_log_end < plan.target_end
    if result.difference is not None or is_short:
        return None
    source_mark, target_mark = (
        (side.epoch, side.reached) if side.epoch >= 0 else NO_PAIR
        for side in (result.source, result.target)
    )
    runs = Runs.of(plan.runs)
    return Proven(
        **values_of(plan, *_RANGE, "compacted", "timestamps", "settings"),
        records=runs.records,
        first=(runs[0].source_start, runs[0].target_start) if len(runs) else NO_PAIR,
        last=(runs[-1].source_end - 1, runs[-1].target_end - 1) if len(runs) else NO_PAIR,
        source_mark=source_mark,
        target_mark=target_mark,
        since_ms=time_ms,
        time_ms=time_ms,
        decided=_within(plan.decided, plan.source_start, plan.source_end),
        pairs=runs.fingerprint,
    )


def new_hash() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)


def _digest_of(digests: Iterable[str]) -> str:
    chained = new_hash()
    for digest in digests:
        chained.update(bytes.fromhex(digest))
    return chained.hexdigest()


MOST_STRETCHES: Final = 32
"""Maximum stretches kept of a partition, the latest ones. Several exist if only the newest records
of a busy partition are compared occasionally."""
NO_PAIR: Final = (-1, -1)


@dataclass(frozen=True, slots=True)
class Proven:
    """One stretch of source and target offsets, ends not included, with the same records.

    ``first`` and ``last`` are the outer pairs of offsets, ``pairs`` is the fingerprint of all.
    Marks are a leader epoch, and the offset up to which the log held it. ``decided`` are source
    offsets [from, to) left on the source by decision, not compared. Times are of the oldest and
    newest comparison, ``settings`` is the checksum of those in force, 0 if unknown.
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
    settings: int = 0

    def touches(self, later: Proven) -> bool:
        """Return True if a comparable stretch begins where this one ends."""
        return (self.source_end, self.target_end) == (later.source_start, later.target_start) and (
            self.compacted,
            self.timestamps,
            self.settings,
        ) == (later.compacted, later.timestamps, later.settings)

    def with_next(self, later: Proven) -> Proven:
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


def last_marks(stretches: Sequence[Proven]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the last marks of source and target; nothing after them was read."""

    def last(marks: Iterable[tuple[int, int]]) -> tuple[int, int]:
        return max((m for m in marks if m[0] >= 0), default=NO_PAIR, key=itemgetter(1))

    return last(s.source_mark for s in stretches), last(s.target_mark for s in stretches)


def still_proven(
    stretches: Sequence[Proven], whole: RangePlan, ends: tuple[int, int]
) -> tuple[Proven, ...]:
    """Return the valid stretches of two topics, without records that the logs no longer hold.

    ``ends``: of the last stretch's leader epoch in each log now, -1 without it.
    """
    source_mark, target_mark = last_marks(stretches)
    if source_mark[1] > ends[0] or target_mark[1] > ends[1]:
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
    return tuple(OffsetSet((max(first, start), min(last, end)) for first, last in ranges))


def _says_enough(stretch: Proven, whole: RangePlan) -> bool:
    """Return True if as much was compared, and as now, of logs that can be recognized."""
    marked = stretch.source_mark[0] >= 0 and stretch.target_mark[0] >= 0
    return (
        stretch.settings == whole.settings
        and (stretch.timestamps or not whole.timestamps)
        and (whole.compacted or not stretch.compacted)
        and (marked or not stretch.records)
    )


def unproven(plan: RangePlan, stretches: Sequence[Proven]) -> tuple[RangePlan, ...]:
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
