"""Evidence in a report: approvals, partitions, followers, calls and revisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from srm.domain.groups.translation import Direction
from srm.domain.moves.plan import GroupPlan, PositionState
from srm.domain.moves.progress import GroupResume, MoveProgress
from srm.domain.moves.routing import Ack, AckState, Call, ClientKind
from srm.domain.text.documents import adapter, decode
from srm.errors import UsageError


@dataclass(frozen=True, slots=True)
class Approval:
    """One approval.

    ``by``: the approver, ``user@host`` from a shell, or the name of the Airflow user from a form.
    ``how``: the act of approval: ``--yes``, ``typed failover``, ``Airflow``.
    ``time_ms``: epoch milliseconds by the clock of the host where it was given.
    ``text``, ``numbers``: as shown to the approver; numbers in records or seconds, None if not
    known.
    """

    by: str
    how: str
    time_ms: int
    text: str
    numbers: Mapping[str, int | float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.by:
            raise UsageError("the approval has no name: give the name of the approver")
        for name, number in self.numbers.items():
            if number is not None and not math.isfinite(number):
                raise UsageError(f"approval by {self.by}: {name} is {number}: use None for unknown")


def approval_key(move_id: str) -> str:
    return f"approval:{move_id}"


def join_approvals(*some: Iterable[Approval]) -> tuple[Approval, ...]:
    """Join approvals from several clusters or calls: each one once, the oldest first."""
    found: list[Approval] = []
    for approval in (one for approvals in some for one in approvals):
        if approval not in found:
            found.append(approval)
    return tuple(sorted(found, key=lambda one: (one.time_ms, one.by, one.how)))


def encode_approvals(approvals: Iterable[Approval]) -> bytes:
    return adapter(tuple[Approval, ...]).dump_json(tuple(approvals))


def decode_approvals(value: bytes) -> tuple[Approval, ...]:
    return decode(tuple[Approval, ...], "stored approval of a move", value)


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One group in one partition: plan and result; offsets are next-to-read, None is not known.

    ``lag``, ``re_read``, ``skipped``: planned numbers of records.
    ``planned``, ``applied``: offset on the target in the plan, and at go.
    ``started``, ``last_commit``: first offset reported by its members, and latest commit seen
    there.
    """

    topic: str
    partition: int
    target_topic: str
    direction: Direction
    state: PositionState
    committed: int | None
    lag: int
    re_read: int
    skipped: int
    planned: int | None
    applied: int | None
    started: int | None
    last_commit: int | None

    @property
    def as_planned(self) -> bool:
        return (
            self.applied == self.planned
            and self.started in {None, self.applied}
            and not (self.re_read or self.skipped)
        )


@dataclass(frozen=True, slots=True)
class Follower:
    """One client of the move, and its progress.

    ``subject``: ``group:<group>`` for a consumer, ``topic:<topic>`` for a producer.
    ``redirector``: ``routing``, or the other redirectors if only the target's broker names the
    client.
    ``left_seconds``, ``resumed_seconds``, ``processed_seconds``: from the hold until it left the
    source, worked on the target, processed a record; broker's clock, None if not reported.
    """

    subject: str
    client: str
    host: str
    kind: ClientKind | str
    redirector: str
    state: AckState | str
    left_seconds: float | None = None
    resumed_seconds: float | None = None
    processed_seconds: float | None = None

    @classmethod
    def of(cls, one: Said, redirector: str, hold_stamp_ms: int | None) -> Follower:
        ack, states = one[0], get_args(AckState)
        at = (state_ms(one, state) for state in states if hold_stamp_ms is not None)
        times = (None if ms is None else max(0, ms - (hold_stamp_ms or 0)) / 1000 for ms in at)
        return cls(ack.subject, ack.client, ack.host, ack.kind, redirector, ack.state, *times)

    def since(self, known: Follower) -> Follower:
        """Return the same client with the first of its times."""
        names = ("left_seconds", "resumed_seconds", "processed_seconds")
        first = {name: at for name in names if (at := getattr(known, name)) is not None}
        return replace(self, **first)


@dataclass(frozen=True, slots=True)
class CallReport:
    """Result of one call of a redirector other than routing, in the last attempt of the move."""

    redirector: str
    step: str
    state: str
    time_ms: int
    said: str


@dataclass(frozen=True, slots=True)
class EarlierRevision:
    """A revision that this one replaces; ``sha256``: hash of its exact bytes, in hexadecimal.

    ``key_id``: key of its signature, empty without one; ``changed``: it was changed after that.
    """

    revision: int
    sha256: str
    written_ms: int
    key_id: str = ""
    changed: bool = False


Said = tuple[Ack, int | None]
"""A client's message with its broker timestamp, None if the broker did not stamp it."""


def state_ms(one: Said, state: AckState) -> int | None:
    """Return the broker's time of a client's state; None if not reported or not stamped."""
    ack, stamped_ms = one
    if stamped_ms is None or (state not in ack.ages_ms and ack.state != state):
        return None
    return stamped_ms - ack.ages_ms.get(state, 0)


def partition_reports(group: GroupPlan, progress: MoveProgress) -> tuple[PartitionReport, ...]:
    """Compare plan and result, for the partitions in which the group had anything to move."""
    applied = progress.intended.get(group.group, {})
    seen = progress.resumed.get(group.group, GroupResume())
    return tuple(
        PartitionReport(
            *(row.topic, row.partition, row.target_topic, row.direction, row.state),
            *(row.committed, row.lag, row.re_read, row.skipped, row.resume),
            *(each.get(str(row.target)) for each in (applied, seen.started, seen.committed)),
        )
        for row in group.positions
        if row.state != "no-commit" or row.lag or str(row.target) in applied
    )


def call_reports(calls: Mapping[str, Call]) -> tuple[CallReport, ...]:
    found = []
    for key, call in calls.items():
        _, step, kind = key.split("/")
        found.append(CallReport(kind, step, call.state, call.time_ms, call.said))
    return tuple(sorted(found, key=lambda one: (one.time_ms, one.redirector)))


def followers_of(
    target: Iterable[Said], source: Iterable[Said], redirector: str, hold_stamp_ms: int | None
) -> tuple[Follower, ...]:
    held = (Follower.of((ack, None), redirector, None) for ack, _ in source if ack.state == "held")
    return join_followers(held, (Follower.of(one, redirector, hold_stamp_ms) for one in target))


def members_of(
    group_subject: str, members: Iterable[str], known: Iterable[Follower], redirector: str = ""
) -> list[Follower]:
    """Return members that a broker names (``client id@host``) and that sent no message."""
    said = {one.client for one in known if one.subject == group_subject}
    named = sorted({tuple(member.rpartition("@")[::2]) for member in members})
    return [
        Follower(group_subject, client, host, "consumer", redirector, "member")
        for client, host in named
        if client not in said
    ]


def join_followers(before: Iterable[Follower], now: Iterable[Follower]) -> tuple[Follower, ...]:
    """Join earlier and present followers: each client stays, with its first times."""
    found = {(one.subject, one.client): one for one in before}
    for one in now:
        known = found.get((one.subject, one.client))
        if known is None or known.state == "member":
            found[one.subject, one.client] = one
        elif one.state != "member":
            found[one.subject, one.client] = one.since(known)
    return tuple(found[key] for key in sorted(found))
