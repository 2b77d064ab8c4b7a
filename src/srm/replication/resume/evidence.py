"""Rules that derive the place of one log in the other from both logs, without I/O.

Let ``(S, T)`` be a proven place, and the next copy that is found be of source offset ``o``, with
``n`` copies and ``h`` empty offsets before it on the target. Then (docs/data-plane.md, "Resume"):

- each copy took an offset of the source of its own: ``o - S >= n``;
- a needed record before ``o``, one that has to be copied, has its copy at one of the ``h``;
- a copy whose record is gone had an offset before ``o`` where the source is empty now.

A :class:`LogReading` is one way to read the logs so far. Reading branches where records are equal
and offsets are empty; the walk is decided when all branches that are left end at the same place.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final, NamedTuple

from srm.domain.offset_map.offset_map import Run
from srm.domain.offset_map.runs import Lineage
from srm.errors import IntegrityError
from srm.replication.resume.source_lookahead import SourceAhead

MOST_PLACES: Final = 512
MOST_OWED: Final = 1 << 18
_MOST_SPANS: Final = 4096
MOST_RUNS: Final = 1 << 18
"""Runs that are kept while it is not clear yet whether they are right."""


class Content(NamedTuple):
    """One copied record as it is compared; ``time`` is None where the target gives its own."""

    offset: int
    content: int
    time: int | None
    key: int
    has_key: bool
    is_tombstone: bool


@dataclass(slots=True)
class Span:
    """Number of offsets met, and the first and last of them."""

    count: int = 0
    first: int = -1
    last: int = -1

    def add(self, first: int, last: int | None = None, count: int = 1) -> None:
        if not self.count:
            self.first = first
        self.last = first if last is None else last
        self.count += count


class FoundRuns:
    """Runs that were found, as numbers: there can be many."""

    def __init__(self, numbers: array[int] | None = None) -> None:
        self._numbers = array("q") if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._numbers) // 3

    def add(self, source_start: int, target_start: int, count: int) -> None:
        """Append a stretch in order, or lengthen the last run."""
        numbers = self._numbers
        if numbers:
            source, target, length = numbers[-3:]
            if target + length == target_start and source + length == source_start:
                numbers[-1] = length + count
                return
        numbers.extend((source_start, target_start, count))

    def extend(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.add(run.source_start, run.target_start, run.count)

    def copy(self) -> FoundRuns:
        return FoundRuns(self._numbers[:])

    def head(self, count: int, source_start: int) -> FoundRuns:
        """Return the first ``count`` records, counted from a source offset; none of fewer."""
        found, left = FoundRuns(), count
        for run in self._runs():
            if taken := min(run.count, left):
                found.add(source_start + run.source_start, run.target_start, taken)
            left -= taken
        return FoundRuns() if left else found

    def take(self) -> list[Run]:
        found = self._runs()
        self._numbers = array("q")
        return found

    def _runs(self) -> list[Run]:
        return [Run(*self._numbers[at : at + 3]) for at in range(0, len(self._numbers), 3)]


@dataclass(slots=True)
class LogReading:
    """One way to read the logs so far, since the last copy that was found (or the start).

    ``at`` is the index of the next record of the source, ``passed`` the source offset after the
    last one found, ``reached`` the target offset after its copy. Since then: ``copies`` made,
    ``gone`` of them without a record on the source, ``holes`` (empty target offsets), ``free``
    (offsets that the target's log dropped at its beginning). ``owed``: keys of which the target
    must hold a later record. ``certain``: the reading before it passed the first needed record by
    evidence.
    """

    at: int
    passed: int
    reached: int = 0
    copies: int = 0
    gone: int = 0
    holes: int = 0
    free: int = 0
    owed: set[int] = field(default_factory=set)
    runs: FoundRuns = field(default_factory=FoundRuns)
    found: int = 0
    removed: Span = field(default_factory=Span)
    former: Span = field(default_factory=Span)
    certain: LogReading | None = None

    @property
    def begun(self) -> bool:
        return self.found > 0

    @property
    def source_next(self) -> int:
        """Source offset before which everything is copied: each copy has passed one."""
        return self.passed + self.copies

    @property
    def credit(self) -> int:
        """Number of needed source records whose copies can be at empty offsets."""
        return self.holes + self.free

    @property
    def is_settled(self) -> bool:
        """True if the findings so far are proven, provided this is the only place left."""
        return not (self.copies or self.gone or self.holes or self.free or self.owed)

    def allows(self, offset: int, skipped: int) -> bool:
        """Return whether the next copy can be at ``offset``, after ``skipped`` needed records."""
        return (
            offset >= self.passed + self.copies
            and skipped <= self.credit
            and offset - self.passed - skipped >= self.gone
        )

    def find(self, index: int, offset: int, target: int, count: int) -> None:
        self.runs.add(offset, target, count)
        self.at, self.passed, self.reached = index + count, offset + count, target + count
        self.copies = self.gone = self.holes = self.free = 0
        self.found += count

    def lack(self, target: int, *, counts: bool) -> None:
        """Advance over a copy whose record is gone; it counts if that had an offset of its own."""
        self.removed.add(target)
        self.copies += counts
        self.gone += counts

    def branch(self) -> LogReading:
        return replace(
            self,
            owed=set(self.owed),
            runs=self.runs.copy(),
            removed=replace(self.removed),
            former=replace(self.former),
        )


def distinct(places: Iterable[LogReading]) -> list[LogReading]:
    """Of several ways to the same place leave the one that needs the least evidence."""
    best: dict[tuple[int, int, int, int, int, bool], LogReading] = {}
    for place in places:
        key = (place.at, place.passed, place.copies, place.gone, place.credit, place.begun)
        other = best.get(key)
        if other is None or len(place.owed) < len(other.owed):
            best[key] = place
    return list(best.values())


_MOST_UNEXPLAINED: Final = 1024
"""Needed records that are passed without evidence at once, where losses are accepted."""
_MOST_EQUAL: Final = 4096
_MOST_ALIKE: Final = 64
"""Most records of equal content among which a timestamp identifies one."""


@dataclass(eq=False)
class Steps:
    """Advances places over single records.

    ``unexplained``: source offsets passed unproven. ``is_astray``: copies before the batch of the
    record were lost with a log's end. ``_early``: copies before the first match, by their numbers:
    their source offsets are known once that is found; None: in too many pieces.
    """

    ahead: SourceAhead
    target_lineage: Lineage
    _: KW_ONLY
    fresh: bool
    truncated: bool
    unexplained: Span = field(default_factory=Span)
    is_astray: bool = False
    _begins_suppressed: bool = False
    _early: FoundRuns | None = field(default_factory=FoundRuns)
    _early_count: int = 0

    def __post_init__(self) -> None:
        self._lenient = self.ahead.comparison.may_lack_some

    async def step(self, places: list[LogReading], copied: Content) -> list[LogReading]:
        """Return where the places are after one copied record; they are used up by that."""
        following: list[LogReading] = []
        begun = self.fresh and any(place.begun for place in places)
        for place in places:
            following += await self._after(place, copied, begun=begun)
            if len(following) > MOST_PLACES:
                self.give_up(copied.offset, "equal records leave too many ways to read it")
                following = sorted(following, key=lambda place: place.source_next)
                del following[MOST_PLACES // 2 :]
        if self._begins_suppressed and begun and not any(place.begun for place in following):
            following = []
        for place in following:
            place.owed.discard(copied.key)
        if self._early is not None and any(not place.begun for place in following):
            self._early.add(self._early_count, copied.offset, 1)
            self._early_count += 1
            if len(self._early) > _MOST_SPANS:
                self._early = None
        if len(following) == 1:
            return following
        return distinct(following) or [await self._unexplained_step(places, copied)]

    def give_up(self, offset: int, why: str) -> None:
        """Stop the walk (IntegrityError), unless losses are accepted."""
        if not self.ahead.comparison.accepts_loss:
            raise IntegrityError(
                f"{self.ahead.reader.partition}: position undecidable at target offset {offset}, "
                f"{why}",
                "compare with 'srm verify', or, to continue, set data.loss.policy = continue in "
                "srm.properties, then run srm replicator restart",
            )

    async def _after(self, place: LogReading, copied: Content, *, begun: bool) -> list[LogReading]:
        """Return the places to which a copied record leads from one; it is used up by that."""
        found = await self._proven(place, await self._candidates(place, copied), copied)
        if self.fresh and not place.begun:
            if found and begun:
                # Of several beginnings the earliest counts; if it fails, nothing is decided.
                self._begins_suppressed = True
                found = []
            after = [self._find(place.branch(), *each, copied) for each in found]
            place.former.add(copied.offset)
            return [*after, place]
        may_precede = self.ahead.trimmed and not place.begun
        if (may_precede and place.source_next < self.ahead.log_start) or (
            not found and await self._is_compacted(place, copied)
        ):
            after = [self._find(place.branch(), *each, copied) for each in found]
            place.lack(copied.offset, counts=not self.truncated)
            return [*after, place]
        places = [*(place.branch() for _ in found[1:]), place]
        return [self._find(p, *each, copied) for p, each in zip(places, found, strict=False)]

    async def _proven(
        self, place: LogReading, candidates: list[int], copied: Content
    ) -> list[tuple[int, set[int]]]:
        proven = []
        for index in candidates:
            owed: set[int] | None = set()
            if index > place.at:
                owed = self.ahead.owed_for(place.at, index, place.free)
                await self.ahead.turns.give_way()
            if owed is not None:
                proven.append((index, owed))
                if len(owed) + len(place.owed) > MOST_OWED:
                    self.give_up(copied.offset, "more was removed before it than fits")
        return proven

    def _find(self, place: LogReading, index: int, owed: set[int], copied: Content) -> LogReading:
        offset = self.ahead.offset(index)
        if place.certain is None and self.ahead.needed(place.at, index):
            place.certain = replace(place.branch(), copies=0, gone=0, holes=0, free=0)
        if not place.begun and place.gone == place.copies == offset - place.passed:
            early = self._early or FoundRuns()
            place.runs, place.removed = early.head(place.gone, place.passed), Span()
        place.owed |= owed
        place.find(index, offset, copied.offset, 1)
        return place

    async def _candidates(self, place: LogReading, copied: Content) -> list[int]:
        ahead, credit = self.ahead, place.credit
        if not await self.ahead.open_to(place.at):
            return []
        if not (credit or self._lenient):
            at = place.at
            equal = ahead.equals(at, copied.content, copied.time)
            return [at] if equal and place.allows(ahead.offset(at), 0) else []
        while (last := ahead.next_needed(place.at, credit)) == ahead.opened_end:
            if not await ahead.open_more():
                break
        await ahead.index_contents()
        same = ahead.same_content(place.at, last + 1, copied.content, _MOST_EQUAL)
        found = [
            index
            for index in same
            if ahead.equals(index, copied.content, copied.time)
            and place.allows(ahead.offset(index), ahead.needed(place.at, index))
        ]
        if last == ahead.opened_end and not ahead.ended and (copied.time is None or not found):
            self.give_up(copied.offset, "more of the source is to be searched for it than fits")
        if len(same) == _MOST_EQUAL:
            self.give_up(copied.offset, "the source holds too many records equal to it")
        return [index for index in found if ahead.is_needed(index)] or found

    async def _is_compacted(self, place: LogReading, copied: Content) -> bool:
        """Return whether compaction can have removed a copy's record, and there was room for it."""
        if not copied.has_key:
            return False
        ahead = self.ahead
        await ahead.index_keys()
        while not copied.is_tombstone and ahead.last_of_key(copied.key) < place.at:
            if not await ahead.open_more():
                return False
        if self.truncated:
            return True
        end = ahead.next_needed(place.at, place.credit)
        room_until = ahead.offset(end) if end < ahead.opened_end else ahead.end
        return room_until - place.passed - place.credit > place.gone

    async def _unexplained_step(self, places: list[LogReading], copied: Content) -> LogReading:
        """Advance without evidence if losses are accepted, from before what evidence passed."""
        certain = (place.certain or place for place in places)
        place = min(certain, key=lambda place: place.source_next)
        self.give_up(
            copied.offset,
            "it holds a record of ours that does not follow on the source from offset "
            f"{place.source_next}",
        )
        ahead = self.ahead
        await ahead.index_contents()
        while (last := ahead.next_needed(place.at, _MOST_UNEXPLAINED)) == ahead.opened_end:
            if not await ahead.open_more():
                break
        index = self._only_equal(place, last, copied)
        if index is None:
            place.removed.add(copied.offset)
            return place
        for passed in range(place.at, index):
            if ahead.is_needed(passed):
                self.unexplained.add(ahead.offset(passed))
        place.find(index, ahead.offset(index), copied.offset, 1)
        return place

    def _only_equal(self, place: LogReading, last: int, copied: Content) -> int | None:
        """Return the one record up to an index that a copy equals, by its content and its time.

        To pass what the source holds is to lose it, so of several records, or by content alone,
        none is taken. After an election the copy may be of a record that the source has lost.
        """
        ahead = self.ahead
        if self.is_astray or place.removed.count:
            return None
        same = ahead.same_content(ahead.first, ahead.opened_end, copied.content, _MOST_ALIKE)
        found = [i for i in same if ahead.equals(i, copied.content, copied.time)]
        if copied.time is None or len(found) != 1 or len(same) == _MOST_ALIKE:
            return None
        [index] = found
        is_ahead = place.at <= index <= last and ahead.offset(index) >= place.source_next
        same_leaders = _in_one_epoch(ahead.lineage, place.passed, ahead.offset(index)) and (
            _in_one_epoch(self.target_lineage, place.reached, copied.offset)
        )
        return index if is_ahead and same_leaders else None


def _in_one_epoch(lineage: Lineage, after: int, offset: int) -> bool:
    epoch = lineage.before(after).epoch
    return epoch >= 0 and epoch == lineage.before(offset + 1).epoch
