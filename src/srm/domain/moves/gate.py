"""Gate of a move: presence of its clients, and the decision whether they may go to the target.

*Ready*: all clients have left the source, replication has nothing left to copy, and every group's
last commit is decided and translated. Offsets may be applied on the target.
*Open*: the offsets on the target are also the intended ones. Clients may go there.

Writes count up to the high watermark: an open transaction stops the last stable offset for all.
Times of clients are the broker's: records of the routing topic carry its clock (LogAppendTime).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from srm.domain.flow_state.liveness_thresholds import is_silent
from srm.domain.groups.group_sync import IDLE
from srm.domain.groups.translation import UNFINISHED, LogRange
from srm.domain.moves.plan import MovePlan, PartitionMove, position_problem
from srm.domain.moves.progress import HELD, MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import (
    Ack,
    Route,
    StampedAck,
    group_subject,
    subjects_of,
    topic_subject,
)
from srm.domain.names.topics import ActiveProducer, OpenTransaction, TopicPartition
from srm.domain.text.amount import Reason, ago, amount

ANNOUNCED_MS = 90_000
"""Expiry of a client after its last announcement; clients repeat it every 30 s."""
SUPERVISOR: Final = "srm-follow-"
"""Prefix of the client ids under which ``srm follow`` announces the programs it runs."""


@dataclass(frozen=True)
class Presence:
    """The clients that announced themselves, as of ``now_ms`` by the broker's clock."""

    announced: tuple[StampedAck, ...] = ()
    now_ms: int = 0

    @classmethod
    def of(cls, acks: Iterable[StampedAck], now_ms: int) -> Presence:
        """Keep the last message of each client: generation first, as clusters' clocks differ."""
        newest: dict[tuple[str, str], StampedAck] = {}
        for one in sorted(acks, key=lambda a: (a.ack.generation, a.stamped_ms)):
            newest[one.ack.subject, one.ack.client] = one
        return cls(tuple(newest.values()), now_ms)

    @cached_property
    def _alive(self) -> Mapping[str, tuple[StampedAck, ...]]:
        alive: dict[str, tuple[StampedAck, ...]] = {}
        for one in self.announced:
            if self.now_ms - one.stamped_ms <= ANNOUNCED_MS:
                alive[one.ack.subject] = (*alive.get(one.ack.subject, ()), one)
        return alive

    def followers(self, subject: str) -> tuple[Ack, ...]:
        return tuple(one.ack for one in self._alive.get(subject, ()))

    def not_held(self, subject: str, generation: int) -> tuple[StampedAck, ...]:
        return tuple(
            one
            for one in self._alive.get(subject, ())
            if one.ack.generation < generation or one.ack.state != "held"
        )


@dataclass(frozen=True)
class Writers:
    """Producer ids on the topics that move; ``at_hold``: last sequences by producer name.

    ``recent_ms``: a producer that wrote within this time before the hold may write again.
    """

    now: tuple[ActiveProducer, ...] = ()
    at_hold: Mapping[str, int] = field(default_factory=dict)
    held_ms: int = 0
    recent_ms: int = 0

    def recent(self, topic: str) -> frozenset[int]:
        """Return the producer ids that wrote to a topic shortly before the hold, or since."""
        since_ms = self.held_ms - self.recent_ms
        return frozenset(
            w.producer_id
            for w in self.now
            if w.partition.topic == topic
            and (w.last_timestamp_ms >= since_ms or self.at_hold.get(w.name) != w.last_sequence)
        )


def strangers(group: str, members: Collection[str], presence: Presence) -> tuple[str, ...]:
    """Return the members of a group, ``client id@host``, that the hold cannot reach."""
    known = [ack.client for ack in presence.followers(group_subject(group))]
    return tuple(one for one in members if not any(is_member_of(client, one) for client in known))


def is_member_of(client: str, member: str) -> bool:
    """Return whether a member, ``client id@host``, is an announced client, maybe with a suffix."""
    name = member.rpartition("@")[0]
    return name == client or (client.startswith(SUPERVISOR) and name.startswith(f"{client}-"))


def unknown_writers(topic: str, writers: Writers, presence: Presence) -> int:
    """Count recent producer ids, which have no client names, minus followers of the route."""
    return max(0, len(writers.recent(topic)) - len(presence.followers(topic_subject(topic))))


def unheld_producers(topics: Collection[str], generation: int, presence: Presence) -> Iterator[str]:
    for topic in topics:
        for one in presence.not_held(topic_subject(topic), generation):
            host = f" on {one.ack.host}" if one.ack.host else ""
            left = (ANNOUNCED_MS - (presence.now_ms - one.stamped_ms)) / 1000
            yield (
                f"producer {one.ack.client}{host} of topic {topic} has not stopped yet: it is "
                f"flushing, is finishing a transaction, or is dead and expires in {left:.0f} s"
            )


@dataclass(frozen=True, slots=True)
class ReplicationFacts:
    """Replication state of one partition of an original topic from the source to the target.

    ``source_next``: None if no position is known; ``log``: on the source.
    ``transactions`` hold back the records from its last stable offset on.
    ``hidden``: reason why srm may not see ``transactions``, which are empty then.
    ``lost``: source offsets still in the log that were noted as never copied.
    """

    place: TopicPartition
    source_next: int | None
    log: LogRange
    stopped: Reason | None = None
    transactions: tuple[OpenTransaction, ...] = ()
    hidden: str = ""
    damage: str = ""
    lost: int = 0

    @property
    def copied_to(self) -> int:
        return self.log.start if self.source_next is None else self.source_next

    @property
    def remaining(self) -> int:
        """Source offsets still to be copied, including transaction markers."""
        return max(0, self.log.end - self.copied_to)

    @property
    def held_back(self) -> int:
        """Part of ``remaining`` that open transactions hold back."""
        return max(0, self.log.end - max(self.log.stable_end, self.copied_to))

    @property
    def halt_reason(self) -> Reason | None:
        """Reason why it stays uncopied until an operator acts; None if it is or will be copied."""
        if self.stopped is None or not self.remaining or self.damage:
            return None
        return self.stopped.within(f"replication of {self.place} is stopped")

    def missing(self, target: str) -> Iterator[tuple[str, int]]:
        """Yield the gaps of the target with upper bounds of their records."""
        if self.remaining:
            why = f", {self.held_back} held back by open transactions" if self.held_back else ""
            lacking = f"{self.place}: {amount(self.remaining, 'record')} missing on {target}"
            yield f"{lacking} from offset {self.copied_to} on{why}", self.remaining
        if self.lost:
            lost = f"{self.place}: {amount(self.lost, 'record')} never copied to {target}, as noted"
            yield lost, self.lost

    def transaction_reasons(self, source: str) -> Iterator[str]:
        held = f"{amount(self.held_back, 'record')} of {self.place} on {source} cannot be copied"
        accept = (
            "or move without them: --accept-open-transactions (in the form: "
            "accept_open_transactions)"
        )
        for each in self.transactions:
            yield (
                f"{held}: a transaction is open from offset {each.first_offset} on ({each.owner}): "
                f"end it, on {source} with {each.command!r}, {accept}"
            )
        if not self.transactions:
            why = f" ({self.hidden})" if self.hidden else ""
            yield (
                f"{held}: a transaction is open from offset {self.log.stable_end} on, its owner is "
                f"not visible{why}: find it with 'kafka-transactions.sh --bootstrap-server "
                f"HOST:PORT find-hanging' on {source}, {accept}"
            )


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group on both clusters after the hold; ``pending``: commits in an open transaction."""

    group: str
    source_state: str
    source_members: tuple[str, ...]
    target_state: str
    target_members: tuple[str, ...]
    positions: tuple[PartitionMove, ...]
    source_reason: str = ""
    target_reason: str = ""
    pending: tuple[TopicPartition, ...] = ()
    unreadable: str = ""


@dataclass(frozen=True)
class GateFacts:
    """Input of the gate, read from the clusters themselves.

    ``moving``: offsets since the hold, by topic written to on the source within the quiet time.
    ``report_age_ms``: age of the replicator's newest heartbeat, None if there is none.
    ``samples``: (epoch ms, remaining) of earlier looks.
    ``doubted``: topics that a producer without a route has recently written to, or may have.
    ``unheld``, ``unconfirmed``: reasons by producers, and by redirectors or a fence.
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
    doubted: tuple[str, ...] = ()
    unheld: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSync:
    """Progress of one group: ``synchronised``: it has left and is translated; ``applied``: set."""

    group: str
    members_left: int
    synchronised: bool
    applied: bool
    remaining: int


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """Answer of the gate.

    ``blocking``, ``unapplied``: reasons against applying offsets, and against go after that.
    ``eta_seconds``: None if a forecast is not possible.
    ``rpo_records``, ``missing``: records that the target lacks now; None without the source.
    ``asks``: manual tasks for clients that nothing redirects.
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
    notes: tuple[str, ...] = ()
    rpo_records: int | None = None
    missing: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        return self.ready and self.applied


def decide(facts: GateFacts) -> SyncStatus:
    blocking = (
        *_routing_reasons(facts),
        *facts.unconfirmed,
        *facts.unheld,
        *_writer_reasons(facts),
        *waiting_reasons(facts),
    )
    unapplied = tuple(
        f"group {group.group}, {p.target}: offset on {facts.request.target} "
        f"is {p.target_committed}, intended is {p.resume}"
        for group in facts.groups
        for p in group.positions
        if not p.is_applied
    )
    remaining = sum(partition.remaining for partition in facts.replication)
    missing = dict(_missing(facts))
    elapsed = 0.0 if facts.held_ms is None else max(0, facts.now_ms - facts.held_ms) / 1000
    return SyncStatus(
        move_id=facts.move_id,
        ready=not blocking,
        applied=not unapplied,
        blocking=blocking,
        unapplied=unapplied,
        remaining_records=remaining,
        groups=tuple(
            GroupSync(
                group.group,
                len(group.source_members),
                synchronised=not any(_group_reasons(group, facts)),
                applied=all(position.is_applied for position in group.positions),
                remaining=sum(position.remaining for position in group.positions),
            )
            for group in facts.groups
        ),
        eta_seconds=0.0 if not blocking else eta_seconds(facts.samples, facts.now_ms, remaining),
        elapsed_seconds=elapsed,
        timed_out=bool(blocking or unapplied) and elapsed > facts.request.wait_seconds,
        rpo_records=sum(missing.values()),
        missing=tuple(missing),
        asks=facts.asks,
    )


def decide_without_look(plan: MovePlan, progress: MoveProgress, now_ms: int) -> SyncStatus | None:
    """Decide by progress alone (decided, or unplanned and held); None if a look is needed."""
    blocking = unapplied = tuple[str, ...]()
    notes: tuple[str, ...] = (f"clients have been sent to {plan.request.target}",)
    elapsed = 0.0
    if not progress.is_decided:
        if not plan.request.is_unplanned:
            return None
        left = progress.left_alone.items()
        notes = tuple(f"group {group} is not changed: {why}" for group, why in left)
        elapsed = max(0, now_ms - progress.times_ms.get("held", now_ms)) / 1000
        if progress.step not in HELD:
            blocking = (f"move {plan.move_id} is {progress.step}: hold first",)
        if progress.step not in {"applied", "going"}:
            unapplied = ("offsets are not applied yet",)
    return SyncStatus(
        move_id=plan.move_id,
        ready=not blocking,
        applied=not unapplied,
        blocking=blocking,
        unapplied=unapplied,
        remaining_records=0,
        groups=tuple(
            GroupSync(group, 0, synchronised=not blocking, applied=not unapplied, remaining=0)
            for group in plan.group_names
        ),
        eta_seconds=None if blocking else 0.0,
        elapsed_seconds=elapsed,
        timed_out=False,
        notes=notes,
    )


def waiting_reasons(facts: GateFacts) -> Iterator[str]:
    """Yield what is not copied, left or translated yet, with or without a hold."""
    yield from _replication_reasons(facts)
    for group in facts.groups:
        yield from _group_reasons(group, facts)


def eta_seconds(samples: tuple[tuple[int, int], ...], now_ms: int, remaining: int) -> float | None:
    if remaining == 0 or not samples:
        return None
    since_ms, then = samples[0]
    copied, passed = then - remaining, now_ms - since_ms
    if copied <= 0 or passed <= 0:
        return None
    return round(remaining * passed / copied / 1000, 1)


def _routing_reasons(facts: GateFacts) -> Iterator[str]:
    for subject in subjects_of(facts.topics, (group.group for group in facts.groups)):
        route = facts.routes.get(subject)
        if route is None or route.state != "hold" or route.move_id != facts.move_id:
            owner = "" if route is None or not route.move_id else f" (last set by {route.move_id})"
            yield f"{subject} is not held by this move{owner}: hold first"


def _writer_reasons(facts: GateFacts) -> Iterator[str]:
    request = facts.request
    longer = max(request.quiet_seconds, request.slow_writer_seconds)
    for topic, offsets in sorted(facts.moving.items()):
        quiet = f"{request.quiet_seconds:g} s"
        if topic in facts.doubted:
            quiet = f"{longer:g} s: a producer that follows no route wrote to it recently"
        grown = f"{amount(offsets, 'offset')} since the hold"
        yield (
            f"topic {topic} is still written to on {request.source} ({grown}): stop its producers"
            if offsets
            else f"topic {topic} must be idle on {request.source} for {quiet}"
        )


def _missing(facts: GateFacts) -> Iterator[tuple[str, int]]:
    """Yield the gaps of the target, with records (or offsets that may be markers)."""
    target = facts.request.target
    for each in facts.replication:
        yield from each.missing(target)
    uncopied: dict[str, int] = {}
    for p in (p for group in facts.groups for p in group.positions if p.uncopied):
        uncopied[p.name] = max(p.uncopied, uncopied.get(p.name, 0))
    for name, count in uncopied.items():
        before = f"{amount(count, 'offset')} from before the first record copied to {target}"
        yield f"{name}: {before}", count


def _replication_reasons(facts: GateFacts) -> Iterator[str]:
    source = facts.request.source
    behind: dict[str, int] = {}
    for each in facts.replication:
        if not each.remaining:
            continue
        if each.damage:
            yield f"the offset map of {each.place} cannot be used: {each.damage}"
            continue
        if each.halt_reason is not None:
            yield each.halt_reason.text
        if each.held_back and not facts.request.accept_open_transactions:
            yield from each.transaction_reasons(source)
        if each.remaining > each.held_back:
            topic = each.place.topic
            behind[topic] = behind.get(topic, 0) + each.remaining - each.held_back
    for topic, remaining in sorted(behind.items()):
        yield f"replication of {topic} from {source} is {amount(remaining, 'record')} behind"
    if behind and is_silent(facts.report_age_ms):
        age = facts.report_age_ms
        seen = "has never reported" if age is None else f"last reported {ago(age)}"
        yield f"the replicator of {facts.request.flow} {seen}: is it running? see 'srm status'"


def _group_reasons(group: GroupFacts, facts: GateFacts) -> Iterator[str]:
    source, target = facts.request.source, facts.request.target
    sides = (
        (source, group.source_state, group.source_members, group.source_reason),
        (target, group.target_state, group.target_members, group.target_reason),
    )
    for alias, state, members, reason in sides:
        if state not in IDLE:
            who = ", ".join(members) or f"state {state}{reason and ': '}{reason}"
            yield f"group {group.group} is still active on {alias} ({who}): stop it there"
    if group.unreadable:
        yield f"offsets of group {group.group} cannot be read: {group.unreadable}"
    if group.pending:
        where = ", ".join(map(str, group.pending))
        yield (
            f"group {group.group} has offsets of {where} in a transaction on {source} that is not "
            f"decided: wait for it or end it there, 'kafka-transactions.sh --bootstrap-server "
            f"HOST:PORT list' shows it as Ongoing"
        )
    for position in group.positions:
        if position.state in UNFINISHED:
            yield (
                f"group {group.group}, {position.name}: committed offset {position.committed} is "
                f"not copied yet, {position.remaining} to go"
            )
        elif (problem := position_problem(group.group, position, facts.request)) is not None:
            yield problem


def asks_at_hold(
    request: MoveRequest,
    address: str,
    members: Mapping[str, Sequence[str]],
    writers: Mapping[str, int],
) -> Iterator[str]:
    """Yield tasks to stop members (``client id@host`` by group) and writers (number by topic)."""
    later = f"prepare {_settings(request, address)}, do not start there yet"
    for group, member in ((group, one) for group, some in sorted(members.items()) for one in some):
        client, _, host = member.rpartition("@")
        yield (
            f"stop client {client or member} of group {group} on host {host or '?'}, which "
            f"reads {request.source}; {later}"
        )
    for topic, count in sorted(writers.items()):
        producers = amount(count, "producer") if count else "all producers"
        yield f"stop {producers} of topic {topic} on {request.source}; {later}"


def asks_at_go(
    request: MoveRequest,
    address: str,
    absent: Mapping[str, Sequence[str]],
    residue: Mapping[str, int],
) -> Iterator[str]:
    there = _settings(request, address)
    for group, before in sorted(absent.items()):
        who = f" ({', '.join(before)})" if before else ""
        yield f"start group {group}{who} with {there}"
    for topic, count in sorted(residue.items()):
        if count:
            yield (
                f"{amount(count, 'record')} of topic {topic} {'was' if count == 1 else 'were'} "
                f"written to {request.source} after go: start their producers with {there}"
            )


def _settings(request: MoveRequest, address: str) -> str:
    return f"bootstrap.servers={address or '?'} (cluster {request.target})"
