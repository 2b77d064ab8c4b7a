"""Shapes of return of a paused flow's source after a disaster, and its residue.

The flow's shape is the worst of its topics', see :func:`describe`; equal topic ids mean the same
topic. All of a ``new`` topic is residue.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    Decision,
    PartitionNotes,
    Pause,
)
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.moves.disaster import Choice, GroupOutcome, Outcome, PartitionOutcome
from srm.domain.names.topics import Flow, TopicPartition, abort_command
from srm.domain.offset_map.runs import OffsetRange
from srm.domain.text.amount import amount, some
from srm.domain.text.documents import values_of
from srm.errors import NotFoundError, UsageError

Shape = Literal["same", "shorter", "rebuilt", "missing", "new"]
SHAPES: Final[tuple[Shape, ...]] = ("rebuilt", "missing", "shorter", "new", "same")
"""Shapes, the worst first."""


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """End of the copy of one partition, by both logs; offsets of the source, [from, to).

    ``target_next`` (target) is of the known position, possibly older.
    ``log_end`` is the last stable offset, below ``high_watermark`` while a transaction is open.
    ``cut_from`` is where the source's log ends or diverges, if that is before the end of the copy:
    records up to ``cut_to`` were copied and are gone from the source.
    """

    copied_to: int = 0
    target_next: int = 0
    log_start: int = 0
    log_end: int = 0
    high_watermark: int = 0
    cut_from: int | None = None
    cut_to: int | None = None
    left_out: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()
    epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReturn(CopyEnd):
    """One source partition; times are epoch milliseconds.

    ``records`` is the residue between the end of the copy and that of the log, ``first_ms`` and
    ``last_ms`` its timestamps, ``late`` the number of those after the flow was paused.
    ``only_copied`` is how many records the copy has of those that the source has lost (None: not
    counted). ``error``: why its end is not known.
    """

    topic: str
    partition: int
    shape: Shape
    records: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    only_copied: int | None = None
    error: str = ""
    late: int = 0

    @property
    def gone_from(self) -> int | None:
        """First offset that retention deleted before it was copied, None without any."""
        is_copied = self.shape in {"same", "shorter"}  # of others all is new
        return self.copied_to if is_copied and self.log_start > self.copied_to else None

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def residue(self) -> tuple[int, int] | None:
        """Source offsets [from, to) with records that were not copied, None without any."""
        return self.tail if self.records else None

    @property
    def tail(self) -> tuple[int, int] | None:
        """Source offsets [from, to) after the copy, None if there are none or they are unknown."""
        start = max(self.copied_to, self.log_start)
        return None if self.error or start >= self.log_end else (start, self.log_end)

    @property
    def retention_loss(self) -> int:
        """Number of offsets that retention deleted before they were copied."""
        return 0 if self.gone_from is None else self.log_start - self.gone_from

    @property
    def has_open_transaction(self) -> bool:
        """True while the outcome of a transaction at the end of the log is unknown."""
        return self.high_watermark > self.log_end


@dataclass(frozen=True, slots=True)
class TopicReturn:
    """One topic of a flow; ``evidence`` is the evidence of its shape.

    ``routed_by`` is the move whose route leads clients to the source, empty without one: their new
    records there do not count. Heartbeats are merged unless named.
    """

    topic: str
    topic_id: str
    shape: Shape
    evidence: str
    partitions: tuple[PartitionReturn, ...] = ()
    is_heartbeats: bool = False
    routed_by: str = ""

    @property
    def records(self) -> int:
        return sum(entry.records for entry in self.partitions)

    @property
    def only_copied(self) -> int:
        return sum(entry.only_copied or 0 for entry in self.partitions)


@dataclass(frozen=True, slots=True)
class SourceReturn:
    """Inspection result for the source of a flow; ``groups`` had read records of the residue."""

    flow: str
    shape: Shape
    evidence: str
    cluster_id: str
    cluster_was: str
    topics: tuple[TopicReturn, ...] = ()
    groups: Mapping[str, GroupOutcome] = field(default_factory=dict)
    unread_groups: tuple[str, ...] = ()
    pause: Pause | None = None

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def partitions(self) -> tuple[PartitionReturn, ...]:
        return tuple(entry for topic in self.topics for entry in topic.partitions)


def topic_shape(
    topic: str, now: str | None, known: Collection[CopiedTopic], copied_ids: Collection[str]
) -> tuple[Shape, str]:
    before = sorted({entry.topic_id for entry in known if entry.topic == topic})
    if now is not None and (now in before or now in copied_ids):
        return "same", f"topic id {now}, as when it was copied"
    named = " or ".join(before)
    if now is None:
        return "missing", f"no such topic; the copied one had id {named}"
    if before:
        return "rebuilt", f"topic id {now}; the copied one had {named}"
    return "new", f"topic id {now}: never copied"


def worst(shapes: Iterable[Shape]) -> Shape:
    """Return the worst of some shapes, ``same`` for none."""
    return min(shapes, key=SHAPES.index, default="same")


def topic_return(
    topic: str, topic_id: str, finding: tuple[Shape, str], partitions: Iterable[PartitionReturn]
) -> TopicReturn:
    shape, evidence = finding
    found = tuple(partitions)
    ends = [
        f"{one.place} ends at {one.cut_from}, but was copied to {one.cut_to}"
        for one in found
        if one.cut_from is not None
    ]
    if shape == "same" and ends:
        shape, evidence = "shorter", f"{evidence}; {some(ends, 3)}"
    return TopicReturn(topic, topic_id, shape, evidence, found)


def describe(shape: Shape, source: str, was: str, now: str) -> str:
    """Describe a return in one sentence; ``was``: former id of the cluster, empty if unknown."""
    cluster = "the same cluster" if was in ("", now) else f"cluster {now}, formerly {was},"
    return {
        "same": f"{source} is {cluster} with all copied records",
        "new": f"{source} is {cluster} with all copied records, and with topics never copied",
        "shorter": f"{source} is {cluster}, but logs were truncated: an unclean restart",
        "missing": f"{source} is {cluster}, but copied topics are missing",
        "rebuilt": f"{source} is {cluster} emptied or rebuilt: topics have other ids",
    }[shape]


def explain_gone(entry: PartitionReturn) -> str:
    if entry.gone_from is None:
        return ""
    count = amount(entry.retention_loss, "offset")
    return f"{count} from {entry.gone_from} on were deleted by retention before they were copied"


Wanted = tuple[AssignedPartition, OffsetRange]


class Counting:
    """Mutable counter of a range's records and times; ``below``: of those before each mark.

    ``late``: of those with a timestamp after ``until_ms``.
    """

    def __init__(self, marks: Iterable[int] = (), until_ms: float = math.inf) -> None:
        self.below = dict.fromkeys(marks, 0)
        self.records = self.late = 0
        self._until_ms = until_ms
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    @property
    def totals(self) -> dict[str, Any]:
        return {"records": self.records, "first_ms": self.first_ms, "last_ms": self.last_ms}

    def take(self, offsets: Sequence[int], times: Sequence[int]) -> None:
        self.records += len(offsets)
        self.late += sum(ms > self._until_ms for ms in times)
        for mark in self.below:
            self.below[mark] += bisect_left(offsets, mark)
        known = [ms for ms in (self.first_ms, self.last_ms, *times) if ms is not None and ms >= 0]
        self.first_ms, self.last_ms = min(known, default=None), max(known, default=None)


_BY_NAME: frozenset[Shape] = frozenset({"rebuilt", "missing"})
"""Shapes of topics that no default decides, as they were meant to be restored."""


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """Decision about one topic; ``choice`` is None if it is open or not needed."""

    topic: str
    shape: Shape
    choice: Choice | None
    records: int
    means: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class Settlement:
    """A plan of decisions; ``blocked`` has the reasons why it cannot be executed."""

    flow: str
    topics: tuple[TopicDecision, ...]
    blocked: tuple[str, ...] = ()

    @property
    def choices(self) -> dict[str, Choice]:
        return {row.topic: row.choice for row in self.topics if row.choice is not None}


def read_choices(
    merge: Iterable[str], keep: Iterable[str], discard: Iterable[str]
) -> dict[str, Choice]:
    """Return the choice of each named topic; UsageError if a topic has two."""
    found: dict[str, Choice] = {}
    for choice, topics in zip(get_args(Choice), (merge, keep, discard), strict=True):
        for topic in topics:
            if found.setdefault(topic, choice) != choice:
                raise UsageError(
                    f"topic {topic}: --{found[topic]} and --{choice} contradict each other"
                )
    return found


def plan_settlement(
    found: SourceReturn, named: Mapping[str, Choice], default: Choice | None
) -> Settlement:
    """Decide about each topic, by default for any with a residue, but rebuilt or missing ones."""
    unknown = set(named) - {topic.topic for topic in found.topics}
    if unknown:
        raise NotFoundError(
            f"flow {found.flow} does not copy topic {', '.join(sorted(unknown))}: "
            f"see srm return status --flow '{found.flow}'"
        )
    flow = Flow.parse(found.flow)
    rows = tuple(_decide(topic, named.get(topic.topic), default, flow) for topic in found.topics)
    return Settlement(found.flow, rows, tuple(_blocks(found, rows)))


def _decide(
    topic: TopicReturn, named: Choice | None, default: Choice | None, flow: Flow
) -> TopicDecision:
    by_name = topic.shape in _BY_NAME
    away = [entry for entry in topic.partitions if entry.error]
    undecided = [entry for entry in topic.partitions if entry.has_open_transaction]
    needs_choice = by_name or topic.records > 0 or bool(away) or bool(undecided)
    if needs_choice and topic.is_heartbeats:
        default, by_name = "merge", False  # also while a move may still leave clients there
    choice = named or (None if by_name or not needs_choice else default)
    means = [_meaning(topic, choice, flow)] if needs_choice else []
    if away and choice == "merge":
        means.append(f"{amount(len(away), 'partition')} unavailable: copied when it can be read")
    if undecided and choice == "merge":
        means.append("records after open transactions: copied when they end")
    if cut := [entry for entry in topic.partitions if entry.cut_from is not None]:
        is_counted = all(entry.only_copied is not None for entry in cut)
        lost = amount(topic.only_copied, "record") if is_counted else "an unknown number of records"
        stay = f"{lost} that {flow.source} has lost stay on {flow.target}"
        means.append(f"{stay}, and the map ends before them")
    if gone := sum(entry.retention_loss for entry in topic.partitions):
        means.append(f"{amount(gone, 'offset')} deleted by retention can never be copied: noted")
    text = "; ".join(means) or "nothing to decide: the flow resumes"
    is_open = needs_choice and choice is None
    return TopicDecision(topic.topic, topic.shape, choice, topic.records, text, open=is_open)


def _meaning(topic: TopicReturn, choice: Choice | None, flow: Flow) -> str:
    count = amount(topic.records, "record")
    source, target = flow.source, flow.target
    restore = f"restore it (srm restore --from {target} --to {source} --topic {topic.topic})"
    if topic.shape == "missing":
        if choice is None:
            return f"{restore}, or name it with --discard: it is no longer copied"
        return f"it stays missing on {source}, and is no longer copied"
    if choice is None:
        named = f"--merge {topic.topic}, --keep {topic.topic} or --discard {topic.topic}"
        return f"{restore}, or {named}" if topic.shape == "rebuilt" else f"choose {named}"
    if topic.shape == "rebuilt" and choice == "merge":
        return f"{count} are copied as those of a topic that was re-created, after the old ones"
    return {
        "merge": f"{count} are copied after all: groups read them in the remote topic",
        "keep": f"{count} stay on {source}: groups that go back there read them",
        "discard": f"{count} stay on {source}: groups that go back there skip them",
    }[choice]


def _blocks(found: SourceReturn, rows: Collection[TopicDecision]) -> Iterable[str]:
    source = Flow.parse(found.flow).source
    if found.pause is None:
        yield f"flow {found.flow} is not paused: it copies what {source} has"
    for row in rows:
        if row.open:
            yield f"topic {row.topic} is undecided ({row.shape}): {row.means}"
    choices = {row.topic: row.choice for row in rows}
    for topic in found.topics:
        if topic.routed_by and choices[topic.topic] in {"keep", "discard"}:
            yield (
                f"topic {topic.topic}: move {topic.routed_by} has sent its clients to {source}, "
                f"so what they write there does not count as residue: --merge {topic.topic}"
            )
    for entry in found.partitions:
        if entry.error and choices.get(entry.topic) != "merge":
            yield f"{entry.place}: {entry.error}. Merged, it is copied as soon as it can be read"
        elif entry.has_open_transaction and choices.get(entry.topic) in {"keep", "discard"}:
            yield (
                f"{entry.place}: a transaction is open from offset {entry.log_end} on, its outcome "
                f"is not known yet. It ends at its timeout; or end it, on {source} with "
                f"{abort_command(entry.place, entry.log_end)!r}"
            )


def decisions(
    found: SourceReturn, settlement: Settlement, request: str, by: str, now_ms: int
) -> tuple[PartitionNotes, ...]:
    flow, choices = Flow.parse(found.flow), settlement.choices
    return tuple(
        PartitionNotes.from_decision(
            *(decision, name, (topic.topic, entry.partition, topic.topic_id), offsets),
            f"{why} (by {by})",
            now_ms,
            entry.target_next if decision == "cut" else None,
            entry.epoch,
        )
        for topic in found.topics
        for entry in topic.partitions
        for decision, name, offsets, why in _ranges(entry, choices.get(topic.topic), request, flow)
    )


def _ranges(
    entry: PartitionReturn, choice: Choice | None, request: str, flow: Flow
) -> Iterator[tuple[Decision, str, tuple[int, int], str]]:
    if entry.cut_from is not None and entry.cut_to is not None:
        why = f"{flow.source} has lost them, the copies on {flow.target} stay"
        yield "cut", request, (entry.cut_from, entry.cut_to), why
    if entry.gone_from is not None:
        why = f"deleted on {flow.source} by retention before they were copied"
        yield "keep", f"{request}-gone", (entry.gone_from, entry.log_start), why
    if choice in {"keep", "discard"} and entry.residue is not None:
        why = "kept on" if choice == "keep" else "discarded: they stay on"
        yield choice, request, entry.residue, f"{why} {flow.source}"


def outcome_of(
    found: SourceReturn, settlement: Settlement, move_id: str, by: str, now_ms: int
) -> Outcome:
    # No forecast counts heartbeats, which srm itself writes, what clients of a move back add to the
    # residue on the source, or what a topic holds that was created again.
    apart = {
        topic.topic: f"its residue and what clients of move {topic.routed_by} write"
        if topic.routed_by
        else "what the topic holds since it was created again"
        for topic in found.topics
        if topic.routed_by or (topic.shape == "rebuilt" and topic.records)
    }
    entries = [
        replace(one, records=0) if one.topic in apart else one
        for topic in found.topics
        if not topic.is_heartbeats
        for one in topic.partitions
    ]
    return Outcome(
        move_id=move_id,
        flow=found.flow,
        source_return=found.shape,
        time_ms=now_ms,
        by=by,
        partitions=tuple(
            PartitionOutcome(
                **values_of(entry, "topic", "partition", "records", "first_ms", "last_ms"),
                **values_of(entry, "late", "cut_from", "cut_to"),
                residue_from=entry.copied_to,
                residue_to=entry.log_end,
                only_copied=entry.only_copied or 0,
                gone=entry.retention_loss,
            )
            for entry in entries
            if entry.records or entry.cut_from is not None or entry.gone_from is not None
        ),
        groups=found.groups,
        choices=settlement.choices,
        unread=(
            *(f"{topic}: {why}" for topic, why in apart.items()),
            *(f"{entry.place}: {entry.error}" for entry in entries if entry.error),
            *(
                f"{entry.place}: {amount(entry.high_watermark - entry.log_end, 'offset')} after an "
                f"open transaction, from {entry.log_end} on"
                for entry in entries
                if entry.has_open_transaction
            ),
            *(f"group {text}" for text in found.unread_groups),
        ),
    )
