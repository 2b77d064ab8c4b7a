"""What a move did, measured: the record that is left of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from srm.domain.amount import amount
from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import GroupResume, MoveProgress, MoveStep
from srm.domain.move.request import Operation
from srm.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group in the report; counts are records.

    ``rto_seconds`` is the time from the hold until the group worked on the target, None where it
    had no members to resume or has not resumed.
    """

    lag_at_hold: int
    skipped: int
    re_read: int
    members_at_hold: int
    resumed: bool
    rto_seconds: float | None
    first_commit_seconds: float | None


@dataclass(frozen=True, slots=True)
class MoveReport:
    """Report of one move.

    ``rpo_records`` are records on the source that the target did not have at go: 0 in a planned
    move. ``rto_seconds`` is the time from the hold until the last group resumed (or until go,
    where no group had members). ``residue`` are records written to the source after go, by topic.
    ``ok``: decided, nothing lost, skipped or re-read, and every group that had members resumed.
    """

    move_id: str
    operation: Operation
    source: str
    target: str
    ok: bool
    step: MoveStep
    topics: tuple[str, ...]
    created_ms: int
    rpo_records: int | None
    rto_seconds: float | None
    rto_steps: Mapping[str, float]
    groups: Mapping[str, GroupReport]
    residue: Mapping[str, int]
    problems: tuple[str, ...]

    def value(self) -> bytes:
        """Encode as JSON."""
        return _REPORT.dump_json(self, indent=2)

    @classmethod
    def decode(cls, value: bytes) -> MoveReport:
        """Decode what :meth:`value` wrote.

        Raises:
            IntegrityError: it is not a report.
        """
        try:
            return _REPORT.validate_json(value)
        except ValidationError as error:
            raise IntegrityError(
                f"stored move report is damaged: {error.errors()[0]['msg']}"
            ) from error


_REPORT = TypeAdapter(MoveReport)

# Consecutive spans of the time clients were without service: name, from, to.
_SPANS = (
    ("hold", "holding", "held"),
    ("wait and apply", "held", "applied"),
    ("go", "applied", "gone"),
)


def build_report(plan: MovePlan, progress: MoveProgress) -> MoveReport:
    """Compute the report of a move from its plan and progress."""
    groups = {group: _group_report(group, progress) for group in plan.group_names}
    problems = tuple(_problems(plan, progress, groups))
    return MoveReport(
        move_id=plan.move_id,
        operation=plan.request.operation,
        source=plan.request.source,
        target=plan.request.target,
        ok=not problems,
        step=progress.step,
        topics=plan.topics,
        created_ms=plan.created_ms,
        rpo_records=progress.rpo_records,
        rto_seconds=_rto_seconds(progress, groups),
        rto_steps=_rto_steps(progress, groups),
        groups=groups,
        residue=dict(progress.residue),
        problems=problems,
    )


def _group_report(group: str, progress: MoveProgress) -> GroupReport:
    seen = progress.resumed.get(group, GroupResume())
    return GroupReport(
        lag_at_hold=progress.lag_at_hold.get(group, 0),
        skipped=progress.skipped.get(group, 0) + seen.skipped,
        re_read=progress.re_read.get(group, 0) + seen.re_read,
        members_at_hold=progress.members_at_hold.get(group, 0),
        resumed=seen.resumed_ms is not None,
        rto_seconds=_since_hold(progress, seen.resumed_ms),
        first_commit_seconds=_since_hold(progress, seen.first_commit_ms),
    )


def _since_hold(progress: MoveProgress, time_ms: int | None) -> float | None:
    start = progress.times_ms.get("holding")
    if start is None or time_ms is None:
        return None
    return max(0, time_ms - start) / 1000


def _rto_seconds(progress: MoveProgress, groups: Mapping[str, GroupReport]) -> float | None:
    until_go = _since_hold(progress, progress.times_ms.get("gone"))
    if until_go is None:
        return None
    return max([until_go, *(g.rto_seconds for g in groups.values() if g.rto_seconds is not None)])


def _rto_steps(progress: MoveProgress, groups: Mapping[str, GroupReport]) -> dict[str, float]:
    times = progress.times_ms
    steps = {
        name: max(0, times[end] - times[start]) / 1000
        for name, start, end in _SPANS
        if start in times and end in times
    }
    until_go = _since_hold(progress, times.get("gone"))
    total = _rto_seconds(progress, groups)
    if until_go is not None and total is not None:
        steps["resume"] = round(total - until_go, 3)
    return steps


def _problems(
    plan: MovePlan, progress: MoveProgress, groups: Mapping[str, GroupReport]
) -> list[str]:
    if not progress.decided:
        return [f"clients were not moved: the move is at step {progress.step}"]
    problems = []
    if progress.rpo_records:
        problems.append(
            f"{amount(progress.rpo_records, 'record')} missing on {plan.request.target} at go"
        )
        problems += progress.missing
    for name, group in groups.items():
        if group.skipped:
            problems.append(f"group {name} skipped {amount(group.skipped, 'record')}")
        if group.re_read:
            problems.append(f"group {name} read {amount(group.re_read, 'record')} again")
        if group.members_at_hold and not group.resumed:
            problems.append(f"group {name} has not resumed on {plan.request.target}")
    problems += [
        f"topic {topic} got {amount(count, 'record')} on {plan.request.source} "
        f"after go: a producer did not follow"
        for topic, count in progress.residue.items()
        if count
    ]
    return problems
