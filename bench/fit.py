"""The coefficients of srm's capacity model, from what ``make bench BENCH_ARGS=--fleet`` has saved.

    .venv/bin/python -m bench.fit [build/bench ...]

Prints them as they stand in src/srm/domain/capacity_costs.py, with how far the fit is off. Several
folders are measurements that were repeated. Of cells that got less traffic than they were to get,
as something else was in the way, only what was measured at rest before it counts. Cases that copy a
backlog (1kb, 1kb-16kb, lz4-16kb, zstd-16kb) take part where they are saved: what it costs to open
compressed batches is known from those alone.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.cases import CASES, Case
from bench.clusters import PROJECT
from bench.data import templates
from bench.engines import TASKS
from bench.errors import BenchError
from bench.fleet_cost import METHOD, PARTIES, at_rest, is_undisturbed, loaded
from bench.goals import SRM
from bench.results import MEGABYTE, Result, load_all
from srm.domain.capacity import TopicLoad, catching_up, rounds_per_s, sent_per_s
from srm.domain.capacity_costs import Units

BACKLOGS: Final = ("1kb", "1kb-16kb", "lz4-16kb", "zstd-16kb")
_ROUNDS_S: Final = [each / 10_000 for each in range(5, 201, 5)]
_LOOKS_S: Final = [0.0, *(each / 1e7 for each in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50))]
_LEAST_CORES: Final = 0.05
"""Errors are relative to this at least: what brokers do by themselves comes and goes by as much."""
_PAYS_FOR: Final[Mapping[str, Sequence[str]]] = {
    "replicator": ("megabytes", "batches", "sent", "opened", "rounds", "partitions", "always"),
    "source_broker": ("megabytes", "sent", "rounds", "looks"),
    "target_broker": ("megabytes", "sent", "rounds"),
}
"""What each party has to do with: the target's broker never sees a batch as it was produced. A
broker is asked for as many partitions with something in them as batches are sent."""


@dataclass(frozen=True)
class Timing:
    """How long a round takes: at least, and for each partition of the slot."""

    round_s: float
    look_s: float

    def seconds(self, followed: float) -> float:
        """Return it for so many partitions."""
        return self.round_s + self.look_s * followed


@dataclass(frozen=True)
class Row:
    """One measurement: what was done in a second, and the cores of one party."""

    case: str
    work: Units
    cores: float


@dataclass(frozen=True)
class Fit:
    """Coefficients of one party, and the largest relative error with its case."""

    each: Units
    error: float
    case: str


def load_of(result: Result) -> TopicLoad:
    """Return the traffic of a cell, as it was copied."""
    details = result.details
    return TopicLoad(details["partitions"], result.megabytes_per_second, details["batch_bytes"])


def fit_timing(results: Sequence[Result]) -> Timing:
    """Return the timing that says best how many batches were sent in each cell."""

    def error(timing: Timing) -> float:
        total = 0.0
        for result in results:
            load = load_of(result)
            said = sent_per_s(load, timing.seconds(load.partitions / TASKS))
            found = result.details["sent_batches"] / result.details["batches"]
            total += float(np.log(said / load.batches_per_s / found)) ** 2
        return total

    timings = (Timing(*each) for each in itertools.product(_ROUNDS_S, _LOOKS_S))
    return min(timings, key=error)


def steady_work(result: Result, timing: Timing) -> Units:
    """Return what was done in a second of a cell; batches that were sent are as counted."""
    load = load_of(result)
    of_each = rounds_per_s(load.batches_per_s / TASKS, timing.seconds(load.partitions / TASKS))
    return Units(
        megabytes=load.megabytes_per_s,
        batches=load.batches_per_s,
        sent=load.batches_per_s * result.details["sent_batches"] / result.details["batches"],
        rounds=TASKS * of_each,
        looks=of_each * load.partitions,
        partitions=load.partitions,
        always=1.0,
    )


def backlog_work(result: Result, case: Case) -> Units:
    """Return what was done in a second of a case that copies a backlog."""
    batches = templates(case.payload)
    size = sum(map(len, batches)) / len(batches)
    per_second = result.records / case.payload.batch_records / result.wall_seconds
    load = TopicLoad(case.partitions, per_second * size / MEGABYTE, size, codec=case.payload.codec)
    work = catching_up(load, case.partitions / TASKS)
    return work._replace(partitions=case.partitions, always=1.0)


def rows_of(results: Sequence[Result], party: str, timing: Timing) -> list[Row]:
    """Return the measurements of one party."""
    rows = []
    rests: dict[int, Row] = {}  # measured once before all sizes of batches
    for result in (r for r in results if r.method == METHOD):
        if is_undisturbed(result):
            rows.append(Row(result.case, steady_work(result, timing), loaded(result)[party]))
        partitions = result.details["partitions"]
        if party == "replicator":
            rest = Units(partitions=partitions, always=1.0)
            rests[partitions] = Row(f"at rest, {partitions}p", rest, at_rest(result))
    rows += rests.values()
    cases = {case.name: case for case in CASES if case.name in BACKLOGS}
    for result in (r for r in results if r.case in cases):
        seconds = {
            "replicator": result.cpu_seconds,
            "source_broker": result.source_broker_cpu_seconds or 0.0,
            "target_broker": result.target_broker_cpu_seconds or 0.0,
        }[party]
        work = backlog_work(result, cases[result.case])
        rows.append(Row(result.case, work, seconds / result.wall_seconds))
    return rows


def fit(rows: Sequence[Row], units: Collection[str] = Units._fields) -> Fit:
    """Return the coefficients, none below 0, that make relative errors small.

    Every choice of what costs anything is tried, so this is the least-squares solution itself.

    Args:
        rows: what was measured.
        units: those that may cost anything.
    """
    weights = np.array([1 / max(row.cores, _LEAST_CORES) for row in rows])
    work = np.array([row.work for row in rows]) * weights[:, None]
    cores = np.array([row.cores for row in rows]) * weights
    present = [n for n, unit in enumerate(Units._fields) if unit in units and work[:, n].any()]
    best, least = Units(), float((cores**2).sum())
    for count in range(1, len(present) + 1):
        for chosen in itertools.combinations(present, count):
            columns = work[:, list(chosen)]
            solved = np.linalg.lstsq(columns, cores, rcond=None)[0]
            error = float(((columns @ solved - cores) ** 2).sum())
            if (solved >= 0).all() and error < least:
                values = [0.0] * work.shape[1]
                for place, value in zip(chosen, solved, strict=True):
                    values[place] = float(value)
                best, least = Units(*values), error
    errors = [abs(row.work.cost(best) - row.cores) / max(row.cores, _LEAST_CORES) for row in rows]
    worst = int(np.argmax(errors))
    return Fit(best, errors[worst], rows[worst].case)


def fit_all(results: Iterable[Result]) -> tuple[Timing, Mapping[str, Fit]]:
    """Return the timing and the coefficients of each party.

    Raises:
        BenchError: no fleet has been measured.
    """
    ours = [result for result in results if result.engine == SRM]
    fleet = [result for result in ours if result.method == METHOD]
    backlogs = [result for result in ours if result.case in BACKLOGS]
    undisturbed = [result for result in fleet if is_undisturbed(result)]
    if not undisturbed:
        raise BenchError("no fleet is measured: make bench BENCH_ARGS=--fleet")
    timing = fit_timing(undisturbed)
    return timing, {
        party: fit(rows_of([*fleet, *backlogs], party, timing), _PAYS_FOR[party])
        for party in PARTIES
    }


def render(timing: Timing, fits: Mapping[str, Fit]) -> str:
    """Return the lines of capacity_costs.py."""
    lines = [f"ROUND_S: Final = {timing.round_s:g}", f"LOOK_S: Final = {timing.look_s:g}"]
    for party, found in fits.items():
        lines.append(f"{party.upper()}: Final = Units(")
        values = zip(Units._fields, found.each, strict=True)
        lines += [f"    {name}={value:.3g}," for name, value in values if value]
        lines.append(f")  # off by {found.error:.0%} at most: {found.case}")
    return "\n".join(lines)


def main(arguments: Sequence[str], say: Callable[[str], None] = print) -> int:
    """Fit what is saved in folders."""
    folders = [Path(each) for each in arguments] or [PROJECT / "build" / "bench"]
    try:
        say(render(*fit_all(itertools.chain.from_iterable(map(load_all, folders)))))
    except BenchError as error:
        sys.stderr.write(f"bench.fit: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
