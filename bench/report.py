"""docs/benchmarks.md and its plots, from the stored results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from bench import fleet_cost
from bench.cases import CASES
from bench.goals import DEFAULT, SOCKET, SRM, TUNED, summary, verdicts
from bench.plots import Bars, draw
from bench.results import Result
from bench.tables import goal_row, number

METHOD: Final = Path(__file__).with_name("method.md")
_ENGINES: Final = (SRM, TUNED, DEFAULT, SOCKET)
_SCALE: Final = "scale"
_MAPS: Final = "map"

_INTRODUCTION: Final = (
    "Written by `make bench BENCH_ARGS=--report` from `build/bench/*.json`; "
    "`make bench BENCH_ARGS=--full` measures all but many topics (`--scale`) and the cost of "
    "a fleet (`--fleet`).\n"
)

Cell = Callable[[Result], str]


def write_summary(results: Sequence[Result], folder: Path) -> Path:
    """Write goals and ratios for programs."""
    path = folder / "summary" / "summary.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary(results), indent=2) + "\n")
    return path


def write_report(results: Sequence[Result], docs: Path) -> Path:
    """Write the page and its plots; return the page."""
    ordered = in_order(results)
    folder = docs / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    plots = [(bars.name, draw(bars, folder)) for bars in _plots(ordered)]
    page = docs / "benchmarks.md"
    page.write_text(render(ordered, [name for name, path in plots if path is not None]))
    return page


def in_order(results: Iterable[Result]) -> list[Result]:
    """Sort by case, in the order of definition, and engine."""
    cases = [case.name for case in CASES]

    def key(result: Result) -> tuple[int, int, str, int]:
        known = result.case in cases
        place = cases.index(result.case) if known else len(cases)
        return place, result.records, result.case, _ENGINES.index(result.engine)

    return sorted(
        results, key=lambda r: (key(r)[0], key(r)[1] if r.method == _SCALE else 0, *key(r)[2:])
    )


def render(results: Sequence[Result], plots: Sequence[str]) -> str:
    """Return the page."""
    sections = [
        "# Benchmarks\n",
        _INTRODUCTION,
        _machine(results),
        "## Goals\n",
        table(
            ("goal", "wanted", "measured", ""), [goal_row(verdict) for verdict in verdicts(results)]
        ),
        "## Copying\n",
        _plot(plots, "cpu", "rate"),
        _section(results, ("copy", "socket-copy"), _COPY),
        "## Latency\n",
        _plot(plots, "latency"),
        _section(results, ("latency",), _LATENCY),
        "## Starting, idling, memory\n",
        _section(results, ("start", "idle"), _REST),
        "## Many topics and partitions\n",
        _section(results, (_SCALE,), _SCALED),
        "## What a fleet costs\n",
        _fleet(results),
        "## Reading offset maps\n",
        _section(results, (_MAPS,), _MAPPED),
        METHOD.read_text(),
    ]
    return "\n".join(section for section in sections if section)


def _machine(results: Sequence[Result]) -> str:
    """Describe the machine, and when each part of the figures was measured."""
    kinds: dict[str, set[str]] = {}
    for machine in (result.machine for result in results if result.machine):
        what = (
            f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB, "
            f"{machine['system']}, Python {machine['python']}, Java {machine['java']}, "
            f"Kafka {machine['kafka']}"
        )
        kinds.setdefault(what, set()).add(
            f"{machine['time']} UTC (version `{machine['commit']}`, "
            f"load average {machine['load_before']} before)"
        )
    lines = [f"{what}. Measured {'; '.join(sorted(runs))}.\n" for what, runs in kinds.items()]
    return "\n".join(("## Machine\n", *lines)) if lines else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _section(
    results: Sequence[Result], methods: Sequence[str], columns: Sequence[tuple[str, Cell]]
) -> str:
    """Return a table with a row for each case; its cells have the figures of all engines."""
    measured = [r for r in results if r.method in methods]
    rows = []
    for _, case in groupby(measured, key=lambda r: r.case):
        first, *others = list(case)
        cells = [[cell(r) for _, cell in columns[1:]] for r in (first, *others)]
        rows.append([columns[0][1](first), *map(_joined, zip(*cells, strict=True))])
    return table([head for head, _ in columns], rows) if rows else "Not measured.\n"


def _joined(figures: Sequence[str]) -> str:
    return " / ".join(figure or "-" for figure in figures) if len(figures) > 1 else figures[0]


def _fleet(results: Sequence[Result]) -> str:
    rows = fleet_cost.rows(results)
    if not rows:
        return "Not measured.\n"
    return f"{fleet_cost.INTRODUCTION}\n\n{table(fleet_cost.COLUMNS, rows)}"


def _number_of(result: Result, whose: str) -> str:
    return number(getattr(result, f"{whose}_cpu_seconds_per_million"), 2)


def _detail(*names: str) -> Cell:
    """Show the first measured one of some durations, in milliseconds."""

    def cell(result: Result) -> str:
        found = [result.details[name] for name in names if name in result.details]
        return number(found[0] * 1000, 1) if found else "-"

    return cell


def _share(name: str, *, floor: bool = False) -> Cell:
    def cell(result: Result) -> str:
        if floor:
            return number((result.latency_ms.floor or {}).get(name), 1)
        return number(getattr(result.latency_ms, name), 1)

    return cell


def _by_process(name: str) -> Cell:
    def cell(result: Result) -> str:
        parts = result.details.get(name, {})
        return ", ".join(f"{kind} {figure:g}" for kind, figure in sorted(parts.items()))

    return cell


_CASE: Final[tuple[tuple[str, Cell], ...]] = (
    ("case", lambda r: f"`{r.case}`: {r.title}"),
    ("engine", lambda r: r.engine),
)
_COPY: Final[tuple[tuple[str, Cell], ...]] = (
    *_CASE,
    ("records", lambda r: number(r.records, 0)),
    ("records/s", lambda r: number(r.records_per_second, 0)),
    ("MB/s", lambda r: number(r.megabytes_per_second, 1)),
    ("CPU s", lambda r: number(r.cpu_seconds, 2)),
    ("records / CPU s", lambda r: number(r.records_per_cpu_second, 0)),
    ("MB / CPU s", lambda r: number(r.megabytes_per_cpu_second, 1)),
    ("target broker, CPU s / M records", lambda r: _number_of(r, "target_broker")),
    ("whole system, CPU s / M records", lambda r: _number_of(r, "system")),
    ("peak MB (PSS)", lambda r: number(r.resident_megabytes, 0)),
)
_LATENCY: Final[tuple[tuple[str, Cell], ...]] = (
    *_CASE,
    *((f"{share} ms", _share(share)) for share in ("p50", "p95", "p99", "max")),
    *((f"{share} on the source", _share(share, floor=True)) for share in ("p50", "p99", "max")),
    ("CPU s", lambda r: number(r.cpu_seconds, 2)),
)
_REST: Final[tuple[tuple[str, Cell], ...]] = (
    *_CASE,
    ("process start to first record, s", lambda r: number(r.first_record_seconds, 1)),
    (
        "topic creation to first record, s",
        lambda r: number(r.topic_creation_to_first_record_seconds, 2),
    ),
    ("idle CPU, % of a core", lambda r: number(r.idle_cpu_percent, 1)),
    ("by process", _by_process("idle_cpu_percent_by_process")),
    ("MB (PSS)", lambda r: number(r.resident_megabytes, 0)),
)
_MAPPED: Final[tuple[tuple[str, Cell], ...]] = (
    ("case", lambda r: r.title),
    ("first, ms", _detail("cold_seconds", "first_seconds", "seconds")),
    ("of it CPU, ms", _detail("cold_cpu_seconds", "first_cpu_seconds", "cpu_seconds")),
    ("again, ms", _detail("warm_seconds", "second_seconds")),
    ("of it CPU, ms", _detail("warm_cpu_seconds", "second_cpu_seconds")),
    ("of it translating, ms", _detail("warm_translate_seconds")),
    ("longest pause, ms", lambda r: number(r.details.get("longest_pause_ms"), 1)),
    ("MB above the bare process", lambda r: number(r.resident_megabytes, 0)),
    ("map written in, s", lambda r: number(r.details.get("written_in_seconds"), 0)),
)
_SCALED: Final[tuple[tuple[str, Cell], ...]] = (
    ("case", lambda r: r.title),
    ("first record, s", lambda r: number(r.first_record_seconds, 1)),
    ("all partitions copied, s", lambda r: number(r.wall_seconds, 1)),
    ("CPU s until then", lambda r: number(r.cpu_seconds, 1)),
    ("new topic's first record, s", lambda r: number(r.topic_creation_to_first_record_seconds, 2)),
    ("idle CPU, % of a core", lambda r: number(r.idle_cpu_percent, 1)),
    ("by process", _by_process("idle_cpu_percent_by_process")),
    ("MB (PSS)", lambda r: number(r.resident_megabytes, 0)),
    ("MB by process", _by_process("megabytes_by_process")),
)


def _plots(results: Sequence[Result]) -> list[Bars]:
    copies = [r for r in results if r.method == "copy"]
    latencies = [r for r in results if r.method == "latency"]
    return [
        Bars(
            "cpu",
            "Records per CPU second of the whole process tree",
            "log",
            [(r.case, r.engine, r.records_per_cpu_second) for r in copies],
        ),
        Bars(
            "rate",
            "Records per second",
            "log",
            [(r.case, r.engine, r.records_per_second) for r in copies],
        ),
        Bars(
            "latency",
            "Milliseconds from producing to the probe, p50 and p99",
            "log",
            [
                (f"{r.case} {share}", r.engine, getattr(r.latency_ms, share) or 0.0)
                for r in latencies
                for share in ("p50", "p99")
            ],
        ),
    ]


def _plot(plots: Sequence[str], *names: str) -> str:
    shown = [f"![{name}](benchmarks/{name}.svg)\n" for name in names if name in plots]
    return "".join(shown)
