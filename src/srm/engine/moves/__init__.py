r"""Move consumer groups and producers from one cluster to the other: failover and failback.

Each step is one bounded call, safe to repeat and after a crash at any point::

    plan -> hold -> wait_status (until ready) -> apply -> go -> verify (until done) -> report
              \__________________\___________\-> release                     watch_residue <-'

The move id identifies everything; plan, progress and report are in ``__srm-moves`` on both
clusters. :func:`go` checks the gate itself, so no caller can send clients to a cluster on which
their groups are not synchronised.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from srm.domain.moves.gate.approval import Approval as Approval
    from srm.domain.moves.gate.gate import SyncStatus as SyncStatus
    from srm.domain.moves.records.plan import MovePlan as MovePlan
    from srm.domain.moves.records.progress import MoveProgress as MoveProgress
    from srm.domain.moves.records.request import MoveRequest as MoveRequest
    from srm.domain.moves.report.report import MoveReport as MoveReport
    from srm.engine.moves.control.move_records import MoveContext as MoveContext
    from srm.engine.moves.control.move_records import MoveStore as MoveStore
    from srm.engine.moves.planning.plan import new_move_id as new_move_id
    from srm.engine.moves.planning.plan import plan as plan
    from srm.engine.moves.reporting.evidence import approve as approve
    from srm.engine.moves.reporting.evidence import kept_outcome as kept_outcome
    from srm.engine.moves.reporting.evidence import kept_report as kept_report
    from srm.engine.moves.reporting.evidence import kept_reports as kept_reports
    from srm.engine.moves.steps.decision import go as go
    from srm.engine.moves.steps.decision import release as release
    from srm.engine.moves.steps.holding import hold as hold
    from srm.engine.moves.steps.redirector_calls import call_redirectors as call_redirectors
    from srm.engine.moves.steps.steps import RunEvent as RunEvent
    from srm.engine.moves.steps.steps import apply as apply
    from srm.engine.moves.steps.steps import apply_and_go as apply_and_go
    from srm.engine.moves.steps.steps import carry_out as carry_out
    from srm.engine.moves.steps.steps import status as status
    from srm.engine.moves.steps.steps import wait_status as wait_status
    from srm.engine.moves.steps.verify import VerifyStatus as VerifyStatus
    from srm.engine.moves.steps.verify import report as report
    from srm.engine.moves.steps.verify import verify as verify
    from srm.engine.moves.steps.verify import watch_residue as watch_residue

_HOMES: Final = {
    "domain.moves.gate.approval": ("Approval",),
    "domain.moves.gate.gate": ("SyncStatus",),
    "domain.moves.records.plan": ("MovePlan",),
    "domain.moves.records.progress": ("MoveProgress",),
    "domain.moves.records.request": ("MoveRequest",),
    "domain.moves.report.report": ("MoveReport",),
    "engine.moves.control.move_records": ("MoveContext", "MoveStore"),
    "engine.moves.planning.plan": ("new_move_id", "plan"),
    "engine.moves.reporting.evidence": ("approve", "kept_outcome", "kept_report", "kept_reports"),
    "engine.moves.steps.decision": ("go", "release"),
    "engine.moves.steps.holding": ("hold",),
    "engine.moves.steps.redirector_calls": ("call_redirectors",),
    "engine.moves.steps.steps": (
        "RunEvent",
        "apply",
        "apply_and_go",
        "carry_out",
        "status",
        "wait_status",
    ),
    "engine.moves.steps.verify": (
        "VerifyStatus",
        "report",
        "verify",
        "watch_residue",
    ),
}
"""Names by module: each is imported on first use, as a status needs few of them."""


def __getattr__(name: str) -> Any:
    """Import a name of this package."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"srm.{home}"), name)
    raise AttributeError(name)
