"""Stages of a move, and past moves as bars; pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from srm.domain.moves.records.progress import HELD, STEPS
from srm.domain.text.amount import few
from srm.service.views.documents import MoveRow
from srm.service.views.move_rows import is_blocked
from srm.service.views.snapshots import MoveLook

_REACHED: Final = {then.intent: step.ended for step, then in pairwise(STEPS) if then.intent}
"""Steps that are the intent of a stage, with the stage before it, which has ended."""
_BARS: Final = 30
_TOLD: Final = 10

StageState = Literal["done", "now", "next", "undone"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a move.

    ``seconds``: time from the end of the previous stage to the end of this one, if known.
    ``reasons``: what the current stage waits for, as of ``reasons_ms``.
    ``way_out``: the command that sends clients back instead.
    """

    name: str
    text: str
    state: StageState
    time_ms: int | None = None
    seconds: float | None = None
    reasons: tuple[str, ...] = ()
    reasons_ms: int = 0
    way_out: str = ""


def stages(look: MoveLook) -> tuple[Stage, ...]:
    """Return the stages of a move with their state, end time and the reasons of a wait."""
    progress = look.progress
    times: dict[str, int] = {"planned": look.plan.created_ms, **progress.times_ms}
    if "holding" in times:
        times.setdefault("held", times["holding"])
    steps = [step for step in STEPS if not (look.plan.request.is_unplanned and step.name == "wait")]
    names: list[str] = [step.ended for step in steps]
    released = progress.step == "released"
    at = names.index(_last_known(times, names) if released else _last_stage(look))
    blocked, unverified = is_blocked(look), _missing_proof(look)
    found, previous = [], None
    for number, step in enumerate(steps):
        name, time_ms = step.ended, times.get(step.ended)
        state = _state(number, at, released=released or blocked)
        text, reasons, looked_ms = step.text, tuple[str, ...](), 0
        if name == "verified" and unverified:
            state, text, reasons = "undone", "not verified", few(unverified)
        elif blocked and number == at + 1:
            reasons = few(look.plan.blocking)
        elif state == "now":
            reasons, looked_ms = look.waits, look.waits_ms
        elif released and number == at + 1 and "held" in times:
            time_ms, text = times.get("released"), f"released here: {step.text}"
        elif name == "verified" and state == "done" and not progress.had_members:
            text = "no group had members that could resume"
        seconds = _seconds(previous, time_ms)
        out = _way_out(look) if state == "now" else ""
        found.append(Stage(step.title, text, state, time_ms, seconds, reasons, looked_ms, out))
        previous = previous if time_ms is None else time_ms
    if released:
        text = "clients are sent back to the source"
        found.append(Stage("Released", text, "done", times.get("released")))
    return tuple(found)


def _way_out(look: MoveLook) -> str:
    """Return the command that ends the hold of a move; empty if it holds no clients."""
    if look.progress.step not in HELD:
        return ""
    request, move_id = look.plan.request, shlex.quote(look.plan.move_id)
    return f"srm failover release {move_id} --source {request.source} --target {request.target}"


def _missing_proof(look: MoveLook) -> tuple[str, ...]:
    """Return the problems of a move that was reported before all its groups had resumed.

    Groups that resumed later are in its current report; the step itself stays missing.
    """
    if look.report is None or look.progress.step != "reported":
        return ()
    if "verified" in look.progress.times_ms:
        return ()
    return look.report.report.problems


def _seconds(previous: int | None, time_ms: int | None) -> float | None:
    if previous is None or time_ms is None:
        return None
    return max(0.0, (time_ms - previous) / 1000)


def _last_stage(look: MoveLook) -> str:
    """Return the last ended stage; the wait ends when nothing is left to wait for."""
    step = look.progress.step
    if step == "held" and "ready" in look.progress.times_ms and not look.waits:
        return "ready"
    return _REACHED.get(step, step)


def _last_known(times: Mapping[str, int], names: Sequence[str]) -> str:
    return [name for name in names if name in times][-1]


def _state(number: int, at: int, *, released: bool) -> StageState:
    if number <= at:
        return "done"
    if released:
        return "undone"
    return "now" if number == at + 1 else "next"


@dataclass(frozen=True, slots=True)
class MoveBar:
    """A past move in the chart, in percent; ``x`` is its left edge."""

    move: MoveRow
    x: float
    width: float
    rto_percent: float
    rpo_percent: float


@dataclass(frozen=True, slots=True)
class Bars:
    """Time without service and lost records of past moves, the oldest on the left."""

    bars: tuple[MoveBar, ...]
    longest_s: float
    top_records: int

    @property
    def are_told(self) -> bool:
        """Return whether each bar has room for its figure above it."""
        return len(self.bars) <= _TOLD


def bars(past: Sequence[MoveRow]) -> Bars | None:
    """Draw the moves that have an RTO; None for fewer than two."""
    known = [move for move in past if move.rto_seconds is not None][:_BARS]
    if len(known) < 2:
        return None
    longest_s = max(move.rto_seconds or 0.0 for move in known)
    top_s = _round_up(longest_s)
    top_records = max(_most_lost(move) for move in known)
    known.sort(key=lambda move: move.created_ms)
    width = round(min(4.0, 60 / len(known)), 2)
    return Bars(
        tuple(
            MoveBar(
                move,
                round(100 * (number + 0.5) / len(known) - width / 2, 2),
                width,
                round(100 * (move.rto_seconds or 0.0) / top_s, 2),
                round(100 * _most_lost(move) / top_records, 2) if top_records else 0.0,
            )
            for number, move in enumerate(known)
        ),
        longest_s,
        top_records,
    )


def _most_lost(move: MoveRow) -> int:
    return move.rpo_at_most or move.rpo_at_least or 0


def _round_up(value: float) -> float:
    """Round up to the next of 1, 2, 5, 10, ... (times a power of ten)."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return float(next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= value))
