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
    from srm.engine.moves.effects import call_redirectors as call_redirectors
    from srm.engine.moves.holding import go as go
    from srm.engine.moves.holding import hold as hold
    from srm.engine.moves.holding import release as release
    from srm.engine.moves.planning import new_move_id as new_move_id
    from srm.engine.moves.planning import plan as plan
    from srm.engine.moves.steps import RunEvent as RunEvent
    from srm.engine.moves.steps import apply as apply
    from srm.engine.moves.steps import apply_and_go as apply_and_go
    from srm.engine.moves.steps import carry_out as carry_out
    from srm.engine.moves.steps import status as status
    from srm.engine.moves.steps import wait_status as wait_status
    from srm.engine.moves.verification import approve as approve
    from srm.engine.moves.verification import kept_report as kept_report
    from srm.engine.moves.verification import kept_reports as kept_reports
    from srm.engine.moves.verification import report as report
    from srm.engine.moves.verification import verify as verify
    from srm.engine.moves.verification import watch_residue as watch_residue

_HOMES: Final = ("effects", "planning", "holding", "verification", "steps")
"""Modules, each after those that it imports: a status needs few of them."""


def __getattr__(name: str) -> Any:
    for home in _HOMES if not name.startswith("_") else ():
        if (found := getattr(import_module(f"{__name__}.{home}"), name, None)) is not None:
            return found
    raise AttributeError(name)
