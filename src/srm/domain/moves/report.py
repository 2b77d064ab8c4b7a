"""Report of a move: its measured results with their evidence, kept as a record."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal

from pydantic import computed_field

from srm.domain.moves.announcements import AckState, ClientKind, StampedAck
from srm.domain.moves.disaster import Forecast, Outcome
from srm.domain.moves.plan import ACCEPTED_RPO, GroupPlace, GroupPlan, MovePlan
from srm.domain.moves.progress import DECIDED, GroupResume, MoveProgress, MoveStep
from srm.domain.moves.request import SETTINGS, Mode, Operation
from srm.domain.moves.routing import Call, missing_confirmations
from srm.domain.text.amount import amount, duration, some, span
from srm.domain.text.documents import Document, decode, encode, values_of
from srm.errors import UsageError

SCHEMA: Final = "srm.move-report/1"
"""Version of the fields, raised when a field changes its meaning or is removed."""

_PLACE: Final = tuple(each.name for each in fields(GroupPlace))
_READABLE: Final = 2_000
"""Most partitions for one value per line: more would exceed the size of a record."""


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


def beyond_approval(approvals: Sequence[Approval], forecast: Forecast) -> str:
    """Return why a loss needs another approval, empty if the newest one accepts it.

    A move without approvals needs none; an approval of an unknown loss accepts any.
    """
    accepted = approvals[-1].numbers.get(ACCEPTED_RPO) if approvals else None
    if accepted is None or (forecast.at_most is not None and forecast.at_most <= accepted):
        return ""
    found = "unknown" if forecast.at_most is None else f"up to {amount(forecast.at_most, 'record')}"
    return f"the loss is {found} now, the approval by {approvals[-1].by} accepts {accepted:,}"


def approval_key(move_id: str) -> str:
    return f"approval:{move_id}"


def join_approvals(*some: Iterable[Approval]) -> tuple[Approval, ...]:
    """Join approvals from several clusters or calls: each one once, the oldest first."""
    found: list[Approval] = []
    for approval in (one for approvals in some for one in approvals):
        if approval not in found:
            found.append(approval)
    return tuple(sorted(found, key=lambda one: (one.time_ms, one.by, one.how)))


def decode_approvals(value: bytes) -> tuple[Approval, ...]:
    return decode(tuple[Approval, ...], "stored approval of a move", value)


@dataclass(frozen=True, slots=True)
class PartitionReport(GroupPlace):
    """One group in one partition: plan and result; offsets are next-to-read, None is not known.

    ``lag``, ``re_read``, ``skipped``: numbers of records as go accepted them.
    ``planned``, ``applied``: offset on the target in the plan, and at go.
    ``started``, ``last_commit``: first offset reported by its members, and latest commit seen
    there.
    """

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
    source, worked on the target, processed or wrote a record; broker's clock, None if not reported.
    ``unwritten``: records that wait at a producer which cannot write on the target, by the reason.
    ``instance``: which start of the client it is; empty if only a broker names it.
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
    unwritten: Mapping[str, int] = field(default_factory=dict)
    instance: str = ""

    @classmethod
    def of(cls, one: StampedAck, hold_stamp_ms: int | None) -> Follower:
        def after(state: AckState) -> float | None:
            ms, hold_ms = one.at_ms(state), hold_stamp_ms
            return None if ms is None or hold_ms is None else max(0, ms - hold_ms) / 1000

        ack = one.ack
        return cls(
            *(ack.subject, ack.client, ack.host, ack.kind, "routing", ack.state),
            *(after("held"), after("resumed"), after("processed"), ack.unwritten, ack.identity),
        )

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


def partition_reports(
    group: GroupPlan, before: GroupPlan, progress: MoveProgress
) -> tuple[PartitionReport, ...]:
    """Compare plan and result, for the partitions in which the group had anything to move.

    ``before``: the group in the plan; a partition that came after it has no planned offset.
    """
    planned = {row.target: row.resume for row in before.positions}
    applied = progress.intended.get(group.group, {})
    seen = progress.resumed.get(group.group, GroupResume())
    return tuple(
        PartitionReport(
            **values_of(row, *_PLACE, "re_read", "skipped"),
            planned=planned.get(row.target),
            applied=applied.get(str(row.target)),
            started=seen.started.get(str(row.target)),
            last_commit=seen.committed.get(str(row.target)),
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
    target: Iterable[StampedAck], source: Iterable[StampedAck], hold_stamp_ms: int | None
) -> tuple[Follower, ...]:
    held = (Follower.of(one, None) for one in source if one.ack.state == "held")
    return join_followers(held, (Follower.of(one, hold_stamp_ms) for one in target))


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
    """Join earlier and present followers: each instance stays, with its first times.

    A client that only a broker has named is dropped once it has announced itself.
    """
    found: dict[tuple[str, str, str], Follower] = {}
    for one in (*before, *now):
        key = one.subject, one.client, one.instance
        if one.state != "member" or key not in found:
            found[key] = one.since(found[key]) if key in found else one
    said = {key[:2] for key, one in found.items() if one.state != "member"}
    kept = (key for key, one in found.items() if one.state != "member" or key[:2] not in said)
    return tuple(found[key] for key in sorted(kept))


def unwritten_lines(followers: Iterable[Follower]) -> Iterator[str]:
    """Yield a problem for each reason for which producers that followed cannot write."""
    reasons = defaultdict[str, dict[tuple[str, str], int]](dict)
    for one in followers:
        for reason, count in one.unwritten.items():
            reasons[reason][one.instance, one.client] = count
    for reason, found in sorted(reasons.items()):
        waits = f"; {amount(total, 'record')} waiting" if (total := sum(found.values())) else ""
        many = f"{amount(len(found), 'producer')} ({some(sorted(client for _, client in found))})"
        yield f"{many} followed and cannot write: {reason}{waits}"


RtoEnd = Literal["processed", "committed", "assigned"]
"""End of a group's time without service: its first processed record or commit on the target, or
the assignment of its members if there was nothing to process."""


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group in the report; counts are records, docs/formats.md explains each field.

    ``rto_seconds``, ``assigned_seconds``: from the hold until it processed or committed its first
    record on the target, and until the assignment of its members there; None until then.
    ``uncommitted``: part of ``re_read`` that members processed on the source but could not commit.
    """

    lag_at_hold: int
    skipped: int
    re_read: int
    members_at_hold: int
    resumed: bool
    rto_seconds: float | None
    first_commit_seconds: float | None
    assigned_seconds: float | None = None
    rto_end: RtoEnd | None = None
    uncommitted: Mapping[str, int] = field(default_factory=dict)
    planned_re_read: int | None = None
    planned_skipped: int | None = None
    partitions: tuple[PartitionReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a number of records; ``most``: None without an upper bound."""

    least: int
    most: int | None

    def __str__(self) -> str:
        return span(self.least, self.most)


@dataclass(frozen=True, slots=True)
class MoveResult:
    """Result of one move, as far as it is known.

    ``verdict``: ``clean``, ``as forecast``, ``more lost than forecast``, ``not clean`` or
    ``not moved``.
    ``lost``, ``lost_seconds``: records not on the target at go, and their time span; None if
    unknown.
    ``read_again``: records read again by all groups.
    ``outage_seconds``: from the hold, or from the last answer of an abandoned source, until the
    last group that is back worked on the target; None before go, and without such an answer.
    ``outage_measured``: False if no client has worked there yet: the outage lasts at least so long.
    ``not_back``: number of groups with members at the hold that have not worked there yet.
    """

    verdict: str
    lost: Bounds | None
    lost_seconds: float | None
    read_again: Bounds
    skipped: int
    outage_seconds: float | None
    not_back: int
    outage_measured: bool = True

    @property
    def lost_text(self) -> str:
        if self.lost is None:
            return "-"
        noun = "record" if self.lost == Bounds(1, 1) else "records"
        return f"{self.lost} {noun}" + (
            f" ({duration(self.lost_seconds)})" if self.lost_seconds else ""
        )

    @property
    def outage_text(self) -> str:
        if self.outage_seconds is None:
            return "-"
        absent = f", {amount(self.not_back, 'group')} not back" if self.not_back else ""
        if not self.outage_measured:
            return f"at least {duration(self.outage_seconds)}{absent or ', no client measured'}"
        return f"{duration(self.outage_seconds)}{absent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport(Document):
    """Report of one move; docs/formats.md explains each field.

    ``ok``: decided, nothing lost, skipped or re-read, and every group that had members resumed. A
    loss within the forecast of an unplanned move is not a problem, nor are accepted overwrites and
    skips.
    ``rpo_records``: records on the source that the target lacked at go; None while not known.
    ``rpo_at_least``, ``rpo_at_most``: their bounds, by the ``forecast`` until the source has
    returned, then by the ``outcome``.
    ``rto_seconds``: from the hold until the last group with members worked on the target, or until
    go without such groups. By timestamps of the target's broker.
    """

    KIND = "stored move report"
    schema: Literal["srm.move-report/1"] = SCHEMA
    move_id: str
    revision: int = 0
    written_ms: int = 0
    operation: Operation
    mode: Mode = "planned"
    source: str
    target: str
    topics: tuple[str, ...]
    created_ms: int
    step: MoveStep
    ok: bool
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    rpo_records: int | None
    rpo_at_least: int | None = None
    rpo_at_most: int | None = None
    rpo_seconds: float | None = None
    rto_seconds: float | None
    rto_steps: Mapping[str, float]
    assigned_seconds: float | None = None
    times_ms: Mapping[str, int] = field(default_factory=dict)
    hold_stamp_ms: int | None = None
    gone_stamp_ms: int | None = None
    groups: Mapping[str, GroupReport]
    residue: Mapping[str, int]
    residue_until_ms: int | None = None
    residue_seen_ms: int | None = None
    residue_over: bool = False
    approvals: tuple[Approval, ...] = ()
    forecast: Forecast | None = None
    outcome: Outcome | None = None
    redirect: tuple[str, ...] = ()
    fence: str = "none"
    calls: tuple[CallReport, ...] = ()
    followers: tuple[Follower, ...] = ()
    clusters: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    config_sha256: str = ""
    previous: tuple[EarlierRevision, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def result(self) -> MoveResult:
        """Verdict and cost; part of the JSON, and computed from it when read."""
        return result_of(self)

    @property
    def residue_count(self) -> int | None:
        """Records of the residue, None if no look has counted it, as of an abandoned source."""
        is_known = self.residue or self.residue_seen_ms is not None
        return sum(self.residue.values()) if is_known else None

    def value(self) -> bytes:
        """Encode as JSON, indented unless it is too large."""
        rows = sum(len(group.partitions) for group in self.groups.values())
        return encode(self, indent=None if rows > _READABLE else 2)


# Consecutive spans of the clients' time without service: name, from, to.
_SPANS = (
    ("hold", "holding", "held"),
    ("wait and apply", "held", "applied"),
    ("go", "applied", "gone"),
)


def result_of(report: MoveReport) -> MoveResult:
    """Compute the result of a move from its report."""
    by_group = read_again_by(report)
    bounds = [one.most for one in by_group.values() if one.most is not None]
    most = sum(bounds) if len(bounds) == len(by_group) else None
    again = Bounds(sum(one.least for one in by_group.values()), most)
    skipped = sum(group.skipped for group in report.groups.values())
    led = [g for g in report.groups.values() if g.members_at_hold or report.mode == "unplanned"]
    times = [group.rto_seconds for group in led if group.rto_seconds is not None]
    went_s = until_go(report) if report.step in DECIDED else None
    silent_s = _silent_before_hold(report)
    is_known = went_s is not None and silent_s is not None
    return MoveResult(
        verdict=_verdict(report, again, skipped),
        lost=None
        if report.rpo_at_least is None
        else Bounds(report.rpo_at_least, report.rpo_at_most),
        lost_seconds=report.rpo_seconds,
        read_again=again,
        skipped=skipped,
        outage_seconds=round((silent_s or 0) + max([went_s or 0, *times]), 3) if is_known else None,
        not_back=sum(bool(g.members_at_hold) and g.rto_seconds is None for g in led)
        if went_s is not None
        else 0,
        outage_measured=bool(times),
    )


def until_go(move: MoveProgress | MoveReport) -> float | None:
    """Return the seconds from hold to go, by the target broker's stamps if both are known."""
    begun, gone = move.hold_stamp_ms, move.gone_stamp_ms
    if begun is None or gone is None:
        begun, gone = move.times_ms.get("holding"), move.times_ms.get("gone")
    return None if begun is None or gone is None else max(0, gone - begun) / 1000


def _silent_before_hold(report: MoveReport) -> float | None:
    """Return the seconds from the last answer of an abandoned source until the hold."""
    if report.mode != "unplanned":
        return 0.0
    begun = report.times_ms.get("holding")
    answered_ms = None if report.forecast is None else report.forecast.answered_ms
    return None if begun is None or answered_ms is None else max(0, begun - answered_ms) / 1000


def _verdict(report: MoveReport, again: Bounds, skipped: int) -> str:
    """Return a short verdict; a move that lost the forecast records is not clean."""
    if not report.ok:
        undecided = "gone" not in report.times_ms and report.step in {"planned", "released"}
        return "not moved" if undecided else "not clean"
    found = report.rpo_at_least or 0 if report.outcome else 0
    is_free = report.rpo_at_most == 0 and not found and again.most == 0 and not skipped
    if report.mode != "unplanned" or is_free:
        return "clean"
    bound = report.forecast.at_most if report.forecast else None
    return "as forecast" if bound is None or found <= bound else "more lost than forecast"


def read_again_by(report: MoveReport) -> dict[str, Bounds]:
    """Return the records read again by group; if unplanned, up to forecast and merged residue."""
    return dict(_read_again(report))


def _read_again(report: MoveReport) -> Iterator[tuple[str, Bounds]]:
    forecast = report.forecast
    foreseen = {each.group: each.re_read for each in forecast.groups} if forecast else {}
    for name, group in report.groups.items():
        is_unseen, most = forecast is not None and name in forecast.unseen, foreseen.get(name, 0)
        if report.outcome is not None:
            most += report.outcome.count_merged({place.topic for place in group.partitions})
        yield name, Bounds(group.re_read, None if is_unseen else max(group.re_read, most))


def build_report(
    plan: MovePlan,
    progress: MoveProgress,
    outcome: Outcome | None = None,
    further: Iterable[str] = (),
    accepted: MovePlan | None = None,
) -> MoveReport:
    """Compute the report, without facts of the clusters; ``further``: other problems.

    ``accepted``: the plan with the rows and warnings of the look that go accepted, if there is one.
    """
    request, before = plan.request, {group.group: group for group in plan.groups}
    plan = accepted or plan
    groups = {one.group: _group_report(one, before[one.group], progress) for one in plan.groups}
    problems = (*_problems(plan, progress, groups), *further)
    rto_seconds = _until_last(progress, groups, lambda group: group.rto_seconds)
    lost = outcome and outcome.of(request.topics)
    at_least, at_most = _rpo(plan, progress, lost)
    rpo_records = at_least if at_least == at_most else None
    return MoveReport(
        **values_of(request, "operation", "mode", "source", "target"),
        **values_of(plan, "move_id", "topics", "created_ms", "warnings"),
        **values_of(plan, "redirect", "fence"),
        **values_of(progress, "step", "times_ms", "hold_stamp_ms", "gone_stamp_ms"),
        **values_of(progress, "residue", "residue_seen_ms", "residue_over"),
        ok=not problems,
        rpo_records=rpo_records,
        rpo_at_least=at_least,
        rpo_at_most=at_most,
        rto_seconds=rto_seconds,
        rto_steps=_rto_steps(progress, rto_seconds),
        groups=groups,
        problems=problems,
        assigned_seconds=_until_last(progress, groups, lambda group: group.assigned_seconds)
        if progress.had_members
        else None,
        residue_until_ms=residue_until_ms(plan, progress) if progress.is_decided else None,
        notes=tuple(_notes(plan, progress, groups)),
        rpo_seconds=_rpo_seconds(lost, rpo_records),
        forecast=progress.forecast or plan.forecast,
        outcome=outcome,
        accepted=tuple(each.name for each in SETTINGS if getattr(request, each.name) is True),
        calls=call_reports(progress.calls),
    )


def residue_until_ms(plan: MovePlan, progress: MoveProgress) -> int:
    """Return the end of the watch for residue on the source, epoch milliseconds; 0 before go."""
    gone_ms = progress.times_ms.get("gone")
    return 0 if gone_ms is None else gone_ms + round(plan.request.residue_seconds * 1000)


def _group_report(now: GroupPlan, planned: GroupPlan, progress: MoveProgress) -> GroupReport:
    group = planned.group
    seen = progress.resumed.get(group, GroupResume())
    uncommitted: Counter[str] = Counter()
    for counts in seen.uncommitted.values():
        uncommitted.update(counts)
    end = _rto_end(seen)
    return GroupReport(
        lag_at_hold=progress.lag_at_hold.get(group, 0),
        skipped=progress.skipped.get(group, 0) + seen.skipped,
        re_read=progress.re_read.get(group, 0) + seen.re_read + uncommitted.total(),
        members_at_hold=progress.members_at_hold.get(group, 0),
        resumed=seen.resumed_ms is not None,
        rto_seconds=_since_hold(progress, seen.resumed_ms if end == "assigned" else seen.worked_ms),
        first_commit_seconds=_since_hold(progress, seen.first_commit_ms),
        assigned_seconds=_since_hold(progress, seen.resumed_ms),
        rto_end=end,
        uncommitted=dict(uncommitted),
        planned_re_read=planned.re_read,
        planned_skipped=planned.total_skipped,
        partitions=partition_reports(now, planned, progress),
    )


def _rpo(
    plan: MovePlan, progress: MoveProgress, outcome: Outcome | None
) -> tuple[int | None, int | None]:
    if not plan.request.is_unplanned:
        return progress.rpo_records, progress.rpo_records
    if progress.forecast is None:
        return None, None
    found, at_most = progress.forecast.not_copied, progress.forecast.at_most
    if outcome is not None:
        counted = _lost(progress.forecast, outcome)
        gone = sum(one.gone for one in outcome.partitions)
        if outcome.is_whole:
            is_exact = counted == outcome.records
            return counted, max(counted + gone, 0 if is_exact else at_most or 0)
        # Lost logs had the records that were not copied.
        found = max(counted, found if outcome.has_lost_logs else 0)
        at_most = None if at_most is None else max(found + gone, at_most)
    # A source without growth at its last answer bounds nothing.
    return found, at_most if at_most != found else None


def _lost(forecast: Forecast, outcome: Outcome) -> int:
    """Return the residue without what producers wrote after the pause, by their own clocks.

    All that the source had at its last answer counts, whatever these clocks say.
    """
    known = {topic.topic: topic.not_copied for topic in forecast.topics}
    records, late = Counter[str](), Counter[str]()
    for one in outcome.partitions:
        records[one.topic] += one.records
        late[one.topic] += one.late
    return sum(
        max(count - late[topic], min(count, known.get(topic, 0)))
        for topic, count in records.items()
    )


def _rpo_seconds(outcome: Outcome | None, rpo_records: int | None) -> float | None:
    if rpo_records == 0:
        return 0.0
    if rpo_records is None or outcome is None:
        return None
    times = [ms for p in outcome.partitions for ms in (p.first_ms, p.last_ms) if ms is not None]
    return (max(times) - min(times)) / 1000 if times else None


def _rto_end(seen: GroupResume) -> RtoEnd | None:
    if seen.idle:
        return "assigned"
    if seen.worked_ms is None:
        return None
    return "processed" if seen.worked_ms == seen.processed_ms else "committed"


def _since_hold(progress: MoveProgress, time_ms: int | None) -> float | None:
    start = progress.hold_stamp_ms or progress.times_ms.get("holding")
    if start is None or time_ms is None:
        return None
    return max(0, time_ms - start) / 1000


def _until_last(
    progress: MoveProgress,
    groups: Mapping[str, GroupReport],
    seconds: Callable[[GroupReport], float | None],
) -> float | None:
    """Return the seconds from the hold until the last group with members has reached an event."""
    went_s = until_go(progress)
    if went_s is None:
        return None
    times = [seconds(group) for group in groups.values() if group.members_at_hold]
    known = [time for time in times if time is not None]
    return max([went_s, *known]) if len(known) == len(times) else None


def _rto_steps(progress: MoveProgress, rto_seconds: float | None) -> dict[str, float]:
    spans = {name: progress.seconds_between(start, end) for name, start, end in _SPANS}
    steps = {name: seconds for name, seconds in spans.items() if seconds is not None}
    went_s = until_go(progress)
    if went_s is not None and rto_seconds is not None:
        steps["resume"] = round(rto_seconds - went_s, 3)
    return steps


def _notes(
    plan: MovePlan, progress: MoveProgress, groups: Mapping[str, GroupReport]
) -> Iterator[str]:
    target, forecast = plan.request.target, progress.forecast
    if forecast is not None:
        yield forecast.line(plan.request.source)
        yield from forecast.notes
    if progress.is_decided and not progress.had_members:
        had = "clients that follow routes" if plan.request.is_unplanned else "members"
        yield f"no group had {had} at the hold: the RTO is the time until go"
    if absent := _absent_groups(plan, progress, groups):
        yield (
            f"{amount(len(absent), 'group')} ({some(absent)}) without members on {target} yet: "
            f"start there those of their clients that follow no route"
        )
    yield from (
        f"redirector {call.redirector} was not called with {call.step}: {call.said}"
        for call in call_reports(progress.calls)
        if call.state == "superseded"
    )
    if progress.late_ms is not None and progress.late_ms > 0:
        yield (
            f"the decision was first seen {progress.late_ms / 1000:.0f} s after the hold had "
            f"lapsed: clients may have worked on {plan.request.source} until then, if the "
            f"coordinator of its transaction on {target} was frozen"
        )
    expected = groups if plan.request.is_unplanned else _groups_as_accepted(plan, groups)
    accepted = "" if plan.request.is_unplanned else ", as accepted"
    for name, group in groups.items():
        yield from (f"{line}{accepted}" for line in _costs(name, group) if name in expected)
        if not progress.is_decided or not group.resumed:
            continue
        if group.rto_end == "assigned":
            yield (
                f"group {name} had nothing to process on {target}: its RTO is the time until its "
                f"members were assigned partitions"
            )
        elif group.rto_end is None and group.members_at_hold:
            yield (
                f"group {name} has members on {target} and has not processed or committed anything "
                f"yet: its RTO is not known"
            )


def _absent_groups(
    plan: MovePlan, progress: MoveProgress, groups: Mapping[str, GroupReport]
) -> list[str]:
    """Return the groups that an unplanned move has set and that no client that it sees follows."""
    if not (progress.is_decided and plan.request.is_unplanned):
        return []
    absent = (name for name, one in groups.items() if not (one.members_at_hold or one.resumed))
    return [name for name in absent if name not in progress.left_alone]


def _problems(
    plan: MovePlan, progress: MoveProgress, groups: Mapping[str, GroupReport]
) -> list[str]:
    if not progress.is_decided:
        lines = [f"clients were not moved: the move is at step {progress.step}"]
        return [*lines, progress.reason] if progress.reason else lines
    problems = []
    if progress.rpo_records and not plan.request.is_unplanned:
        problems.append(
            f"{amount(progress.rpo_records, 'record')} missing on {plan.request.target} at go"
        )
        problems += progress.missing
    for other in sorted({*progress.superseded.values()}):
        clients = [subject for subject, move in progress.superseded.items() if move == other]
        problems.append(f"superseded by move {other}, which leads {some(sorted(clients))}")
    problems += progress.left_lines(plan.request, "was")
    as_accepted = _groups_as_accepted(plan, groups)
    for name, group in groups.items():
        if not (plan.request.is_unplanned or name in as_accepted):
            problems += _costs(name, group)
        if group.members_at_hold and not group.resumed:
            problems.append(f"group {name} has not resumed on {plan.request.target}")
    problems += [
        f"topic {topic} got {amount(count, 'record')} on {plan.request.source} "
        f"after go: a producer did not follow"
        for topic, count in progress.residue.items()
        if count
    ]
    problems += [found.line(g, plan.request.source) for g, found in progress.stragglers.items()]
    problems += missing_confirmations(plan.redirect, progress.calls, progress.attempt, "go")
    return problems


def _groups_as_accepted(plan: MovePlan, groups: Mapping[str, GroupReport]) -> set[str]:
    """Return the groups that cost no more than overwrites and skips that the request accepts."""
    again, skipped = Counter[str](), Counter[str]()
    for group in plan.groups:
        for row in group.positions:
            if plan.request.overwrite and row.state == "conflict":
                again[group.group] += row.re_read
            if plan.request.accept_skips:
                skipped[group.group] += row.not_there
    return {
        name
        for name, one in groups.items()
        if one.re_read <= again[name] and one.skipped <= skipped[name]
    }


def _costs(name: str, group: GroupReport) -> Iterator[str]:
    """Yield the records that a group skipped or re-read; an unplanned move expects them."""
    if group.skipped:
        yield f"group {name} skipped {amount(group.skipped, 'record')}"
    if group.re_read:
        places = [f"{count} of {where}" for where, count in sorted(group.uncommitted.items())]
        lost = ", of which it had processed and could not commit " if places else ""
        yield f"group {name} read {amount(group.re_read, 'record')} again{lost}{', '.join(places)}"
