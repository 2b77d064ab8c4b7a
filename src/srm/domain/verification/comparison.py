"""Comparison of the records of two ranges in order, with a look-ahead at a difference."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from srm.domain.offset_map.runs import OffsetSet
from srm.domain.verification.compared_record import ComparedRecord, frame
from srm.domain.verification.verification import (
    Difference,
    DifferenceKind,
    RangeResult,
    SideResult,
    new_hash,
)
from srm.domain.verification.verification_plan import RangePlan

LOOK_AHEAD_RECORDS = 1000
LOOK_AHEAD_BYTES = 8 << 20


def compare(
    plan: RangePlan, source: Iterable[ComparedRecord], target: Iterable[ComparedRecord]
) -> RangeResult:
    """Compare all records of a range; both sides are in offset order and within the range."""
    return _Comparison(plan, source, target).run()


def classify(
    source: Sequence[ComparedRecord], target: Sequence[ComparedRecord], *, timestamps: bool = True
) -> tuple[DifferenceKind, ...]:
    """Classify the difference of the first records of two sequences by the following records.

    ``order``: the same records in another order. ``missing`` or ``extra``: the sequences agree
    after some records are skipped. Otherwise the fields that differ: one record was changed.
    """
    sources = [frame(r, timestamps=timestamps) for r in source]
    targets = [frame(r, timestamps=timestamps) for r in target]
    if _is_reordered(sources, targets):
        return ("order",)
    if sources[1:] != targets[1:]:
        if _resumes(targets, sources):
            return ("missing",)
        if _resumes(sources, targets):
            return ("extra",)
    return differing_fields(source[0], target[0], timestamps=timestamps)


def _is_reordered(sources: Sequence[bytes], targets: Sequence[bytes]) -> bool:
    balance: Counter[bytes] = Counter()
    for ours, theirs in zip(sources, targets, strict=False):
        balance[ours] += 1
        balance[theirs] -= 1
        if not any(balance.values()):
            return True
    return False


def _resumes(kept: Sequence[bytes], whole: Sequence[bytes]) -> bool:
    """Return True if ``whole`` continues like ``kept`` after some of its first records."""
    second = kept[1:2]
    return any(
        whole[skipped] == kept[0]
        and (not second or whole[skipped + 1 : skipped + 2] in (second, []))
        for skipped in range(1, len(whole))
    )


def differing_fields(
    source: ComparedRecord, target: ComparedRecord, *, timestamps: bool = True
) -> tuple[DifferenceKind, ...]:
    fields: tuple[DifferenceKind, ...] = ("key", "value", "headers")
    kinds = [field for field in fields if getattr(source, field) != getattr(target, field)]
    if timestamps and source.timestamp_ms != target.timestamp_ms:
        kinds.append("timestamp")
    return tuple(kinds)


class _Side:
    """Records of one side still to compare, with count and hash of the compared ones."""

    def __init__(self, records: Iterable[ComparedRecord]) -> None:
        self._records: Iterator[ComparedRecord] = iter(records)
        self._waiting: deque[ComparedRecord] = deque()
        self._hash = new_hash()
        self._count = 0

    def head(self) -> ComparedRecord | None:
        if not self._waiting:
            self._waiting.extend(islice(self._records, 1))
        return self._waiting[0] if self._waiting else None

    def following(self) -> list[ComparedRecord]:
        """Return the next records without taking them, within the look-ahead."""
        size = sum(len(record.value or b"") for record in self._waiting)
        while len(self._waiting) < LOOK_AHEAD_RECORDS and size < LOOK_AHEAD_BYTES:
            record = next(self._records, None)
            if record is None:
                break
            self._waiting.append(record)
            size += len(record.value or b"")
        return list(self._waiting)

    def take(self, content: bytes | None) -> None:
        self.leave_out()
        self._count += 1
        if content is not None:
            self._hash.update(content)

    def leave_out(self) -> None:
        self._waiting.popleft()

    def result(self) -> SideResult:
        return SideResult(self._count, self._hash.hexdigest())


class _Places:
    """Offsets of one side mapped to the other, walking the runs along with that side."""

    def __init__(self, bounds: Sequence[tuple[int, int, int]]) -> None:
        self._bounds = bounds
        self._index = 0

    def of(self, offset: int) -> int | None:
        """Return the place of an offset not below the previous one, None outside runs."""
        while self._index < len(self._bounds) and self._bounds[self._index][1] <= offset:
            self._index += 1
        if self._index == len(self._bounds) or self._bounds[self._index][0] > offset:
            return None
        return offset + self._bounds[self._index][2]


class _Comparison:
    def __init__(
        self, plan: RangePlan, source: Iterable[ComparedRecord], target: Iterable[ComparedRecord]
    ) -> None:
        self._plan = plan
        if plan.decided:
            decided = OffsetSet(plan.decided)
            source = (one for one in source if decided.next(one.offset) != one.offset)
        if plan.only_copied:
            only = OffsetSet(plan.only_copied)
            target = (one for one in target if only.next(one.offset) != one.offset)
        self._source, self._target = _Side(source), _Side(target)
        self._on_target = _Places([(r.source_start, r.source_end, r.shift) for r in plan.runs])
        self._on_source = _Places([(r.target_start, r.target_end, -r.shift) for r in plan.runs])
        self._unmapped = OffsetSet(plan.unmapped)
        self._foreign = 0
        self._one_sided = 0
        self._difference: Difference | None = None

    def run(self) -> RangeResult:
        while self._step(self._source.head(), self._target.head()):
            pass
        source, target = self._source.result(), self._target.result()
        return RangeResult(source, target, self._foreign, self._one_sided, self._difference)

    def _step(self, source: ComparedRecord | None, target: ComparedRecord | None) -> bool:
        copy = None if source is None else self._on_target.of(source.offset)
        original = None if target is None else self._on_source.of(target.offset)
        if target is not None and original is None:
            self._foreign_record(target)
        elif source is not None and (copy is None or target is None or copy < target.offset):
            if copy is None and self._plan.transform and self._plan.transform.drops(source):
                self._source.leave_out()
                return True
            # Compaction of the target may have removed a copy, never a record without one.
            may_lack = self._plan.compacted and copy is not None
            self._only(self._source, source, (source.offset, copy), "missing", may_lack=may_lack)
        elif target is not None and (source is None or copy != target.offset):
            places = original, target.offset
            self._only(self._target, target, places, "extra", may_lack=self._plan.compacted)
        elif source is not None and target is not None:
            self._pair(source, target)
        else:
            return False
        return True

    def _foreign_record(self, target: ComparedRecord) -> None:
        transform = self._plan.transform
        # Without their headers the flow's own copies, doubled ones too, look like those of others.
        if (
            self._plan.shared
            and transform is not None
            and transform.settings.provenance
            and transform.is_of_another(target) is not False
        ):
            self._target.leave_out()
            return
        is_own = self._unmapped.next(target.offset) == target.offset
        self._foreign += not is_own
        self._only(self._target, target, (None, target.offset), "foreign", may_lack=is_own)

    def _pair(self, source: ComparedRecord, target: ComparedRecord) -> None:
        ours, theirs = self._frame(source), self._frame(target)
        if ours != theirs and self._difference is None:
            kinds = classify(
                [self._plain(record) for record in self._source.following()],
                [self._plain(record) for record in self._target.following()],
                timestamps=self._plan.timestamps,
            )
            self._differs(source.offset, target.offset, *kinds)
        self._source.take(ours)
        self._target.take(theirs)

    def _only(
        self,
        side: _Side,
        record: ComparedRecord,
        places: tuple[int | None, int | None],
        kind: DifferenceKind,
        *,
        may_lack: bool,
    ) -> None:
        if may_lack:
            self._one_sided += 1
            side.take(None)
        else:
            self._differs(*places, kind)
            side.take(self._frame(record))

    def _differs(self, source: int | None, target: int | None, *kinds: DifferenceKind) -> None:
        if self._difference is None:
            plan = self._plan
            self._difference = Difference(plan.topic, plan.partition, source, target, kinds)

    def _frame(self, record: ComparedRecord) -> bytes:
        return frame(self._plain(record), timestamps=self._plan.timestamps)

    def _plain(self, record: ComparedRecord) -> ComparedRecord:
        """Return a record without the headers that flows add."""
        if not record.headers or self._plan.transform is None:
            return record
        added = self._plan.transform.settings.target_only
        kept = tuple(header for header in record.headers if header[0] not in added)
        return record._replace(headers=kept)
