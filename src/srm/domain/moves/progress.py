"""Progress of a move: one record per move, kept in ``__srm-moves`` on both clusters."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, Literal, Self, get_args

from srm.domain.moves.disaster import Forecast
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import LEASE_MS, Call, CallStep, topic_subject
from srm.domain.names.topics import Flow
from srm.domain.text.amount import duration, some, utc
from srm.domain.text.documents import Document

# planned -> holding -> held -> applied -> going -> gone -> verified -> reported
#               \________\_________\________\-> released -> holding (the next attempt)
MoveStep = Literal[
    "planned", "holding", "held", "applied", "going", "released", "gone", "verified", "reported"
]
RunStep = Literal["plan", "hold", "wait", "apply", "go", "verify", "report"]
_SAMPLES = 30
WAIT_PREFIX: Final = "wait:"

# Steps after the decision for the target: only another move leads back. "going" is not one of
# them: it is the intent, and the target may have decided or not.
DECIDED: frozenset[MoveStep] = frozenset({"gone", "verified", "reported"})
ENDED: frozenset[MoveStep] = frozenset({"reported", "released"})
HELD: frozenset[MoveStep] = frozenset({"holding", "held", "applied", "going"})
"""Steps of an open attempt: it holds clients, and ends once, with go or release."""


@dataclass(frozen=True, slots=True)
class StepRule:
    """One step of a run, taken once and in order.

    ``ended``: step of the progress, or name of a time, that ends it; ``intent``: step before it.
    ``releases``: a failure in it ends the hold.
    """

    name: RunStep
    ended: MoveStep | Literal["ready"]
    title: str
    text: str
    intent: MoveStep | None = None
    releases: bool = False


STEPS: Final = (
    StepRule("plan", "planned", "Plan", "where every group is and where it would continue"),
    StepRule(
        "hold", "held", "Hold", "clients finish and leave the source", "holding", releases=True
    ),
    StepRule("wait", "ready", "Wait", "until all is copied and translated", releases=True),
    StepRule("apply", "applied", "Apply", "the target has the offsets, read back", releases=True),
    StepRule("go", "gone", "Go", "clients are sent to the target", "going", releases=True),
    StepRule("verify", "verified", "Verify", "the groups that it leads work there"),
    StepRule("report", "reported", "Report", "outcome is measured and kept"),
)
RUN_STEPS: Final = STEPS[1:]


def run_again(flow: Flow, move_id: str) -> str:
    """Return the command that continues a move at its step."""
    return f"srm failover run --move-id {shlex.quote(move_id)} {flow.options}"


def release_of(flow: Flow, move_id: str) -> str:
    """Return the command that sends the clients of a move back."""
    return f"srm failover release {shlex.quote(move_id)} {flow.options}"


def end_of_pause(flow: Flow, move_id: str) -> str:
    """Say how an operator ends the pause of an undecided move."""
    again, end = run_again(flow, move_id), release_of(flow, move_id)
    return f"hold it again ('{again}'), or end it ('{end}')"


def earliest(*times_ms: int | None) -> int | None:
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)


@dataclass(frozen=True)
class GroupResume:
    """One group on the target after go; offsets are keyed ``topic-partition``.

    Times are by the target's brokers if these stamped the hold, else by the process that looked.
    ``first_commit_ms``: None until a commit other than the move's own is seen.
    ``started``, ``committed``: start offsets reported by its members, and its latest commits.
    ``uncommitted``: records by instance and partition, processed on the source without a commit.
    ``idle``: it had nothing to read when it was first seen with members.
    """

    resumed_ms: int | None = None
    first_commit_ms: int | None = None
    started: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    re_read: int = 0
    skipped: int = 0
    uncommitted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    processed_ms: int | None = None
    idle: bool = False

    @property
    def worked_ms(self) -> int | None:
        return earliest(self.processed_ms, self.first_commit_ms)

    @property
    def has_settled(self) -> bool:
        """Return whether it works on the target, or has nothing to read there."""
        return self.resumed_ms is not None and (self.idle or self.worked_ms is not None)

    def losing(self, said: GroupResume) -> Self:
        """Add what members say that they could not commit; the first word of each counts."""
        return replace(self, uncommitted={**said.uncommitted, **self.uncommitted})


@dataclass(frozen=True)
class Straggler:
    """Group read on the source after go: members, and commits (at go, first other) by partition."""

    members: tuple[str, ...] = ()
    commits: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)

    def line(self, group: str, source: str) -> str:
        moved = [f"{name} from {a} to {b}" for name, (a, b) in sorted(self.commits.items())]
        by = some(self.members) or "a consumer that assigns partitions by itself, or has left"
        commits = f", its commits moved: {some(moved)}" if moved else ""
        return f"group {group} was read on {source} after go by {by}{commits}: stop it there"


Marks = Mapping[str, Mapping[str, int]]
"""Log end offsets and commits by routing subject and partition."""


@dataclass(frozen=True)
class Observation:
    """Observations of one waiting process, in memory; seconds are by a monotonic clock.

    ``began``: start of the watch; minus infinity if another process has watched for long enough.
    ``marks``: those that must stay unchanged.
    ``moved``: time of the last seen change of a mark, by subject and partition.
    ``removed``: static members (``group/instance id``) that were removed from their groups.
    ``settled``: topics whose followers had all stopped.
    """

    began: float
    marks: Marks = field(default_factory=dict)
    moved: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    samples: tuple[tuple[int, int], ...] = ()
    removed: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    unrouted: frozenset[str] = frozenset()
    sequences: Mapping[str, int] = field(default_factory=dict)

    def next(
        self, clock: float, marks: Marks, sample: tuple[int, int], settled: Collection[str]
    ) -> Observation:
        moved = dict(self.moved)
        for subject, offsets in marks.items():
            before = self.marks.get(subject, offsets)
            changed = [place for place, offset in offsets.items() if before.get(place) != offset]
            if changed:
                moved[subject] = {**moved.get(subject, {}), **dict.fromkeys(changed, clock)}
        subjects = {topic: topic_subject(topic) for topic in self.settled}
        grown = {t for t, name in subjects.items() if moved.get(name) != self.moved.get(name)}
        return replace(
            self,
            marks=marks,
            moved=moved,
            samples=(*self.samples, sample)[-_SAMPLES:],
            settled=frozenset(settled),
            unrouted=self.unrouted | grown,
        )

    def rested_s(self, subject: str, clock: float) -> float:
        return clock - max(self.moved.get(subject, {}).values(), default=self.began)

    @property
    def fingerprint(self) -> str:
        rows = {subject: sorted(offsets.items()) for subject, offsets in self.marks.items()}
        return sha256(repr(sorted(rows.items())).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class WaitNote(Document):
    """Note of the waiting process, in ``__srm-moves`` on the target, for operators and a successor.

    ``still``: fingerprint of marks that were unchanged for long enough, else empty.
    ``carrier``: the process.
    """

    KIND = "stored note of a waiting move"
    move_id: str
    attempt: int
    time_ms: int
    waits: tuple[str, ...] = ()
    sample: tuple[int, int] | None = None
    still: str = ""
    carrier: str = ""

    def key(self) -> bytes:
        return f"{WAIT_PREFIX}{self.move_id}".encode()


@dataclass(frozen=True, slots=True)
class Carrier:
    """The process that last worked on a move that has not ended, and what it waited for then.

    ``heartbeat_ms``: by the clock of its host. ``alive``: that was within the lease of a hold.
    """

    name: str
    heartbeat_ms: int
    alive: bool
    waits: tuple[str, ...] = ()

    def line(self, now_ms: int) -> str:
        age = duration(max(0, now_ms - self.heartbeat_ms) / 1000)
        said = f"{self.name or 'its process'}, last heartbeat {age} ago"
        return f"carried by {said}" if self.alive else f"no process carries it: {said}"


@dataclass(frozen=True)
class MoveProgress(Document):
    """State of one move; of several records the one of the highest rank is the state.

    In an attempt a later step has the higher rank: released after going, gone after released. The
    ``revision`` decides within a step only, so records of different steps merge correctly.

    ``attempt``: generation of the present attempt's routes, 0 before the first hold.
    ``knew``: highest generation known then of other moves; ``homes``: of its routes, by subject.
    ``times_ms``: first completion of each step, epoch milliseconds; ``ready``: the gate was ready.
    ``log_ends_at_hold``, ``log_ends_at_go``: high watermarks on the source by ``topic-partition``.
    ``topic_ids_at_go``: ids of those topics, by name.
    ``intended``, ``commits_at_go``: target offsets and source commits at go, by group.
    ``skipped``, ``re_read``: observed cost of applying the offsets, in records by group.
    ``hold_stamp_ms``, ``gone_stamp_ms``, ``renewed_stamp_ms``: the target broker's stamps of the
    first hold, of go and of the last renewal before it; ``late_ms``: time from the end of that
    lease until the decision was first seen.
    ``residue_seen_ms``: last noted check for residue; ``residue_over``: the checks have ended.
    ``forecast``: cost of an unplanned move, made once replication has ended; replaces the plan's.
    ``superseded``: later move that already led clients when go was decided, by subject.
    ``carrier``: process that held clients, or that sent them to the target.
    """

    KIND = "stored progress of a move"
    move_id: str
    revision: int = 0
    step: MoveStep = "planned"
    attempt: int = 0
    knew: int = 0
    homes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    times_ms: Mapping[str, int] = field(default_factory=dict)
    lag_at_hold: Mapping[str, int] = field(default_factory=dict)
    members_at_hold: Mapping[str, int] = field(default_factory=dict)
    log_ends_at_hold: Mapping[str, int] = field(default_factory=dict)
    log_ends_at_go: Mapping[str, int] = field(default_factory=dict)
    topic_ids_at_go: Mapping[str, str] = field(default_factory=dict)
    intended: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    commits_at_go: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    stragglers: Mapping[str, Straggler] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    re_read: Mapping[str, int] = field(default_factory=dict)
    rpo_records: int | None = None
    missing: tuple[str, ...] = ()
    resumed: Mapping[str, GroupResume] = field(default_factory=dict)
    residue: Mapping[str, int] = field(default_factory=dict)
    hold_stamp_ms: int | None = None
    gone_stamp_ms: int | None = None
    renewed_stamp_ms: int | None = None
    late_ms: int | None = None
    residue_seen_ms: int | None = None
    residue_over: bool = False
    calls: Mapping[str, Call] = field(default_factory=dict)
    forecast: Forecast | None = None
    left_alone: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    superseded: Mapping[str, str] = field(default_factory=dict)
    carrier: str = ""

    @property
    def is_decided(self) -> bool:
        return self.step in DECIDED

    @property
    def order_in_force(self) -> CallStep | None:
        """The last order to clients, None before the first hold."""
        if self.step == "released":
            return "release" if self.attempt else None
        if self.step in HELD:
            return "hold"
        return "go" if self.is_decided else None

    def end_of_hold(self, request: MoveRequest, stamps: tuple[int, int] | None, now_ms: int) -> str:
        """Say since when the hold of this attempt is over; empty if it holds clients, or none.

        That is when its newest beat is older than the lease, or its first one than the time limit.
        ``stamps``: of both, by the target's broker, as ``now_ms``.
        """
        if self.step not in HELD:
            return ""
        first, newest = stamps or (self.times_ms.get("holding", now_ms),) * 2
        begun_ms = self.hold_stamp_ms or first
        end_ms = min(newest + LEASE_MS, begun_ms + round(request.wait_seconds * 1000))
        if now_ms <= end_ms:
            return ""
        return f"the hold of {utc(begun_ms)} ended at {utc(end_ms)}"

    @property
    def left_out(self) -> frozenset[str]:
        """Groups that this attempt leaves out; the next one looks at them again."""
        is_over = self.step in {"planned", "released"}
        return frozenset(() if is_over else self.left_alone)

    def leaving_out(self, groups: Mapping[str, str], subjects: Collection[str]) -> MoveProgress:
        """Return the next revision without some groups, given with the reason, and their routes."""

        def rest(of: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
            return {name: value for name, value in of.items() if name not in names}

        return self.noting(
            left_alone={**self.left_alone, **groups},
            homes=rest(self.homes, subjects),
            lag_at_hold=rest(self.lag_at_hold, groups),
            members_at_hold=rest(self.members_at_hold, groups),
        )

    def left_lines(self, request: MoveRequest, verb: str) -> tuple[str, ...]:
        """Say which groups the move does not set, and why; an unplanned one may redirect them."""
        what = "not changed" if request.is_unplanned else "left out"
        return tuple(f"group {one} {verb} {what}: {why}" for one, why in self.left_alone.items())

    @property
    def had_members(self) -> bool:
        return any(self.members_at_hold.values())

    @property
    def held_seconds(self) -> float | None:
        """Time that a released move held clients, by its processes' clocks; None for others."""
        return self.seconds_between("holding", "released") if self.step == "released" else None

    def seconds_between(self, start: str, end: str) -> float | None:
        """Return the seconds between two steps, by the clocks of the processes that ran them."""
        times = self.times_ms
        if start not in times or end not in times:
            return None
        return max(0, times[end] - times[start]) / 1000

    def last_carrier(self, note: WaitNote | None, now_ms: int) -> Carrier | None:
        """Return the process of the last heartbeat; None for a move that has none to send."""
        if self.step == "planned" or self.step in ENDED:
            return None
        last = WaitNote("", 0, max(self.times_ms.values(), default=0), carrier=self.carrier)
        if note is not None and note.attempt == self.attempt and note.time_ms >= last.time_ms:
            last = note
        alive = now_ms - last.time_ms <= LEASE_MS
        return Carrier(last.carrier, last.time_ms, alive, last.waits)

    @property
    def rank(self) -> tuple[int, int, int]:
        return (self.attempt, get_args(MoveStep).index(self.step), self.revision)

    def at(self, step: MoveStep, now_ms: int, **changes: Any) -> MoveProgress:
        """Return the next revision at a step, with the time of its first completion."""
        times = {step: now_ms, **self.times_ms}
        return replace(self, revision=self.revision + 1, step=step, times_ms=times, **changes)

    def noting(self, **changes: Any) -> MoveProgress:
        return replace(self, revision=self.revision + 1, **changes)
