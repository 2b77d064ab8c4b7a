"""Match of our batches on the target with source records: the source's side of the resume walk.

Batches are compared by their bytes, else record by record: it does not matter how a batch was
recompressed, cut, merged or rebuilt. A record without an equal on the other side needs evidence
(docs/data-plane.md, "Resume"), in addition to the places that
:mod:`srm.replication.resume.evidence` counts. A tombstone needs no later record of its key.

A record that equals the next one of the source is taken for its copy, though compaction may have
removed an earlier equal one: what the logs hold now is the same either way.

All else is undecidable, and so is a walk that can end at two places. With losses accepted
(``data.loss.policy=continue``) unexplained records are reported and skipped, and the first of
several places is used: that loses nothing, but records may be copied again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from srm.domain.offset_map.offset_map import Run
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage
from srm.errors import IntegrityError
from srm.replication.batches.batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    BatchHeader,
    content_hash,
    next_sequence,
)
from srm.replication.batches.codecs import MERGED_CODECS, open_into
from srm.replication.batches.records import records_of
from srm.replication.log_reader import LogReader
from srm.replication.mapping.starts import NOWHERE, Start
from srm.replication.native.library import Compared, address, native_library
from srm.replication.ports import DecodedRecord
from srm.replication.resume.evidence import MOST_OWED, MOST_RUNS, Content, LogReading, Steps
from srm.replication.resume.source_lookahead import Comparison, SourceAhead

_NO_ROOM: Final = "the source has no offsets for these records"
_CLEARLY_BEGUN: Final = 512
"""Number of copies that proves that not all of them are left by a former topic."""
_TIMESTAMPS: Final = slice(27, 43)
_MOST_OPENED: Final = 2 << 20
"""Maximum size of an opened batch; merged ones have a megabyte."""
Stretches = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ProvenPlace:
    """A proven place, the lineages of both logs up to it, and runs before it not handed out yet."""

    source_next: int
    target_next: int
    runs: tuple[Run, ...] = ()
    source_lineage: Lineage = UNKNOWN_LINEAGE
    target_lineage: Lineage = UNKNOWN_LINEAGE


class SourceWalk:
    """Walks the source along the target; receives every batch there, in order."""

    def __init__(self, reader: LogReader, start: Start, comparison: Comparison) -> None:
        known = start if start.has_position else NOWHERE
        self._target_next = known.target_next
        self._lenient = comparison.may_lack_some
        self._ahead = SourceAhead(reader, known.source_next, comparison, known.source_lineage)
        self._turns = self._ahead.turns
        self._native = native_library()
        self._steps = Steps(
            self._ahead,
            known.target_lineage.before(known.target_next),
            fresh=start.fresh,
            truncated=start.truncated,
        )
        self._places = [LogReading(0, known.source_next, self._target_next)]
        self._claim = (-1, -1)
        self._sequences: dict[tuple[int, int], int] = {}
        self._holds_claims_whole = start.cut or not self._target_next
        if start.target_next > self._target_next:
            self.begin_target_at(start.target_next)

    # ----- the target's log

    @property
    def target_lineage(self) -> Lineage:
        return self._steps.target_lineage.before(self._target_next)

    def meet(self, batch: BatchHeader, offset: int) -> None:
        """Note the leader epoch of the next batch of the target; it was read up to an offset."""
        known = self._steps.target_lineage
        self._steps.target_lineage = known.with_epoch(batch.leader_epoch, offset)

    def begin_target_at(self, offset: int) -> None:
        """Note that the target's log holds nothing before an offset any more."""
        for place in self._places:
            place.free += offset - self._target_next
        self._target_next = offset
        self._holds_claims_whole = False

    def pass_over(self, batch: BatchHeader) -> None:
        self._pass_holes(batch.base_offset)
        if batch.is_control:
            self._sequences.setdefault((batch.producer_id, batch.producer_epoch), 0)
        self._target_next = max(self._target_next, batch.last_offset + 1)

    async def match(self, batch: BatchHeader) -> None:
        """Note a batch of ours; IntegrityError: the source cannot have held it there."""
        self._pass_holes(batch.base_offset, batch)
        if not await self._match_whole(batch):
            with_time = not batch.has_log_append_time
            async for piece in records_of(batch, self._turns, self._target_next):
                await self._match_piece(piece, with_time=with_time)
            # What compaction took from the end of a batch was copied, too.
            self._pass_holes_to(batch.last_offset + 1)
        await self._turns.give_way()

    def _pass_holes(self, offset: int, batch: BatchHeader | None = None) -> None:
        """Pass empty offsets: copies, or markers, that compaction removed."""
        empty = offset - self._target_next
        copied, most = 0, empty
        if batch is not None:
            claim, sequence = (batch.producer_id, batch.producer_epoch), batch.base_sequence
            due = self._sequences.get(claim, 0 if self._holds_claims_whole else sequence)
            # Offsets that are empty before a foreign batch may be that producer's: not counted.
            self._steps.is_astray = sequence - due > empty
            between = (sequence - due) % MAX_SEQUENCE
            if claim == self._claim and between <= empty:
                copied = most = between
            self._claim = claim
            if not self._steps.is_astray:  # else those after it are, too
                self._sequences[claim] = next_sequence(sequence, batch.last_offset_delta + 1)
        self._pass_holes_to(offset, most, copied)

    def _pass_holes_to(
        self, offset: int, holes: int | None = None, copied: int | None = None
    ) -> None:
        """Count empty offsets up to one for all places: all of them copies, if not given."""
        empty = offset - self._target_next
        if empty > 0:
            for place in self._places:
                place.holes += empty if holes is None else holes
                place.copies += empty if copied is None else copied
            self._target_next = offset

    # ----- matching

    async def _match_whole(self, batch: BatchHeader) -> bool:
        [place, *others] = self._places
        ahead = self._ahead
        if self._lenient or others or place.credit or place.owed or not batch.is_dense:
            return False
        if place.at != ahead.opened_end or batch.base_offset != self._target_next:
            return False
        first = await ahead.batch_ahead()
        may_begin = place.begun or self._begins_here
        if first is None or not may_begin or not place.allows(first.base_offset, 0):
            return False
        found = await self._originals(batch, first)
        target = batch.base_offset
        for stretches in found:
            for offset, count in stretches:
                place.find(place.at, offset, target, count)
                target += count
        ahead.pass_batches(len(found))
        place.at = ahead.opened_end
        self._target_next = target
        return bool(found)

    async def _originals(self, batch: BatchHeader, first: BatchHeader) -> list[Stretches]:
        """Return the records of the source's next batches if a dense batch holds just these.

        An unchanged batch has the same bytes as ``first``, the next one. A merged batch holds the
        records of several batches in other bytes, which ``compare.c`` compares without decoding.
        None if that is not so, or was not found.
        """
        if _is_copy(batch, first):
            return [[(first.base_offset, first.record_count)]]
        ours = _records_of(batch)
        if self._native is None or ours is None:
            return []
        compared = Compared(address(ours), len(ours), with_time=not batch.has_log_append_time)
        found: list[Stretches] = []
        while compared.index < batch.record_count:
            theirs = await self._ahead.batch_ahead(len(found))
            opened = None if theirs is None else _records_of(theirs)
            stretches = None if opened is None else self._native.compare(compared, opened)
            if theirs is None or stretches is None:
                return []
            found.append(stretches)
        return found

    @property
    def _begins_here(self) -> bool:
        return not (self._steps.fresh or self._ahead.trimmed)

    async def _match_piece(self, piece: Sequence[DecodedRecord], *, with_time: bool) -> None:
        comparison = self._ahead.comparison
        contents = array("q", [comparison.content(record) for record in piece])
        times = array("q", [record.timestamp for record in piece]) if with_time else None
        done = 0
        while done < len(piece):
            count = await self._match_stretch(piece, contents, times, done)
            if not count:
                record = piece[done]
                self._pass_holes_to(record.offset)
                copied = Content(
                    record.offset,
                    contents[done],
                    record.timestamp if with_time else None,
                    content_hash(record.key),
                    record.key is not None,
                    record.value is None,
                )
                self._places = await self._steps.step(self._places, copied)
                if len(self._places) > 1:
                    self._prune(copied)
                self._target_next = record.offset + 1
                count = 1
            done += count
        await self._ahead.forget(min(place.at for place in self._places))

    async def _match_stretch(
        self,
        piece: Sequence[DecodedRecord],
        contents: array[int],
        times: array[int] | None,
        done: int,
    ) -> int:
        """Match records in a row where there is but one place for them; return how many."""
        place, ahead, first = self._places[0], self._ahead, piece[done].offset
        if (
            len(self._places) > 1
            or self._lenient
            or place.credit
            or first != self._target_next
            or not await self._ahead.open_to(place.at)
            or not (place.begun or self._begins_here)
            or not ahead.equals(place.at, contents[done], times[done] if times else None)
            or not place.allows(ahead.offset(place.at), 0)
            or piece[-1].offset - first != len(piece) - done - 1
        ):
            return 0
        count = ahead.count_equal(place.at, contents[done:], times and times[done:])
        target = first
        for offset, length in ahead.stretches(place.at, count):
            place.find(place.at, offset, target, length)
            target += length
        if place.owed:
            piece = piece[done : done + count]
            place.owed.difference_update(content_hash(record.key) for record in piece)
        self._target_next = target
        return count

    def _prune(self, copied: Content) -> None:
        if self._steps.fresh and any(place.found > _CLEARLY_BEGUN for place in self._places):
            self._places = [place for place in self._places if place.begun]
        if (
            sum(len(place.runs) for place in self._places) > MOST_RUNS
            or sum(len(place.owed) for place in self._places) > MOST_OWED
        ):
            self._steps.give_up(copied.offset, "too much is unclear before it")
            self._places = [min(self._places, key=lambda place: place.source_next)]

    # ----- the end

    @property
    def waiting_runs(self) -> int:
        return len(self._places[0].runs)

    def settle(self) -> ProvenPlace | None:
        """Hand out what is proven; None while reading has branched, or something is to be shown."""
        [place, *others] = self._places
        if others or not place.is_settled or not (place.begun or self._begins_here):
            return None
        place.certain = None
        lineage, runs = self.source_lineage(place.passed), tuple(place.runs.take())
        return ProvenPlace(place.passed, self._target_next, runs, lineage, self.target_lineage)

    def source_lineage(self, offset: int) -> Lineage:
        return self._ahead.lineage.before(offset)

    async def decide(self) -> LogReading:
        """Return the one place at which the walk has ended; IntegrityError: several, or none."""
        for place in self._places:
            if place.copies:
                await self._ahead.open_until(place.source_next)
        places = [place for place in self._places if self._is_possible(place)]
        if self._steps.fresh and any(place.begun for place in places):
            places = [place for place in places if place.begun]
        if not places:
            [place, *_] = self._places
            if place.owed:
                owed = f"{len(place.owed)} keys whose records it lacks have no later one there"
                self._steps.give_up(self._target_next, owed)
            else:
                self._steps.give_up(max(place.removed.last, 0), _NO_ROOM)
            places = self._places
        if len({self._boundary(place) for place in places}) > 1:
            first, *_, last = sorted(place.source_next for place in places)
            self._steps.give_up(
                self._target_next, f"equal records leave source offsets {first} to {last} for it"
            )
        return min(places, key=lambda p: (self._boundary(p), p.removed.count))

    def _is_possible(self, place: LogReading) -> bool:
        if place.owed or place.at > self._ahead.opened_end:
            return False
        return self._ahead.needed_below(place.at, place.source_next) <= place.credit

    def _boundary(self, place: LogReading) -> int:
        return place.at + self._ahead.needed_below(place.at, place.source_next)

    def notes(self, place: LogReading) -> list[str]:
        notes = []
        missing, former, removed = self._steps.unexplained, place.former, place.removed
        if missing.count:
            notes.append(
                f"{missing.count} records at source offsets {missing.first} to {missing.last} are "
                "not on the target, which holds later ones: refused, filtered or deleted"
            )
        if former.count:
            notes.append(
                f"{former.count} records at target offsets {former.first} to {former.last} are of "
                "a topic that had the name before, or gone from the source (compacted, deleted or "
                "truncated there): not in the map"
            )
        if place.owed:
            notes.append(
                f"the target lacks records of {len(place.owed)} keys before source offset "
                f"{place.source_next}, and has no later ones"
            )
        if removed.count:
            notes.append(
                f"{removed.count} records at target offsets {removed.first} to {removed.last} are "
                "gone from the source (compacted, deleted or truncated there): not in the map"
            )
        return notes


def _is_copy(ours: BatchHeader, theirs: BatchHeader) -> bool:
    with_time = not ours.has_log_append_time
    return (
        len(ours.view) == len(theirs.view)
        and theirs.is_dense
        and not (with_time and theirs.has_log_append_time)
        and (not with_time or ours.view[_TIMESTAMPS] == theirs.view[_TIMESTAMPS])
        and bytes(ours.view[HEADER_SIZE:]) == bytes(theirs.view[HEADER_SIZE:])
    )


def _records_of(batch: BatchHeader) -> memoryview | None:
    if not batch.codec:
        return batch.view
    if batch.codec not in MERGED_CODECS:
        return None
    room = memoryview(bytearray(_MOST_OPENED))
    try:
        return room[: open_into(batch.view, room)]
    except IntegrityError:
        return None
