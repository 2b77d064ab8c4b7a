"""Decisions about the residue of a returned source, topic by topic, and their effects.

========  =======================================  ================================================
choice    the flow                                 a group that fails back to the source
========  =======================================  ================================================
merge     copies the residue after all             has read it in the remote topic
keep      continues after the residue              reads it there, from its last position on
discard   continues after the residue              skips it
========  =======================================  ================================================

With any choice, copied records that the source has lost are noted, so that the map ends there and
the flow resumes. Decisions are notes of the partitions (:mod:`srm.domain.flow_state.anomalies`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from srm.domain.flow_state.anomalies import Decision, PartitionNotes
from srm.domain.moves.records.outcome import Choice, Outcome, PartitionOutcome
from srm.domain.names.topics import Flow
from srm.domain.recovery.source_return import PartitionReturn, Shape, SourceReturn, TopicReturn
from srm.domain.text.amount import amount
from srm.errors import NotFoundError, UsageError

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
        """Choices made, by topic."""
        return {row.topic: row.choice for row in self.topics if row.choice is not None}


def read_choices(
    merge: Iterable[str], keep: Iterable[str], discard: Iterable[str]
) -> dict[str, Choice]:
    """Return the choice of each named topic; UsageError if a topic has two."""
    found: dict[str, Choice] = {}
    named: tuple[tuple[Choice, Iterable[str]], ...] = (
        ("merge", merge),
        ("keep", keep),
        ("discard", discard),
    )
    for choice, topics in named:
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
            f"flow {found.flow} does not copy topic {', '.join(sorted(unknown))}: see 'srm return "
            "status'"
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
        default, by_name = default or "merge", False  # heartbeats may be read twice or missed
    choice = named or (None if by_name or not needs_choice else default)
    means = [_meaning(topic, choice, flow)] if needs_choice else []
    if away and choice == "merge":
        means.append(f"{amount(len(away), 'partition')} unavailable: copied when it can be read")
    if undecided and choice == "merge":
        means.append("records after open transactions: copied when they end")
    if topic.only_copied or any(entry.cut_from is not None for entry in topic.partitions):
        means.append(
            f"{amount(topic.only_copied, 'record')} that {flow.source} has lost stay on "
            f"{flow.target}, and the map ends before them"
        )
    gone = sum(entry.log_start - entry.gone_from for entry in topic.partitions if entry.gone_from)
    if gone:
        means.append(f"{amount(gone, 'offset')} deleted by retention can never be copied: noted")
    return TopicDecision(
        topic.topic,
        topic.shape,
        choice,
        topic.records,
        "; ".join(means) or "nothing to decide: the flow resumes",
        open=needs_choice and choice is None,
    )


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
                f"topic {topic.topic}: move {topic.routed_by} has redirected its clients to "
                f"{source}, and their records there do not count: --merge {topic.topic}"
            )
    for entry in found.partitions:
        if entry.error and choices.get(entry.topic) != "merge":
            yield f"{entry.name}: {entry.error}. Merged, it is copied as soon as it can be read"
        elif entry.has_open_transaction and choices.get(entry.topic) in {"keep", "discard"}:
            yield (
                f"{entry.name}: a transaction is open from offset {entry.log_end} on, its outcome "
                "is not known yet. It ends at its timeout; or abort it (kafka-"
                "transactions.sh)"
            )


def decisions(
    found: SourceReturn, settlement: Settlement, request: str, by: str, now_ms: int
) -> tuple[PartitionNotes, ...]:
    """Return the notes that execute a settlement."""
    flow, choices = Flow.parse(found.flow), settlement.choices
    notes: list[PartitionNotes] = []
    for topic in found.topics:
        for entry in topic.partitions:
            place = entry.topic, entry.partition, topic.topic_id
            notes += (
                PartitionNotes.from_decision(
                    *(decision, name, place, offsets, f"{why} (by {by})", now_ms),
                    entry.target_next if decision == "cut" else None,
                    entry.epoch,
                )
                for decision, name, offsets, why in _ranges(
                    entry, choices.get(topic.topic), request, flow
                )
            )
    return tuple(notes)


def _ranges(
    entry: PartitionReturn, choice: Choice | None, request: str, flow: Flow
) -> Iterator[tuple[Decision, str, tuple[int, int], str]]:
    if entry.cut_from is not None and entry.cut_to is not None:
        why = f"{flow.source} has lost them, the copies on {flow.target} stay"
        yield "cut", request, (entry.cut_from, entry.cut_to), why
    if entry.gone_from is not None:
        why = f"deleted on {flow.source} by retention before they were copied"
        yield "keep", f"{request}-gone", (entry.gone_from, entry.log_start), why
    if choice == "keep" and entry.residue is not None:
        yield "keep", request, entry.residue, f"kept on {flow.source}"
    if choice == "discard" and entry.residue is not None:
        yield "discard", request, entry.residue, f"discarded: they stay on {flow.source}"


def outcome_of(
    found: SourceReturn, settlement: Settlement, move_id: str, by: str, now_ms: int
) -> Outcome:
    """Return the outcome that the report of the disaster shows next to its forecast."""
    return Outcome(
        move_id,
        found.flow,
        found.shape,
        now_ms,
        by,
        tuple(
            _partition_outcome(entry)
            for entry in found.partitions
            if entry.records or entry.cut_from is not None or entry.gone_from is not None
        ),
        found.groups,
        settlement.choices,
        (
            *(f"{entry.name}: {entry.error}" for entry in found.partitions if entry.error),
            *(
                f"{entry.name}: {amount(entry.high_watermark - entry.log_end, 'offset')} after an "
                f"open transaction, from {entry.log_end} on"
                for entry in found.partitions
                if entry.has_open_transaction
            ),
            *(f"group {text}" for text in found.unread_groups),
        ),
    )


def _partition_outcome(entry: PartitionReturn) -> PartitionOutcome:
    return PartitionOutcome(
        entry.topic,
        entry.partition,
        entry.copied_to,
        entry.log_end,
        entry.records,
        entry.first_ms,
        entry.last_ms,
        entry.cut_from,
        entry.cut_to,
        entry.only_copied or 0,
        0 if entry.gone_from is None else entry.log_start - entry.gone_from,
    )
