"""Which source record stands at which target offset, as the map says and the logs bear out.

Records may be equal to each other, so content alone does not tell which of them stands where. The
map is therefore taken at its word and proven: each pair has to be of equal records that both logs
hold, in the order of both, and what it leaves out has to be what nobody can be asked to know: what
a truncation took, the end of a topic that was deleted, what the source deleted when an owner had
just been killed. Everything else that is on the target, or is not, is a fault.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tests.faults.campaign.history import Item, TopicHistory

from srm.domain.offset_map.offset_map import OffsetMap
from srm_lab.testing.logs import Log, LoggedRecord

Pair = tuple[int, int]

_SHOWN = 3
_FAR = 1 << 62


@dataclass
class Aligned:
    """One partition read side by side.

    ``items`` are all source records in the order in which a copy meets them; ``places`` the target
    offsets of those that arrived; ``unmapped`` those of them that no map tells of; ``compacted``
    the ones that arrived and that the target has compacted since. ``unknown`` are target offsets
    of records that only their writer could tell of, and cannot; ``unclear`` those of copies that
    nothing tells from others, so that they may have come again.
    """

    items: list[Item]
    places: dict[int, int] = field(default_factory=dict)
    unmapped: set[int] = field(default_factory=set)
    compacted: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    foreign: list[int] = field(default_factory=list)
    unclear: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def has(self, index: int) -> bool:
        """Whether a source record has arrived."""
        return index in self.places or index in self.compacted


class Aligner:
    """Aligns one partition. What is wrong is in ``found.problems``."""

    def __init__(self, history: TopicHistory, partition: int, target: Log, stranger: bytes) -> None:
        self._history = history
        self._partition = partition
        self._where = f"{history.name}-{partition}"
        self.found = Aligned(
            [item for n, life in enumerate(history.lives) for item in life.items(partition, n)]
        )
        self._by_offset: dict[Pair, list[int]] = defaultdict(list)
        for index, item in enumerate(self.found.items):
            self._by_offset[item.life, item.offset].append(index)
        kept = history.kept.get(partition, {})
        log_start = target[0][0] if target else 0
        whole = {offset: record for offset, record in kept.items() if offset < log_start}
        whole.update(target)
        self._target: Log = []
        self._trimmed_runs: list[tuple[Log, int]] = []
        for offset, record in sorted(whole.items()):
            if record.value is not None and record.value.startswith(stranger):
                self.found.foreign.append(offset)
            else:
                self._target.append((offset, record))

    def align(self, maps: Sequence[OffsetMap | None], *, prefer_newest: bool = True) -> Aligned:
        """Place every target record, by the map of each life.

        Equal records may stand at one source offset before and after a truncation: which of them
        was copied is only known by what follows, so ``prefer_newest`` says which to try.
        """
        self._take_maps(maps, -1 if prefer_newest else 0)
        by_place = {place: index for index, place in self.found.places.items()}
        last, run, first = -1, [], True
        for offset, record in self._target:
            index = by_place.get(offset)
            if offset in self.found.unknown:
                continue
            if index is None:
                run.append((offset, record))
                continue
            if index <= last:
                self._problem(
                    f"target offset {offset} is {self._name(index)}, but {self._name(last)} "
                    f"stands before it"
                )
            self._explain(run, last, index, first=first)
            last, run, first = index, [], False
        self._explain(run, last, len(self.found.items), first=first)
        self._explain_trimmed_again()
        return self.found

    def _take_maps(self, maps: Sequence[OffsetMap | None], choice: int) -> None:
        records = dict(self._target)
        newest_of_key = {record.key: offset for offset, record in self._target}
        cut = min(self._history.target_cuts.get(self._partition, ()), default=_FAR)
        for life, known in enumerate(maps):
            later = {target for after in maps[life + 1 :] for _, target in mapped_pairs(after)}
            former = life + 1 < len(maps)
            for source, target in mapped_pairs(known):
                record = records.get(target)
                if former and target >= cut and (record is None or target in later):
                    continue  # its topic was deleted before an owner could notice
                if record is None:
                    self._not_there(life, source, target, newest_of_key)
                    continue
                candidates = self._by_offset.get((life, source), [])
                equal = [i for i in candidates if self.same(self.found.items[i], record)]
                if not candidates and self._history.compacted:
                    # Its writer never heard of it, and the source has compacted it away since.
                    self.found.unknown.add(target)
                elif not equal:
                    held = [self._name(index) for index in candidates] or "nothing"
                    self._problem(
                        f"the map has source {source} at target {target}: {shown(record)}; the "
                        f"source had {held}"
                    )
                else:
                    self.found.places[equal[choice]] = target

    def _not_there(
        self, life: int, source: int, target: int, newest: dict[bytes | None, int]
    ) -> None:
        """Judge a pair whose target record is not in the log."""
        if target < self._history.trimmed.get(self._partition, 0):
            for index in self._by_offset.get((life, source), []):
                self.found.compacted.add(index)
            return
        if self._history.target_compacts and self._history.compacted:
            return  # what its key was, only its writer could tell
        for index in self._by_offset.get((life, source), []):
            key = self.found.items[index].record.key
            if self._history.target_compacts and newest.get(key, -1) > target:
                self.found.compacted.add(index)
                return
        self._problem(f"the map has source {source} at target {target}, where no record is")

    def _explain(self, run: Log, after: int, before: int, *, first: bool) -> None:
        """Find the source records of target records that no map tells of."""
        if not run:
            return
        trimmed = self._history.trimmed.get(self._partition, 0)
        if any(offset < trimmed for offset, _ in run):
            self._explain_trimmed([pair for pair in run if pair[0] < trimmed], after, before)
            self._explain([pair for pair in run if pair[0] >= trimmed], after, before, first=False)
            return
        candidates = [i for i in range(after + 1, before) if self._may_be_unmapped(i)]
        placed = self._embed(run, candidates)
        if placed is None and after >= 0:
            placed = self._behind_stand_ins(run, after)
        if placed is None and first and self._history.remote_recreated:
            placed = self._strays(run, candidates)
        if placed is None and self._is_unclear(run):
            self.found.unclear += [offset for offset, _ in run]
            return
        if placed is None:
            offset, record = run[0]
            self._problem(
                f"{len(run)} target records from offset {offset} {shown(record)} to {run[-1][0]} "
                f"are in no map and nothing explains them{self._twice(record)}"
            )
            return
        for index, offset in placed:
            self.found.places[index] = offset
            self.found.unmapped.add(index)

    def _explain_trimmed(self, run: Log, after: int, before: int) -> None:
        """Count records as arrived that the target has lost again before any map told of them.

        They may have been copied again: no reader of what is left meets them twice.
        """
        candidates = [i for i in range(after + 1, before) if not self.found.has(i)]
        placed = self._embed(run, candidates)
        if placed is None:
            self._trimmed_runs.append((run, after))
        for index, _ in placed or ():
            self.found.compacted.add(index)

    def _explain_trimmed_again(self) -> None:
        """Behind copies that are not clear some came again: then trimmed ones were of any place."""
        for run, after in self._trimmed_runs if self.found.unclear else ():
            candidates = list(range(after + 1, len(self.found.items)))
            for index, _ in self._embed(run, candidates) or ():
                if not self.found.has(index):
                    self.found.compacted.add(index)

    def _is_unclear(self, run: Log) -> bool:
        """Whether a trimmed log begins with copies that no report and no content gives a place."""
        return (
            self._history.interrupted
            and self._partition in self._history.trimmed
            and all(
                sum(self.same(item, record) for item in self.found.items) > 1 for _, record in run
            )
        )

    def _embed(
        self, run: Log, candidates: list[int], directions: Sequence[int] = (1, -1)
    ) -> list[Pair] | None:
        """Find a run of records among the candidates, in order, as close together as possible."""
        for direction in directions:
            placed, left = [], iter(candidates[::direction])
            for offset, record in run[::direction]:
                index = next((i for i in left if self.same(self.found.items[i], record)), None)
                if index is None:
                    break
                placed.append((index, offset))
            else:
                return placed
        return None

    def _behind_stand_ins(self, run: Log, after: int) -> list[Pair] | None:
        """The first of several equal copies may stand for the originals that are left.

        Of records that the source has compacted away nothing tells which copies were theirs: they
        are told as gone, and their copies stand behind those that the map has.
        """
        every = [i for i in range(after) if self._may_be_unmapped(i)]
        if len(every) < len(run):
            return None
        records = dict(self._target)
        known = sorted((i for i in self.found.places if i <= after), reverse=True)
        stand_ins: list[int] = []
        for index, before in pairwise([*known, -1]):
            if not any(self.same(self.found.items[index], record) for _, record in run):
                return None
            stand_ins.append(index)
            places = [self.found.places[i] for i in reversed(stand_ins)]
            copies = [(place, records[place]) for place in places]
            gone = every[bisect_right(every, before) :]
            placed = self._embed([*copies, *run], sorted([*stand_ins, *gone]), (-1,))
            originals = [index for index, _ in placed or ()]
            if placed and set(stand_ins) <= set(originals):
                left = sorted(set(originals) - set(stand_ins))
                return [(index, offset) for index, (offset, _) in zip(left, run, strict=True)]
        return None

    def _strays(self, run: Log, candidates: list[int]) -> list[Pair] | None:
        """What was on its way to the remote topic that was deleted stands before the copy."""
        lives = [*self._history.buried, *self._history.lives]
        sources = [item for n, life in enumerate(lives) for item in life.items(self._partition, n)]
        for length in range(1, len(run) + 1):
            stray, rest = run[:length], run[length:]
            starts = (i for i, item in enumerate(sources) if self.same(item, stray[0][1]))
            if not any(
                all(
                    self.same(item, record)
                    for item, (_, record) in zip(sources[i : i + length], stray, strict=False)
                )
                for i in starts
            ):
                return None
            placed = self._embed(rest, candidates)
            if placed is not None:
                self.found.foreign += [offset for offset, _ in stray]
                return placed
        return None

    def _may_be_unmapped(self, index: int) -> bool:
        item = self.found.items[index]
        current = item.life + 1 == len(self._history.lives)
        life = self._history.lives[item.life]
        destroyed = item.offset < life.deleted.get(
            self._partition, 0
        ) or item.offset in life.compacted.get(self._partition, ())
        return (
            item.gone or not current or (destroyed and self._history.interrupted)
        ) and not self.found.has(index)

    def same(self, item: Item, copied: LoggedRecord) -> bool:
        """Whether a copy is equal to its original, but for what the flow changes."""
        added = self._history.settings.target_only
        if not self._history.settings.does_nothing:
            kept = tuple(header for header in copied.headers if header[0] not in added)
            copied = replace(copied, headers=kept)
        record = item.record
        if (record.key, record.value, record.headers) != (
            copied.key,
            copied.value,
            copied.headers,
        ):
            return False
        return not self._history.keeps_timestamps or record.timestamp[1] == copied.timestamp[1]

    def _twice(self, record: LoggedRecord) -> str:
        for index, place in sorted(self.found.places.items()):
            if self.same(self.found.items[index], record):
                return f"; the first is equal to {self._name(index)} at target offset {place}"
        return ""

    def _name(self, index: int) -> str:
        item = self.found.items[index]
        life = f" of life {item.life}" if item.life + 1 < len(self._history.lives) else ""
        gone = " (truncated)" if item.gone else ""
        return f"source {item.offset}{life}{gone} {shown(item.record)}"

    def _problem(self, text: str) -> None:
        if len(self.found.problems) < _SHOWN:
            self.found.problems.append(f"{self._where}: {text}")


def mapped_pairs(known: OffsetMap | None) -> list[Pair]:
    """Every pair of offsets that a map tells of, in its order."""
    runs = known.runs if known else ()
    return [(r.source_start + i, r.target_start + i) for r in runs for i in range(r.count)]


def shown(record: LoggedRecord) -> str:
    """Describe a record in a message."""
    value = None if record.value is None else record.value[:24]
    return f"(key {record.key!r}, value {value!r}, headers {record.headers[:1]})"


def check_translation(where: str, known: OffsetMap) -> list[str]:
    """Ask the map for every offset up to its end, in both directions."""
    pairs = mapped_pairs(known)
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
    problems = []
    for committed in range(sources[-1] + 2 if sources else 0):
        index = bisect_left(sources, committed)
        expected = targets[index] if index < len(targets) else targets[-1] + 1
        answer = getattr(known.forward(committed), "offset", None)
        if answer != expected:
            problems.append(f"{where}: source {committed} is {answer}, not {expected}")
    for committed in range(targets[-1] + 2 if targets else 0):
        index = bisect_left(targets, committed)
        expected = sources[index - 1] + 1 if index else sources[0]
        answer = getattr(known.backward(committed), "offset", None)
        if answer != expected:
            problems.append(f"{where}: target {committed} is {answer} backwards, not {expected}")
    return problems[:_SHOWN]
