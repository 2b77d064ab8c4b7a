"""Forecast of the data loss of an unplanned failover, from data on the target; pure.

A move does not query the source. The records that the copy lacks are known as of the source's last
answer (:attr:`.SlotReport.source_heard_ms`). That number is exact if the source failed at that
moment. Records that the source took later are estimated from the rate of the copy's last records,
as an upper bound. If a source still answers, the forecast uses its present log end offsets.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from srm.domain.offset_map.offset_map import Position
from srm.domain.text.amount import amount, duration

RATE_MS = 10_000
"""Window for the rate of a topic: its last records, by their own timestamps."""


@dataclass(frozen=True, slots=True)
class PartitionKnown:
    """One partition of the source, as known on the target.

    ``heard_ms``: last answer of the source, epoch milliseconds by the slot's clock; 0 if not known.
    ``recent``: records in the last :data:`RATE_MS` of the topic's copy; 0 if the source last
        answered long after them.
    ``stopped``: reason why it is not copied, or not completely.
    ``since_ms``: earliest time of the uncopied records, epoch milliseconds; None if not known.
    """

    topic: str
    partition: int
    position: Position | None
    heard_ms: int
    recent: int
    stopped: str = ""
    since_ms: int | None = None

    @property
    def not_copied(self) -> int:
        """Offsets on the source at its last answer that the target lacks."""
        at = self.position
        return 0 if at is None else max(0, at.source_end - at.source_next)


def with_held_back(known: PartitionKnown, end: int) -> PartitionKnown:
    """Count what an open transaction held back as not copied: consumers may have seen it.

    ``end``: log end offset on the source, 0 without one.
    """
    at = known.position
    if at is None or end <= at.source_end:
        return known
    held = f"{amount(end - at.source_end, 'offset')} held back by an open transaction"
    stopped = f"{known.stopped}; {held}" if known.stopped else held
    return replace(known, position=replace(at, source_end=end), stopped=stopped)


@dataclass(frozen=True, slots=True)
class TopicForecast:
    """Forecast loss of one topic; counts are offsets, including transaction markers.

    ``not_copied``: offsets on the source at its last answer that the target lacks.
    ``at_most``: the same, plus records taken since then at the copy's rate; None if not known.
    ``seconds``: age of the oldest uncopied record at that answer; None if not known.
    ``age_ms``: time since that answer; None if not known.
    ``unknown``: partitions that lack a number, with the reason.
    """

    topic: str
    partitions: int
    not_copied: int
    at_most: int | None
    seconds: float | None
    age_ms: int | None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """Forecast for one group.

    ``partitions``: number with a checkpoint or an own commit on the target; it continues there.
    ``re_read``: upper bound of records read again: all records on the target after those offsets.
    ``skipped``: records that the target does not hold any more.
    ``age_ms``: age of the newest checkpoint, or of the last emission that found the group's place
    unchanged; None if there is neither.
    ``stood_still``: that emission found the place unchanged; the group may have read since then.
    """

    group: str
    partitions: int
    re_read: int
    skipped: int
    age_ms: int | None
    stood_still: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast cost of an unplanned move.

    ``unseen``: groups known by name only; their clients decide where they start.
    ``transactions``: open transactions on the target in topics that move. Until an operator ends
    them, groups with isolation.level=read_committed read nothing after them.
    ``notes``: remarks for operators.
    ``rate``: highest rate of all topics together at the source's last answer, in
        records or offsets per second.
    """

    made_ms: int
    topics: tuple[TopicForecast, ...]
    groups: tuple[GroupForecast, ...]
    unseen: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rate: float = 0.0

    @property
    def not_copied(self) -> int:
        """Offsets on the source at its last answer that the target lacks."""
        return sum(topic.not_copied for topic in self.topics)

    @property
    def at_most(self) -> int | None:
        """The same, plus the records that the source may have taken since; None if not known."""
        bounds = [topic.at_most for topic in self.topics]
        known = [bound for bound in bounds if bound is not None]
        if len(known) < len(bounds):
            return None
        # Any topic may have had all of the growth, but not all topics at the same time.
        together = self.not_copied + math.ceil(self.rate * (self.age_ms or 0) / 1000)
        return min(sum(known), together) if self.rate else sum(known)

    @property
    def seconds(self) -> float | None:
        """Age of the oldest lost record of all topics."""
        return max((t.seconds for t in self.topics if t.seconds is not None), default=None)

    @property
    def age_ms(self) -> int | None:
        """Time since the source's last answer, the longest of all topics."""
        ages = [topic.age_ms for topic in self.topics]
        known = [age for age in ages if age is not None]
        return max(known, default=None) if len(known) == len(ages) else None

    @property
    def re_read(self) -> int:
        """Upper bound of records that all groups together read again."""
        return sum(group.re_read for group in self.groups)

    @property
    def still(self) -> str:
        """Say how many of these records idle groups would read; empty for none."""
        count = sum(group.re_read for group in self.groups if group.stood_still)
        return f", {count:,} of that by groups that were idle when last checked" if count else ""

    def numbers(self) -> dict[str, int | float | None]:
        """Return the numbers to approve by name, in records or seconds."""
        return {
            "records_not_copied": self.not_copied,
            "records_lost_at_most": self.at_most,
            "seconds_lost": self.seconds,
            "records_read_again_at_most": self.re_read,
            "seconds_since_the_source_answered": None
            if self.age_ms is None
            else self.age_ms / 1000,
            "groups": len(self.groups),
        }

    def line(self, source: str) -> str:
        """Summarise in one line the loss with a source."""
        lost = amount(self.not_copied, "record")
        seconds = "" if self.seconds is None else f" ({duration(self.seconds)})"
        bound = ""
        if self.at_most is None:
            bound = ", the number since then is not known"
        elif self.at_most > self.not_copied:
            bound = f", {self.at_most:,} at most"
        known = "never" if self.age_ms is None else f"{duration(self.age_ms / 1000)} ago"
        return (
            f"{lost}{seconds} of {source} not copied{bound}; at most {self.re_read:,} read again "
            f"by {amount(len(self.groups), 'group')}{self.still}; {source} last answered {known}"
        )


def forecast_topics(
    known: Collection[PartitionKnown], now_ms: int, growth: int = 0
) -> tuple[TopicForecast, ...]:
    """Forecast the loss of each topic; ``growth``: offsets a second at the source's last answer."""
    by_topic: dict[str, list[PartitionKnown]] = {}
    for one in known:
        by_topic.setdefault(one.topic, []).append(one)
    return tuple(_topic(topic, some, now_ms, growth) for topic, some in sorted(by_topic.items()))


def rate_of(known: Iterable[PartitionKnown]) -> float:
    """Return the last rate of the copies of some partitions, in records per second."""
    return sum(one.recent for one in known) * 1000 / RATE_MS


def _topic(
    topic: str, known: Collection[PartitionKnown], now_ms: int, growth: int
) -> TopicForecast:
    positions = [one.position for one in known if one.position is not None]
    not_copied = sum(one.not_copied for one in known)
    rate = rate_of(known)
    heard = [one.heard_ms for one in known if one.position is not None]
    age_ms = max(0, now_ms - min(heard)) if heard and min(heard) > 0 else None
    whole = len(positions) == len(known) and age_ms is not None
    return TopicForecast(
        topic=topic,
        partitions=len(known),
        not_copied=not_copied,
        at_most=not_copied + math.ceil(max(rate, growth) * (age_ms or 0) / 1000) if whole else None,
        seconds=_seconds(known),
        age_ms=age_ms,
        unknown=tuple(_unknown(known)),
    )


def _seconds(known: Iterable[PartitionKnown]) -> float | None:
    """Return the age of the oldest uncopied record at the source's last answer, in seconds."""
    late = [one for one in known if one.not_copied]
    ages = [
        max(0, one.heard_ms - one.since_ms) / 1000
        for one in late
        if one.since_ms is not None and one.heard_ms
    ]
    return max(ages, default=None if late else 0.0)


def _unknown(known: Collection[PartitionKnown]) -> Iterator[str]:
    for one in known:
        name = f"{one.topic}-{one.partition}"
        if one.stopped:
            yield f"{name} is not copied: {one.stopped}"
        elif one.position is None:
            yield f"{name}: its replication position was never reported"
