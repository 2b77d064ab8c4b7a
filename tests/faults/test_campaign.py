"""Eight seeds of the fault campaign (docs/testing.md); SRM_FAULT_SEEDS=17,40-44 plays others.

The fewest that play every scenario, in every setting and with every kind of change to records.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from tests.faults.campaign.brokers import Brokers
from tests.faults.campaign.plan import SETTINGS, plan_of, seeds_of
from tests.faults.campaign.run import run_seed
from tests.faults.campaign.scenarios import SCENARIOS
from tests.waiting import eventually

logger = logging.getLogger(__name__)

pytestmark = [pytest.mark.kafka, pytest.mark.faults]

SEEDS_THAT_PLAY_EVERYTHING: Final = (8, 22, 33, 139, 140, 196, 224, 254)
CHOSEN: Final = os.environ.get("SRM_FAULT_SEEDS")
SEEDS: Final = seeds_of(CHOSEN) if CHOSEN else SEEDS_THAT_PLAY_EVERYTHING


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    running = Brokers(tmp_path_factory.mktemp("campaign"))
    try:
        yield running
    finally:
        running.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("setting", SETTINGS)
def test_seeds_leave_nothing_wrong(setting: str, brokers: Brokers, tmp_path: Path) -> None:
    """Seeds of one setting come one after another, as they share its brokers."""
    plans = [plan for plan in map(plan_of, SEEDS) if plan.setting == setting]

    verdicts = [run_seed(plan, brokers, tmp_path / f"seed-{plan.seed}") for plan in plans]

    for verdict in verdicts:
        logger.info("%s", verdict.line())
    assert [verdict.line() for verdict in verdicts if verdict.problems] == []


_A_CAMPAIGN = """
import os, subprocess, sys
from pathlib import Path
from tests.faults.campaign.brokers import Brokers
brokers = Brokers(Path(sys.argv[1]))
stands_for_a_broker = ["sleep", "3600"]
environ = {**os.environ, **brokers.environ}
print(subprocess.Popen(stands_for_a_broker, env=environ, start_new_session=True).pid, flush=True)
sys.stdin.read()
"""


def test_brokers_end_with_a_campaign_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _A_CAMPAIGN, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as campaign:
        assert campaign.stdout is not None
        broker = psutil.Process(int(campaign.stdout.readline()))

        campaign.kill()

        eventually(lambda: not broker.is_running(), "the broker is ended")


def test_the_chosen_seeds_leave_no_scenario_and_no_setting_out() -> None:
    plans = [plan_of(seed) for seed in SEEDS_THAT_PLAY_EVERYTHING]

    assert {name for plan in plans for name in plan.scenarios} == set(SCENARIOS)
    assert {plan.setting for plan in plans} == set(SETTINGS)
    assert {plan.policy for plan in plans} == {"stop", "continue"}
    assert {plan.records for plan in plans} == {"", "headers", "filter"}


def test_a_seed_is_a_plan_and_always_the_same_one() -> None:
    assert [plan_of(seed) for seed in range(50)] == [plan_of(seed) for seed in range(50)]
    assert plan_of(1) != plan_of(2)
