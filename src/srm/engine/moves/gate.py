"""Looks at the gate of a held move: what has stopped, what still moves, and what is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from srm.domain.groups.group_sync import IDLE
from srm.domain.moves.gate import (
    Writers,
    requests_at_hold,
    unheld_producers,
    unknown_writers,
    unrouted_members,
)
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import HELD, MoveProgress, Observation
from srm.domain.moves.routing import group_subject, missing_confirmations, topic_subject
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import reasons_text, some
from srm.engine.moves.context import MoveContext
from srm.engine.moves.effects import topics_without_fence
from srm.engine.moves.facts import Look, MoveFacts
from srm.engine.moves.planning import unsettled_problems
from srm.engine.moves.reading import read_facts
from srm.engine.moves.tables import MoveRecords
from srm.errors import GateClosedError

_AGAIN: Final = "plan the move again"


def look(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> Look:
    """Read the clusters, decide, and keep the state for the next look in this process."""
    began_ms = context.now_ms()  # a long look must not miss the beats that came during it
    clusters = read_facts(context, plan.request, plan.topics, plan.group_names)
    now, clock = context.now_ms(), context.monotonic()
    if progress.step not in HELD:
        return Look(clusters, progress, now, Observation(clock))
    presence, attempt = clusters.routing.presence, progress.attempt
    before = context.observations.get(plan.move_id)
    context.observations[plan.move_id] = seen = (
        before or _take_over(context, plan, progress, clusters)
    ).next(
        clock,
        _marks(clusters),
        (now, sum(partition.remaining for partition in clusters.replication)),
        [topic for topic in plan.topics if not presence.not_held(topic_subject(topic), attempt)],
    )
    held_ms, slow_ms = progress.times_ms.get("holding", 0), plan.request.slow_writer_seconds * 1000
    writers = Writers(clusters.writers, seen.sequences, held_ms, round(slow_ms))
    unrouted = tuple(
        topic
        for topic in plan.topics
        if topic in seen.unrouted or unknown_writers(topic, writers, presence)
    )
    moving = _moving(plan, progress, seen, unrouted, clock)
    readers, lost = tuple(_readers(plan, seen, clock)), lost_groups(plan, clusters)
    requests: tuple[str, ...] = ()
    if "manual" in plan.redirect:
        members = {
            name: unrouted_members(name, clusters.source.group(name).by_id, presence)
            for name in plan.group_names
        }
        plain = {
            topic: unknown_writers(topic, writers, presence)
            for topic in seen.settled.intersection(moving)
        }
        requests = tuple(requests_at_hold(plan.request, address_of_target(context), members, plain))
    return Look(
        facts=clusters,
        progress=progress,
        now_ms=now,
        seen=seen,
        moving=moving,
        unrouted=unrouted,
        unheld=(*unheld_producers(plan.topics, attempt, presence), *readers),
        unconfirmed=(
            *missing_confirmations(plan.redirect, progress.calls, attempt, "hold"),
            *topics_without_fence(context, plan),
            *(problem.text for problem in unsettled_problems(context.forward)),
            *deleted_topics(plan, clusters),
            *(f"group {group} cannot move: {why}" for group, why in lost.items()),
        ),
        lost=lost,
        requests=requests,
        rested=not (moving or readers),
        end=_end(plan, progress, clusters, began_ms),
    )


def _end(plan: MovePlan, progress: MoveProgress, clusters: MoveFacts, at_ms: int) -> str:
    end = clusters.routing.target.end_of_hold(plan.request, progress, at_ms)
    return end and f"{end}, clients continue on {plan.request.source}: hold again"


def patient_look(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> Look:
    """Look; look twice if only the time of watching, begun by another process, is too short."""
    seen = look(context, plan, progress)
    moving, clock = seen.moving, context.monotonic()
    only_too_short = len(seen.status.blocking) == len(moving) and not any(moving.values())
    if seen.status.ready or not only_too_short:
        return seen
    missing_s = [
        plan.request.quiet_s(unrouted=topic in seen.unrouted)
        - seen.seen.rested_s(topic_subject(topic), clock)
        for topic in moving
    ]
    context.pause(max(0.0, *missing_s))
    return look(context, plan, progress)


def first_look(context: MoveContext, clusters: MoveFacts) -> Observation:
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
    note = MoveRecords.read(context.target).notes.get(plan.move_id)
    if note is None or note.attempt != progress.attempt:
        return first_look(context, clusters)
    samples = (note.sample,) if note.sample else ()
    seen = replace(first_look(context, clusters), samples=samples)
    if note.still == seen.fingerprint:
        return replace(seen, began=float("-inf"))
    return replace(seen, unrouted=frozenset(plan.topics))


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
    topics, found = clusters.read_topics, clusters.source.committed.get(group, {})
    return by_name({place: offset for place, offset in found.items() if place.topic in topics})


def deleted_topics(plan: MovePlan, clusters: MoveFacts) -> Iterator[str]:
    """Yield a reason for each topic on the source in which the plan has places, and that is gone.

    Without all places of its groups a plan has nothing to move either.
    """
    if clusters.is_away:
        return
    places = [place for group in plan.groups for place in group.positions]
    read = {place.topic for place in places if place.committed is not None}
    for topic in sorted(read - clusters.source.topics.keys()):
        yield f"topic {topic} was deleted on {plan.request.source} since the plan: {_AGAIN}"
    if plan.groups and lost_groups(plan, clusters).keys() >= {*plan.group_names}:
        what = f"no group of the move has its offsets on {plan.request.source} any more"
        yield f"{what}, they were deleted or have expired since the plan: {_AGAIN}"


def lost_groups(plan: MovePlan, clusters: MoveFacts) -> dict[str, str]:
    """Return the groups whose offsets are gone since the plan, though their topics exist, and why.

    They were deleted, or have expired. Their clients would start on the target as
    auto.offset.reset says, so a planned move leaves them out.
    """
    found = dict[str, str]()
    for group in () if clusters.is_away else plan.groups:
        here = {str(place) for place in clusters.source.committed.get(group.group, {})}
        there = [one for one in group.positions if one.topic in clusters.source.topics]
        lost = [p.name for p in there if p.committed is not None and p.name not in here]
        if lost and not clusters.unreadable(group.group):
            found[group.group] = (
                f"it has no offset of {some(lost)} on {plan.request.source} any more, deleted or "
                f"expired since the plan"
            )
    return found


def address_of_target(context: MoveContext) -> str:
    return context.forward.config.redirect.addresses.get(context.target.alias, "")


def by_name(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(tp): offset for tp, offset in offsets.items()}


def _moving(
    plan: MovePlan,
    progress: MoveProgress,
    seen: Observation,
    unrouted: Collection[str],
    clock: float,
) -> dict[str, int]:
    """Return topics that may have grown in the quiet time, with the offsets seen since the hold."""
    moving = {}
    for topic in plan.topics:
        subject = topic_subject(topic)
        if subject not in seen.marks:
            continue
        if seen.rested_s(subject, clock) < plan.request.quiet_s(unrouted=topic in unrouted):
            moving[topic] = sum(
                max(0, end - progress.log_ends_at_hold.get(partition, 0))
                for partition, end in seen.marks[subject].items()
                if subject in seen.moved
            )
    return moving


def _readers(plan: MovePlan, seen: Observation, clock: float) -> Iterator[str]:
    """Yield a reason for each group that commits on the source without having members there."""
    for group in plan.group_names:
        moved = seen.moved.get(group_subject(group), {})
        places = sorted(place for place, at in moved.items() if clock - at < plan.request.quiet_s())
        if places:
            yield (
                f"group {group} has no members on {plan.request.source}, but its commits of "
                f"{some(places)} change: stop the consumer that still reads there with "
                f"manual assignment (assign(), Flink, Spark)"
            )


def require(reasons: tuple[str, ...], plan: MovePlan, what: str) -> None:
    if reasons:
        raise GateClosedError(f"move {plan.move_id}: {what} yet: {reasons_text(reasons)}")
