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
    from srm.domain.moves.gate.approval import Approval
    from srm.domain.moves.gate.gate import SyncStatus
    from srm.domain.moves.records.plan import MovePlan
    from srm.domain.moves.records.progress import MoveProgress
    from srm.domain.moves.records.request import MoveRequest
    from srm.domain.moves.report.report import MoveReport
    from srm.engine.moves.control.move_records import MoveContext, MoveStore
    from srm.engine.moves.planning.plan import new_move_id, plan
    from srm.engine.moves.reporting.evidence import approve, kept_outcome, kept_report, kept_reports
    from srm.engine.moves.steps.decision import go, release
    from srm.engine.moves.steps.holding import hold
    from srm.engine.moves.steps.redirector_calls import call_redirectors
    from srm.engine.moves.steps.run import RunEvent, apply_and_go, carry_out
    from srm.engine.moves.steps.steps import apply, status, wait_status
    from srm.engine.moves.steps.verify import (
        VerifyStatus,
        report,
        verify,
        watch_residue,
    )

__all__ = [
    "Approval",
    "MoveContext",
    "MovePlan",
    "MoveProgress",
    "MoveReport",
    "MoveRequest",
    "MoveStore",
    "RunEvent",
    "SyncStatus",
    "VerifyStatus",
    "apply",
    "apply_and_go",
    "approve",
    "call_redirectors",
    "carry_out",
    "go",
    "hold",
    "kept_outcome",
    "kept_report",
    "kept_reports",
    "new_move_id",
    "plan",
    "release",
    "report",
    "status",
    "verify",
    "wait_status",
    "watch_residue",
]

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
    "engine.moves.steps.run": ("RunEvent", "apply_and_go", "carry_out"),
    "engine.moves.steps.steps": ("apply", "status", "wait_status"),
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
