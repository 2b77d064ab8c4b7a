"""Translation of an offset of one log to its counterpart, the one that all other code uses.

Two directions, pictured for flow P->B and the topic ``Payments``::

    forward   Payments on P    ->  P.Payments on B   an original to its copy
    reverse   P.Payments on B  ->  Payments on P     a copy to its original

*Upstream* is the log of the commit, *downstream* the log where the group continues. The offset map
is exact, but logs are finite, and a copy may lack records. So an offset has one of these outcomes:

==================  ===============================================================================
translated          exact: the group continues here, all skipped records are counted
not-copied-yet      forward: the copy ends before the commit; the offset is its end
map-behind          reverse: the map ends before the commit; the offset is its end
no-commit           no offset to translate: the clients' auto.offset.reset decides
no-map              the partition was never copied
damaged-map         the map cannot be trusted
no-target           the partition does not exist downstream
past-end            the offset is after the end of a log: topic truncated or re-created
==================  ===============================================================================

A group skips records that it could still read upstream and will not find downstream: ``dropped`` by
retention, ``refused`` by the copy and noted, or from before the first copied record (``uncopied``).
The last two count offsets, markers included.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from srm.domain.flow_state.replication_records import PartitionNotes, PartitionStatus, in_force
from srm.domain.names.topics import OpenTransaction, TopicPartition
from srm.domain.offset_map.offset_map import NoMap, NotCopiedYet, OffsetMap
from srm.domain.offset_map.offset_map import Translated as MapTranslated
from srm.domain.offset_map.offset_map import Translation as MapAnswer
from srm.domain.text.amount import amount
from srm.errors import NotLoadedError, message

Direction = Literal["forward", "reverse"]
State = Literal[
    "translated",
    "not-copied-yet",
    "map-behind",
    "no-commit",
    "no-map",
    "damaged-map",
    "no-target",
    "past-end",
]
UNFINISHED: frozenset[State] = frozenset({"not-copied-yet", "map-behind"})
"""States that end by themselves; their offset is true, and may only raise a group."""
UNREACHED: frozenset[State] = frozenset({*UNFINISHED, "no-map"})
_RESET = "reset that offset to where the group is to continue"
_WAIT = "wait until its replicator has found the lost end: srm status shows it as copying again"


@dataclass(frozen=True, slots=True)
class LogRange:
    """One partition's log: first offset, last stable offset, high watermark."""

    start: int
    stable_end: int
    end: int


UNKNOWN_LOG = LogRange(0, sys.maxsize, sys.maxsize)
"""Range of a log that could not be read: nothing is dropped, nothing is past its end."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Source offsets noted as never to be copied, as ranges [from, to).

    ``elsewhere`` counts offsets without known ranges, in other holes of the map. ``discarded``
    ranges are skipped by all groups, ``kept`` are the ``ranges`` kept for groups that read the
    source.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    elsewhere: int = 0
    discarded: tuple[tuple[int, int], ...] = ()
    kept: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, notes: Iterable[PartitionNotes], status: PartitionStatus | None) -> Losses:
        """Sum up the notes of slots; the range of a stopped partition does not count yet."""
        ranges, elsewhere, discarded, kept = [], 0, [], []
        for note in in_force(notes):
            if note.decision == "discard":
                discarded.append(note.left_out or (0, 0))
            elif note.decision == "keep":
                kept.append(note.left_out or (0, 0))
                ranges.append(kept[-1])
            elif note.lost_from is not None and note.lost_to is not None:
                ranges.append((note.lost_from, note.lost_to))
                elsewhere += note.lost - (note.lost_to - note.lost_from)
        if status is not None and status.state != "stopped" and status.lost_from is not None:
            ranges.append((status.lost_from, status.lost_to or status.lost_from))
        return cls(tuple(_join(ranges)), elsewhere, tuple(_join(discarded)), tuple(_join(kept)))

    def count(self, offset_map: OffsetMap, start: int, end: int = sys.maxsize) -> int:
        """Count noted offsets in [start, end) that were never copied."""
        found = sum(_holes(offset_map, max(a, start), min(b, end)) for a, b in self.ranges)
        if not self.elsewhere:
            return found
        first = start if offset_map.first_source is None else offset_map.first_source
        known = offset_map.known_source_end or 0
        holes = _holes(offset_map, max(start, first), min(end, known))
        return found + min(self.elsewhere, max(0, holes - found))

    def count_at_most(self, offset_map: OffsetMap, start: int, end: int = sys.maxsize) -> int:
        """Count as above, and whole ranges where a part of the map is lost or not loaded."""
        try:
            return self.count(offset_map, start, end)
        except NotLoadedError:  # or the log ends within a range
            return sum(max(0, min(b, end) - max(a, start)) for a, b in self.ranges)


def _join(ranges: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    reached = 0
    for start, end in sorted(ranges):
        if end > reached:
            yield max(start, reached), end
            reached = end


def _holes(offset_map: OffsetMap, start: int, end: int) -> int:
    return end - start - offset_map.source_records_between(start, end) if end > start else 0


@dataclass(frozen=True)
class PartitionFacts:
    """Known facts of a partition and its copy; read the map first, then the logs (None: missing).

    ``damage`` is why the map is unusable, ``gap`` its lost part. ``transactions``: open upstream.
    ``back``: facts of the opposite flow, where both copy into one name, so that each log holds the
    other's records among its own.
    """

    direction: Direction
    upstream: TopicPartition
    downstream: TopicPartition
    target: str
    upstream_log: LogRange | None
    downstream_log: LogRange | None
    offset_map: OffsetMap = field(default_factory=OffsetMap)
    damage: str = ""
    losses: Losses = field(default_factory=Losses)
    transactions: tuple[OpenTransaction, ...] = ()
    gap: str = ""
    back: PartitionFacts | None = None

    @property
    def original(self) -> TopicPartition:
        return self.upstream if self.direction == "forward" else self.downstream

    @property
    def never_copied(self) -> bool:
        """True if in reverse no group has read a record of the original by reading the copy."""
        log, position = self.upstream_log, self.offset_map.position
        is_known = self.direction == "reverse" and not self.damage and not self.gap
        if not is_known or self.offset_map.first_source is not None:
            return False
        if log is None or log.end == 0:
            return True
        return position is not None and position.target_next >= log.end  # markers of claims only

    @property
    def copy_lost_its_end(self) -> bool:
        """True if, in reverse, the copy's log ends before the end of its map.

        Records that replace the lost ones, at least a marker, are not in the map yet.
        """
        log, position = self.upstream_log, self.offset_map.position
        if self.direction == "forward" or log is None or position is None:
            return False
        return log.end < position.target_next

    def records_upstream(self, start: int, end: int) -> int:
        """Count records in [start, end) of the upstream log.

        Of an original, offsets beyond the map count, too; of a copy only copied records. If a part
        of the map is lost, all offsets count.
        """
        return self._count(start, end, original=self.direction == "forward")

    def records_downstream(self, start: int, end: int) -> int:
        """Count records in [start, end) of the downstream log, under one name those of both flows.

        What the opposite flow has not examined yet counts once, copies or not.
        """
        own, to = 0, end
        if self.back is not None:
            own = self.back.records_downstream(start, end)
            to = min(end, self.back.offset_map.known_source_end or 0)
        return own + self._count(start, to, original=self.direction == "reverse")

    def copies_upstream(self, start: int, end: int) -> int:
        """Count copies of the other cluster's records in [start, end) upstream, as far as known."""
        if self.back is None or self.back.copy_lost_its_end:
            return 0
        try:
            return self.back.offset_map.records_between(start, end)
        except NotLoadedError:
            return 0  # rather too many records count as lost than too few

    def _count(self, start: int, end: int, *, original: bool) -> int:
        try:
            if not original:
                return self.offset_map.records_between(start, end)
            examined = max(start, self.offset_map.known_source_end or 0)
            unknown = max(0, end - examined) - self.copies_upstream(examined, end)
            return self.offset_map.source_records_between(start, end) + unknown
        except NotLoadedError:
            return max(0, end - start)


@dataclass(frozen=True, slots=True)
class Translation:
    """Outcome for one offset; both offsets are "next to read".

    ``offset``: where the group continues downstream; in a state without an exact offset, the end of
    the map. ``reached`` corresponds to it upstream. ``remaining``: offsets up to the commit that
    are not in the map yet. ``dropped``, ``refused``, ``uncopied``: as above. ``re_read``: records
    from ``offset`` on that were read, all offsets if a part of a map is not loaded. ``reason``
    includes ``action``.
    """

    state: State
    offset: int | None = None
    reached: int | None = None
    remaining: int = 0
    dropped: int = 0
    refused: int = 0
    uncopied: int = 0
    re_read: int = 0
    reason: str = ""
    action: str = ""

    @property
    def total_skipped(self) -> int:
        return self.dropped + self.refused + self.uncopied


def translate(facts: PartitionFacts, offset: int | None) -> Translation:
    """Translate one offset, None if nothing is committed."""
    found = _through_one_map(facts, offset)
    if facts.back is None or offset is None:
        return found
    try:
        return _on_one_name(facts, facts.back, offset, found)
    except NotLoadedError as error:
        return _in_gap(facts.back, str(error))


def _through_one_map(facts: PartitionFacts, offset: int | None) -> Translation:
    own, log = facts.upstream_log, facts.downstream_log
    never_read = facts.never_copied and (offset is None or (own is not None and offset <= own.end))
    if never_read and log is not None:
        # No record of the original was read, so its first record is next, commit or not.
        return Translation("translated", _after_discarded(facts, log.start), offset)
    if offset is None:
        return Translation("no-commit")
    if facts.damage:
        why = f"the offset map of {facts.original} cannot be used: {facts.damage}"
        return Translation("damaged-map", reason=why)
    if log is None:
        return _without_log(facts)
    try:
        found = _through_map(facts, log, offset)
    except NotLoadedError as error:
        return _in_gap(facts, str(error))
    # Offsets beyond the map are in its lost part, not still to be copied.
    return _in_gap(facts, found.reason) if facts.gap and found.state in UNREACHED else found


def _on_one_name(
    facts: PartitionFacts, back: PartitionFacts, offset: int, found: Translation
) -> Translation:
    """Translate where both flows copy into one name.

    The group has not read: the source's own records from the commit on, and those of the target
    whose copies are at or after the commit, or that were kept there and not passed. It continues
    at the first of either in the target's log, and reads some again, as the logs have different
    orders.
    """
    known, log, there = back.offset_map, facts.upstream_log, facts.downstream_log
    if log is None or there is None or found.state not in {"translated", *UNREACHED}:
        return found
    if back.copy_lost_its_end:
        return Translation("map-behind", remaining=1, reason=_lost_end(back))
    if back.damage or back.gap or known.known_source_end is None:
        why = back.damage or back.gap or "the opposite flow has not reported yet"
        reason = f"records of {back.downstream} that {facts.upstream} holds are not known: {why}"
        return Translation("map-behind", remaining=1, reason=reason)
    theirs = max(known.next_unread(offset, back.losses.kept), there.start)
    readable = known.next_unread(max(offset, log.start))
    if lost := known.source_records_between(readable, there.start):
        reason = f"{amount(lost, 'record')} of {back.target} already deleted by retention there"
        reasons = "; ".join(part for part in (found.reason, reason) if part)
        found = replace(found, dropped=found.dropped + lost, reason=reasons)
    if _has_no_own_after(facts, log, offset):
        found = replace(found, state="translated", offset=there.end, reached=offset, remaining=0)
    if found.offset is not None and found.offset <= theirs:
        return replace(found, re_read=back.records_downstream(found.offset, theirs))
    if theirs == known.known_source_end and theirs < there.end:
        reason = f"{back.downstream} is examined for records of its own up to {theirs} only"
        found = replace(found, state="map-behind", remaining=1, reason=reason)
    elif found.state == "no-map":
        reason = f"{facts.upstream} was never copied: does a replicator run?"
        found = replace(found, state="not-copied-yet", remaining=1, reason=reason)
    copies = replace(facts, back=None)
    again = copies.records_downstream(theirs, theirs if found.offset is None else found.offset)
    return replace(found, offset=theirs, reached=offset, re_read=again)


def _has_no_own_after(facts: PartitionFacts, log: LogRange, offset: int) -> bool:
    """Return True if the copying flow has examined the whole log and copied nothing from there."""
    known = facts.offset_map
    if known.position is None or known.next_record(offset) is not None:
        return False
    return known.position.source_next >= max(offset, log.end)


def _without_log(facts: PartitionFacts) -> Translation:
    where, check = f"{facts.downstream} does not exist on {facts.target}", ""
    if facts.upstream_log is None:
        where += f", nor does {facts.upstream} on the other cluster"
        check = "check topic and partition"
    return Translation("no-target", reason=message(where, check), action=check)


def _lost_end(facts: PartitionFacts) -> str:
    end = facts.upstream_log.end if facts.upstream_log else 0
    return (
        f"{facts.upstream} ends at {end}, before the end of its map: the log was truncated, and "
        "the replicator has not reported that yet"
    )


def _in_gap(facts: PartitionFacts, otherwise: str) -> Translation:
    why = f"a part of the offset map of {facts.original} cannot be used: {facts.gap or otherwise}"
    return Translation("damaged-map", reason=why)


def _through_map(facts: PartitionFacts, log: LogRange, offset: int) -> Translation:
    if facts.copy_lost_its_end:
        return Translation("map-behind", reason=_lost_end(facts))
    found = _look_up(facts, offset)
    if isinstance(found, NoMap):
        return Translation("no-map", reason=f"{facts.original} was never copied, as the map shows")
    if isinstance(found, NotCopiedYet):
        return _explain_unfinished(facts, log, offset, found.remaining)
    return _within(facts, log, Translation("translated", found.offset, offset))


def _look_up(facts: PartitionFacts, offset: int) -> MapAnswer:
    if facts.direction == "reverse":
        found = facts.offset_map.backward(offset)
        if isinstance(found, MapTranslated):
            return MapTranslated(_after_discarded(facts, found.offset))
        return found
    start = facts.downstream_log.start if facts.downstream_log else 0
    return facts.offset_map.forward(offset, start)


def _after_discarded(facts: PartitionFacts, offset: int) -> int:
    """Skip discarded ranges, if the group has read all copied records before them.

    A range with records in the map is obsolete: a truncated log gave these offsets to other
    records.
    """
    known = facts.offset_map
    for start, end in facts.losses.discarded:
        if end <= offset:
            continue  # the map may not be loaded there
        reached = offset >= start or (
            (known.known_source_end or 0) >= start
            and not known.source_records_between(offset, start)
        )
        if reached and not known.source_records_between(start, end):
            offset = end
    return offset


def _explain_unfinished(
    facts: PartitionFacts, log: LogRange, offset: int, remaining: int
) -> Translation:
    own = facts.upstream_log
    if own is not None and offset > own.end:
        reason = f"the commit {offset} is past the end {own.end} of {facts.upstream}"
        return _past_end(f"{reason}: was the topic truncated or re-created?", _RESET)
    state: State = "not-copied-yet" if facts.direction == "forward" else "map-behind"
    reason = f"{amount(remaining, 'offset')} before the commit not in the map yet"
    if own is not None and offset > own.stable_end:
        reason += f", a transaction is open from offset {own.stable_end} on"
        reason += "".join(f" ({each.owner})" for each in facts.transactions[:1])
    found = Translation(state, remaining=remaining, reason=reason)
    end = _look_up(facts, offset - remaining)
    if isinstance(end, NoMap | NotCopiedYet):
        return found
    return _within(facts, log, replace(found, offset=end.offset, reached=offset - remaining))


def _past_end(reason: str, action: str) -> Translation:
    return Translation("past-end", reason=message(reason, action), action=action)


def _within(facts: PartitionFacts, log: LogRange, found: Translation) -> Translation:
    """Limit an outcome to the downstream log, and count the skipped records."""
    offset, reached = found.offset, found.reached
    if offset is None or reached is None:
        return found
    if offset > log.end:
        where = f"{facts.downstream} ends at {log.end}"
        return _past_end(f"{where}, before {offset} of the map: it was truncated", _WAIT)
    # Records that retention has deleted upstream as well could not be read there either.
    start = reached if facts.upstream_log is None else max(reached, facts.upstream_log.start)
    known, forward = facts.offset_map, facts.direction == "forward"
    end = known.known_source_end if forward else known.known_target_end
    kept = _look_up(facts, min(start, end or 0)) if start > reached else None
    first = offset if isinstance(kept, None | NoMap | NotCopiedYet) else max(offset, kept.offset)
    count = known.records_between if forward else known.source_records_between
    dropped = count(first, log.start)
    refused, uncopied = _never_copied(facts, start)
    if offset >= log.start and not (dropped or refused or uncopied):
        return found
    parts = (
        found.reason,
        f"{amount(dropped, 'record')} already deleted by retention" if dropped else "",
        f"{amount(refused, 'offset')} never copied, as noted" if refused else "",
        f"{amount(uncopied, 'offset')} from before the first copied record" if uncopied else "",
    )
    begin = max(offset, log.start)
    return replace(
        found,
        # Records deleted by retention may have been before discarded ones.
        offset=begin if forward else _after_discarded(facts, begin),
        dropped=dropped,
        refused=refused,
        uncopied=uncopied,
        reason="; ".join(part for part in parts if part),
    )


def _never_copied(facts: PartitionFacts, start: int) -> tuple[int, int]:
    """Count offsets from an offset on that the copy lacks: refused, and before the first record."""
    if facts.direction == "reverse":
        return 0, 0  # the group reads the original itself
    log = facts.upstream_log  # which may have lost its end: there is nothing to skip after it
    refused = facts.losses.count(facts.offset_map, start, sys.maxsize if log is None else log.end)
    first = facts.offset_map.first_source
    if first is None:
        return refused, 0
    noted = facts.losses.count(facts.offset_map, start, first)
    return refused, max(0, first - start - noted - facts.copies_upstream(start, first))
