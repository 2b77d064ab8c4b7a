"""Report of a move with its approvals and evidence, stored as a chain of signed revisions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from srm.domain.moves.gate.approval import (
    Approval,
    approval_key,
    decode_approvals,
    encode_approvals,
    join_approvals,
)
from srm.domain.moves.records.outcome import Outcome, stored_outcome
from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import MoveProgress
from srm.domain.moves.report.evidence import Follower, members_of
from srm.domain.moves.report.report import MoveReport, build_report
from srm.domain.moves.report.revisions import KeptReport, newest, next_revision, report_key
from srm.domain.moves.routing.routes import group_subject
from srm.engine.flows.cluster_absence import loudness
from srm.engine.moves.control.move_records import (
    ControlChange,
    ControlTables,
    MoveContext,
    decode_or_none,
    newest_plan,
    read_both,
    read_report,
)
from srm.engine.moves.control.registers import SIDES, Registers
from srm.engine.moves.reporting.client_acks import Arrivals
from srm.errors import NotFoundError, SrmError

log = logging.getLogger(__name__)


def keep_report(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> MoveReport:
    """Store progress and report of a move if either has changed; return the report.

    The report becomes the next revision, signed if a key is configured. If nothing has changed, no
    writer is opened and no step is fenced.
    """
    known = read_both(context, ControlTables.read_moves)
    seen = not progress.residue_over or _find_report(known, plan.move_id) is None
    followers = _followers(context, plan, progress) if seen and progress.attempt else ()
    clusters = _cluster_ids(context)
    key = context.notary.key()

    def next_of(tables: Sequence[ControlTables]) -> KeptReport:
        outcome = _outcome(tables, plan.move_id)
        rivals = _rivals(tables, plan, progress)
        report = replace(
            build_report(plan, _furthest(tables, progress), outcome, rivals),
            approvals=approvals_in(tables, plan.move_id),
            followers=followers,
            clusters=clusters,
            versions=context.notary.versions,
            config_sha256=context.notary.config_sha256,
        )
        return next_revision(_find_report(tables, plan.move_id), report, context.now_ms(), key)

    made = next_of(known)
    if all(_has(table, made, progress) for table in known):
        return made.report
    with Registers(context) as registers:

        def write() -> KeptReport:
            registers.require("target")
            kept = next_of([registers.tables(side) for side in SIDES])
            change = ControlChange(
                progress=(progress,), documents={report_key(plan.move_id): kept.signed.value()}
            )
            registers.write_both(change)
            return kept

        return registers.run("writing the report of a move", write).report


def kept_report(context: MoveContext, move_id: str) -> KeptReport:
    """Return the newest stored revision of a report; clients and groups are not looked at."""
    kept = _find_report(read_both(context, ControlTables.read_moves), move_id)
    if kept is None:
        raise NotFoundError(
            f"no report of move {move_id!r} on {context.target.alias} or "
            f"{context.source.alias}; 'srm failover report --list' lists the stored ones"
        )
    return kept


def kept_reports(context: MoveContext) -> tuple[KeptReport, ...]:
    """Return the newest revision of each stored report, the oldest move first."""
    tables = read_both(context, ControlTables.read_moves)
    prefix = report_key("")
    moves = {
        key.removeprefix(prefix)
        for table in tables
        for key in table.documents
        if key.startswith(prefix)
    }
    found = (_find_report(tables, move_id) for move_id in moves)
    return tuple(
        sorted(
            (kept for kept in found if kept is not None),
            key=lambda kept: (kept.report.created_ms, kept.report.move_id),
        )
    )


def kept_outcome(context: MoveContext, move_id: str) -> Outcome | None:
    """Return the findings of the return of an unplanned move's source, None before it."""
    return _outcome(read_both(context, ControlTables.read_moves), move_id)


def _find_report(tables: Iterable[ControlTables], move_id: str) -> KeptReport | None:
    key = report_key(move_id)
    found = (read_report(table.documents.get(key)) for table in tables)
    return newest(kept for kept in found if kept is not None)


def _outcome(tables: Iterable[ControlTables], move_id: str) -> Outcome | None:
    values = (stored_outcome(table.documents, move_id) for table in tables)
    found = (decode_or_none(value, Outcome.decode) for value in values)
    known = [outcome for outcome in found if outcome is not None]
    return max(known, key=lambda outcome: outcome.time_ms, default=None)


def _rivals(
    tables: Sequence[ControlTables], plan: MovePlan, progress: MoveProgress
) -> Iterator[str]:
    """Yield a problem for each move of the same generation: both unplanned, each saw one side."""
    known = {one.move_id: one for table in tables for one in table.progress.values()}
    known.pop(plan.move_id, None)
    for one in known.values():
        if not one.is_decided or one.attempt != progress.attempt:
            continue
        other = newest_plan(tables, one.move_id)
        if other is not None and {*other.subjects} & {*plan.subjects}:
            yield (
                f"move {one.move_id} sent clients of this one to {other.request.target}, neither "
                f"saw the other; clients follow the later decision. Agree on one side and move them"
            )


def _furthest(tables: Iterable[ControlTables], progress: MoveProgress) -> MoveProgress:
    """Return the progress of the highest rank, the stored one if equal.

    Another process may have stored more in the meantime, or other facts of the same rank.
    """
    known = [table.progress.get(progress.move_id, progress) for table in tables]
    return max([*known, progress], key=lambda one: one.rank)


def _has(table: ControlTables, kept: KeptReport, progress: MoveProgress) -> bool:
    known = table.progress.get(progress.move_id)
    document = table.documents.get(report_key(progress.move_id))
    return known is not None and known.rank >= progress.rank and document == kept.signed.value()


def _followers(
    context: MoveContext, plan: MovePlan, progress: MoveProgress
) -> tuple[Follower, ...]:
    arrivals = Arrivals(context, plan, progress, ask_clock=False)
    said = arrivals.followers()
    groups = [
        group for group in plan.group_names if progress.is_decided and arrivals.is_ours(group)
    ]
    described = context.target.groups(groups) if groups else {}
    others = ", ".join(kind for kind in plan.redirect if kind != "routing")
    silent = [
        member
        for group, found in described.items()
        for member in members_of(group_subject(group), found.members, said, others)
    ]
    return (*said, *silent)


def _cluster_ids(context: MoveContext) -> dict[str, str]:
    found = {}
    for cluster in (context.source, context.target):
        try:
            found[cluster.alias] = cluster.cluster_id()
        except SrmError as error:  # the report is complete without it
            log.log(loudness(error), "the id of cluster %s is not known: %s", cluster.alias, error)
    return found


def approve(context: MoveContext, move_id: str, approval: Approval) -> tuple[Approval, ...]:
    """Store an approval with the plan that it approves; return all of the move, the oldest first.

    Call it after the plan is stored and before the move holds clients. Repeated with the same
    approval it changes nothing. An unavailable source gets it later.
    """
    with Registers(context) as registers:

        def write() -> tuple[Approval, ...]:
            registers.require("target")
            if registers.plan(move_id) is None:
                raise NotFoundError(f"move {move_id!r} is not known: plan it, then approve it")
            tables = [registers.tables(side) for side in SIDES]
            known = join_approvals(approvals_in(tables, move_id), (approval,))
            registers.write_both(
                ControlChange(documents={approval_key(move_id): encode_approvals(known)})
            )
            return known

        return registers.run(f"approval of move {move_id}", write)


def approvals_in(tables: Iterable[ControlTables], move_id: str) -> tuple[Approval, ...]:
    """Return the approvals of a move that any of the tables has, the oldest first.

    Damaged records are skipped and logged: they stop neither a move nor a report.
    """
    key = approval_key(move_id)
    return join_approvals(
        *(decode_or_none(table.documents.get(key), decode_approvals) or () for table in tables)
    )
