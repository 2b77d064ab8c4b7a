"""Compares what a run has left: both copies record by record, the map with both, the losses.

The two logs alone say which source record stands where: records differ from each other, so the
target is read as the source's records in order, with strangers between them and with losses only
where a fault allowed them. What the map says is compared with that afterwards, never used for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from tests.faults.campaign.history import Life, Records, TopicHistory

from srm.domain.offset_map import OffsetMap, Translated
from srm.domain.replication_records import PartitionStatus
from srm.testing.logs import Log, LoggedRecord

Pair = tuple[int, int]

_GONE = "not in the map"
_SHOWN = 3


@dataclass
class Matched:
    """One partition read side by side.

    ``pairs`` are (source offset, target offset) by life. ``lost`` are stretches of source offsets,
    by life, of which no record arrived although one was there. ``stood`` are the pairs of the last
    life where it stopped: before a truncation, if that is what it stopped for.
    """

    pairs: list[list[Pair]] = field(default_factory=list)
    lost: list[list[Pair]] = field(default_factory=list)
    stood: list[Pair] | None = None
    foreign: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def told_gone(reported: Iterable[PartitionStatus]) -> bool:
    """Whether it is told that copied records are gone from the source, and not in the map."""
    return any(_GONE in status.reason for status in reported)


def match(
    history: TopicHistory,
    partition: int,
    target: Log,
    stranger: bytes,
    *,
    stopped: bool,
    strays: int = 0,
) -> Matched:
    """Find out which source record stands where, or say where the copies part.

    A partition that has ``stopped`` for a loss may lack everything after it. Target offsets below
    ``strays`` are told to hold what was on its way to the remote topic that was deleted.
    """
    found = Matched([[] for _ in history.lives], [[] for _ in history.lives])
    where = f"{history.name}-{partition}"
    cursors = [_Cursor(life, partition, history) for life in history.lives]
    current = 0
    for offset, record in target:
        theirs = record.value is not None and record.value.startswith(stranger)
        if theirs or offset < strays:
            found.foreign.append(offset)
            continue
        while True:
            cursor = cursors[current]
            source = cursor.advance_to(record)
            if source is not None:
                found.pairs[current] = cursor.left_of(found.pairs[current])
                found.pairs[current].append((source, offset))
                break
            if current + 1 < len(cursors) and cursors[current + 1].has(record):
                current += 1
                continue
            found.problems.append(f"{where}: target offset {offset} {_cut(record)}: {cursor.why}")
            return found
    for index, cursor in enumerate(cursors):
        last = index + 1 == len(cursors)
        missing = cursor.rest()
        if last and stopped:
            found.stood = found.pairs[index]
        found.pairs[index] = cursor.left_of(found.pairs[index])
        found.lost[index] = cursor.lost
        if missing and last and not stopped:
            found.problems.append(
                f"{where}: {len(missing)} records are missing on the target, from source offset "
                f"{missing[0]} to {missing[-1]}"
            )
        elif missing and not last:
            cursor.lost.append((missing[0], missing[-1] + 1))
    return found


class _Cursor:
    """The records of one life, in order, and where they may be skipped.

    A truncated life is read twice: as it was, as far as it had been copied, then as it became. What
    was copied before stays on the target, but the map tells of the records that took its place.
    """

    def __init__(self, life: Life, partition: int, history: TopicHistory) -> None:
        self.why = ""
        self.lost: list[Pair] = []
        self._truncated_at: int | None = None
        self._keeps_timestamps = history.keeps_timestamps
        self._deleted = life.deleted.get(partition, 0)
        self._cut, gone = life.truncated.get(partition, (0, {}))
        now = life.records.get(partition, {})
        self._now = sorted(now.items())
        left = {offset: record for offset, record in now.items() if offset < self._cut}
        self._records = sorted({**left, **gone}.items()) if gone else self._now
        self._at = 0

    @property
    def _before_truncation(self) -> bool:
        return self._records is not self._now

    def advance_to(self, record: LoggedRecord) -> int | None:
        """Return the source offset of the next record if it is this one, past what may be gone."""
        found = self._advance_to(record)
        if found is None and self._before_truncation:
            self._truncate()
            found = self._advance_to(record)
        return found

    def _advance_to(self, record: LoggedRecord) -> int | None:
        index = self._at
        while index < len(self._records):
            offset, expected = self._records[index]
            if self._same(expected, record):
                self._skip(index)
                self._at = index + 1
                return offset
            if not self._may_be_missing(offset):
                self.why = f"expected source offset {offset} {_cut(expected)}"
                return None
            index += 1
        self.why = "expected no more records of this topic id"
        return None

    def left_of(self, pairs: list[Pair]) -> list[Pair]:
        """Return what a truncation that was just met has left of what was copied before."""
        at, self._truncated_at = self._truncated_at, None
        return pairs if at is None else [pair for pair in pairs if pair[0] < at]

    def has(self, record: LoggedRecord) -> bool:
        """Whether the record is of this life, before or after it was truncated."""
        known = chain(self._records, self._now)
        return any(self._same(expected, record) for _, expected in known)

    def rest(self) -> list[int]:
        """Return the offsets that never arrived and are not accounted for."""
        if self._before_truncation:
            self._truncate()
        index = self._at
        while index < len(self._records) and self._may_be_missing(self._records[index][0]):
            index += 1
        self._skip(index)
        return [offset for offset, _ in self._records[index:]]

    def _truncate(self) -> None:
        reached = self._records[self._at - 1][0] + 1 if self._at else 0
        if reached > self._cut:
            self.lost.append((self._cut, reached))
            self._truncated_at = self._cut
        self._records = self._now
        following = min(reached, self._cut)
        self._at = next((i for i, (o, _) in enumerate(self._now) if o >= following), len(self._now))

    def _may_be_missing(self, offset: int) -> bool:
        return offset < self._deleted

    def _skip(self, index: int) -> None:
        if index > self._at:
            # Not to where the source begins in the end: it may have lost more after that.
            self.lost.append((self._records[self._at][0], self._records[index - 1][0] + 1))

    def _same(self, left: LoggedRecord, right: LoggedRecord) -> bool:
        if self._keeps_timestamps:
            right = replace(right, timestamp=(left.timestamp[0], right.timestamp[1]))
            return left == right
        return replace(left, timestamp=(0, 0)) == replace(right, timestamp=(0, 0))


def _mapped(known: OffsetMap | None) -> list[Pair]:
    """Every pair of offsets that the map tells of, in its order."""
    runs = known.runs if known else ()
    return [(r.source_start + i, r.target_start + i) for r in runs for i in range(r.count)]


def check_map(where: str, known: OffsetMap | None, pairs: Sequence[Pair]) -> list[str]:
    """Compare the map of the current life with what stands where, in both directions."""
    if known is None:
        return [f"{where}: no map, but {len(pairs)} records are copied"] if pairs else []
    mapped = _mapped(known)
    if mapped != list(pairs):
        return [f"{where}: {_first_wrong(mapped, pairs)}; {known.position}"]
    problems = []
    for committed, expected in _forward(pairs):
        answer = known.forward(committed)
        if answer != Translated(expected):
            problems.append(f"{where}: source {committed} is {answer}, not {expected}")
    for committed, expected in _backward(pairs):
        answer = known.backward(committed)
        if answer != Translated(expected):
            problems.append(f"{where}: target {committed} is {answer} backwards, not {expected}")
    return problems[:_SHOWN]


def without_gone(pairs: Sequence[Pair], known: OffsetMap | None, log_start: int) -> Sequence[Pair]:
    """Leave out what the map may lack once that is told: what the source has deleted.

    Nobody can read those records on the source, so an offset among them is as good as the next one
    that is left.
    """
    mapped = set(_mapped(known))
    return [pair for pair in pairs if pair[0] >= log_start or pair in mapped]


def check_former_map(where: str, known: OffsetMap | None, pairs: Iterable[Pair]) -> list[str]:
    """A map that nobody completes any more may lack its end, but says nothing wrong."""
    right = set(pairs)
    for pair in _mapped(known):
        if pair not in right:
            return [f"{where}: the map of a former topic id has {pair}, which was not copied"]
    return []


def _forward(pairs: Sequence[Pair]) -> Iterable[Pair]:
    """Every source offset up to the last copied record, with the target offset it becomes."""
    following = 0
    for source, target in pairs:
        for committed in range(following, source + 1):
            yield committed, target
        following = source + 1
    if pairs:
        yield following, pairs[-1][1] + 1


def _backward(pairs: Sequence[Pair]) -> Iterable[Pair]:
    """Every target offset up to the one after the last copied record, with its source offset."""
    if not pairs:
        return
    for committed in range(pairs[0][1] + 1):
        yield committed, pairs[0][0]
    ends = [*pairs[1:], (0, pairs[-1][1] + 1)]
    for (source, target), (_, following) in zip(pairs, ends, strict=True):
        for committed in range(target + 1, following + 1):
            yield committed, source + 1


def check_losses(
    where: str,
    lost: Sequence[Pair],
    copied: Sequence[Pair],
    reported: Sequence[PartitionStatus],
    truncated_at: int | None = None,
    deleted: int = 0,
) -> list[str]:
    """Each loss has to be reported with its range, and nothing that was copied as lost.

    A range begins after the last copied record at the earliest and at the first lost one at the
    latest, since markers may stand between; for the same reason it may end later. From where the
    source was truncated on, other records have taken the offsets of the lost ones. What was copied
    after the last report of an owner that was killed, and truncated or deleted before the next one
    came, is told by its target offsets: where it stood on the source, nobody knows, so it may be
    in a lost range that is told, and what was lost next to it is not told apart. What was deleted
    before the first record was copied was never there for the copy, which begins where the source
    does.
    """
    some_gone = told_gone(reported)
    ranges = {(s.lost_from, s.lost_to) for s in reported if s.lost_from is not None}
    sources = [s for s, _ in copied if truncated_at is None or s < truncated_at]
    problems = []
    for first, end in lost:
        after = max((source + 1 for source in sources if source < first), default=0)
        told_as_gone = some_gone and (first == truncated_at or end <= deleted)
        if told_as_gone or end <= min(sources, default=0):
            continue
        earliest = 0 if some_gone else after
        if not any(f is not None and earliest <= f <= first and (t or 0) >= end for f, t in ranges):
            problems.append(
                f"{where}: records {first} to {end} are lost, reported: {ranges or '-'}"
            )
    for first, end in ranges:
        wrong = [source for source in sources if first is not None and first <= source < (end or 0)]
        if wrong and not some_gone:
            problems.append(f"{where}: {first} to {end} reported as lost, but {wrong[0]} is copied")
    return problems


def check_compacted(
    where: str,
    source: Records,
    target: Log,
    ids: dict[int, bytes],
    known: OffsetMap | None,
    stranger: bytes,
    *,
    some_gone: bool,
) -> list[str]:
    """A source that is compacted meanwhile: compare through the map, by the records' own ids.

    A record that was copied after its owner's last report, and compacted on the source before the
    next owner came, stood nobody knows where: it may be missing from the map, and that is told.
    """
    # A writer that began anew may not have heard where its last records are.
    ids = {o: dict(r.headers).get("id") or b"" for o, r in source.items()} | dict(ids)
    by_target = {target: source_offset for source_offset, target in _mapped(known)}
    problems = []
    left = {dict(record.headers).get("id") for record in source.values()}
    copied: dict[int, LoggedRecord] = {}
    for offset, record in target:
        if record.value is not None and record.value.startswith(stranger):
            continue
        at = by_target.pop(offset, None)
        if at is None and some_gone and dict(record.headers).get("id") not in left:
            continue
        if at is None:
            problems.append(f"{where}: target offset {offset} {_cut(record)} is not in the map")
        elif ids.get(at) != dict(record.headers).get("id"):
            problems.append(f"{where}: target offset {offset} is not source offset {at}")
        else:
            copied[at] = record
    problems.extend(f"{where}: the map has target offset {o}, the log has not" for o in by_target)
    for offset, record in source.items():
        if offset not in copied:
            problems.append(f"{where}: source offset {offset} {_cut(record)} is missing")
        elif copied[offset] != record:
            problems.append(f"{where}: source offset {offset} {_cut(record)} differs")
    return problems[:_SHOWN]


def _first_wrong(mapped: Sequence[Pair], pairs: Sequence[Pair]) -> str:
    for index, (said, true) in enumerate(zip(mapped, pairs, strict=False)):
        if said != true:
            return f"entry {index} of the map is {said}, the logs have {true}"
    return f"the map has {len(mapped)} records, the logs {len(pairs)}"


def _cut(record: LoggedRecord) -> str:
    value = None if record.value is None else record.value[:24]
    return f"(key {record.key!r}, value {value!r}, headers {record.headers[:1]})"
