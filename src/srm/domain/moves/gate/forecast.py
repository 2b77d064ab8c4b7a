"""What an unplanned failover costs, before anything is done: from what the target knows, pure.

A move does not ask the source. What that had and the copy has not is known as of when it last
answered (:attr:`.SlotReport.source_heard_ms`): exactly where it died at that moment. What it may
have taken after that is estimated by the rate of the copy's last records, as an upper bound. Where
a source still answers, the forecast is made with where its logs end now.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from srm.domain.offset_map.offset_map import Position
from srm.domain.text.amount import amount, duration

RATE_MS = 10_000
"""The rate of a topic is that of its last records, over so long by their own timestamps."""


@dataclass(frozen=True, slots=True)
class PartitionKnown:
    """What the target knows of one partition of the source.

    ``position`` is None where nobody has ever reported one. ``heard_ms`` is when the source last
    answered for it, epoch milliseconds by the slot's clock; 0: not known. ``recent`` are the
    records of its copy in the last :data:`RATE_MS` of the topic, none where the source was heard
    long after those. ``stopped`` says why it is not copied, if it is not, or not all of it. What is
    not copied was written at ``since_ms`` or later, epoch milliseconds; None: not known.
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
        """Offsets that were on the source when it last answered, and are not on the target."""
        at = self.position
        return 0 if at is None else max(0, at.source_end - at.source_next)


def with_held_back(known: PartitionKnown, end: int) -> PartitionKnown:
    """Count what stands behind a transaction that was open on the source as not copied.

    Some of it was acknowledged to producers of their own: all readers but those that read
    committed records had seen it.

    Args:
        known: what is known of the partition.
        end: where the source's log ended, 0 where nothing was held back.
    """
    at = known.position
    if at is None or end <= at.source_end:
        return known
    held = f"{amount(end - at.source_end, 'offset')} stood behind an open transaction"
    stopped = f"{known.stopped}; {held}" if known.stopped else held
    return replace(known, position=replace(at, source_end=end), stopped=stopped)


@dataclass(frozen=True, slots=True)
class TopicForecast:
    """What is lost of one topic; counts are offsets, markers of transactions among them.

    ``not_copied`` were on the source when it last answered, ``age_ms`` ago; ``at_most`` adds what
    it may have taken since, by the copy's own rate. ``seconds`` is how old the oldest of them was
    then, as well as that is known. None where it cannot be known; ``unknown`` says of which
    partitions.
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
    """What happens to one group.

    ``partitions`` are those with a checkpoint, or a commit of its own on the target: it continues
    there. ``re_read`` records at most are read again: all that is on the target after that, which
    it may or may not have read before.
    ``skipped`` are those that the target does not hold any more. ``age_ms`` is how long ago its
    place was known: its newest checkpoint, or the last emission that found it unchanged. None
    where there is none. ``stood_still``: that emission had found its place as it was before. It is
    no bound: in the time since then it may have read as much as one that did not.
    """

    group: str
    partitions: int
    re_read: int
    skipped: int
    age_ms: int | None
    stood_still: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """What an unplanned move is expected to cost.

    ``unseen`` are groups that are known by name only: where they start is left to their clients.
    ``transactions`` are those open on the target in topics that move; until somebody ends them
    groups with isolation.level=read_committed read nothing behind them. ``notes`` are for people.
    ``rate`` is the most that all topics together took a second, when the source last answered.
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
        """Offsets that were on the source when it last answered, and are not on the target."""
        return sum(topic.not_copied for topic in self.topics)

    @property
    def at_most(self) -> int | None:
        """The same with what the source may have taken since; None where that is not known."""
        bounds = [topic.at_most for topic in self.topics]
        known = [bound for bound in bounds if bound is not None]
        if len(known) < len(bounds):
            return None
        # Each topic may have had all of the growth, but not each at the same time.
        together = self.not_copied + math.ceil(self.rate * (self.age_ms or 0) / 1000)
        return min(sum(known), together) if self.rate else sum(known)

    @property
    def seconds(self) -> float | None:
        """The age of the oldest record that is lost, of any topic."""
        return max((t.seconds for t in self.topics if t.seconds is not None), default=None)

    @property
    def age_ms(self) -> int | None:
        """How long ago the source last answered, for the topic of which that is longest."""
        ages = [topic.age_ms for topic in self.topics]
        known = [age for age in ages if age is not None]
        return max(known, default=None) if len(known) == len(ages) else None

    @property
    def re_read(self) -> int:
        """Records that groups read again at most, together."""
        return sum(group.re_read for group in self.groups)

    @property
    def still(self) -> str:
        """Say behind that how much of it groups would read that were not reading; else empty."""
        count = sum(group.re_read for group in self.groups if group.stood_still)
        return (
            f", {count:,} of that by groups that stood still when last looked at" if count else ""
        )

    def numbers(self) -> dict[str, int | float | None]:
        """Return what is approved with it, by name: records, seconds."""
        return {
            "records_not_copied": self.not_copied,
            "records_lost_at_most": self.at_most,
            "seconds_lost": self.seconds,
            "records_read_again_at_most": self.re_read,
            "seconds_since_the_source_answered": _in_seconds(self.age_ms),
            "groups": len(self.groups),
        }

    def line(self, source: str) -> str:
        """Say it in one line: what would be, or is, lost with a source."""
        lost = amount(self.not_copied, "record")
        seconds = "" if self.seconds is None else f" ({duration(self.seconds)})"
        bound = ""
        if self.at_most is None:
            bound = ", how many since nobody knows"
        elif self.at_most > self.not_copied:
            bound = f", {self.at_most:,} at most"
        known = "never" if self.age_ms is None else f"{duration(self.age_ms / 1000)} ago"
        return (
            f"{lost}{seconds} of {source} not copied{bound}; at most {self.re_read:,} read again "
            f"by {amount(len(self.groups), 'group')}{self.still}; {source} last answered {known}"
        )


def _in_seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def forecast_topics(
    known: Collection[PartitionKnown], now_ms: int, growth: int = 0
) -> tuple[TopicForecast, ...]:
    """Forecast what is lost of each topic, by name.

    Args:
        known: all partitions.
        now_ms: epoch milliseconds.
        growth: offsets a second that the source grew by, all topics together, when it last
            answered: a burst that has just begun is in it, and not yet in the copy.
    """
    by_topic: dict[str, list[PartitionKnown]] = {}
    for one in known:
        by_topic.setdefault(one.topic, []).append(one)
    return tuple(_topic(topic, some, now_ms, growth) for topic, some in sorted(by_topic.items()))


def rate_of(known: Iterable[PartitionKnown]) -> float:
    """Return how many records a second the copies of some partitions last got."""
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
    """Return how old the oldest record is that was not copied when the source last answered."""
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
            yield f"{name}: nobody has ever said how far it is copied"
