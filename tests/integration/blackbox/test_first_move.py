"""The first move of a group: its offsets on the target are all of srm's making."""

from __future__ import annotations

import pytest
from tests.integration.blackbox.stage import Stage
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def test_a_group_that_starts_at_the_end_of_the_logs_misses_nothing_that_is_written_after_go(
    stage: Stage,
) -> None:
    """Its writers are up on the target before it is: what they write first is not skipped."""
    latest = stage.reader("latest")
    java = stage.java_reader("java")
    writer = stage.writer("shop", rate=100)
    stage.start(stage.p)
    eventually(lambda: min(r.count("processed") for r in stage.readers) > 100, "both work on P")

    stage.await_known(stage.p)
    with stage.run("first", stage.p) as move:
        move.await_held()
        stage.stop()
        move.await_gone()
        stage.start(stage.b, writer)
        eventually(lambda: writer.count("acked") > 50, "the writer works on B")
        stage.start(stage.b, latest, java)
        report = move.report()
    stage.stop(writer)
    for reader in (latest, java):
        stage.await_read(reader, latest_on=stage.p)
    stage.stop()

    for reader in (latest, java):
        assert stage.count(reader, latest_on=stage.p).clean, reader.name
        assert report["groups"][reader.group]["skipped"] == 0, report
    assert report["ok"], report["problems"]
