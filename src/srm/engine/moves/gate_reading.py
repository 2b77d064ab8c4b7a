"""One look at a move: read the clusters, check the gate, keep the state for the next look."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from srm.domain.groups.group_sync import IDLE
from srm.domain.moves.gate import (
    GateFacts,
    SyncStatus,
    Writers,
    asks_at_hold,
    decide,
    strangers,
    unheld_producers,
    unknown_writers,
)
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import HELD, MoveProgress, Observation
from srm.domain.moves.routing import group_subject, missing_confirmations, topic_subject
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import few, some
from srm.engine.moves.effects import topics_without_fence
from srm.engine.moves.facts import MoveFacts
from srm.engine.moves.planning import unsettled_problems
from srm.engine.moves.reading import read_facts
from srm.engine.moves.records import MoveContext, MoveStore
from srm.errors import GateClosedError


@dataclass(frozen=True)
class Look:
    """Facts for the gate, its answer, the move's progress, and the clusters that were read.

    ``rested``: topics and commits on the source have been quiet for long enough.
    """

    facts: GateFacts
    status: SyncStatus
    progress: MoveProgress
    clusters: MoveFacts
    seen: Observation
    rested: bool


def look(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> Look:
    """Read the clusters, decide, and keep the state for the next look in this process."""
    clusters = read_facts(context, plan.request, plan.topics, plan.group_names)
    now, clock = context.now_ms(), context.monotonic()
    facts = clusters.gate(plan.move_id, now)
    if progress.step not in HELD:
        return Look(facts, decide(facts), progress, clusters, Observation(clock), rested=False)
    presence, attempt = clusters.routing.presence, progress.attempt
    before = context.observations.get(plan.move_id)
    context.observations[plan.move_id] = seen = (
        before or _take_over(context, plan, progress, clusters)
    ).next(
        clock,
        _marks(clusters),
        (now, sum(partition.remaining for partition in facts.replication)),
        [topic for topic in plan.topics if not presence.not_held(topic_subject(topic), attempt)],
    )
    held_ms, slow_ms = progress.times_ms.get("holding", 0), plan.request.slow_writer_seconds * 1000
    writers = Writers(clusters.writers, seen.sequences, held_ms, round(slow_ms))
    doubted = tuple(
        topic
        for topic in plan.topics
        if topic in seen.strangers or unknown_writers(topic, writers, presence)
    )
    moving = _moving(plan, progress, seen, doubted, clock)
    readers = tuple(_readers(plan, seen, clock))
    facts = replace(
        facts,
        moving=moving,
        doubted=doubted,
        unheld=(*unheld_producers(plan.topics, attempt, presence), *readers),
        held_ms=progress.times_ms.get("holding"),
        samples=seen.samples,
        unconfirmed=(
            *missing_confirmations(plan.redirect, progress.calls, attempt, "hold"),
            *topics_without_fence(context, plan),
            *(problem.text for problem in unsettled_problems(context.forward)),
        ),
    )
    if "manual" in plan.redirect:
        members = {
            group.group: strangers(group.group, group.source_members, presence)
            for group in facts.groups
        }
        plain = {
            topic: unknown_writers(topic, writers, presence)
            for topic in moving
            if not presence.not_held(topic_subject(topic), attempt)
        }
        asks = asks_at_hold(plan.request, address_of_target(context), members, plain)
        facts = replace(facts, asks=tuple(asks))
    rested = not (moving or readers)
    return Look(facts, decide(facts), progress, clusters, seen, rested)


def patient_look(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> Look:
    """Look; look twice if only the time of watching, begun by another process, is too short."""
    seen = look(context, plan, progress)
    facts, clock = seen.facts, context.monotonic()
    only_too_short = len(seen.status.blocking) == len(facts.moving) and not any(
        facts.moving.values()
    )
    if seen.status.ready or not only_too_short:
        return seen
    missing_s = [
        _quiet_s(plan, topic, facts.doubted) - seen.seen.rested_s(topic_subject(topic), clock)
        for topic in facts.moving
    ]
    context.pause(max(0.0, *missing_s))
    return look(context, plan, progress)


def first_look(context: MoveContext, clusters: MoveFacts) -> Observation:
    """Begin to watch the source."""
    return Observation(
        context.monotonic(),
        _marks(clusters),
        sequences={writer.name: writer.last_sequence for writer in clusters.writers},
    )


def _take_over(
    context: MoveContext, plan: MovePlan, progress: MoveProgress, clusters: MoveFacts
) -> Observation:
    """Take over watching the source from another process, with its note.

    If nothing has moved since its note, all has been quiet for long enough. Otherwise records were
    written during the hold, maybe by a slow writer that only the earlier process knew, so all
    topics count as having unknown writers.
    """
    seen, note = first_look(context, clusters), MoveStore(context).note(plan.move_id)
    if note is None or note.attempt != progress.attempt:
        return seen
    seen = replace(seen, samples=(note.sample,) if note.sample else ())
    if note.still == seen.fingerprint:
        return replace(seen, began=float("-inf"))
    return replace(seen, strangers=frozenset(plan.topics))


def _marks(clusters: MoveFacts) -> dict[str, dict[str, int]]:
    """Return the source offsets that no longer move once all clients have stopped, by subject.

    Commits count if the group had no members when they were read and none is pending.
    """
    marks: dict[str, dict[str, int]] = {}
    for place, end in clusters.original_ends().items():
        marks.setdefault(topic_subject(place.topic), {})[str(place)] = end
    for group in clusters.groups:
        if clusters.source.group(group).state in IDLE and not clusters.source.pending.get(group):
            marks[group_subject(group)] = commits_of(clusters, group)
    return marks


def commits_of(clusters: MoveFacts, group: str) -> dict[str, int]:
    """Return the commits of a group on the source, for the moving topics."""
    topics = {pair.topic for pair in clusters.pairs}
    found = clusters.source.committed.get(group, {})
    return by_name({place: offset for place, offset in found.items() if place.topic in topics})


def address_of_target(context: MoveContext) -> str:
    """Return the bootstrap servers that clients should use."""
    return context.forward.config.redirect.addresses.get(context.target.alias, "")


def by_name(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    """Return offsets by partition name, as progress stores them."""
    return {str(tp): offset for tp, offset in offsets.items()}


def _moving(
    plan: MovePlan,
    progress: MoveProgress,
    seen: Observation,
    doubted: Collection[str],
    clock: float,
) -> dict[str, int]:
    """Return topics that may have grown in the quiet time, with the offsets seen since the hold."""
    moving = {}
    for topic in plan.topics:
        subject = topic_subject(topic)
        if subject not in seen.marks:
            continue
        if seen.rested_s(subject, clock) < _quiet_s(plan, topic, doubted):
            moving[topic] = sum(
                end - progress.log_ends_at_hold.get(partition, 0)
                for partition, end in seen.marks[subject].items()
                if subject in seen.moved
            )
    return moving


def _quiet_s(plan: MovePlan, topic: str, doubted: Collection[str]) -> float:
    request = plan.request
    slow = request.slow_writer_seconds if topic in doubted else 0.0
    return max(request.quiet_seconds, slow)


def _readers(plan: MovePlan, seen: Observation, clock: float) -> Iterator[str]:
    """Yield a reason for each group that commits on the source without having members there."""
    request = plan.request
    patience_s = max(request.quiet_seconds, request.slow_writer_seconds)
    for group in plan.group_names:
        moved = seen.moved.get(group_subject(group), {})
        places = sorted(place for place, at in moved.items() if clock - at < patience_s)
        if places:
            yield (
                f"group {group} has no members on {request.source}, but its commits of "
                f"{some(places)} change: stop the consumer that still reads there with "
                f"manual assignment (assign(), Flink, Spark)"
            )


def require(reasons: tuple[str, ...], plan: MovePlan, what: str) -> None:
    """Raise if there are reasons against a step."""
    if reasons:
        raise GateClosedError(f"move {plan.move_id}: {what} yet: {'; '.join(few(reasons))}")
