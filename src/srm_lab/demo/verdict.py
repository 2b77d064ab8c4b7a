"""From records, moves and comparisons to the report: every number and every complaint; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from srm.domain.verification.verification import VerificationSummary
from srm_lab.demo.audit import GroupAudit, audit_group, number_stints
from srm_lab.demo.payments import missing_numbers
from srm_lab.demo.record import PaymentEntry
from srm_lab.demo.report import CopyResult, DemoReport, GroupResult, MoveGroupResult, MoveResult
from srm_lab.demo.scenario import SLOW_GROUP, Move

_ROUTE = ("P", "B", "P")
"""The clusters that each application must have worked on, in this order."""


@dataclass(frozen=True)
class DemoFindings:
    """Everything a demo has collected."""

    acknowledged: Sequence[PaymentEntry]
    processed: Mapping[str, Sequence[PaymentEntry]]
    says: Mapping[str, str]
    moves: Sequence[Move]
    copies: Mapping[str, VerificationSummary]
    windows: Mapping[str, int]
    needed_lag: int


def judge(
    findings: DemoFindings, seconds: float, phases: Mapping[str, float], versions: Mapping[str, str]
) -> DemoReport:
    """Compute the report."""
    audits = {
        group: audit_group(group, findings.acknowledged, entries)
        for group, entries in findings.processed.items()
    }
    moves = tuple(
        _move(move, number, findings.processed, audits)
        for number, move in enumerate(findings.moves, 1)
    )
    copies = tuple(_copy(flow, summary) for flow, summary in findings.copies.items())
    problems = tuple(_problems(findings, audits, moves, copies))
    return DemoReport(
        ok=not problems,
        problems=problems,
        produced=len(findings.acknowledged),
        produced_on=_by_cluster(findings.acknowledged),
        unacknowledged=count_unacknowledged(findings.acknowledged),
        groups={
            group: GroupResult(
                audit.processed,
                audit.skipped,
                audit.re_read,
                audit.unknown,
                _by_cluster(findings.processed[group]),
                findings.says[group],
            )
            for group, audit in audits.items()
        },
        moves=moves,
        verification=copies,
        metrics_windows=dict(findings.windows),
        seconds=round(seconds, 1),
        phases=dict(phases),
        versions=dict(versions),
    )


def count_unacknowledged(entries: Sequence[PaymentEntry]) -> int:
    """Count the payments below the highest number of each producer that were not written."""
    return sum(missing_numbers(entry.payment for entry in entries).values())


def _move(
    move: Move,
    number: int,
    processed: Mapping[str, Sequence[PaymentEntry]],
    audits: Mapping[str, GroupAudit],
) -> MoveResult:
    report = move.report
    groups = {
        group: _around(processed[group], audit, number, report["groups"][group])
        for group, audit in audits.items()
    }
    return MoveResult(
        operation=report["operation"],
        source=report["source"],
        target=report["target"],
        rpo_records=report["rpo_records"],
        rto_seconds=report["rto_seconds"],
        steps=dict(report["rto_steps"]),
        started_ms=report["created_ms"],
        seconds=round(move.seconds, 1),
        groups=groups,
        move_id=report["move_id"],
        problems=tuple(report["problems"]),
    )


def _around(
    processed: Sequence[PaymentEntry], audit: GroupAudit, number: int, measured: Mapping[str, Any]
) -> MoveGroupResult:
    stint = audit.by_stint[number] if number < len(audit.by_stint) else None
    return MoveGroupResult(
        lag_at_hold=measured["lag_at_hold"],
        skipped=stint.skipped if stint else 0,
        re_read=stint.re_read if stint else 0,
        pause_seconds=pause_before(processed, number),
        rto_seconds=measured["rto_seconds"],
    )


def pause_before(processed: Sequence[PaymentEntry], number: int) -> float | None:
    """Seconds between an application's last payment before a move and its first after it."""
    stints = number_stints(processed)
    if number not in stints:
        return None
    first = stints.index(number)
    return (processed[first].time_ms - processed[first - 1].time_ms) / 1000


def _copy(flow: str, summary: VerificationSummary) -> CopyResult:
    bad = [*summary.different, *summary.without_result]
    first = bad[0] if bad else None
    return CopyResult(
        flow=flow,
        equal=bool(summary.partitions) and not bad,
        records=sum(partition.target_records for partition in summary.partitions),
        partitions=len(summary.partitions),
        remark=f"{first.topic}-{first.partition}: {first.difference or first.reason}"
        if first
        else "",
    )


def _by_cluster(entries: Sequence[PaymentEntry]) -> dict[str, int]:
    return dict(sorted(Counter(entry.cluster for entry in entries).items()))


def _problems(
    findings: DemoFindings,
    audits: Mapping[str, GroupAudit],
    moves: Sequence[MoveResult],
    copies: Sequence[CopyResult],
) -> Iterator[str]:
    if lost := count_unacknowledged(findings.acknowledged):
        yield f"{lost:,} payments were not acknowledged to their producers"
    for group, audit in audits.items():
        yield from _group_problems(group, audit)
    for move in moves:
        name = f"{move.operation} {move.source}->{move.target}"
        yield from (f"{name}: {problem}" for problem in move.problems)
        if move.rpo_records:
            yield f"{name}: RPO is {move.rpo_records} records"
    lag = moves[0].groups[SLOW_GROUP].lag_at_hold if moves else 0
    if lag < findings.needed_lag:
        yield f"{SLOW_GROUP} was {lag:,} behind at the hold, {findings.needed_lag:,} are wanted"
    if len(copies) < len(_ROUTE) - 1:
        yield "the copies were not compared"
    yield from (
        f"{one.flow}: copies are not equal: {one.remark}" for one in copies if not one.equal
    )
    for flow, count in findings.windows.items():
        if not count:
            yield f"{flow}: no metrics window was computed"


def _group_problems(group: str, audit: GroupAudit) -> Iterator[str]:
    examples = f" ({'; '.join(audit.examples)})" if audit.examples else ""
    if audit.skipped:
        yield f"{group} skipped {audit.skipped:,} payments{examples}"
    if audit.re_read:
        yield f"{group} processed {audit.re_read:,} payments again{examples}"
    if audit.unknown:
        yield f"{group} processed {audit.unknown:,} payments that no producer knows to be written"
    route = tuple(stint.cluster for stint in audit.by_stint)
    if route != _ROUTE:
        seen = " then ".join(route) or "no cluster"
        yield f"{group} worked on {seen}, not {' then '.join(_ROUTE)}"
