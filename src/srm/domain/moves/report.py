"""Report of a move: its measured results, kept as a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from srm.domain.moves.disaster import Forecast, Outcome
from srm.domain.moves.evidence import (
    Approval,
    CallReport,
    EarlierRevision,
    Follower,
    PartitionReport,
    call_reports,
    partition_reports,
)
from srm.domain.moves.plan import GroupPlan, MovePlan
from srm.domain.moves.progress import GroupResume, MoveProgress, MoveStep
from srm.domain.moves.request import SETTINGS, Mode, Operation
from srm.domain.moves.routing import missing_confirmations
from srm.domain.text.amount import amount, some
from srm.domain.text.documents import Document, encode

SCHEMA: Final = "srm.move-report/1"
"""Version of the fields, raised when a field changes its meaning or is removed."""

_READABLE: Final = 2_000
"""Most partitions for one value per line: more would exceed the size of a record."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport(Document):
    """Report of one move; docs/formats.md explains each field.

    ``ok``: decided, nothing lost, skipped or re-read, and every group that had members resumed. A
    loss within the forecast of an unplanned move is not a problem.
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
    fingerprint: str = ""
    previous: tuple[EarlierRevision, ...] = ()

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


_SWITCHES: Final = [setting.name for setting in SETTINGS if setting.kind == "switch"]


def build_report(
    plan: MovePlan,
    progress: MoveProgress,
    outcome: Outcome | None = None,
    rivals: Iterable[str] = (),
) -> MoveReport:
    """Compute the report, without facts of the clusters; ``rivals``: problems by other moves."""
    request = plan.request
    groups = {group.group: _group_report(group, progress) for group in plan.groups}
    problems = (*_problems(plan, progress, groups), *rivals)
    rto_seconds = _until_last(progress, groups, lambda group: group.rto_seconds)
    at_least, at_most = _rpo(plan, progress, outcome)
    rpo_records = at_least if at_least == at_most else None
    return MoveReport(
        **_same(request, "operation", "mode", "source", "target"),
        **_same(plan, "move_id", "topics", "created_ms", "warnings"),
        **_same(plan, "redirect", "fence", "fingerprint"),
        **_same(progress, "step", "times_ms", "hold_stamp_ms", "gone_stamp_ms"),
        **_same(progress, "residue", "residue_seen_ms", "residue_over"),
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
        rpo_seconds=_rpo_seconds(progress, rpo_records),
        forecast=progress.forecast or plan.forecast,
        outcome=outcome,
        accepted=tuple(name for name in _SWITCHES if getattr(request, name)),
        calls=call_reports(progress.calls),
    )


def _same(of: object, *names: str) -> dict[str, Any]:
    """Return the fields that the report has under the same names."""
    return {name: getattr(of, name) for name in names}


def residue_until_ms(plan: MovePlan, progress: MoveProgress) -> int:
    """Return the end of the watch for residue on the source, epoch milliseconds; 0 before go."""
    gone_ms = progress.times_ms.get("gone")
    return 0 if gone_ms is None else gone_ms + round(plan.request.residue_seconds * 1000)


def _group_report(planned: GroupPlan, progress: MoveProgress) -> GroupReport:
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
        partitions=partition_reports(planned, progress),
    )


def _rpo(
    plan: MovePlan, progress: MoveProgress, outcome: Outcome | None
) -> tuple[int | None, int | None]:
    if not plan.request.is_unplanned:
        return progress.rpo_records, progress.rpo_records
    if progress.forecast is None:
        return None, None
    at_least, at_most = progress.forecast.not_copied, progress.forecast.at_most
    if outcome is None:
        return at_least, at_most
    found = outcome.records
    if outcome.is_whole:
        return found, found
    gone = sum(one.gone for one in outcome.partitions)
    return found, None if at_most is None else max(found + gone, at_most)


def _rpo_seconds(progress: MoveProgress, rpo_records: int | None) -> float | None:
    if rpo_records == 0:
        return 0.0
    if rpo_records is None or progress.forecast is None or not progress.forecast.not_copied:
        return None
    return progress.forecast.seconds


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


def _until_go(progress: MoveProgress) -> float | None:
    if progress.hold_stamp_ms is not None and progress.gone_stamp_ms is not None:
        return _since_hold(progress, progress.gone_stamp_ms)
    return progress.seconds_between("holding", "gone")


def _until_last(
    progress: MoveProgress,
    groups: Mapping[str, GroupReport],
    seconds: Callable[[GroupReport], float | None],
) -> float | None:
    """Return the seconds from the hold until the last group with members has reached an event."""
    until_go = _until_go(progress)
    if until_go is None:
        return None
    times = [seconds(group) for group in groups.values() if group.members_at_hold]
    known = [time for time in times if time is not None]
    return max([until_go, *known]) if len(known) == len(times) else None


def _rto_steps(progress: MoveProgress, rto_seconds: float | None) -> dict[str, float]:
    spans = {name: progress.seconds_between(start, end) for name, start, end in _SPANS}
    steps = {name: seconds for name, seconds in spans.items() if seconds is not None}
    until_go = _until_go(progress)
    if until_go is not None and rto_seconds is not None:
        steps["resume"] = round(rto_seconds - until_go, 3)
    return steps


def _notes(
    plan: MovePlan, progress: MoveProgress, groups: Mapping[str, GroupReport]
) -> Iterator[str]:
    target, forecast = plan.request.target, progress.forecast
    if forecast is not None:
        yield forecast.line(plan.request.source)
        yield from forecast.notes
    elif progress.is_decided and not progress.had_members:
        yield "no group had members at the hold: the RTO is the time until go"
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
    for name, group in groups.items():
        if plan.request.is_unplanned:
            yield from _costs(name, group)
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


def _problems(
    plan: MovePlan, progress: MoveProgress, groups: Mapping[str, GroupReport]
) -> list[str]:
    if not progress.is_decided:
        told = [f"clients were not moved: the move is at step {progress.step}"]
        return [*told, progress.reason] if progress.reason else told
    problems = []
    if progress.rpo_records and not plan.request.is_unplanned:
        problems.append(
            f"{amount(progress.rpo_records, 'record')} missing on {plan.request.target} at go"
        )
        problems += progress.missing
    for other in sorted({*progress.superseded.values()}):
        clients = [subject for subject, move in progress.superseded.items() if move == other]
        problems.append(f"superseded by move {other}, which leads {some(sorted(clients))}")
    problems += [f"group {g} was not changed: {why}" for g, why in progress.left_alone.items()]
    for name, group in groups.items():
        if not plan.request.is_unplanned:
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


def _costs(name: str, group: GroupReport) -> Iterator[str]:
    """Yield the records that a group skipped or re-read; an unplanned move expects them."""
    if group.skipped:
        yield f"group {name} skipped {amount(group.skipped, 'record')}"
    if group.re_read:
        places = [f"{count} of {where}" for where, count in sorted(group.uncommitted.items())]
        lost = ", of which it had processed and could not commit " if places else ""
        yield f"group {name} read {amount(group.re_read, 'record')} again{lost}{', '.join(places)}"
