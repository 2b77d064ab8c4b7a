"""Terminal output."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench import fleet_cost
from bench.goals import Verdict, verdicts
from bench.results import Result

_START_AND_IDLE = ("start", "idle", "scale")
_MAP = "map"
_MOVED = (
    *("case", "engine", "records/s", "MB/s", "CPU s", "records / CPU s", "MB / CPU s"),
    *("target broker CPU s", "whole system CPU s", "p50 / p95 / p99 ms", "MB resident"),
)
_IDLE_COLUMNS = (
    *("case", "engine", "start to first record, s", "new topic to first record, s"),
    *("idle CPU, % of a core", "MB resident"),
)
_TEXTS = ("case", "engine", "goal", "")
_BEGAN = time.monotonic()
_WIDTH = 150
_CONSOLE = Console(highlight=False)
if not _CONSOLE.is_terminal:
    _CONSOLE.width = _WIDTH


def say(text: str) -> None:
    """Write a line with the seconds since the start."""
    _CONSOLE.print(f"{time.monotonic() - _BEGAN:6.0f} s  {text}", soft_wrap=True)


def say_result(result: Result) -> None:
    """Summarize a result in one line."""
    say(f"  {result.case:18} {result.engine:12} {gist(result)}")


def gist(result: Result) -> str:
    """Return the main figures of a case."""
    if result.method in ("copy", "socket-copy"):
        return (
            f"{result.records_per_second:>12,.0f} records/s {result.cpu_seconds:7.2f} CPU s "
            f"{result.records_per_cpu_second:>12,.0f} records / CPU s "
            f"{result.megabytes_per_cpu_second:>8,.1f} MB / CPU s, target broker "
            f"{number(result.target_broker_cpu_seconds, 2)}, system "
            f"{number(result.system_cpu_seconds, 2)} CPU s"
        )
    if result.method == "latency":
        seen, floor = result.latency_ms, result.latency_ms.floor or {}
        return (
            f"p50 {seen.p50} p95 {seen.p95} p99 {seen.p99} max {seen.max} ms "
            f"(on the source p50 {floor.get('p50')} p99 {floor.get('p99')} max {floor.get('max')})"
        )
    if result.method == fleet_cost.METHOD:
        cores = ", ".join(
            f"{party.replace('_', ' ')} {cores:.2f}"
            for party, cores in fleet_cost.per_100_megabytes(result).items()
        )
        sent, made = result.details["sent_batches"], result.details["batches"]
        return f"cores per 100 MB/s: {cores}; {sent / made:.2f} batches sent for each"
    if result.method == _MAP:
        return ", ".join(f"{name} {figure:g}" for name, figure in result.details.items())
    return (
        f"first record {result.first_record_seconds} s, new topic "
        f"{result.topic_creation_to_first_record_seconds} s, idle {result.idle_cpu_percent} %, "
        f"{result.resident_megabytes} MB"
    )


def print_summary(results: Sequence[Result], failures: Sequence[str]) -> None:
    """Print the new results, their goals, and failures."""
    order = {result.case: number for number, result in reversed(list(enumerate(results)))}
    ordered = sorted(results, key=lambda r: (order[r.case], r.engine))
    moved = [r for r in ordered if r.method not in (*_START_AND_IDLE, _MAP, fleet_cost.METHOD)]
    _print("Copying and latency, warm", _MOVED, [_row(r) for r in moved])
    fleet = fleet_cost.rows(results)
    _print("What a fleet costs, cores per 100 MB/s", fleet_cost.COLUMNS, fleet)
    idle_rows = [_idle_row(r) for r in ordered if r.method in _START_AND_IDLE]
    _print("Starting, idling, memory", _IDLE_COLUMNS, idle_rows)
    known = [verdict for verdict in verdicts(results) if verdict.measured is not None]
    _print("Goals", ("goal", "wanted", "measured", ""), [goal_row(verdict) for verdict in known])
    for failure in failures:
        _CONSOLE.print(f"FAILED {failure}", soft_wrap=True)


def _print(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in _TEXTS else "right")
    for row in rows:
        table.add_row(*row)
    if rows:
        _CONSOLE.print(table)


def _row(result: Result) -> list[str]:
    seen = result.latency_ms
    latency = "" if seen.p50 is None else f"{seen.p50:.1f} / {seen.p95:.1f} / {seen.p99:.1f}"
    return [
        result.case,
        result.engine,
        f"{result.records_per_second:,.0f}",
        f"{result.megabytes_per_second:,.1f}",
        f"{result.cpu_seconds:.2f}",
        f"{result.records_per_cpu_second:,.0f}",
        f"{result.megabytes_per_cpu_second:,.1f}",
        number(result.target_broker_cpu_seconds, 2),
        number(result.system_cpu_seconds, 2),
        latency,
        number(result.resident_megabytes, 0),
    ]


def _idle_row(result: Result) -> list[str]:
    return [
        result.case,
        result.engine,
        number(result.first_record_seconds, 1),
        number(result.topic_creation_to_first_record_seconds, 2),
        number(result.idle_cpu_percent, 1),
        number(result.resident_megabytes, 0),
    ]


def number(figure: float | None, digits: int) -> str:
    """Return a figure, empty if it was not measured."""
    return "" if figure is None else f"{figure:,.{digits}f}"


def goal_row(verdict: Verdict) -> list[str]:
    """Return the cells of one goal."""
    measured = "not measured" if verdict.measured is None else f"{verdict.measured:,.2f}"
    reached = {True: "reached", False: "NOT reached", None: ""}[verdict.reached]
    return [verdict.name, f"{verdict.bound} {verdict.target:g} {verdict.unit}", measured, reached]
