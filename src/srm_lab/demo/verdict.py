"""From records, moves and comparisons to the report: every number and every complaint; pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from srm.domain.verification.verification import VerificationSummary
from srm_lab.demo.record import PaymentEntry, missing_numbers
from srm_lab.demo.report import CarriedMove, CopyResult, DemoReport, GroupResult, MoveGroupResult
from srm_lab.demo.scenario import SLOW_GROUP, Move

Home = tuple[str, int]
"""First place of a payment: cluster and partition."""


@dataclass(frozen=True)
class GroupAudit:
    """Audit of one application; counts are payments.

    ``unknown``: processed although no producer has an acknowledgement for them.
    ``by_stint``: processed, skipped and re-read in each stretch on one cluster.
    """

    group: str
    processed: int
    skipped: int
    re_read: int
    unknown: int
    by_stint: tuple[StintAudit, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True)
class StintAudit:
    """One stretch of an application on one cluster."""

    cluster: str
    processed: int
    skipped: int
    re_read: int


def audit_group(
    group: str, acknowledged: Sequence[PaymentEntry], processed: Sequence[PaymentEntry]
) -> GroupAudit:
    """Compare an application's record with what was acknowledged."""
    known = {entry.payment: entry for entry in acknowledged}
    stints = number_stints(processed)
    seen: set[str] = set()
    re_read: Counter[int] = Counter()
    done: Counter[int] = Counter()
    examples: list[str] = []
    for entry, stint in zip(processed, stints, strict=True):
        done[stint] += 1
        if entry.payment in seen:
            re_read[stint] += 1
            examples.append(f"{entry.payment} again on {entry.cluster}")
        seen.add(entry.payment)
    missing = [entry for payment, entry in known.items() if payment not in seen]
    examples += [f"{entry.payment} never, written on {entry.cluster}" for entry in missing]
    last = stints[-1] if stints else 0
    skipped = _lay_to_stints(missing, _positions(known, processed, stints), last)
    clusters = {stint: entry.cluster for entry, stint in zip(processed, stints, strict=True)}
    return GroupAudit(
        group=group,
        processed=len(processed),
        skipped=len(missing),
        re_read=sum(re_read.values()),
        unknown=len(seen - known.keys()),
        by_stint=tuple(
            StintAudit(clusters.get(n, ""), done[n], skipped[n], re_read[n])
            for n in range(last + 1)
        ),
        examples=tuple(examples[:5]),
    )


def number_stints(processed: Iterable[PaymentEntry]) -> list[int]:
    """Number the stretches of a record on one cluster: 0, 0, ..., 1, 1, ..."""
    numbers: list[int] = []
    cluster, number = None, -1
    for entry in processed:
        if entry.cluster != cluster:
            cluster, number = entry.cluster, number + 1
        numbers.append(number)
    return numbers


def _positions(
    known: Mapping[str, PaymentEntry], processed: Sequence[PaymentEntry], stints: Sequence[int]
) -> dict[Home, list[tuple[int, int]]]:
    """List (original offset, stint) of everything processed, in order, by original partition."""
    positions: dict[Home, list[tuple[int, int]]] = defaultdict(list)
    for entry, stint in zip(processed, stints, strict=True):
        origin = known.get(entry.payment)
        if origin is not None:
            positions[origin.cluster, origin.partition].append((origin.offset, stint))
    for listed in positions.values():
        listed.sort()
    return positions


def _lay_to_stints(
    missing: Iterable[PaymentEntry], positions: Mapping[Home, list[tuple[int, int]]], last: int
) -> Counter[int]:
    skipped: Counter[int] = Counter()
    earliest = {home: _earliest_after(listed) for home, listed in positions.items()}
    for entry in missing:
        home = (entry.cluster, entry.partition)
        index = bisect_right(positions.get(home, []), (entry.offset, last))
        after = earliest.get(home, [])
        skipped[after[index] if index < len(after) else last] += 1
    return skipped


def _earliest_after(listed: Sequence[tuple[int, int]]) -> list[int]:
    """For each position, the lowest stint at it or after it."""
    lowest: list[int] = []
    for _, stint in reversed(listed):
        lowest.append(min(stint, lowest[-1]) if lowest else stint)
    return lowest[::-1]


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
) -> CarriedMove:
    report = move.report
    groups = {
        group: _around(processed[group], audit, number, report["groups"][group])
        for group, audit in audits.items()
    }
    return CarriedMove(
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
    without = [p for p in summary.partitions if p.outcome in ("unverified", "failed")]
    bad = [*summary.different, *without]
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
    moves: Sequence[CarriedMove],
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
