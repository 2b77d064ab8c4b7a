"""After go: look whether the groups work on the target."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import GroupResume, MoveProgress
from srm.domain.move.routes import Ack, group_subject
from srm.domain.topics import TopicPartition
from srm.engine.move.control import Change
from srm.engine.move.facts import TopicPair, partitions, source_next, topic_pairs
from srm.engine.move.registers import record
from srm.engine.move.routes import RoutingTables
from srm.engine.move.store import MoveContext, MoveStore
from srm.engine.ports import FlowMaps
from srm.errors import ConflictError, UnavailableError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VerifyStatus:
    """What one look after go has found.

    ``done``: every group that had members at the hold has resumed. ``waiting`` says for what the
    others are waited. ``residue`` are records written to the source after go, by topic.
    """

    move_id: str
    done: bool
    waiting: tuple[str, ...]
    groups: Mapping[str, GroupResume]
    residue: Mapping[str, int]
    elapsed_seconds: float
    timed_out: bool


def verify(context: MoveContext, move_id: str) -> VerifyStatus:
    """Look once whether the groups resumed where planned, and what was written to the old side.

    Repeat until ``done`` or ``timed_out``; what was seen is remembered.

    Raises:
        NotFoundError: there is no such move.
        ConflictError: its clients have not been sent to the target.
    """
    plan, progress = MoveStore(context).load(move_id)
    if not progress.decided:
        raise ConflictError(
            f"move {move_id} is at step {progress.step}: there is nothing to verify before go"
        )
    now = context.now_ms()
    resumed = _resumed(context, plan, progress, now)
    residue = _residue(context, plan, progress)
    waiting = tuple(
        f"group {group} has no members on {plan.request.target} yet"
        for group in plan.group_names
        if progress.members_at_hold.get(group, 0) and resumed[group].resumed_ms is None
    )
    noted = progress
    if (resumed, residue) != (progress.resumed, progress.residue):
        noted = progress.noting(resumed=resumed, residue=residue)
    if not waiting and noted.step == "gone":
        noted = noted.at("verified", now)
    if noted is not progress:
        record(context, Change(progress=(noted,)), tolerate_source=True)
    elapsed = max(0, now - noted.times_ms.get("gone", now)) / 1000
    return VerifyStatus(
        move_id=move_id,
        done=not waiting,
        waiting=waiting,
        groups=resumed,
        residue=residue,
        elapsed_seconds=elapsed,
        timed_out=bool(waiting) and elapsed > plan.request.resume_seconds,
    )


def _resumed(
    context: MoveContext, plan: MovePlan, progress: MoveProgress, now: int
) -> dict[str, GroupResume]:
    described = context.target.groups(plan.group_names)
    tables = RoutingTables.read(context)
    since = progress.times_ms.get("going", now)
    maps = _MapSides(context, plan)
    result = {}
    for group in plan.group_names:
        seen = progress.resumed.get(group, GroupResume())
        told = _resumed_acks(tables, group, plan)
        committed = {str(tp): offset for tp, offset in context.target.committed(group).items()}
        active = bool(told) or (group in described and described[group].state == "active")
        intended = progress.intended.get(group, {})
        moved = any(committed.get(name, offset) != offset for name, offset in intended.items())
        started = _lowest([seen.started, *(ack.positions for ack in told)])
        # Clients have clocks of their own.
        first_ms = max(since, min((ack.time_ms for ack in told), default=now))
        result[group] = replace(
            seen,
            resumed_ms=seen.resumed_ms or (first_ms if active else None),
            first_commit_ms=seen.first_commit_ms or (now if moved else None),
            started=started,
            committed=committed,
            re_read=max(seen.re_read, maps.count_before(intended, started, committed)),
            skipped=max(seen.skipped, maps.count_after(intended, started)),
        )
    return result


def _resumed_acks(tables: RoutingTables, group: str, plan: MovePlan) -> list[Ack]:
    """Select what members said about this move's go; a later route makes them unknown."""
    subject = group_subject(group)
    route = tables.merged.get(subject)
    if route is None or route.move_id != plan.move_id or not route.decided:
        return []
    return [
        ack
        for ack in tables.acks
        if ack.subject == subject
        and ack.state != "held"
        and (ack.generation, ack.cluster) == (route.generation, route.cluster)
    ]


def _lowest(tables: list[Mapping[str, int]]) -> dict[str, int]:
    """Offset each partition was first started at: a second member starts where the first left."""
    lowest: dict[str, int] = {}
    for table in tables:
        for name, offset in table.items():
            lowest[name] = min(offset, lowest.get(name, offset))
    return lowest


class _MapSides:
    """Counts records between offsets of the target's topics; maps are loaded when first needed."""

    def __init__(self, context: MoveContext, plan: MovePlan) -> None:
        self._context = context
        self._topics = plan.topics
        self._pairs: dict[str, TopicPair] = {
            pair.target_topic: pair for pair in topic_pairs(context, plan.topics)
        }

    @cached_property
    def _maps(self) -> FlowMaps:
        return self._context.forward.maps.load(self._topics)

    @cached_property
    def _reverse_maps(self) -> FlowMaps:
        return self._context.forward.reverse_maps.load(self._topics)

    def count_before(
        self,
        intended: Mapping[str, int],
        started: Mapping[str, int],
        committed: Mapping[str, int],
    ) -> int:
        """Count records that a group reads again: seen before where it should have been."""
        total = 0
        for name, offset in intended.items():
            seen = min(started.get(name, offset), committed.get(name, offset))
            total += self._count(name, seen, offset)
        return total

    def count_after(self, intended: Mapping[str, int], started: Mapping[str, int]) -> int:
        """Count records that a group passed over: started after where it should have."""
        return sum(
            self._count(name, offset, started.get(name, offset))
            for name, offset in intended.items()
        )

    def _count(self, name: str, start: int, end: int) -> int:
        topic, _, partition = name.rpartition("-")
        pair = self._pairs.get(topic)
        if pair is None or start >= end:
            return 0
        original = TopicPartition(pair.original, int(partition))
        if pair.direction == "forward":
            return self._maps.get(original).records_between(start, end)
        return self._reverse_maps.get(original).source_records_between(start, end)


def _residue(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> dict[str, int]:
    """Count what was written to the source after go; the source may be away."""
    try:
        ends = context.source.high_watermarks(partitions(context.source.topics(), plan.topics))
    except UnavailableError as error:
        log.warning("residue on %s cannot be counted: %s", context.source.alias, error)
        return dict(progress.residue)
    grown = {tp: end for tp, end in ends.items() if end > progress.log_ends_at_go.get(str(tp), 0)}
    maps = context.forward.maps.load(plan.topics) if grown else FlowMaps({})
    residue: dict[str, int] = {}
    for tp, end in grown.items():
        start = progress.log_ends_at_go.get(str(tp), 0)
        offset_map = maps.get(tp)
        copied = source_next(offset_map) or 0
        count = offset_map.source_records_between(start, end) + max(0, end - max(start, copied))
        residue[tp.topic] = residue.get(tp.topic, 0) + count
    return residue
