r"""Move consumer groups and producers from one cluster to the other: failover and failback.

The steps, each one bounded call that can be repeated and that survives a crash at any point::

    plan -> hold -> wait_status (until ready) -> apply -> go -> verify (until done) -> report
              \__________________\___________\-> release

Everything is known by the move id; plan, progress and report are in ``srm-moves.internal`` on both
clusters. :func:`go` asks the gate itself, so no caller can send clients to a cluster on which
their groups are not synchronised.
"""

from __future__ import annotations

from srm.domain.move import MovePlan, MoveRequest
from srm.domain.move_gate import SyncStatus
from srm.domain.move_progress import MoveProgress
from srm.domain.move_report import MoveReport
from srm.engine.move_plan import new_move_id, plan
from srm.engine.move_report import VerifyStatus, report, report_html, verify
from srm.engine.move_run import RunEvent, carry_out
from srm.engine.move_steps import apply, go, hold, release, wait_status
from srm.engine.move_store import MoveContext, MoveStore

__all__ = [
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
    "carry_out",
    "go",
    "hold",
    "new_move_id",
    "plan",
    "release",
    "report",
    "report_html",
    "verify",
    "wait_status",
]
