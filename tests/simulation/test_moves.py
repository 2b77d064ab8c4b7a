"""Histories of moves by seed: what each group reads is what the reports explain."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from srm_lab.testing.fake_consumer import FakeConsumer
from srm_lab.testing.simulation.moves.run import FAULTS, play

MOVES = 4
"""The fast tier plays as many seeds of planned moves; `test_more_seeds` those after them."""
LATE = (7, 18, 21, 28)
ALL_AT_ONCE = (0, 1, 5, 8, 5000129, 6000038, 6000146, 7000180)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Leave out what srm logs: a history has thousands of lines."""
    logger = logging.getLogger("srm")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.mark.parametrize("seed", range(MOVES))
def test_in_planned_moves_each_group_reads_each_record_once(seed: int) -> None:
    played = play(seed)

    assert played.problems == []
    assert played.sites.serial


@pytest.mark.parametrize("seed", LATE)
def test_a_host_that_wakes_up_late_takes_no_cluster_away_from_its_clients(seed: int) -> None:
    """Once it denied writes on the cluster that others had moved everything back to."""
    assert play(seed, frozenset({"late"})).problems == []


@pytest.mark.parametrize("seed", ALL_AT_ONCE)
def test_with_all_faults_at_once_the_reports_explain_what_groups_get(seed: int) -> None:
    """Hosts whose clocks are wrong once took the replicator for dead, and refused to move."""
    assert play(seed, frozenset(FAULTS)).problems == []


@pytest.mark.parametrize(("by", "finding"), [(-1, "again after move"), (1, "never gets")])
def test_the_oracle_sees_a_record_that_is_read_again_or_not_at_all(
    by: int, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers that commit beside their position are as a translation that is wrong by one."""
    commit = FakeConsumer.commit

    def beside(self: FakeConsumer) -> None:
        commit(self)
        cluster, group = self._cluster, self._group
        for place, at in cluster.committed_offsets(group).items():
            [start], [end] = (
                found([place]).values() for found in (cluster.log_starts, cluster.log_ends)
            )
            if start <= at + by <= end:
                cluster.commit(group, {place: at + by})

    monkeypatch.setattr(FakeConsumer, "commit", beside)
    found = [problem for seed in range(4) for problem in play(seed).problems]

    assert any(finding in problem for problem in found), found
