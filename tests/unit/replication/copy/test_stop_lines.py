"""Log lines about partitions that stop."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from tests.unit.replication.copy.claim_site import ASSIGNED, Cluster, Site, run, source_of

from srm.errors import DataLossError, IntegrityError, UnavailableError
from srm.replication.copy import lifecycle, write_answers


def test_a_lost_broker_is_logged_once_not_for_each_of_its_partitions(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_SUM_UP_S", 0.01)

    def lines() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]

    async def scenario(site: Site) -> None:
        for n in range(1_000):
            error = UnavailableError(f"offsets of P.T-{n} on B: connection refused")
            site.lifecycle.begin(replace(ASSIGNED, partition=n), error)
        site.lifecycle.begin(replace(ASSIGNED, topic="U"), IntegrityError("damaged"))
        await site.until(lambda: len(lines()) > 2)

    run(lambda: Site(source_of(1), Cluster([])), scenario)

    stopped, other, rest = lines()
    assert stopped.startswith("T-0: offsets of P.T-0 on B: connection refused; next try in ")
    assert other.startswith("U-0: damaged")
    assert rest == "999 more stops of partitions: offsets of its copy on B: connection refused"


def test_a_reason_that_names_its_partition_is_not_named_a_second_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_SUM_UP_S", 0.01)

    async def scenario(site: Site) -> None:
        for n in range(2):
            error = DataLossError(f"T-{n}: records 3 to 4 are gone")
            site.lifecycle.begin(replace(ASSIGNED, partition=n), error)
        await site.until(lambda: len(caplog.records) > 1)

    run(lambda: Site(source_of(1), Cluster([])), scenario)

    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert lines[0].startswith("T-0: records 3 to 4 are gone")
    assert lines[1] == "1 more stop of partitions: records 3 to 4 are gone"


def test_a_partition_that_waits_for_a_dead_broker_names_no_second_reason_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, UnavailableError("the broker closed the connection"))
        [copy] = site.lifecycle.copies.values()
        for error in (UnavailableError("connection refused"), IntegrityError("damaged")):
            site.lifecycle._stop(copy, write_answers.stop_of(error))

    run(lambda: Site(source_of(1), Cluster([])), scenario)

    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    first, second = lines
    assert "closed the connection" in first
    assert "damaged" in second
