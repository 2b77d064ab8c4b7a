"""One look at a move: read the clusters, decide by the gate, remember what the next look needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from srm.domain.amount import few
from srm.domain.move.asks import asks_at_hold
from srm.domain.move.gate import GateFacts, GroupSync, SyncStatus, decide
from srm.domain.move.plan import MovePlan
from srm.domain.move.presence import (
    Presence,
    Writer,
    Writers,
    strangers,
    unheld_producers,
    unknown_writers,
)
from srm.domain.move.progress import HELD, MoveProgress, Observation
from srm.domain.move.redirects import unconfirmed
from srm.domain.move.routes import topic_subject
from srm.domain.topics import TopicPartition
from srm.engine.move.facts import MoveFacts
from srm.engine.move.fence import unfenced
from srm.engine.move.problems import unsettled_problems
from srm.engine.move.reading import read_facts
from srm.engine.move.store import MoveContext, MoveStore
from srm.errors import GateClosedError


@dataclass(frozen=True)
class Look:
    """What the gate was asked with, its answer, the move's progress, and what it was read from.

    ``seen`` is what the next look needs.
    """

    facts: GateFacts
    status: SyncStatus
    progress: MoveProgress
    clusters: MoveFacts
    seen: Observation

    @property
    def log_ends(self) -> Mapping[str, int]:
        """High watermarks of the source by name."""
        return self.seen.log_ends


def look(
    context: MoveContext,
    store: MoveStore,
    plan: MovePlan,
    progress: MoveProgress,
    *,
    remember: bool = True,
) -> Look:
    """Read the clusters, decide, and remember what the next look needs."""
    clusters = read_facts(context, plan.request, plan.topics, plan.group_names)
    now, host, boot_ms = context.now_ms(), context.host, round(context.monotonic() * 1000)
    held = progress.step in HELD
    known = store.observation(plan.move_id)
    before, stamp = known.observation, known.stamp_ms
    broker_ms = before.broker_ms(host, boot_ms, stamp)
    announced = clusters.routing.announced_by(known.ahead_ms)
    presence = Presence.of(announced, broker_ms if held else now)
    seen = Observation(plan.move_id, now, host=host)
    if held:
        remaining = sum(partition.remaining for partition in clusters.replication())
        ends = by_name(clusters.original_ends())
        settled = [
            topic
            for topic in plan.topics
            if not presence.not_held(topic_subject(topic), progress.attempt)
        ]
        seen = before.next((host, now, boot_ms), stamp, ends, remaining, settled)
    writers = writers_of(plan, progress, seen, clusters.writers)
    doubted = doubted_topics(plan, seen, writers, presence)
    facts = GateFacts(
        move_id=plan.move_id,
        request=plan.request,
        topics=plan.topics,
        groups=tuple(clusters.group(group) for group in plan.group_names),
        replication=clusters.replication(),
        routes=clusters.routing.merged,
        moving=_moving(plan, progress, seen, doubted, broker_ms) if held else {},
        doubted=doubted,
        unheld=tuple(unheld_producers(plan.topics, progress.attempt, presence)) if held else (),
        now_ms=now,
        held_ms=progress.times_ms.get("holding") if held else None,
        report_age_ms=clusters.report_age_ms,
        samples=seen.samples,
        unconfirmed=(
            *unconfirmed(plan.redirect, progress.calls, progress.attempt, "hold"),
            *unfenced(context, plan),
            *(problem.text for problem in unsettled_problems(context.forward)),
        )
        if held
        else (),
    )
    if held and "manual" in plan.redirect:
        facts = replace(
            facts, asks=tuple(_asks(context, plan, facts, presence, writers, progress.attempt))
        )
    status = decide(facts)
    seen = seen.waiting(status.blocking)
    if held and remember:
        store.save_observation(seen)
    return Look(facts, status, progress, clusters, seen)


def address_of_target(context: MoveContext) -> str:
    """Return the bootstrap servers that clients are to be pointed to."""
    return context.forward.config.redirect.addresses.get(context.target.alias, "")


def _asks(
    context: MoveContext,
    plan: MovePlan,
    facts: GateFacts,
    presence: Presence,
    writers: Writers,
    generation: int,
) -> Iterator[str]:
    members = {
        group.group: strangers(group.group, group.source_members, presence)
        for group in facts.groups
    }
    plain = {
        topic: unknown_writers(topic, writers, presence)
        for topic in facts.moving
        if not presence.not_held(topic_subject(topic), generation)
    }
    return asks_at_hold(plan.request, address_of_target(context), members, plain)


def by_name(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    """Key offsets as progress keeps them."""
    return {str(tp): offset for tp, offset in offsets.items()}


def writers_of(
    plan: MovePlan, progress: MoveProgress, seen: Observation, now: tuple[Writer, ...]
) -> Writers:
    """Join the producers that brokers remember now with what they had written at the hold."""
    recent_ms = round(plan.request.slow_writer_seconds * 1000)
    return Writers(now, seen.sequences, progress.times_ms.get("holding", 0), recent_ms)


def doubted_topics(
    plan: MovePlan, seen: Observation, writers: Writers, presence: Presence
) -> tuple[str, ...]:
    """Topics that somebody who follows no route has lately written to, or may have."""
    return tuple(
        topic
        for topic in plan.topics
        if topic in seen.strangers or unknown_writers(topic, writers, presence)
    )


def _moving(
    plan: MovePlan,
    progress: MoveProgress,
    seen: Observation,
    doubted: Collection[str],
    broker_ms: int,
) -> dict[str, int]:
    """Topics that grew within the quiet time, with the offsets they have grown since the hold."""
    request, moving = plan.request, {}
    for topic in {TopicPartition.parse(name).topic for name in seen.log_ends}:
        seconds = request.slow_writer_seconds if topic in doubted else request.quiet_seconds
        if seen.standing_ms(topic, broker_ms) < max(seconds, request.quiet_seconds) * 1000:
            moving[topic] = sum(
                end - progress.log_ends_at_hold.get(partition, 0)
                for partition, end in seen.log_ends.items()
                if TopicPartition.parse(partition).topic == topic
            )
    return moving


def passed(plan: MovePlan) -> SyncStatus:
    """Answer for a move whose clients were sent to the target: its gate was open then."""
    return SyncStatus(
        move_id=plan.move_id,
        ready=True,
        applied=True,
        blocking=(),
        unapplied=(),
        remaining_records=0,
        groups=tuple(
            GroupSync(group, members_left=0, synchronised=True, applied=True, remaining=0)
            for group in plan.group_names
        ),
        eta_seconds=0.0,
        elapsed_seconds=0.0,
        timed_out=False,
        notes=(f"clients have been sent to {plan.request.target}",),
    )


def require(reasons: tuple[str, ...], plan: MovePlan, what: str) -> None:
    """Raise the reasons why a step may not be done yet, if there are any.

    Raises:
        GateClosedError: there are.
    """
    if reasons:
        raise GateClosedError(f"move {plan.move_id}: {what} yet: {'; '.join(few(reasons))}")
