"""A move as stages that light up one after the other, and past moves as bars; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from srm.domain.move.progress import MoveStep
from srm.service.documents import MoveRow
from srm.service.looks import MoveLook

_STAGES: Final[tuple[tuple[MoveStep, str, str], ...]] = (
    ("planned", "Planned", "where every group stands and would go on"),
    ("holding", "Hold", "clients are told to finish and leave"),
    ("held", "Wait", "until all is copied and translated"),
    ("applied", "Apply", "offsets are written on the target and read back"),
    ("gone", "Go", "clients are sent to the target"),
    ("verified", "Verified", "the groups work there"),
    ("reported", "Reported", "measured and kept"),
)
_ORDER: Final = [name for name, _, _ in _STAGES]
_BARS: Final = 30

StageState = Literal["done", "now", "next", "undone"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage; ``seconds`` is how long after the stage before it was reached, if it was."""

    name: str
    text: str
    state: StageState
    time_ms: int | None = None
    seconds: float | None = None


def stages(look: MoveLook) -> tuple[Stage, ...]:
    """Say of each stage of a move whether it was reached, and when."""
    progress = look.progress
    times: dict[str, int] = {"planned": look.plan.created_ms, **progress.times_ms}
    released = progress.step == "released"
    # "going" is the intent of going: the stage before it is what was reached.
    step = "applied" if progress.step == "going" else progress.step
    at = _last_known(times) if released else _ORDER.index(step)
    found, previous = [], None
    for number, (name, title, text) in enumerate(_STAGES):
        time_ms = times.get(name)
        seconds = None
        if time_ms is not None and previous is not None:
            seconds = max(0.0, (time_ms - previous) / 1000)
        found.append(Stage(title, text, _state(number, at, released=released), time_ms, seconds))
        previous = previous if time_ms is None else time_ms
    if released:
        found.append(
            Stage("Released", "clients went on where they were", "done", times.get("released"))
        )
    return tuple(found)


def _last_known(times: dict[str, int]) -> int:
    return max((number for number, name in enumerate(_ORDER) if name in times), default=0)


def _state(number: int, at: int, *, released: bool) -> StageState:
    if number <= at:
        return "done"
    if released:
        return "undone"
    return "now" if number == at + 1 else "next"


@dataclass(frozen=True, slots=True)
class Bar:
    """A past move in the picture, all in percent; ``x`` is its left edge."""

    move: MoveRow
    x: float
    width: float
    rto_percent: float
    rpo_percent: float


@dataclass(frozen=True, slots=True)
class Bars:
    """Time without service and records lost of past moves, the oldest on the left."""

    bars: tuple[Bar, ...]
    top_seconds: float
    top_records: int


def bars(past: Sequence[MoveRow]) -> Bars | None:
    """Draw the moves that have an RTO; None where fewer than two have one."""
    known = [move for move in past if move.rto_seconds is not None][:_BARS]
    if len(known) < 2:
        return None
    top_s = _round_up(max(move.rto_seconds or 0.0 for move in known))
    top_records = max(move.rpo_records or 0 for move in known)
    known.sort(key=lambda move: move.created_ms)
    width = round(min(4.0, 60 / len(known)), 2)
    return Bars(
        tuple(
            Bar(
                move,
                round(100 * (number + 0.5) / len(known) - width / 2, 2),
                width,
                round(100 * (move.rto_seconds or 0.0) / top_s, 2),
                round(100 * (move.rpo_records or 0) / top_records, 2) if top_records else 0.0,
            )
            for number, move in enumerate(known)
        ),
        top_s,
        top_records,
    )


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, ... (times a power of ten)."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return float(next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= value))
