"""From what was measured of a fleet to what copying costs each party, and the table of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.goals import SRM, TUNED
from bench.results import Result

METHOD: Final = "fleet"
PARTIES: Final = ("replicator", "source_broker", "target_broker")
_PER: Final = 100.0  # MB/s
_LATE_S: Final = 0.5

INTRODUCTION: Final = (
    "Cores for 100 MB/s of steady traffic, in batches of the size given: replicator, and what "
    "copying adds on one broker on each side. A `*` marks an engine that did not keep up with the "
    "traffic. What your own topics cost: `srm capacity` ([how](capacity.md))."
)
COLUMNS: Final = (
    *("batches", "partitions", "MB/s measured"),
    *(f"{party.replace('_', ' ')}, {engine}" for party in PARTIES for engine in (SRM, TUNED)),
    *(f"batches sent of each, {engine}" for engine in (SRM, TUNED)),
    "at rest, srm",
    "at rest, mm2-tuned",
)


def loaded(result: Result) -> dict[str, float]:
    """Return the cores of each party with the traffic, less what it would use without an engine."""
    wall, details = result.wall_seconds, result.details
    source, target = (
        result.source_broker_cpu_seconds or 0.0,
        result.target_broker_cpu_seconds or 0.0,
    )
    return {
        "replicator": result.cpu_seconds / wall,
        "source_broker": max(0.0, source / wall - details["own_cores_producing"]),
        "target_broker": max(0.0, target / wall - details["own_cores_at_rest"]),
    }


def at_rest(result: Result) -> dict[str, float]:
    """Return the same of the moments before the traffic."""
    idle, own = result.details["idle_cores"], result.details["own_cores_at_rest"]
    return {
        party: idle[party] if party == "replicator" else max(0.0, idle[party] - own)
        for party in PARTIES
    }


def per_100_megabytes(result: Result) -> dict[str, float]:
    """Return the cores of each party for 100 MB/s: what comes with the traffic in proportion."""
    idle, busy, rate = at_rest(result), loaded(result), result.megabytes_per_second
    return {p: idle[p] + max(0.0, busy[p] - idle[p]) * _PER / rate for p in PARTIES}


def rows(results: Sequence[Result]) -> list[list[str]]:
    """Return the cells of the table: one row for each size and number of partitions."""
    cells: dict[tuple[int, int], dict[str, Result]] = {}
    for result in results:
        if result.method == METHOD:
            key = result.details["batch_bytes"], result.details["partitions"]
            cells.setdefault(key, {})[result.engine] = result
    return [_row(*key, cells[key]) for key in sorted(cells)]


def _row(size: int, partitions: int, found: Mapping[str, Result]) -> list[str]:
    engines = [found.get(engine) for engine in (SRM, TUNED)]
    offered = max(r.details["offered_megabytes_per_second"] for r in found.values())
    costs = [None if r is None else per_100_megabytes(r) for r in engines]
    return [
        f"{size // 1000} KB",
        f"{partitions:,}",
        f"{offered:g}",
        *(_cores(r, c, party) for party in PARTIES for r, c in zip(engines, costs, strict=True)),
        *("-" if r is None else _sent(r) for r in engines),
        *("-" if r is None else f"{at_rest(r)['replicator']:.2f}" for r in engines),
    ]


def _cores(result: Result | None, costs: Mapping[str, float] | None, party: str) -> str:
    if result is None or costs is None:
        return "-"
    late = " *" if result.details["behind_seconds"] > _LATE_S else ""
    return f"{costs[party]:.2f}{late}"


def _sent(result: Result) -> str:
    return f"{result.details['sent_batches'] / result.details['batches']:.2f}"
