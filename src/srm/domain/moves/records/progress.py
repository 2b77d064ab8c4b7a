"""How far a move is: one record per move, kept in ``srm-moves.internal`` on both clusters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, Literal, get_args

from srm.domain.moves.gate.forecast import Forecast
from srm.domain.moves.routing.redirects import Call
from srm.domain.moves.routing.routes import topic_subject
from srm.domain.text.amount import few, some
from srm.domain.text.documents import decode, encode

# planned -> holding -> held -> applied -> going -> gone -> verified -> reported
#               \________\_________\________\-> released -> holding (the next attempt)
MoveStep = Literal[
    "planned", "holding", "held", "applied", "going", "released", "gone", "verified", "reported"
]
RunStep = Literal["plan", "hold", "wait", "apply", "go", "verify", "report"]
_ORDER: Final[Mapping[MoveStep, int]] = {
    step: number for number, step in enumerate(get_args(MoveStep))
}
_SAMPLES = 30
_LONGEST_REASON: Final = 500
WAIT_PREFIX: Final = "wait:"

# Steps after the decision for the target: there is no way back but another move. "going" is not
# one of them: it is the intent, and the target may have decided or not.
DECIDED: frozenset[MoveStep] = frozenset({"gone", "verified", "reported"})
HELD: frozenset[MoveStep] = frozenset({"holding", "held", "applied", "going"})
"""Steps of an attempt that is open: it holds clients, and gets one end, go or release."""


@dataclass(frozen=True, slots=True)
class StepRule:
    """What a run does to a move, once and in order.

    ``ended`` is the step of the progress, or the name of a time, by which it has ended, and
    ``intent`` the step that is recorded before it. ``releases``: a failure in it ends the hold.
    """

    name: RunStep
    ended: MoveStep | Literal["ready"]
    title: str
    text: str
    intent: MoveStep | None = None
    releases: bool = False


STEPS: Final = (
    StepRule("plan", "planned", "Planned", "where every group is and where it would continue"),
    StepRule(
        "hold", "held", "Hold", "clients are told to finish and leave", "holding", releases=True
    ),
    StepRule("wait", "ready", "Wait", "until all is copied and translated", releases=True),
    StepRule("apply", "applied", "Apply", "the target has the offsets, read back", releases=True),
    StepRule("go", "gone", "Go", "clients are sent to the target", "going", releases=True),
    StepRule("verify", "verified", "Verified", "the groups work there"),
    StepRule("report", "reported", "Reported", "measured and kept"),
)
RUN_STEPS: Final = STEPS[1:]
"""All steps after the plan."""


@dataclass(frozen=True)
class GroupResume:
    """What was seen of one group on the target after go; offsets are keyed ``topic-partition``.

    Times are those of the target's brokers where the hold has been stamped by them
    (:attr:`MoveProgress.hold_stamp_ms`), else those of whoever looked. ``resumed_ms`` is None until
    it has members there, ``processed_ms`` until one of them said that it has processed a record,
    ``first_commit_ms`` until a commit was seen that is not the one the move wrote. ``idle``: when
    it was first seen with members there was nothing for it to read.

    ``started`` are the first offsets its members said they started at, ``committed`` its latest
    commits. ``uncommitted`` counts by client and partition the records that a member processed on
    the source before it left and could not commit there.
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
        """When it first processed or committed something, None before that."""
        known = [at for at in (self.processed_ms, self.first_commit_ms) if at is not None]
        return min(known, default=None)

    @property
    def has_settled(self) -> bool:
        """Whether it works on the target, as far as there is anything to work on."""
        return self.resumed_ms is not None and (self.idle or self.worked_ms is not None)


@dataclass(frozen=True)
class Straggler:
    """A group that was read on the source after go, as far as the source shows.

    ``members`` are ``client id@host``, ``commits`` those that moved, by ``topic-partition``: from
    where they were at go to where they were first seen after it.
    """

    members: tuple[str, ...] = ()
    commits: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)

    def line(self, group: str, source: str) -> str:
        """Say which group it is, by whom it was read, and what to do."""
        moved = [f"{name} from {a} to {b}" for name, (a, b) in sorted(self.commits.items())]
        by = some(self.members) or "a consumer that assigns partitions by itself"
        commits = f", its commits moved: {some(moved)}" if moved else ""
        return f"group {group} was read on {source} after go by {by}{commits}: stop it there"


@dataclass(frozen=True)
class Observation:
    """The looks of one waiting process, in memory: another process begins with its own.

    Seconds are those of a clock that is never set. ``marks`` are, by routing subject, the offsets
    that have to rest: log ends of the topics, and commits of groups without members.
    ``moved`` says by subject and partition when one was last seen to move, ``began`` when the watch
    began: minus infinity where another process has watched for long enough. ``samples`` are pairs
    of epoch milliseconds and source offsets still to be copied. ``removed`` are static members
    (``group/instance id``) that were taken out of their groups.

    ``settled`` are topics whose followers had all stopped, ``strangers`` those that grew after
    that: their writer follows no route. ``sequences`` are those of producers at the first look.
    """

    began: float
    marks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    moved: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    samples: tuple[tuple[int, int], ...] = ()
    removed: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    strangers: frozenset[str] = frozenset()
    sequences: Mapping[str, int] = field(default_factory=dict)

    def next(
        self,
        clock: float,
        marks: Mapping[str, Mapping[str, int]],
        sample: tuple[int, int],
        settled: Collection[str],
    ) -> Observation:
        """Return the observation after one more look.

        Args:
            clock: seconds of the clock that is never set.
            marks: offsets that have to rest, by routing subject.
            sample: epoch milliseconds, and the source offsets still to be copied.
            settled: topics whose followers had all stopped when the log ends were read.
        """
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
            strangers=self.strangers | grown,
        )

    def rested_s(self, subject: str, clock: float) -> float:
        """Seconds for which a subject is known to have rested."""
        return clock - max(self.moved.get(subject, {}).values(), default=self.began)

    @property
    def fingerprint(self) -> str:
        """Digest of all marks: while it is the same, nothing has moved."""
        rows = {subject: sorted(offsets.items()) for subject, offsets in self.marks.items()}
        return sha256(repr(sorted(rows.items())).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class WaitNote:
    """A few words of the process that waits, in ``srm-moves.internal`` on the target.

    For people, and for the process that takes over. Losing it only delays. ``waits`` are the first
    reasons why the gate is closed, ``sample`` is the oldest one of the observation. ``still`` is
    the fingerprint of marks that have rested for long enough, empty before they have.
    """

    move_id: str
    attempt: int
    time_ms: int
    waits: tuple[str, ...] = ()
    sample: tuple[int, int] | None = None
    still: str = ""

    @classmethod
    def of(
        cls,
        progress: MoveProgress,
        seen: Observation,
        now_ms: int,
        reasons: Sequence[str],
        *,
        rested: bool,
    ) -> WaitNote:
        """Say in a few bytes what a move waits for."""
        waits = tuple(reason[:_LONGEST_REASON] for reason in few(reasons))
        still, sample = seen.fingerprint if rested else "", next(iter(seen.samples), None)
        return cls(progress.move_id, progress.attempt, now_ms, waits, sample, still)

    def value(self) -> bytes:
        """Encode as JSON."""
        return encode(self)

    @classmethod
    def decode(cls, value: bytes) -> WaitNote:
        """Decode what :meth:`value` wrote.

        Raises:
            IntegrityError: it is not a note.
        """
        return decode(WaitNote, "stored note of a waiting move", value)


@dataclass(frozen=True)
class MoveProgress:
    """State of one move; of several records the one of the highest rank is the state.

    ``attempt`` is the generation of the routes that the present attempt has written, 0 before the
    first hold. Within an attempt a later step has the higher rank, released after going and gone
    after released, and within a step the higher ``revision``: two clusters that have seen different
    steps are merged rightly whichever has counted further.

    ``times_ms`` has the epoch milliseconds at which a step was first completed, and as ``ready``
    when the gate first had nothing to wait for any more. Log ends are high
    watermarks on the source by ``topic-partition``. ``intended`` are the offsets on the target at
    go, by group; ``missing`` says which records the target lacked then; ``skipped`` and ``re_read``
    are the records by group that applying the offsets was seen to cost. ``commits_at_go`` are those
    of each group on the source, ``stragglers`` the groups that were read there since.

    ``hold_stamp_ms`` and ``gone_stamp_ms`` are when the first hold and the go were written, as the
    target's broker stamped them; None where it did not. ``renewed_stamp_ms`` is the same of the
    last renewal before go, and ``late_ms`` how long after that lease the decision was first seen:
    0 or less where clients cannot have lapsed. ``residue_seen_ms`` is when the source was
    last looked at for residue, as far as that was noted, and ``residue_over`` says that nobody
    looks any more. ``calls`` are what redirectors beside routing have said in this attempt.

    ``forecast`` is what an unplanned move is expected to cost, made once nothing is copied any
    more: it replaces that of the plan. ``reason`` says of an attempt that was given up why.
    ``superseded`` has the later move that led clients already when go was decided, by subject.
    """

    move_id: str
    revision: int = 0
    step: MoveStep = "planned"
    attempt: int = 0
    times_ms: Mapping[str, int] = field(default_factory=dict)
    lag_at_hold: Mapping[str, int] = field(default_factory=dict)
    members_at_hold: Mapping[str, int] = field(default_factory=dict)
    log_ends_at_hold: Mapping[str, int] = field(default_factory=dict)
    log_ends_at_go: Mapping[str, int] = field(default_factory=dict)
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

    @property
    def is_decided(self) -> bool:
        """Whether clients were, or are being, sent to the target."""
        return self.step in DECIDED

    @property
    def had_members(self) -> bool:
        """Whether any group had members at the hold; without them nobody has to come back."""
        return any(self.members_at_hold.values())

    @property
    def held_seconds(self) -> float | None:
        """How long a move that was given up held its clients; None where it is not, or held none.

        By the clocks of those who ran it; clients go on within moments of the release.
        """
        if self.step != "released" or not {"holding", "released"} <= self.times_ms.keys():
            return None
        return max(0, self.times_ms["released"] - self.times_ms["holding"]) / 1000

    @property
    def rank(self) -> tuple[int, int, int]:
        """Order of precedence of records of one move."""
        return (self.attempt, _ORDER[self.step], self.revision)

    def at(self, step: MoveStep, now_ms: int, **changes: Any) -> MoveProgress:
        """Return the next revision at a step, remembering when the step was first completed."""
        times = {step: now_ms, **self.times_ms}
        return replace(self, revision=self.revision + 1, step=step, times_ms=times, **changes)

    def noting(self, **changes: Any) -> MoveProgress:
        """Return the next revision at the same step."""
        return replace(self, revision=self.revision + 1, **changes)

    def value(self) -> bytes:
        """Encode as JSON."""
        return encode(self)

    @classmethod
    def decode(cls, value: bytes) -> MoveProgress:
        """Decode what :meth:`value` wrote.

        Raises:
            IntegrityError: it is not the progress of a move.
        """
        return decode(MoveProgress, "stored progress of a move", value)
