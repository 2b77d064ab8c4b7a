from __future__ import annotations

from dataclasses import replace

import pytest

from srm.domain.moves.announcements import Ack, StampedAck
from srm.domain.moves.gate import (
    ANNOUNCED_MS,
    Presence,
    Writers,
    unheld_producers,
    unknown_writers,
    unrouted_members,
)
from srm.domain.names.topics import ActiveProducer, TopicPartition

TP = TopicPartition("T", 0)


def said(client, state="resumed", generation=0, stamped_ms=1_000, subject="topic:T"):
    ack = Ack(subject, client, generation, state, "P", 0, host="h1")
    return StampedAck(ack, stamped_ms)


def present(*acks, now_ms=1_000):
    return Presence(acks, now_ms)


def test_a_client_that_stopped_announcing_itself_is_not_waited_for():
    silent = said("c", stamped_ms=1_000)

    assert present(silent, now_ms=1_000 + ANNOUNCED_MS).followers("topic:T") == (silent.ack,)
    assert present(silent, now_ms=1_001 + ANNOUNCED_MS).followers("topic:T") == ()


def test_a_producer_that_has_not_acknowledged_this_hold_keeps_the_gate_closed():
    presence = present(said("old", "held", 2), said("ready", "held", 3), said("busy"))

    reasons = list(unheld_producers(["T"], 3, presence))

    assert {reason.split()[1] for reason in reasons} == {"old", "busy"}
    assert any("producer busy on h1 of topic T has not stopped" in reason for reason in reasons)


def test_members_that_announced_nothing_are_strangers():
    presence = present(said("c1", subject="group:g"))

    assert unrouted_members("g", [("1", "c1@h"), ("2", "plain@h")], presence) == ("plain@h",)


def test_a_member_is_known_by_its_id_where_its_client_says_that_and_not_by_its_name():
    """Replicas share a client id; one of them follows no routes."""
    ack = replace(
        said("shop", subject="group:g").ack, instance="i1", members={"P": "m1", "B": "m0"}
    )
    presence = present(StampedAck(ack, 0))

    members = [("m1", "shop@h1"), ("m2", "shop@h2"), ("m0", "shop@h1")]
    assert unrouted_members("g", members, presence) == ("shop@h2", "shop@h1")


def test_members_of_a_supervised_program_go_by_the_id_it_was_given_and_more():
    """Only under srm follow: of other clients, one whose name begins alike is another one."""
    acks = [said("srm-follow-h-1-ab", subject="group:g"), said("shop", subject="group:g")]
    names = (
        "srm-follow-h-1-ab",
        "srm-follow-h-1-ab-StreamThread-1",
        "srm-follow-h-1-abc",
        "shop-2",
    )

    assert unrouted_members("g", [("", f"{name}@h") for name in names], present(*acks)) == (
        "srm-follow-h-1-abc@h",
        "shop-2@h",
    )


def test_a_slow_writer_is_seen_by_its_sequence_and_not_by_a_clock():
    before = {"T-0#7": 10, "T-0#8": 3}
    seen = Writers(
        (ActiveProducer(TP, 7, 0, 0, 11), ActiveProducer(TP, 8, 0, 0, 3)), before, held_ms=10**9
    )

    assert seen.recent("T") == {7}


def test_producer_ids_beyond_those_that_follow_are_counted():
    seen = (
        ActiveProducer(TP, 7, 0, 990, 1),
        ActiveProducer(TP, 8, 0, 995, 1),
        ActiveProducer(TP, 9, 0, 10, 1),
    )
    known = {writer.name: 1 for writer in seen}
    writers = Writers(seen, known, held_ms=1_000, recent_ms=100)

    assert unknown_writers("T", writers, present(said("c"))) == 1
    assert unknown_writers("T", writers, present(said("c"), said("d"))) == 0
    assert unknown_writers("other", writers, present()) == 0


@pytest.mark.parametrize(
    ("state", "idle_ms", "unknown"),
    [("held", None, 0), ("held", 50, 0), ("held", 5_000, 1), ("resumed", 5_000, 0)],
)
def test_a_producer_that_rested_before_the_hold_is_none_of_the_recent_writers(
    state, idle_ms, unknown
):
    """An idle announced producer hid a plain one that wrote, and no quiet time was kept for it.

    Once it has resumed it is one: each plan after a release or a move warned of a plain producer.
    """
    seen = (ActiveProducer(TP, 7, 0, 9_990, 1),)
    writers = Writers(seen, {seen[0].name: 1}, held_ms=10_000, recent_ms=100)
    written = {} if idle_ms is None else {"written": 2_000 + idle_ms}
    ack = replace(said("c", state, 3).ack, ages_ms={"held": 2_000, **written})

    assert unknown_writers("T", writers, present(StampedAck(ack, 12_010), now_ms=12_010)) == unknown
