"""How far a move is: one record per move, kept in ``srm-moves.internal`` on both clusters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from srm.domain.amount import few
from srm.domain.documents import decode, encode
from srm.domain.move.forecast import Forecast
from srm.domain.move.redirects import Call
from srm.domain.topics import TopicPartition

# planned -> holding -> held -> applied -> going -> gone -> verified -> reported
#               \________\_________\________\-> released -> holding (the next attempt)
MoveStep = Literal[
    "planned", "holding", "held", "applied", "going", "released", "gone", "verified", "reported"
]
_ORDER: Final[Mapping[MoveStep, int]] = {
    step: number for number, step in enumerate(get_args(MoveStep))
}
_SAMPLES = 30

# Steps after the decision for the target: there is no way back but another move. "going" is not
# one of them: it is the intent, and the target may have decided or not.
DECIDED: frozenset[MoveStep] = frozenset({"gone", "verified", "reported"})
HELD: frozenset[MoveStep] = frozenset({"holding", "held", "applied", "going"})
"""Steps of an attempt that is open: it holds clients, and gets one end, go or release."""


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
    def settled(self) -> bool:
        """Whether it works on the target, as far as there is anything to work on."""
        return self.resumed_ms is not None and (self.idle or self.worked_ms is not None)


@dataclass(frozen=True)
class Observation:
    """What the looks of a wait remember for the next one; losing it only delays.

    Apart from the progress, so that a look which is slow or late never overwrites a step.
    ``log_ends`` are those last seen on the source, ``log_ends_ms`` when each topic was last seen to
    grow, by the broker's clock; those ``grown`` since the look before have this record's timestamp,
    which the next look knows. ``samples`` are pairs of epoch milliseconds and source offsets still
    to be copied. ``removed`` are static members (``group/instance id``) that were taken out of
    their groups. ``host`` has looked, at ``time_ms`` by its own clock and
    ``boot_ms`` after it was started.

    ``settled`` are topics whose followers had all stopped, ``strangers`` those that grew after
    that: by somebody who follows no route. ``sequences`` are those of producers at the hold.

    ``waits`` is what the gate was still waiting for, the first of it: for whoever looks on.
    """

    move_id: str
    time_ms: int
    log_ends: Mapping[str, int] = field(default_factory=dict)
    log_ends_ms: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[tuple[int, int], ...] = ()
    removed: tuple[str, ...] = ()
    host: str = ""
    boot_ms: int = 0
    grown: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    sequences: Mapping[str, int] = field(default_factory=dict)
    waits: tuple[str, ...] = ()

    def waiting(self, reasons: Sequence[str]) -> Observation:
        """Return the same with what is waited for; of more than a few reasons their number."""
        return replace(self, waits=few(reasons))

    def next(
        self,
        look: tuple[str, int, int],
        stamp_ms: int,
        log_ends: Mapping[str, int],
        remaining: int,
        settled: Collection[str],
    ) -> Observation:
        """Return what is to be remembered after one more look.

        Args:
            look: host that looks, its time in epoch milliseconds, and milliseconds since its boot.
            stamp_ms: broker's time of this observation's record.
            log_ends: high watermarks on the source now.
            remaining: source offsets still to be copied.
            settled: topics whose followers had all stopped when the log ends were read.
        """
        host, now_ms, boot_ms = look
        changed = {
            TopicPartition.parse(partition).topic
            for partition, end in log_ends.items()
            if self.log_ends.get(partition) != end
        }
        return replace(
            self,
            time_ms=now_ms,
            log_ends=log_ends,
            log_ends_ms={**self.log_ends_ms, **dict.fromkeys(self.grown, stamp_ms)},
            samples=(*self.samples, (now_ms, remaining))[-_SAMPLES:],
            host=host,
            boot_ms=boot_ms,
            grown=tuple(sorted(changed)),
            settled=tuple(sorted(settled)),
            strangers=tuple(sorted({*self.strangers, *(changed & set(self.settled))})),
        )

    def standing_ms(self, topic: str, broker_ms: int) -> int:
        """How long a topic has not grown, by the broker's clock."""
        if topic in self.grown:
            return 0
        return max(0, broker_ms - self.log_ends_ms.get(topic, broker_ms))

    def broker_ms(self, host: str, boot_ms: int, stamp_ms: int) -> int:
        """Say what time it is by the broker, or at least was, when it wrote this observation.

        Args:
            host: who asks; its clock is compared with the broker's only if it wrote the record.
            boot_ms: milliseconds since that host's boot: its time of day may have been set.
            stamp_ms: broker's time of this observation's record.
        """
        passed = boot_ms - self.boot_ms if host == self.host else 0
        return stamp_ms + max(0, passed)

    def value(self) -> bytes:
        """Encode as JSON."""
        return encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Observation:
        """Decode what :meth:`value` wrote.

        Raises:
            IntegrityError: it is not an observation.
        """
        return decode(Observation, "stored observation of a move", value)


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
    are the records by group that applying the offsets was seen to cost.

    ``hold_stamp_ms`` and ``gone_stamp_ms`` are when the first hold and the go were written, as the
    target's broker stamped them; None where it did not. ``residue_seen_ms`` is when the source was
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
    skipped: Mapping[str, int] = field(default_factory=dict)
    re_read: Mapping[str, int] = field(default_factory=dict)
    rpo_records: int | None = None
    missing: tuple[str, ...] = ()
    resumed: Mapping[str, GroupResume] = field(default_factory=dict)
    residue: Mapping[str, int] = field(default_factory=dict)
    hold_stamp_ms: int | None = None
    gone_stamp_ms: int | None = None
    residue_seen_ms: int | None = None
    residue_over: bool = False
    calls: Mapping[str, Call] = field(default_factory=dict)
    forecast: Forecast | None = None
    left_alone: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    superseded: Mapping[str, str] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
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
