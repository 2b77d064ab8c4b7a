"""Steps of a move under one name, as tests call them."""

from srm.engine.moves.effects import call_redirectors
from srm.engine.moves.holding import go, hold, release
from srm.engine.moves.planning import plan
from srm.engine.moves.steps import apply, apply_and_go, carry_out, status, wait_status
from srm.engine.moves.verification import (
    approve,
    kept_report,
    kept_reports,
    report,
    verify,
    watch_residue,
)

__all__ = [
    "apply",
    "apply_and_go",
    "approve",
    "call_redirectors",
    "carry_out",
    "go",
    "hold",
    "kept_report",
    "kept_reports",
    "plan",
    "release",
    "report",
    "status",
    "verify",
    "wait_status",
    "watch_residue",
]
