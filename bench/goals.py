"""Goals of the replicator, as ratios to MirrorMaker 2 in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from bench.results import Result

SRM, TUNED, DEFAULT, SOCKET = "srm", "mm2-tuned", "mm2-default", "socket-copy"

Figures = Mapping[tuple[str, str], Result]
Value = Callable[[Figures], float]


class MissingError(Exception):
    """A goal needs a figure that was not measured."""


@dataclass(frozen=True)
class Goal:
    """One goal: ``value`` of the figures must be at least, or at most, ``target``."""

    name: str
    target: float
    bound: Literal["at least", "at most"]
    unit: str
    value: Value


@dataclass(frozen=True)
class Verdict:
    """A goal with its figures; ``reached`` is None if a figure is missing."""

    name: str
    target: float
    bound: str
    unit: str
    measured: float | None
    reached: bool | None


def figures(results: Iterable[Result]) -> Figures:
    """Index results by case and engine."""
    return {(result.case, result.engine): result for result in results}


def verdicts(results: Iterable[Result]) -> list[Verdict]:
    """Compare results with all goals."""
    known = figures(results)
    return [_verdict(goal, known) for goal in GOALS]


def _verdict(goal: Goal, known: Figures) -> Verdict:
    reached: bool | None
    try:
        measured = goal.value(known)
    except MissingError:
        return Verdict(goal.name, goal.target, goal.bound, goal.unit, None, None)
    reached = measured >= goal.target if goal.bound == "at least" else measured <= goal.target
    return Verdict(goal.name, goal.target, goal.bound, goal.unit, round(measured, 3), reached)


def summary(results: Iterable[Result]) -> dict[str, Any]:
    """Return verdicts and all ratios to MirrorMaker 2, for programs."""
    results = list(results)
    known = figures(results)
    return {
        "goals": [asdict(verdict) for verdict in verdicts(results)],
        "ratios": [
            {"case": case, "to": other, **ratios(known[case, SRM], known[case, other])}
            for case, engine in known
            if engine == SRM
            for other in (DEFAULT, TUNED)
            if (case, other) in known
        ],
    }


def ratios(ours: Result, theirs: Result) -> dict[str, float]:
    """Return ours divided by theirs, for common figures."""
    names = ("records_per_cpu_second", "records_per_second", "resident_megabytes")
    found = {}
    for name in names:
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine and other:
            found[name] = round(mine / other, 3)
    if ours.latency_ms.p50 and theirs.latency_ms.p50:
        for share in ("p50", "p95", "p99"):
            found[f"latency_{share}"] = round(
                getattr(ours.latency_ms, share) / getattr(theirs.latency_ms, share), 3
            )
    return found


def _get(known: Figures, case: str, engine: str) -> Result:
    if (case, engine) not in known:
        raise MissingError(f"{case} of {engine}")
    return known[case, engine]


def _ratio(field: str, case: str, other: str, our_case: str | None = None) -> Value:
    def value(known: Figures) -> float:
        ours = _present(getattr(_get(known, our_case or case, SRM), field))
        return ours / _present(getattr(_get(known, case, other), field))

    return value


def _latency_ratio(share: str, case: str = "latency-1000") -> Value:
    def value(known: Figures) -> float:
        ours = _get(known, case, SRM).latency_ms
        theirs = _get(known, case, DEFAULT).latency_ms
        return _present(getattr(ours, share)) / _present(getattr(theirs, share))

    return value


def _present(figure: float | None) -> float:
    if not figure:
        raise MissingError("not measured")
    return figure


def _own(case: str, read: Callable[[Result], float | None]) -> Value:
    def value(known: Figures) -> float:
        figure = read(_get(known, case, SRM))
        if figure is None:
            raise MissingError(case)
        return figure

    return value


def _detail(name: str) -> Callable[[Result], float | None]:
    return lambda result: result.details.get(name)


def _ms(name: str) -> Callable[[Result], float | None]:
    return lambda result: 1000 * result.details[name] if name in result.details else None


def _partitions_ratio(known: Figures) -> float:
    many, few = _get(known, "1kb-64p", SRM), _get(known, "1kb", SRM)
    return _present(many.records_per_second) / _present(few.records_per_second)


_CPU: Final = "records_per_cpu_second"
_RATE: Final = "records_per_second"
_MIN: Final = "at least"
_MAX: Final = "at most"

_LONG, _PASS, _START = "map-irregular", "map-pass", "map-start"
_MAPS: Final = (
    ("1 000 offsets of 315 million runs, CPU", 1000, "ms", _LONG, _ms("cold_cpu_seconds")),
    ("the same, memory", 50, "MB", _LONG, _detail("megabytes")),
    ("the same offsets again, after a look for news", 10, "ms", _LONG, _ms("warm_seconds")),
    ("the same offsets again, without it", 10, "ms", _LONG, _ms("warm_translate_seconds")),
    ("a checkpoint pass over moved commits", 2000, "ms", _PASS, _ms("second_seconds")),
    ("a slot starts with 1 000 partitions", 5000, "ms", _START, _ms("seconds")),
    ("longest pause of others during it", 100, "ms", _START, _detail("longest_pause_ms")),
)

_TO_TUNED: Final = "to mm2-tuned"
_SYSTEM, _BROKER = "system_cpu_seconds_per_million", "target_broker_cpu_seconds_per_million"


def _cpu_goal(what: str, case: str, target: float) -> Goal:
    name = f"records per CPU second, {what}, {_TO_TUNED}"
    return Goal(name, target, _MIN, "x", _ratio(_CPU, case, TUNED))


def _rate_goal(what: str, case: str, target: float) -> Goal:
    return Goal(f"records/s, {what}, {_TO_TUNED}", target, _MIN, "x", _ratio(_RATE, case, TUNED))


def _cost_goal(whose: str, field: str, what: str, case: str, target: float) -> Goal:
    name = f"CPU of {whose}, {what}, {_TO_TUNED}"
    return Goal(name, target, _MAX, "x", _ratio(field, case, TUNED))


_SMALL: Final = "1 KB in batches of 16 KB"
_SMALL_LZ4: Final = "JSON in batches of 16 KB before lz4"

GOALS: Final = (
    _cpu_goal(_SMALL, "1kb-16kb", 8),
    _rate_goal(_SMALL, "1kb-16kb", 2.5),
    _cost_goal("the target broker", _BROKER, _SMALL, "1kb-16kb", 1),
    _cost_goal("the whole system", _SYSTEM, _SMALL, "1kb-16kb", 0.5),
    _cpu_goal(_SMALL_LZ4, "lz4-16kb", 5),
    _rate_goal(_SMALL_LZ4, "lz4-16kb", 2.5),
    _cost_goal("the target broker", _BROKER, _SMALL_LZ4, "lz4-16kb", 1),
    _cost_goal("the whole system", _SYSTEM, _SMALL_LZ4, "lz4-16kb", 0.5),
    _cpu_goal("1 KB in batches of 128 KB", "1kb", 12),
    Goal(
        "MB per CPU second, 1 KB in batches of 128 KB, to a bare socket copy",
        0.35,
        _MIN,
        "x",
        _ratio("megabytes_per_cpu_second", "1kb", SOCKET),
    ),
    _cpu_goal("100 B in batches of 110 KB", "100b", 25),
    _cpu_goal("JSON in batches of 128 KB after lz4", "json-lz4", 60),
    _cpu_goal("one record a batch", "tiny", 2),
    _cpu_goal("compacted topic, batches of 128 KB", "compacted", 3),
    _cpu_goal("provenance headers, batches of 128 KB", "provenance", 3),
    _rate_goal("one partition, batches of 128 KB", "1kb-1p", 3),
    _rate_goal("one partition, batches of 16 KB", "1kb-16kb-1p", 3),
    Goal("records/s of 64 partitions, to 4", 0.9, _MIN, "x", _partitions_ratio),
    _rate_goal("one partition, target at 50 ms", "far-target", 3),
    _rate_goal("one partition, source at 50 ms", "far-source", 3),
    Goal(
        f"CPU of the replicator at 1 000 records/s, {_TO_TUNED}",
        0.6,
        _MAX,
        "x",
        _ratio("cores", "latency-1000", TUNED),
    ),
    Goal(
        f"latency p50 above the floor at 1 000 records/s, {_TO_TUNED}",
        0.5,
        _MAX,
        "x",
        _ratio("p50_above_floor_ms", "latency-1000", TUNED),
    ),
    Goal("latency p50 at 1 000 records/s, to mm2-default", 0.5, _MAX, "x", _latency_ratio("p50")),
    Goal("latency p99 at 1 000 records/s, to mm2-default", 0.667, _MAX, "x", _latency_ratio("p99")),
    Goal(
        "latency p99 with both cores busy, to mm2-default",
        1,
        _MAX,
        "x",
        _latency_ratio("p99", "latency-busy"),
    ),
    Goal(
        "longest pause while topics are added",
        100,
        _MAX,
        "ms",
        _own("pauses", lambda r: r.latency_ms.max),
    ),
    Goal(
        "longest pause of other partitions when a slot is lost",
        100,
        _MAX,
        "ms",
        _own("slot-lost", lambda r: r.details.get("max_elsewhere_ms")),
    ),
    Goal(
        "first record after claim and resume, the slowest of 64 partitions",
        100,
        _MAX,
        "ms",
        _own("claim", lambda r: r.latency_ms.max),
    ),
    Goal(
        "idle CPU, 100 quiet partitions",
        2,
        _MAX,
        "% of a core",
        _own("idle", lambda r: r.idle_cpu_percent),
    ),
    Goal(
        "process start to first copied record, to mm2-default",
        1,
        _MAX,
        "x",
        _ratio("first_record_seconds", "start", DEFAULT),
    ),
    *(
        Goal(f"offset maps: {name}", target, _MAX, unit, _own(case, read))
        for name, target, unit, case, read in _MAPS
    ),
)
"""Throughput and cost are compared with the tuned MirrorMaker 2, latency and starting with the
default one, which does not linger."""
