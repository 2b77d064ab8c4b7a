"""Judges what a run has left: both copies record by record, the map with both, what was told.

What may be missing follows from what the scenario destroyed, with its offsets, and from the logs.
What srm tells is held against that, never taken for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.faults.campaign.alignment import (
    Aligned,
    Aligner,
    Pair,
    check_translation,
    mapped_pairs,
    shown,
)
from tests.faults.campaign.history import Item, TopicHistory

from srm.domain.flow_state.replication_records import PartitionStatus
from srm.domain.offset_map.offset_map import OffsetMap
from srm_lab.testing.logs import Log

_SHOWN = 3
_FAR = 1 << 62


@dataclass
class Finding:
    """What one partition showed: ``lost`` counts records that a fault took before they arrived."""

    copied: int = 0
    lost: int = 0
    foreign: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Loss:
    """Source offsets [first, end) of one life: lost to the copy, so they have to be told.

    ``records`` is how many of them the ledger knows records at; the others may be of markers.
    """

    life: int
    first: int
    end: int
    records: int


class Judgement:
    """What is missing of one partition, and whether that may be."""

    def __init__(
        self, history: TopicHistory, partition: int, aligned: Aligned, *, policy: str
    ) -> None:
        self._history = history
        self._partition = partition
        self._aligned = aligned
        self._policy = policy
        self._where = f"{history.name}-{partition}"
        self.losses: list[Loss] = []
        self.lost = 0
        self._stopped_at: int | None = None
        self.problems = list(aligned.problems)
        for number in range(len(history.lives)):
            self._judge(number, [i for i, x in enumerate(aligned.items) if x.life == number])

    def _judge(self, number: int, indexes: list[int]) -> None:
        """Find what is missing of one life, and why it may be."""
        items, aligned = self._aligned.items, self._aligned
        arrived = [index for index in indexes if aligned.has(index)]
        first, last = (arrived[0], arrived[-1]) if arrived else (_FAR, -1)
        current = number + 1 == len(self._history.lives)
        missing: list[int] = []
        stop: int | None = None
        for index in indexes:
            item = items[index]
            lacks = not aligned.has(index)
            if lacks and not self._is_wanted(item):
                continue
            if not lacks and stop is not None and not item.gone:
                self._problem(
                    f"{self._name(item)} was copied behind the loss at {self._name(items[stop])}, "
                    "although the policy is to stop there"
                )
                return
            # A copy that has begun, and has nothing yet, has its place, too.
            is_loss = (index > first or not arrived) and (
                (lacks and self._was_destroyed(item) and not self._is_compacted(item))
                or (item.gone and not lacks)
            )
            if stop is None and is_loss and self._policy == "stop":
                stop = index
            if not lacks or item.gone:
                continue
            behind_stop = stop is not None and index >= stop
            if not (
                self._was_destroyed(item)
                or behind_stop
                or (not current and index > last)
                or self._is_undecidable(indexes, index)
            ):
                missing.append(index)
        if missing and self._stopped_at_nothing(number, indexes, missing[0]):
            self._stopped_at = self._history.lives[number].deleted[self._partition]
        elif missing:
            self._problem(
                f"{len(missing)} records are missing on the target, which no fault took: "
                f"{self._name(items[missing[0]])} to {self._name(items[missing[-1]])}"
            )
        self._find_losses(number, indexes, first, last if not current else _FAR)

    def _stopped_at_nothing(self, number: int, indexes: Sequence[int], missing: int) -> bool:
        """Whether the log's start passed offsets that nobody had read, and that held no record.

        They were of aborted transactions, say, and behind an open one when they went: nobody can
        know, so the policy is to stop there.
        """
        items, aligned = self._aligned.items, self._aligned
        deleted = self._history.lives[number].deleted.get(self._partition, 0)
        held = (
            items[index].offset
            for index in indexes
            if index < missing and (aligned.has(index) or self._is_wanted(items[index]))
        )
        before = max(held, default=-1)
        return (
            self._policy == "stop"
            and before + 1 < deleted <= items[missing].offset
            and not any(aligned.has(index) for index in indexes if index >= missing)
        )

    def _find_losses(self, number: int, indexes: Sequence[int], first: int, last: int) -> None:
        """Gather what the copy lacks in the middle, or has and the source has not any more."""
        items, aligned = self._aligned.items, self._aligned
        stretch: list[int] = []
        found: list[Loss] = []

        def close() -> None:
            if stretch:
                found.append(Loss(number, stretch[0], stretch[-1] + 1, len(stretch)))
                stretch.clear()

        for index in indexes:
            item = items[index]
            if not first < index < last or self._is_compacted(item):
                continue
            lacks = not aligned.has(index)
            if lacks and not self._is_wanted(item):
                continue
            if lacks and not item.gone and self._was_destroyed(item):
                stretch.append(item.offset)
                self.lost += 1
            else:
                close()
        close()
        for truncation in self._history.lives[number].truncations.get(self._partition, []):
            copied = [
                items[i].offset
                for i in indexes
                if items[i].gone and aligned.has(i) and items[i].offset in truncation.gone
            ]
            if self._history.interrupted:
                # What a killed owner had not reported, nobody else knows the offsets of.
                copied = [offset for offset in copied if offset < truncation.reported]
            if copied and max(i for i in indexes if aligned.has(i)) < last:
                found.append(Loss(number, truncation.at, max(copied) + 1, len(copied)))
        self.losses += found[:1] if self._policy == "stop" else found

    def _is_wanted(self, item: Item) -> bool:
        """Whether the record is to arrive: no filter leaves it out, and nobody has aborted it."""
        aborted = self._history.lives[item.life].aborted.get(self._partition, ())
        return item.offset not in aborted and not self._history.is_filtered(item.record)

    def _was_destroyed(self, item: Item) -> bool:
        """Whether the scenario took the record, or had it refused, so that it may be missing."""
        if item.offset < self._history.lives[item.life].deleted.get(self._partition, 0):
            return True
        if self._is_compacted(item):
            return True
        return self._policy == "continue" and any(
            refusals.may_refuse(item.offset, item.record)
            for refusals in self._history.refusals.get(self._partition, [])
        )

    def _is_compacted(self, item: Item) -> bool:
        compacted = self._history.lives[item.life].compacted.get(self._partition, ())
        return item.offset in compacted

    def _is_undecidable(self, indexes: Sequence[int], index: int) -> bool:
        """What was copied behind the last report, and then truncated, has no known place.

        Nor have equal records, once the target has lost those before them.
        """
        items, aligned = self._aligned.items, self._aligned
        return (
            self._history.interrupted
            and (bool(aligned.unclear) or any(items[i].gone and aligned.has(i) for i in indexes))
            and not any(aligned.has(i) for i in indexes if i >= index)
        )

    def check_map(self, known: OffsetMap | None) -> None:
        """Ask the map of the current life for everything, both ways."""
        aligned = self._aligned
        number = len(self._history.lives) - 1
        if known is None:
            if any(i.life == number for i in map(aligned.items.__getitem__, aligned.places)):
                self._problem("records are copied, but there is no map")
            return
        for before, after in pairwise(mapped_pairs(known)):
            if not (before[0] < after[0] and before[1] < after[1]):
                self._problem(f"the map goes back from {before} to {after}")
                return
        if self._policy == "continue":
            mapped = {pair[1] for pair in mapped_pairs(known)}
            for index, place in aligned.places.items():
                item = aligned.items[index]
                if item.gone and item.life == number and place in mapped:
                    self._problem(f"the map still has {self._name(item)}, which is truncated")
                    return
        self.problems += check_translation(self._where, known)

    def check_told(self, told: Sequence[PartitionStatus], counted: int = 0) -> None:
        """Each loss is told, and nothing that was copied is told as lost.

        It is told with its range, or with a count: where many come within a second, slots note how
        many offsets those are and only the newest range.
        """
        ranges = [(s.lost_from, s.lost_to or 0) for s in told if s.lost_from is not None]
        if self._stopped_at is not None and self._stopped_at not in {end for _, end in ranges}:
            self._problem(f"nothing is copied from {self._stopped_at} on: not told")
        everything = sum(loss.records for loss in self.losses)
        for loss in self.losses:
            if counted < everything and not covers(ranges, loss.first, loss.end):
                self._problem(
                    f"records {loss.first} to {loss.end} are lost, told: {sorted(set(ranges))}, "
                    f"and {counted} of {everything} in numbers"
                )
        number = len(self._history.lives) - 1
        cuts = [t.at for t in self._history.life.truncations.get(self._partition, [])]
        # From a truncation on, other records have the offsets of the lost ones.
        below = min(cuts, default=_FAR)
        if number or self._history.buried:
            return  # a range does not say of which topic id it is
        for first, end in set(ranges):
            wrong = [
                self._aligned.items[index].offset
                for index in self._aligned.places
                if index not in self._aligned.unmapped
                and first <= self._aligned.items[index].offset < min(end, below)
            ]
            if wrong:
                self._problem(f"{first} to {end} are told as lost, but {wrong[0]} is copied")

    def check_foreign(self, told: Sequence[PartitionStatus]) -> None:
        """Records of others that the copy has passed are told."""
        passed = max(self._aligned.places.values(), default=-1)
        seen = [offset for offset in self._aligned.foreign if offset < passed]
        if seen and not any("foreign" in status.reason for status in told):
            self._problem(f"foreign records at target offsets {seen[:3]} are not told")

    def check_unclear(self, told: Sequence[PartitionStatus]) -> None:
        """A copy whose place is not clear is told, and stops, or goes on where losses may be."""
        unclear = self._aligned.unclear
        if not unclear:
            return
        words = "undecidable" if self._policy == "stop" else "not in the map"
        if not any(words in status.reason for status in told):
            self._problem(f"copies at target offsets {unclear[:3]} have no place: not told")
        if self._policy == "stop" and max(self._aligned.places.values(), default=-1) > unclear[0]:
            self._problem(f"copied behind target offset {unclear[0]}, which has no place")

    def _name(self, item: Item) -> str:
        gone = " (truncated)" if item.gone else ""
        life = f" of life {item.life}" if len(self._history.lives) > 1 else ""
        return f"source {item.offset}{life}{gone} {shown(item.record)}"

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self._where}: {text}")


def check_partition(
    history: TopicHistory,
    partition: int,
    target: Log,
    stranger: bytes,
    maps: Sequence[OffsetMap | None],
    told: Sequence[PartitionStatus],
    *,
    counted: int = 0,
    policy: str,
) -> Finding:
    """Check everything about one partition of an ordinary topic.

    Args:
        history: what the source held and what faults took.
        partition: its number.
        target: the whole target log.
        stranger: how values begin that somebody else has written to the target.
        maps: the offset map of each life.
        told: every status and note about it that there ever was.
        counted: how many offsets its slots have noted as lost.
        policy: ``stop`` or ``continue``.
    """
    best: Judgement | None = None
    aligned = Aligned([])
    for prefer_newest in (True, False):
        tried = Aligner(history, partition, target, stranger).align(
            maps, prefer_newest=prefer_newest
        )
        judged = Judgement(history, partition, tried, policy=policy)
        if not judged.problems:
            judged.check_map(maps[-1])
            judged.check_told(told, counted)
            judged.check_foreign(told)
            judged.check_unclear(told)
        if best is None or not judged.problems or (aligned.problems and not tried.problems):
            best, aligned = judged, tried
        if not judged.problems:
            break
    return Finding(
        len(aligned.places),
        best.lost if best else 0,
        len(aligned.foreign),
        best.problems[:_SHOWN] if best else [],
    )


def covers(ranges: Iterable[Pair], first: int, end: int) -> bool:
    """Whether ranges together hold [first, end)."""
    at = first
    for start, stop in sorted(ranges):
        if start <= at < stop:
            at = stop
    return at >= end
