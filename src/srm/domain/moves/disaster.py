"""Cost of losing a source: forecast on its target, rehearsed by drills, measured at its return.

A move does not query a lost source. The records that the copy lacks are known as of the source's
last answer (:attr:`.SlotReport.source_heard_ms`). That number is exact if the source failed at
that moment. Records that the source took later are estimated from the rate of the copy's last
records, as an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self

from srm.domain.names.policy import SHADOW_PREFIX
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.domain.text.amount import amount, duration, some
from srm.domain.text.documents import Document, decode, read_json
from srm.errors import IntegrityError, UsageError

RATE_MS = 10_000
"""Window for the rate of a topic: its last records, by their own timestamps."""


@dataclass(frozen=True, slots=True)
class PartitionKnown:
    """One partition of the source, as known on the target.

    ``heard_ms``: last answer of the source, epoch milliseconds by the slot's clock; 0 if not known.
    ``recent``: records in the last :data:`RATE_MS` of the topic's copy.
    ``stopped``: reason why it is not copied, or not completely.
    ``since_ms``: earliest time of the uncopied records, epoch milliseconds; None if not known.
    """

    place: TopicPartition
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
    """Count as not copied what an open transaction held back before the source's log ``end``."""
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
    ``at_most``: the same, plus records taken since then at the copy's rate.
    ``seconds``: age of the oldest uncopied record at that answer; ``age_ms``: time since that
    answer.
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
    ``age_ms``: age of the newest checkpoint, or of the last emission that found it unchanged.
    ``stood_still``: that emission found the place unchanged; the group may have read since then.
    ``by_commits``: ``re_read`` is what it committed on the source since; else its unread backlog.
    """

    group: str
    partitions: int
    re_read: int
    skipped: int
    age_ms: int | None
    stood_still: bool = False
    by_commits: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast cost of an unplanned move.

    ``unseen``: groups known by name only; their clients decide where they start.
    ``transactions``: open transactions on the target in topics that move. Until an operator ends
    them, groups with isolation.level=read_committed read nothing after them.
    ``rate``: highest rate of all topics together at the source's last answer, records per second.
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
        return sum(topic.not_copied for topic in self.topics)

    @property
    def at_most(self) -> int | None:
        """The same, plus the records that the source may have taken since; None if not known."""
        known = [topic.at_most for topic in self.topics if topic.at_most is not None]
        if len(known) < len(self.topics):
            return None
        # Any topic may have had all of the growth, but not all topics at the same time.
        together = self.not_copied + math.ceil(self.rate * (self.age_ms or 0) / 1000)
        return min(sum(known), together) if self.rate else sum(known)

    @property
    def seconds(self) -> float | None:
        late = [topic.seconds for topic in self.topics if topic.not_copied]
        return max((age for age in late if age is not None), default=None if late else 0.0)

    @property
    def lost_text(self) -> str:
        """Records not copied, and the age of the oldest if it is known and not 0."""
        age = f" ({duration(self.seconds)})" if self.seconds else ""
        return f"{amount(self.not_copied, 'record')}{age}"

    @property
    def age_ms(self) -> int | None:
        """Time since the source's last answer, the longest of all topics for which it is known."""
        return max((t.age_ms for t in self.topics if t.age_ms is not None), default=None)

    @property
    def answered_ms(self) -> int | None:
        """Last answer of the source for any topic, epoch milliseconds; None if not known."""
        ages = [t.age_ms for t in self.topics if t.age_ms is not None]
        return self.made_ms - min(ages) if ages else None

    @property
    def re_read(self) -> int:
        return sum(group.re_read for group in self.groups)

    @property
    def unread_backlog(self) -> int:
        """Records on the target after the places of groups whose commits are unknown."""
        return sum(group.re_read for group in self.groups if not group.by_commits)

    @property
    def again(self) -> str:
        """Say what groups read again, and the backlog of those whose commits are unknown."""
        rest = [group for group in self.groups if not group.by_commits]
        counted = f"{self.re_read - self.unread_backlog:,} read again by"
        known = f"{counted} {amount(len(self.groups) - len(rest), 'group')}"
        if not rest:
            return known if self.groups else "0 read again"
        count = sum(group.re_read for group in rest if group.stood_still)
        still = f", {count:,} of it without progress at the last check" if count else ""
        backlog = f"unread backlog {self.unread_backlog:,} of {amount(len(rest), 'group')}{still}"
        return backlog if len(rest) == len(self.groups) else f"{known}, {backlog}"

    def grown(self, seconds: float) -> int | None:
        """Return ``at_most`` after further seconds at the last rate; None if not known."""
        return None if self.at_most is None else self.at_most + math.ceil(self.rate * seconds)

    def numbers(self) -> dict[str, int | float | None]:
        """Return the numbers to approve by name, in records or seconds."""
        age_ms = self.age_ms
        return {
            "records_not_copied": self.not_copied,
            "records_lost_at_most": self.at_most,
            "seconds_lost": self.seconds,
            "unread_backlog": None if self.unseen else self.re_read,
            "seconds_since_the_source_answered": None if age_ms is None else age_ms / 1000,
            "groups": len(self.groups),
        }

    def line(self, source: str) -> str:
        bound = ""
        if self.at_most is None:
            bound = ", the number since then is not known"
        elif self.at_most > self.not_copied:
            bound = f", {self.at_most:,} at most if it took more since at its last rate"
        known = "never" if self.age_ms is None else f"{duration(self.age_ms / 1000)} ago"
        unseen = f", unknown for {some(self.unseen)}" if self.unseen else ""
        return (
            f"{self.lost_text} of {source} not copied{bound}; {self.again}{unseen}; "
            f"{source} last answered {known}"
        )


def forecast_topics(
    known: Collection[PartitionKnown], now_ms: int, growth: int = 0
) -> tuple[TopicForecast, ...]:
    """Forecast the loss of each topic; ``growth``: offsets a second at the source's last answer."""
    by_topic: dict[str, list[PartitionKnown]] = {}
    for one in known:
        by_topic.setdefault(one.place.topic, []).append(one)
    return tuple(_topic(topic, some, now_ms, growth) for topic, some in sorted(by_topic.items()))


def rate_of(known: Iterable[PartitionKnown]) -> float:
    """Return the last rate of the copies of some partitions, in records per second."""
    return sum(one.recent for one in known) * 1000 / RATE_MS


def _topic(
    topic: str, known: Collection[PartitionKnown], now_ms: int, growth: int
) -> TopicForecast:
    not_copied = sum(one.not_copied for one in known)
    rate = rate_of(known)
    heard = [one.heard_ms for one in known if one.position is not None]
    age_ms = max(0, now_ms - min(heard)) if heard and min(heard) > 0 else None
    whole = len(heard) == len(known) and age_ms is not None
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
    late = [one for one in known if one.not_copied]
    ages = [max(0, k.heard_ms - k.since_ms) / 1000 for k in late if k.since_ms and k.heard_ms]
    return max(ages, default=None if late else 0.0)


def _unknown(known: Collection[PartitionKnown]) -> Iterator[str]:
    for one in known:
        if one.stopped:
            yield f"{one.place} is not copied: {one.stopped}"
        elif one.position is None:
            yield f"{one.place}: its replication position was never reported"


Choice = Literal["merge", "keep", "discard"]
"""Treatment of a topic's residue: *merge* copies it. *keep* leaves it on the source, where groups
that move back read it. *discard* leaves it there, and they skip it."""

OUTCOME_PREFIX = "outcome:"


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """One source partition: offsets are source offsets, ranges [from, to), times epoch ms.

    ``residue_from``, ``residue_to``: range of ``records`` not copied before the source returned.
    ``late``: number of those that producers wrote, by their clocks, after the pause of the flow.
    ``cut_from``, ``cut_to``: range of ``only_copied`` records that the source has lost.
    ``gone``: offsets that retention deleted before they could be copied.
    """

    topic: str
    partition: int
    residue_from: int
    residue_to: int
    records: int
    first_ms: int | None = None
    last_ms: int | None = None
    cut_from: int | None = None
    cut_to: int | None = None
    only_copied: int = 0
    gone: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """Part of the residue that a group had read before the disaster, by its commits there."""

    already_read: Mapping[str, int]
    commits: Mapping[str, int]

    @property
    def records(self) -> int:
        return sum(self.already_read.values())


@dataclass(frozen=True, slots=True)
class Outcome(Document):
    """Findings at the return of a flow's source, and the choices by topic.

    Kept under ``outcome:<move id>`` in the moves topic of both clusters.
    ``unread``: partitions and groups that could not be read, with the reason; not counted here.
    """

    KIND = "stored outcome of a disaster"
    move_id: str
    flow: str
    source_return: str
    time_ms: int
    by: str
    partitions: tuple[PartitionOutcome, ...] = ()
    groups: Mapping[str, GroupOutcome] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    unread: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        return sum(entry.records for entry in self.partitions)

    @property
    def late(self) -> int:
        return sum(entry.late for entry in self.partitions)

    def of(self, topics: Collection[str]) -> Outcome:
        """Return the outcome without partitions of other topics than those named, if any are."""
        found = tuple(one for one in self.partitions if not topics or one.topic in topics)
        return replace(self, partitions=found)

    def count_merged(self, topics: Collection[str]) -> int:
        """Count the residue of topics that is copied after all, so groups may read it again."""
        wanted = {topic for topic in topics if self.choices.get(topic) == "merge"}
        return sum(entry.records for entry in self.partitions if entry.topic in wanted)

    @property
    def has_lost_logs(self) -> bool:
        return self.source_return not in {"same", "new"}

    @property
    def is_whole(self) -> bool:
        return not (self.has_lost_logs or self.unread)

    def key(self) -> bytes:
        return f"{OUTCOME_PREFIX}{self.move_id}".encode()


DRILL_KEY: Final = b"drill:"
DRILL_LEASE_MS: Final = 120_000
"""Maximum interval between heartbeats of a running drill; without them it is dead."""
MOST_KEPT: Final = 200
"""Number of drills of a flow whose results are kept."""

DrillState = Literal["running", "done", "interrupted"]


@dataclass(frozen=True, slots=True)
class DrillGroup:
    """Results of a drill for one group, in partitions with committed offsets.

    ``proven``: translations that the records on both sides prove. ``read``: those that gave a
    shadow member the group's next source record (or both the end).
    """

    group: str
    partitions: int = 0
    proven: int = 0
    read: int = 0
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems and self.proven == self.read == self.partitions


@dataclass(frozen=True)
class Drill(Document):
    """One drill; ``flow`` as ``A->B``, times in epoch milliseconds.

    Its record ``drill:<id>`` in ``__srm-moves`` is written first, to find leftover shadow groups.
    ``steps`` are seconds by step; ``forecast`` is that of an unplanned failover at its beginning.
    ``beat`` counts up while it runs; ``place`` is where ``pid`` is valid.
    """

    KIND = "stored drill"
    drill_id: str
    flow: str
    state: DrillState
    time_ms: int
    host: str
    pid: int
    beat: int = 0
    topics: tuple[str, ...] = ()
    groups: tuple[DrillGroup, ...] = ()
    forecast: Forecast | None = None
    steps: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    place: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.state == "done" and not self.problems and all(g.ok for g in self.groups)

    @property
    def proven(self) -> int:
        return sum(group.ok for group in self.groups)

    @property
    def rto_seconds(self) -> float:
        """Estimated time without service: the duration of the steps."""
        return round(sum(self.steps.values()), 3)

    @property
    def all_problems(self) -> tuple[str, ...]:
        of_groups = (f"group {g.group}: {why}" for g in self.groups for why in g.problems)
        return (*self.problems, *of_groups)

    @property
    def shadow_prefix(self) -> str:
        """Begin of the names of its shadow groups; the names of the real groups follow."""
        return f"{SHADOW_PREFIX}{self.drill_id}."

    def key(self) -> bytes:
        return DRILL_KEY + self.drill_id.encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        found = decode(cls, cls.KIND, value)
        read_json(cls.KIND, value)
        try:
            Flow.parse(found.flow)
        except UsageError as error:
            raise IntegrityError(f"stored drill is damaged: {error}") from error
        return found


def superfluous(drills: Iterable[Drill], flow: str) -> tuple[Drill, ...]:
    """Return the oldest results of a flow beyond the number to keep."""
    ended = [one for one in drills if one.flow == flow and one.state != "running"]
    ended.sort(key=lambda one: (one.time_ms, one.drill_id), reverse=True)
    return tuple(ended[MOST_KEPT:])
