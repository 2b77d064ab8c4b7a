"""Operators whose machine dies, and several of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.integration.blackbox.stage import Stage
from tests.waiting import eventually

from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def working(stage: Stage) -> None:
    """Start a group and a writer on P; wait until they work."""
    reader = stage.reader("plain", reset="earliest")
    stage.writer("shop", rate=100)
    stage.start(stage.p)
    eventually(lambda: reader.count("processed") > 50, "the group works on P")
    stage.await_known(stage.p)


def ended_clean(stage: Stage) -> None:
    """Let the group read to the end; it must have everything once."""
    [reader] = stage.readers
    stage.stop(*stage.writers)
    stage.await_read(reader)
    stage.stop()
    assert stage.count(reader).clean, stage.count(reader)


def test_a_run_that_is_killed_in_its_hold_is_released_or_finished_by_the_next(
    stage: Stage,
) -> None:
    working(stage)
    for name in ("killed", "again"):
        with stage.run(name, stage.p) as move:
            move.await_held()
            move.kill()
        if name == "killed":
            released = stage.operator.ask("release", move.move_id)
            assert released["step"] == "released"
    stage.stop()
    with stage.run("again", stage.p) as move:
        move.await_gone()
        stage.start(stage.b)
        report = move.report()
    ended_clean(stage)

    [group] = report["groups"].values()
    assert report["rpo_records"] == 0
    assert (group["skipped"], group["re_read"], group["resumed"]) == (0, 0, True), report
    assert report["residue"] == {}


def test_two_pairs_of_clusters_move_at_the_same_time(
    stage: Stage, clusters: Mapping[str, KafkaBroker], java_clients: str, tmp_path: Path
) -> None:
    """They share brokers and so the topics of control records, but none of the names."""
    (tmp_path / "other").mkdir()
    other = Stage(clusters, tmp_path / "other", java_clients)
    try:
        with other.site.replicating():
            for each in (stage, other):
                working(each)
            with stage.run("one", stage.p) as one, other.run("two", other.p) as two:
                pairs = ((stage, one), (other, two))
                for _, move in pairs:
                    move.await_held()
                for each, _ in pairs:
                    each.stop()
                for each, move in pairs:
                    move.await_gone()
                    each.start(each.b)
                reports = [move.report() for _, move in pairs]
            for each in (stage, other):
                ended_clean(each)
    finally:
        other.close()
    for report in reports:
        assert report["ok"], report["problems"]
