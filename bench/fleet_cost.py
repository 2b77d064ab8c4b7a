"""Cost of copying for each party, computed from the figures of a fleet, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.goals import SRM, TUNED
from bench.results import Result

METHOD: Final = "fleet"
PARTIES: Final = ("replicator", "source_broker", "target_broker")
_PER: Final = 100.0  # MB/s
_LATE_S: Final = 0.5
_UNDISTURBED: Final = 0.95

INTRODUCTION: Final = (
    "Cores for 100 MB/s of steady traffic, by batch size: replicator, and the cost that "
    "copying adds on one broker on each side. A `*` marks a disturbed cell: it got less "
    "traffic than offered, or did not keep up. For your own topics "
    "use the [formula](operate.md#sizing)."
)
COLUMNS: Final = (
    *("batches", "partitions", "MB/s measured"),
    *(f"{party.replace('_', ' ')}, {engine}" for party in PARTIES for engine in (SRM, TUNED)),
    *(f"batches sent of each, {engine}" for engine in (SRM, TUNED)),
    "idle, srm",
    "idle, mm2-tuned",
)


def loaded(result: Result) -> dict[str, float]:
    """Return the cores of the replicator, and those that copying adds on each broker.

    The source's cost without copies and the target's idle cost are subtracted.
    """
    wall, details = result.wall_seconds, result.details
    source = (result.source_broker_cpu_seconds or 0.0) / wall
    target = (result.target_broker_cpu_seconds or 0.0) / wall
    return {
        "replicator": result.cpu_seconds / wall,
        "source_broker": max(0.0, source - details["source_broker_cores_uncopied"]),
        "target_broker": max(0.0, target - details["idle_cores"]["target_broker"]),
    }


def is_undisturbed(result: Result) -> bool:
    """Return whether a cell got the offered traffic and kept up with it."""
    details = result.details
    reached = result.megabytes_per_second >= _UNDISTURBED * details["offered_megabytes_per_second"]
    return bool(reached and details["behind_seconds"] <= _LATE_S)


def at_rest(result: Result) -> float:
    """Return the replicator's cores just before the traffic."""
    return float(result.details["idle_cores"]["replicator"])


def per_100_megabytes(result: Result) -> dict[str, float]:
    """Return the cores of each party for 100 MB/s; the part above idle grows with the traffic."""
    busy, times = loaded(result), _PER / result.megabytes_per_second
    rest = at_rest(result)
    replicator = rest + max(0.0, busy["replicator"] - rest) * times
    return {**{party: cores * times for party, cores in busy.items()}, "replicator": replicator}


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
        *("-" if r is None else f"{at_rest(r):.2f}" for r in engines),
    ]


def _cores(result: Result | None, costs: Mapping[str, float] | None, party: str) -> str:
    if result is None or costs is None:
        return "-"
    return f"{costs[party]:.2f}{'' if is_undisturbed(result) else ' *'}"


def _sent(result: Result) -> str:
    return f"{result.details['sent_batches'] / result.details['batches']:.2f}"
