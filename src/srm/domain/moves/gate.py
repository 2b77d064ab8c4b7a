"""Gate of a move: presence of its clients, facts about the replication, and its answer.

Times of clients are the brokers': records of announcements carry their clock (LogAppendTime).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from srm.domain.groups.translation import LogRange
from srm.domain.moves.announcements import Ack, StampedAck
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import HELD, Carrier, MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import group_subject, topic_subject
from srm.domain.names.topics import ActiveProducer, OpenTransaction, TopicPartition, abort_command
from srm.domain.text.amount import Reason, amount

ANNOUNCED_MS = 90_000
"""Expiry of a client after its last announcement; clients repeat it every 30 s."""
SUPERVISOR: Final = "srm-follow-"
"""Prefix of the client ids under which ``srm follow`` announces the programs it runs."""


@dataclass(frozen=True)
class Presence:
    """The clients that announced themselves, as of ``now_ms`` by the broker's clock."""

    announced: Sequence[StampedAck] = ()
    now_ms: int = 0

    @cached_property
    def _alive(self) -> Mapping[str, tuple[StampedAck, ...]]:
        alive: dict[str, tuple[StampedAck, ...]] = {}
        for one in self.announced:
            if self.now_ms - one.stamped_ms <= ANNOUNCED_MS:
                alive[one.ack.subject] = (*alive.get(one.ack.subject, ()), one)
        return alive

    def followers(self, subject: str) -> tuple[Ack, ...]:
        return tuple(one.ack for one in self._alive.get(subject, ()))

    def count_writers(self, subject: str, since_ms: int) -> int:
        return sum(one.may_have_written(since_ms) for one in self._alive.get(subject, ()))

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

    @property
    def since_ms(self) -> int:
        return self.held_ms - self.recent_ms

    def recent(self, topic: str) -> frozenset[int]:
        """Return the producer ids that wrote to a topic shortly before the hold, or since."""
        return frozenset(
            w.producer_id
            for w in self.now
            if w.partition.topic == topic
            and (
                w.last_timestamp_ms >= self.since_ms or self.at_hold.get(w.name) != w.last_sequence
            )
        )


def unrouted_members(
    group: str, members: Iterable[tuple[str, str]], presence: Presence
) -> tuple[str, ...]:
    """Return the members of a group, by id and ``client id@host``, that the hold cannot reach."""
    known = presence.followers(group_subject(group))
    return tuple(one[1] for one in members if not any(is_member(ack, *one) for ack in known))


def is_member(ack: Ack, member_id: str, name: str) -> bool:
    """Return whether a member is an announced client; by name if it has said no member id."""
    known = ack.members.get(ack.cluster)
    return member_id == known if known else is_member_of(ack.client, name)


def is_member_of(client: str, member: str) -> bool:
    """Return whether ``client id@host`` may be of a client, maybe with a supervisor's suffix."""
    name = member.rpartition("@")[0]
    return name == client or (client.startswith(SUPERVISOR) and name.startswith(f"{client}-"))


def unknown_writers(topic: str, writers: Writers, presence: Presence) -> int:
    """Count recent producer ids, which have no client names, minus followers that may have one."""
    followers = presence.count_writers(topic_subject(topic), writers.since_ms)
    return max(0, len(writers.recent(topic)) - followers)


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
        seen = [(each.first_offset, f" ({each.owner})") for each in self.transactions]
        why = self.hidden and f" ({self.hidden})"
        for first, owner in seen or [(self.log.stable_end, f", its owner is not visible{why}")]:
            yield (
                f"{held}: a transaction is open from offset {first} on{owner}: end it, on "
                f"{source} with {abort_command(self.place, first)!r}, {accept}"
            )


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


@dataclass(frozen=True, slots=True)
class MoveStatus(SyncStatus):
    """Answer of the gate with the process that carries a move; None for one that needs none."""

    carrier: Carrier | None = None


def decide_without_look(plan: MovePlan, progress: MoveProgress, now_ms: int) -> SyncStatus | None:
    """Decide by progress alone (decided, or unplanned and held); None if a look is needed."""
    blocking = unapplied = tuple[str, ...]()
    sent = f"clients have been sent to {plan.request.target}"
    notes = (sent, *progress.left_lines(plan.request, "was"))
    elapsed = 0.0
    if not progress.is_decided:
        if not plan.request.is_unplanned:
            return None
        notes = progress.left_lines(plan.request, "is")
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
            GroupSync(one, 0, not blocking, not unapplied and one not in progress.left_alone, 0)
            for one in plan.group_names
        ),
        eta_seconds=None if blocking else 0.0,
        elapsed_seconds=elapsed,
        timed_out=False,
        notes=notes,
    )


def eta_seconds(samples: tuple[tuple[int, int], ...], now_ms: int, remaining: int) -> float | None:
    if remaining == 0 or not samples:
        return None
    since_ms, then = samples[0]
    copied, passed = then - remaining, now_ms - since_ms
    if copied <= 0 or passed <= 0:
        return None
    return round(remaining * passed / copied / 1000, 1)


def requests_at_hold(
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


def requests_at_go(
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
            records = f"{amount(count, 'record')} of topic {topic} to {request.source}"
            yield f"producers wrote {records} after go: start them with {there}"


def _settings(request: MoveRequest, address: str) -> str:
    return f"bootstrap.servers={address or '?'} (cluster {request.target})"
