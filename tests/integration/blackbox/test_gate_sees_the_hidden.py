"""What last stable offsets, group listings of old and a second of silence do not show."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from tests.integration.blackbox.audit import not_copied
from tests.integration.blackbox.programs import Client
from tests.integration.blackbox.stage import Stage
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

OPEN = 30
"""Records in the transaction that is left open."""
SESSION_S = 1200
"""Of a static member: longer than any test."""
SLOW = ("--slow-writer-seconds", "10")
"""Many times the pause of the slow writer, which a busy machine makes longer."""


def _python_writer(stage: Stage) -> Client:
    return stage.writer("slow", rate=0.8)


def _java_writer(stage: Stage) -> Client:
    return stage.java_writer("slow", rate=0.8)


@pytest.mark.parametrize("slow_writer", [_python_writer, _java_writer])
def test_a_move_waits_for_a_writer_that_pauses_longer_than_the_quiet_time_until_it_is_stopped(
    stage: Stage, slow_writer: Callable[[Stage], Client]
) -> None:
    """Its log stands still for longer than the quiet time, between any two looks of the gate.

    A record that comes when the move was ready sends it back to waiting: there is time left.
    """
    reader = stage.reader("plain", reset="earliest")
    writer = slow_writer(stage)
    stage.start(stage.p)
    eventually(lambda: reader.count("processed") > 1, "the group works on P")
    stage.stop(reader)

    stage.await_known(stage.p)
    with stage.run("slow", stage.p, *SLOW) as move:
        move.await_held()
        written = writer.count("acked")
        eventually(lambda: writer.count("acked") >= written + 4, "it never noticed")
        move.await_reason(stage.topic)
        stage.stop(writer)
        move.await_gone()
        stage.start(stage.b, reader)
        report = move.report()
    stage.await_read(reader)
    stage.stop()
    assert stage.count(reader).clean, stage.count(reader)
    assert report["ok"], report["problems"]


def test_a_live_streams_group_of_the_new_protocol_keeps_the_gate_closed(stage: Stage) -> None:
    reader = stage.streams("kip1071", protocol="streams")
    writer = stage.writer("shop", rate=100)
    stage.start(stage.p)
    eventually(lambda: reader.count("processed") > 100, "the application works on P")

    stage.await_known(stage.p)
    with stage.run("alive", stage.p) as move:
        move.await_held()
        stage.stop(writer)
        move.await_reason(reader.group, "active", stage.p)
        stage.end_held(move)
    stage.await_read(reader)
    assert stage.committed(stage.b, reader.group) == {}


def test_a_streams_group_of_the_new_protocol_moves_there_and_back(stage: Stage) -> None:
    reader = stage.streams("kip1071", protocol="streams", guarantee="exactly_once_v2")
    writer = stage.writer("shop", rate=100)
    stage.start(stage.p)
    eventually(lambda: reader.count("processed") > 100, "the application works on P")
    there = stage.move("there", stage.p)
    eventually(lambda: reader.count("processed") > 100, "it works on B")
    back = stage.move("back", stage.b)
    eventually(lambda: writer.count("acked") > 50, "the writer works on P again")
    stage.stop(writer)
    stage.await_read(reader)
    stage.stop()

    assert stage.count(reader).clean, stage.count(reader)
    for report in (there, back):
        assert report["ok"], report["problems"]
        assert report["groups"][reader.group]["members_at_hold"] > 0


def test_an_open_transaction_keeps_the_gate_closed_until_it_is_decided(stage: Stage) -> None:
    """The records after its start are acknowledged and not readable; none may stay behind."""
    reader = stage.reader("plain", reset="earliest", store=True)
    shop = stage.writer("shop", rate=200)
    stage.start(stage.p)
    eventually(lambda: reader.count("processed") > 50, "the group works on P")
    transaction = f"forgotten-{stage.site.unique}"
    bank = stage.writer("bank", transactional_id=transaction, batch=OPEN, leave_open=True)
    stage.start(stage.p, bank)
    eventually(lambda: bank.count("open"), "a transaction is open")
    written = shop.count("acked")
    eventually(lambda: shop.count("acked") > written + 100, "records after it")

    stage.await_known(stage.p)
    with stage.run("open", stage.p) as move:
        move.await_held()
        stage.stop(shop, reader)
        move.await_reason(f"{stage.topic}-", transaction)
        bank.signal(signal.SIGUSR1)
        move.await_gone()
        stage.start(stage.b, reader)
        report = move.report()
    stage.await_read(reader)
    stage.stop()

    assert len([event for event in bank.events if event.kind == "acked"]) == OPEN
    assert not_copied(stage.acked, stage.copy(stage.p)) == []
    assert stage.count(reader).clean, stage.count(reader)
    assert report["ok"], report["problems"]
    assert (report["rpo_records"], sum(report["residue"].values())) == (0, 0)


def test_pending_offsets_of_a_group_keep_the_gate_closed_until_they_are_decided(
    stage: Stage,
) -> None:
    working = stage.processor("eos")
    stage.writer("shop", rate=0, count=300)
    stage.start(stage.p)
    eventually(lambda: working.count("processed") == 300, "the group has read everything")
    stage.stop()
    before = stage.committed(stage.p, working.group)
    late = stage.writer("late", rate=0, count=40)
    stuck = stage.processor("eos", leave_pending=True)
    stage.start(stage.p, late, stuck)
    eventually(lambda: stuck.count("open"), "offsets are pending")
    eventually(lambda: late.count("acked") == 40, "everything late is written")
    stage.stop(late)
    stage.readers.remove(stuck)
    try:
        stage.await_known(stage.p)
        with stage.run("pending", stage.p) as move:
            move.await_held()
            move.await_reason(working.group, "transaction")
            stuck.stop()
            move.await_gone()
            stage.start(stage.b, working)
            report = move.report()
    finally:
        stuck.kill()
    assert stage.committed(stage.p, working.group) == before, "the aborted ones count for nothing"
    stage.await_read(working)
    stage.stop()

    assert stage.count(working).clean, stage.count(working)
    assert report["ok"], report["problems"]


def test_static_members_that_were_stopped_do_not_make_the_move_wait_for_their_session(
    stage: Stage,
) -> None:
    """They do not leave when they are closed."""
    static = {"instance": "static-1", "session": SESSION_S}
    reader = stage.reader("static", reset="earliest", store=True, **static)
    writer = stage.writer("shop", rate=100)
    stage.start(stage.p)
    eventually(lambda: reader.count("processed") > 50, "the group works on P")

    report = stage.move("static", stage.p)
    stage.stop(writer)
    stage.await_read(reader)
    stage.stop()

    assert report["rto_steps"]["wait and apply"] < SESSION_S / 4, report["rto_steps"]
    assert stage.count(reader).clean, stage.count(reader)
    assert report["ok"], report["problems"]
