"""A dozen seeds of the fault campaign (docs/faults.md); SRM_FAULT_SEEDS=17,40-44 plays others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.faults.campaign.brokers import Brokers
from tests.faults.campaign.plan import plan_of, seeds_of
from tests.faults.campaign.run import run_seed

pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.timeout(300)]

SEEDS: Final = seeds_of(os.environ.get("SRM_FAULT_SEEDS", "4,5,9,11,12,16,18,21,23,26,30,31"))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    running = Brokers(tmp_path_factory.mktemp("campaign"))
    try:
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_leaves_nothing_wrong(seed: int, brokers: Brokers, tmp_path: Path) -> None:
    verdict = run_seed(plan_of(seed), brokers, tmp_path / f"seed-{seed}")

    assert verdict.problems == (), verdict.line()


def test_a_seed_is_a_plan_and_always_the_same_one() -> None:
    assert [plan_of(seed) for seed in range(50)] == [plan_of(seed) for seed in range(50)]
    assert plan_of(1) != plan_of(2)
