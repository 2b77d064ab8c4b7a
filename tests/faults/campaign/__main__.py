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

from tests.faults.campaign.brokers import Brokers
from tests.faults.campaign.plan import plan_of, seeds_of
from tests.faults.campaign.run import run_seed
from tests.faults.campaign.scenarios import SCENARIOS


def main() -> int:
    arguments = _parser().parse_args()
    seeds = seeds_of(arguments.seeds)
    if arguments.show:
        for seed in seeds:
            print(plan_of(seed, arguments.only).text())  # noqa: T201 - this is the output
        return 0
    signal.signal(signal.SIGTERM, _interrupted)
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    home = Path(arguments.home)
    home.mkdir(parents=True, exist_ok=True)
    brokers = Brokers(home / f"brokers-{time.strftime('%H%M%S')}")
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
    except KeyboardInterrupt:
        brokers.close()
        os._exit(130)  # steps of the seed may wait for these brokers for minutes
    finally:
        brokers.close()
    print(f"{len(seeds)} seeds, {len(failed)} failed {failed or ''}")  # noqa: T201
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.campaign")
    parser.add_argument(
        "--seed", "--seeds", dest="seeds", required=True, help="17, 1-200 or 3,17,40-44"
    )
    parser.add_argument("--only", default="", choices=["", *SCENARIOS], help="play one scenario")
    parser.add_argument("--show", action="store_true", help="print the plan, run nothing")
    parser.add_argument("--keep", action="store_true", help="keep logs of seeds that pass, too")
    parser.add_argument("--home", default="build/faults", help="folder of results")
    return parser


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
