"""The gate of a move: may clients be sent to the other cluster now? A pure decision over facts.

Two questions. *Ready*: all clients have left X, replication has nothing left to copy, and every
group's last commit is translated, so offsets may be applied on Y. *Open*: in addition the offsets
on Y are the intended ones, so clients may go there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from srm.domain.move.plan import position_problem
from srm.domain.move.positions import PartitionMove
from srm.domain.move.request import MoveRequest
from srm.domain.move.routes import Route, group_subject, topic_subject
from srm.domain.silence import is_silent

# States a group may be in while offsets are written for it; any other, also an unknown one, counts
# as active.
_MEMBERLESS = frozenset({"empty", "dead"})


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group on both clusters, read after the hold."""

    group: str
    source_state: str
    source_members: tuple[str, ...]
    target_state: str
    target_members: tuple[str, ...]
    positions: tuple[PartitionMove, ...]


@dataclass(frozen=True, slots=True)
class ReplicationFacts:
    """How far one partition of an original topic is copied from X to Y.

    ``source_next`` is None where no position is known. ``log_end`` is the last stable offset on X
    read now. ``stopped`` is the reason of a stopped partition.
    """

    topic: str
    partition: int
    source_next: int | None
    log_start: int
    log_end: int
    stopped: str | None = None

    @property
    def remaining(self) -> int:
        """Source offsets still to be copied; never data counted from log ends: markers."""
        reached = self.log_start if self.source_next is None else self.source_next
        return max(0, self.log_end - reached)


@dataclass(frozen=True)
class GateFacts:
    """Everything the gate looks at, read from the clusters themselves.

    ``moving`` maps topics of X that were written to within the quiet time to the number of offsets
    since the hold. ``samples`` are (epoch ms, remaining) of earlier looks. ``report_age_ms`` is the
    age of the newest sign of life of the replicator X->Y, None where there is none.
    """

    move_id: str
    request: MoveRequest
    topics: tuple[str, ...]
    groups: tuple[GroupFacts, ...]
    replication: tuple[ReplicationFacts, ...]
    routes: Mapping[str, Route]
    moving: Mapping[str, int]
    now_ms: int
    held_ms: int | None
    report_age_ms: int | None = None
    samples: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSync:
    """How far one group is; ``synchronised``: gone from X and translated, ``applied``: on Y."""

    group: str
    members_left: int
    synchronised: bool
    applied: bool
    remaining: int


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """Answer of the gate.

    ``blocking`` are the reasons why offsets may not be applied yet, ``unapplied`` those why clients
    may not go although the move is ready. ``eta_seconds`` is None where no forecast is possible.
    """

    move_id: str
    ready: bool
    applied: bool
    blocking: tuple[str, ...]
    unapplied: tuple[str, ...]
    remaining_records: int
    groups: tuple[GroupSync, ...]
    eta_seconds: float | None
    elapsed_seconds: float
    timed_out: bool
    notes: tuple[str, ...] = field(default=())

    @property
    def open(self) -> bool:
        """Whether clients may be sent to the target now."""
        return self.ready and self.applied


def decide(facts: GateFacts) -> SyncStatus:
    """Decide whether the move is ready and its gate open."""
    blocking = (
        *_routing_reasons(facts),
        *_writer_reasons(facts),
        *_replication_reasons(facts),
        *(reason for group in facts.groups for reason in _group_reasons(group, facts)),
    )
    unapplied = tuple(
        f"group {group.group}, {p.target_topic}-{p.partition}: offset on {facts.request.target} "
        f"is {p.target_committed}, intended is {p.resume}"
        for group in facts.groups
        for p in group.positions
        if not p.applied
    )
    remaining = sum(partition.remaining for partition in facts.replication)
    elapsed = 0.0 if facts.held_ms is None else max(0, facts.now_ms - facts.held_ms) / 1000
    return SyncStatus(
        move_id=facts.move_id,
        ready=not blocking,
        applied=not unapplied,
        blocking=blocking,
        unapplied=unapplied,
        remaining_records=remaining,
        groups=tuple(_group_sync(group, facts) for group in facts.groups),
        eta_seconds=0.0 if not blocking else eta_seconds(facts.samples, facts.now_ms, remaining),
        elapsed_seconds=elapsed,
        timed_out=bool(blocking or unapplied) and elapsed > facts.request.wait_seconds,
    )


def eta_seconds(samples: tuple[tuple[int, int], ...], now_ms: int, remaining: int) -> float | None:
    """Forecast when nothing remains to be copied, from the rate since the oldest sample."""
    if remaining == 0 or not samples:
        return None
    since_ms, then = samples[0]
    copied, passed = then - remaining, now_ms - since_ms
    if copied <= 0 or passed <= 0:
        return None
    return round(remaining * passed / copied / 1000, 1)


def _routing_reasons(facts: GateFacts) -> tuple[str, ...]:
    subjects = [topic_subject(topic) for topic in facts.topics]
    subjects += [group_subject(group.group) for group in facts.groups]
    reasons = []
    for subject in subjects:
        route = facts.routes.get(subject)
        if route is None or route.state != "hold" or route.move_id != facts.move_id:
            owner = "" if route is None or not route.move_id else f" (last set by {route.move_id})"
            reasons.append(f"{subject} is not held by this move{owner}: hold first")
    return tuple(reasons)


def _writer_reasons(facts: GateFacts) -> tuple[str, ...]:
    return tuple(
        f"topic {topic} is still written to on {facts.request.source} ({offsets} offsets since the "
        f"hold): stop its producers"
        if offsets
        else f"topic {topic} has to stand still on {facts.request.source} for "
        f"{facts.request.quiet_seconds:g} s"
        for topic, offsets in sorted(facts.moving.items())
    )


def _replication_reasons(facts: GateFacts) -> tuple[str, ...]:
    reasons = []
    behind: dict[str, int] = {}
    for partition in facts.replication:
        if not partition.remaining:
            continue
        if partition.stopped is not None:
            reasons.append(
                f"replication of {partition.topic}-{partition.partition} is stopped: "
                f"{partition.stopped}"
            )
        behind[partition.topic] = behind.get(partition.topic, 0) + partition.remaining
    reasons += [
        f"replication of {topic} from {facts.request.source} is {remaining} records behind"
        for topic, remaining in sorted(behind.items())
    ]
    if behind and is_silent(facts.report_age_ms):
        age = "ever" if facts.report_age_ms is None else f"for {facts.report_age_ms / 1000:.0f} s"
        reasons.append(
            f"the replicator of {facts.request.flow} gave no sign of life {age}: is it running?"
        )
    return tuple(reasons)


def _group_reasons(group: GroupFacts, facts: GateFacts) -> tuple[str, ...]:
    reasons = []
    sides = (
        (facts.request.source, group.source_state, group.source_members),
        (facts.request.target, group.target_state, group.target_members),
    )
    for alias, state, members in sides:
        if state not in _MEMBERLESS:
            who = ", ".join(members) or f"state {state}"
            reasons.append(f"group {group.group} is still active on {alias} ({who}): stop it there")
    for position in group.positions:
        if position.state == "not_copied":
            reasons.append(
                f"group {group.group}, {position.name}: committed offset {position.committed} is "
                f"not copied yet, {position.remaining} to go"
            )
            continue
        problem = position_problem(group.group, position, facts.request)
        if problem is not None:
            reasons.append(problem)
    return tuple(reasons)


def _group_sync(group: GroupFacts, facts: GateFacts) -> GroupSync:
    return GroupSync(
        group=group.group,
        members_left=len(group.source_members),
        synchronised=not _group_reasons(group, facts),
        applied=all(position.applied for position in group.positions),
        remaining=sum(position.remaining for position in group.positions),
    )
