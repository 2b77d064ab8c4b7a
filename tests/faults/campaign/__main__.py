"""Run seeds of the fault campaign.

python -m tests.faults.campaign --seed 17            replay one
python -m tests.faults.campaign --seeds 1-200        run many, one after another
python -m tests.faults.campaign --seed 17 --show     print the plan and do nothing
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import psutil
from tests.conftest import OWNER
from tests.faults.campaign.brokers import Brokers
from tests.faults.campaign.plan import SCENARIOS, plan_of
from tests.faults.campaign.run import run_seed


def main() -> int:
    arguments = _parser().parse_args()
    seeds = _seeds(arguments)
    if arguments.show:
        for seed in seeds:
            print(plan_of(seed, arguments.only).text())  # noqa: T201 - this is the output
        return 0
    signal.signal(signal.SIGTERM, _interrupted)
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    home = Path(arguments.home)
    home.mkdir(parents=True, exist_ok=True)
    owner = f"{os.getpid()} {psutil.Process().create_time()}"
    brokers = Brokers(home / f"brokers-{time.strftime('%H%M%S')}", {OWNER: owner})
    failed = []
    try:
        with (home / "results.jsonl").open("a") as results:
            for seed in seeds:
                plan = plan_of(seed, arguments.only)
                verdict = run_seed(plan, brokers, home / f"seed-{seed}", keep=arguments.keep)
                print(verdict.line(), flush=True)  # noqa: T201 - this is the output
                results.write(json.dumps({"at": time.time(), **asdict(verdict)}) + "\n")
                results.flush()
                if verdict.problems:
                    failed.append(seed)
    finally:
        brokers.close()
    print(f"{len(seeds)} seeds, {len(failed)} failed {failed or ''}")  # noqa: T201
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.campaign")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="replay one seed")
    which.add_argument("--seeds", help="a range 1-200, or a list 3,17,41")
    parser.add_argument("--only", default="", choices=["", *SCENARIOS], help="play one scenario")
    parser.add_argument("--show", action="store_true", help="print the plan, run nothing")
    parser.add_argument("--keep", action="store_true", help="keep logs of seeds that pass, too")
    parser.add_argument("--home", default="build/faults", help="folder of results")
    return parser


def _seeds(arguments: argparse.Namespace) -> list[int]:
    if arguments.seed is not None:
        return [arguments.seed]
    if "," in arguments.seeds:
        return [int(part) for part in arguments.seeds.split(",")]
    first, _, last = arguments.seeds.partition("-")
    return list(range(int(first), int(last or first) + 1))


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
