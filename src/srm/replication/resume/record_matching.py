"""One copied record, and where it leads to: the evidence rules of the walk, record by record."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from srm.domain.offset_map.lineage import Lineage
from srm.errors import IntegrityError
from srm.replication.resume.batch_decoding import LoopShare
from srm.replication.resume.evidence import (
    MOST_OWED,
    MOST_PLACES,
    Content,
    EarlyCopies,
    LogReading,
    Span,
    distinct,
)
from srm.replication.resume.source_lookahead import Comparison, SourceAhead

_MOST_UNEXPLAINED: Final = 1024
"""Needed records that are passed without evidence at once, where losses are accepted."""
_MOST_EQUAL: Final = 4096
_MOST_ALIKE: Final = 64
"""Most records of equal content among which a timestamp identifies one."""


@dataclass(eq=False)
class Steps:
    """Advances places over single records.

    ``unexplained`` are source offsets passed unproven. ``target_lineage`` is that of the target up
    to the batch of the record. ``is_astray``: copies before that batch were lost with a log's end.
    """

    ahead: SourceAhead
    comparison: Comparison
    turns: LoopShare
    partition: str
    target_lineage: Lineage
    _: KW_ONLY
    fresh: bool
    truncated: bool
    early: EarlyCopies = field(default_factory=EarlyCopies)
    unexplained: Span = field(default_factory=Span)
    is_astray: bool = False
    _begins_suppressed: bool = False

    def __post_init__(self) -> None:
        self._lenient = self.comparison.may_lack_some

    async def step(self, places: list[LogReading], copied: Content) -> list[LogReading]:
        """Return where the places are after one copied record; they are used up by that.

        IntegrityError: nowhere, or it would take too much to follow them all.
        """
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
        if any(not place.begun for place in following):
            self.early.add(copied.offset, 1)
        if len(following) == 1:
            return following
        return distinct(following) or [await self._unexplained_step(places, copied)]

    def give_up(self, offset: int, why: str) -> None:
        """Stop the walk (IntegrityError), unless losses are accepted."""
        if not self.comparison.accepts_loss:
            raise IntegrityError(
                f"{self.partition}: position undecidable at target offset {offset}, {why}",
                "compare with 'srm verify', or, to copy on, set data.loss.policy = continue in "
                "srm.properties, then run srm replicator restart",
            )

    async def _after(self, place: LogReading, copied: Content, *, begun: bool) -> list[LogReading]:
        """Return the places to which a copied record leads from one; it is used up by that.

        ``begun``: at some place of now a copy was found before this one.
        """
        found = await self._proven(place, await self._candidates(place, copied), copied)
        if self.fresh and not place.begun:
            if found and begun:
                # Of several beginnings the earliest counts; if it fails, nothing is decided.
                self._begins_suppressed = True
                found = []
            after = [self._find(place.branch(), *each, copied) for each in found]
            place.former.add(copied.offset)
            return [*after, place]
        if self._is_before_the_log(place) or (
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
        """Return the candidates before which nothing was passed without proof, and what is owed."""
        proven = []
        for index in candidates:
            owed: set[int] | None = set()
            if index > place.at:
                owed = self.ahead.owed_for(place.at, index, place.free)
                await self.turns.give_way()
            if owed is not None:
                proven.append((index, owed))
                if len(owed) + len(place.owed) > MOST_OWED:
                    self.give_up(copied.offset, "more was removed before it than fits")
        return proven

    def _find(self, place: LogReading, index: int, owed: set[int], copied: Content) -> LogReading:
        """Advance a place to after a candidate."""
        offset = self.ahead.offset(index)
        if place.certain is None and self.ahead.needed(place.at, index):
            place.certain = place.without_count()
        if not place.begun and place.gone == place.copies == offset - place.passed:
            place.runs, place.removed = self.early.runs(place.passed, place.gone), Span()
        place.owed |= owed
        place.find(index, offset, copied.offset, 1)
        return place

    async def _candidates(self, place: LogReading, copied: Content) -> list[int]:
        """Return the records of the source that a copied one can be."""
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

    def _is_before_the_log(self, place: LogReading) -> bool:
        """Return whether the next copy can be of a record before the source's log start."""
        return self.ahead.trimmed and not place.begun and place.source_next < self.ahead.log_start

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
        offset = ahead.offset(index)
        place.find(index, offset, copied.offset, 1)
        return place

    def _only_equal(self, place: LogReading, last: int, copied: Content) -> int | None:
        """Return the one record up to an index that a copy equals, by its content and its time.

        To pass what the source holds is to lose it: of several records, or by content alone, none
        is taken, and the rest is copied again. Equal ones that were passed count as well. So does
        an election: the copy may be of a record that the source has lost, or was on its way when
        the target lost its end. Copies passed without a record say that the source has lost some.
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
    """Return whether a log has the record before one offset and that at another from one leader."""
    epoch = lineage.before(after).epoch
    return epoch >= 0 and epoch == lineage.before(offset + 1).epoch
