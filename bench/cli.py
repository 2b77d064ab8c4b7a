"""Copy cost, latency and footprint of srm and MirrorMaker 2: same brokers, same data, one run.

    make bench                                   short mode, under 3 minutes
    make bench BENCH_ARGS=--full                 all cases, about 40 minutes
    make bench BENCH_ARGS="--case 1kb --repeat 3"
    make bench BENCH_ARGS=--scale                many topics and partitions, srm alone, 4 minutes
    make bench BENCH_ARGS=--fleet                cost of a fleet, also of MM2 tuned, 16 minutes
    make bench BENCH_ARGS=--moves                moves after past ones, many at once, 10 minutes
    make bench BENCH_ARGS="--case map"           reading offset maps of any length, 6 minutes
    make bench BENCH_ARGS=--report               write docs/benchmarks.md from build/bench

Results go to build/bench/*.json, one object each, until measured again; engine logs go to
build/bench/logs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import FrameType

from bench import cases as all_cases
from bench import map_case, moves
from bench.clusters import PROJECT
from bench.machine import describe_machine
from bench.report import write_report, write_summary
from bench.results import Result, load_all, median, save
from bench.run_cases import Plan, run_plan
from bench.tables import print_summary, say


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in all_cases.CASES] + [map_case.NAME]
    engines = [*all_cases.ENGINE_NAMES, all_cases.SOCKET_COPY]
    parser.add_argument("--full", action="store_true", help="all cases")
    parser.add_argument("--scale", action="store_true", help="many topics and partitions")
    parser.add_argument("--fleet", action="store_true", help="cost by batches and partitions")
    parser.add_argument("--moves", action="store_true", help="moves, many past and many at once")
    parser.add_argument(
        "--case",
        action="append",
        choices=names,
        metavar="NAME",
        dest="cases",
        help=f"only this one; may be repeated ({', '.join(names)})",
    )
    parser.add_argument(
        "--engine",
        action="append",
        choices=engines,
        dest="engines",
        help="only this one; may be repeated",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="measure everything N times and keep the medians",
    )
    parser.add_argument(
        "--fraction",
        type=float,
        default=1.0,
        metavar="F",
        help="share of the records of each case, for trials",
    )
    parser.add_argument("--report", action="store_true", help="render docs/benchmarks.md only")
    parser.add_argument("--out", type=Path, default=PROJECT / "build" / "bench")
    parser.add_argument("--docs", type=Path, default=PROJECT / "docs", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.repeat < 1 or not 0 < parsed.fraction <= 1:
        parser.error("--repeat is at least 1, --fraction above 0 and at most 1")
    return parsed


def plan_of(options: argparse.Namespace) -> Plan:
    """Return the outcomes that the command line selects."""
    if options.cases:
        chosen = [case for case in all_cases.CASES if case.name in options.cases]
    elif options.full:
        chosen = list(all_cases.CASES)
    elif options.scale or options.fleet:
        chosen = []
    else:
        chosen = all_cases.short_cases()
    chosen = [case.sized(options.fraction) for case in all_cases.available(chosen)]
    engines = options.engines or [*all_cases.ENGINE_NAMES, all_cases.SOCKET_COPY]
    is_short = not (options.full or options.cases or options.scale or options.fleet)
    fraction = options.fraction * (all_cases.SHORT_FRACTION if is_short else 1.0)
    maps = options.full or map_case.NAME in (options.cases or ())
    return Plan(
        tuple(chosen),
        tuple(engines),
        options.repeat,
        fraction,
        scale=options.scale,
        fleet=options.fleet,
        maps=maps,
    )


def _end(_number: int, _frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that brokers and engines end too."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, save, show; return 1 when a case failed."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.report:
        say(f"written: {write_report(load_all(options.out), options.docs)}")
        return 0
    if options.moves:
        moves.run(options.out / "moves")
        return 0
    plan = plan_of(options)
    machine = describe_machine()
    found: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
    failures: list[str] = []
    signal.signal(signal.SIGTERM, _end)
    with (
        tempfile.TemporaryDirectory(prefix="srm-bench-") as home,
        closing(run_plan(plan, Path(home), options.out / "logs")) as outcomes,
    ):
        for outcome in outcomes:
            if isinstance(outcome, str):
                failures.append(outcome)
                say(f"FAILED {outcome}")
                continue
            results = found[outcome.case, outcome.engine]
            results.append(replace(outcome, machine=machine))
            save(median(results), options.out)
    results = [median(repeated) for repeated in found.values()]
    print_summary(results, failures)
    write_summary(load_all(options.out), options.out)
    if options.full and not options.cases:
        say(f"written: {write_report(load_all(options.out), options.docs)}")
    return 1 if failures else 0
