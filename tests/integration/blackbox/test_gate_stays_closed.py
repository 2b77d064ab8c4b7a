"""Moves that must not go: the status says why within seconds, the release leaves all as it was."""

from __future__ import annotations

import pytest
from tests.integration.blackbox.stage import Stage
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def test_members_and_writers_that_stay_keep_the_gate_closed_and_never_notice_the_move(
    stage: Stage,
) -> None:
    """Nobody stops anything: classic, KIP-848, transactional and Streams members, and a writer."""
    stage.reader("plain", reset="earliest", store=True)
    stage.reader("kip848", protocol="consumer", reset="earliest", store=True)
    stage.processor("eos")
    stage.streams("streams")
    writer = stage.writer("shop", rate=50)
    stage.start(stage.p)
    eventually(lambda: min(r.count("processed") for r in stage.readers) > 20, "all work on P")

    stage.await_known(stage.p)
    with stage.run("stay", stage.p) as move:
        move.await_held()
        move.await_reason(stage.topic, "written", stage.p)
        for reader in stage.readers:
            move.await_reason(reader.group, "active", stage.p)
        stage.end_held(move)
    done = {reader.name: reader.count("processed") for reader in stage.readers}
    eventually(
        lambda: all(r.count("processed") > done[r.name] + 20 for r in stage.readers),
        "all work on P as before",
    )
    stage.stop(writer)
    for reader in stage.readers:
        stage.await_read(reader)
    stage.stop()

    for reader in stage.readers:
        assert stage.count(reader).clean, (reader.name, stage.count(reader))
        assert stage.committed(stage.b, reader.group) == {}, reader.name
    stage.await_clear(stage.p)


def test_a_replicator_that_is_away_keeps_the_gate_closed(quiet_stage: Stage) -> None:
    stage = quiet_stage
    reader = stage.reader("plain", reset="earliest", store=True)
    writer = stage.writer("shop", rate=0, count=500)
    stage.start(stage.p)
    eventually(lambda: reader.count("processed") == 500, "the group has read everything")
    stage.stop()
    before = stage.committed(stage.p, reader.group)

    with stage.run("behind", stage.p) as move:
        move.await_reason(stage.topic, "500")
        stage.end_refused(move)
    assert stage.committed(stage.p, reader.group) == before
    assert stage.committed(stage.b, reader.group) == {}

    with stage.site.replicating():
        report = stage.move("later", stage.p)
        eventually(lambda: writer.count("acked") == 500, "written on B")
        stage.await_read(reader)
        stage.stop()
    assert stage.count(reader).clean, stage.count(reader)
    assert report["ok"], report["problems"]
