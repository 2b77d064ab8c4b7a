from __future__ import annotations

from srm.replication.driver.assignment import Liveness


def running(slots: int = 2) -> Liveness:
    """All slots reported at time 0, and the driver's own heartbeat came back."""
    liveness = Liveness([str(n) for n in range(slots)], echoed=0.0)
    for slot in range(slots):
        liveness.observe(str(slot), 0.0)
    return liveness


def beat(liveness: Liveness, until: float, *slots: str, since: float = 0.0) -> None:
    second = since + 1.0
    while second <= until:
        liveness.echo(second)
        for slot in slots:
            liveness.observe(slot, second)
        second += 1.0


def test_a_silent_slot_dies_after_the_timeout_while_the_others_live():
    liveness = running()

    beat(liveness, 5.0, "0")
    before = liveness.alive(5.0)
    beat(liveness, 6.0, "0", since=5.0)

    assert before == ("0", "1")
    assert liveness.alive(6.0) == ("0",)
    assert liveness.is_decisive(6.0)


def test_slots_of_another_application_do_not_count():
    liveness = running()

    liveness.observe("7", 0.0)

    assert liveness.alive(0.0) == ("0", "1")


def test_the_first_assignment_waits_for_all_slots_or_the_grace():
    liveness = Liveness(["0", "1"], echoed=0.0, grace_s=10.0)

    nobody = liveness.is_decisive(0.0)
    beat(liveness, 4.0, "0")
    one = liveness.is_decisive(4.0)
    liveness.observe("1", 4.0)

    assert (nobody, one) == (False, False)
    assert liveness.is_decisive(4.0)


def test_after_the_grace_a_slot_that_never_came_is_not_waited_for():
    liveness = Liveness(["0", "1"], echoed=0.0, grace_s=10.0)

    beat(liveness, 10.0, "0")
    before = liveness.is_decisive(10.0)
    beat(liveness, 11.0, "0", since=10.0)

    assert not before
    assert liveness.is_decisive(11.0)


def test_nothing_is_judged_while_our_own_heartbeats_do_not_come_back():
    liveness = running()
    beat(liveness, 10.0, "0", "1")

    assert not liveness.is_decisive(13.0)


def test_an_outage_of_the_log_kills_no_slot():
    """Silence during an outage is not held against the slots: they could not report either."""
    liveness = running()
    beat(liveness, 10.0, "0", "1")

    liveness.echo(100.0)

    assert liveness.is_decisive(100.0)
    assert liveness.alive(100.0) == ("0", "1")
    beat(liveness, 106.0, "0", since=100.0)
    assert liveness.alive(106.0) == ("0",)


def test_without_any_live_slot_nothing_is_judged():
    liveness = running(1)
    beat(liveness, 8.0)

    assert liveness.alive(8.0) == ()
    assert not liveness.is_decisive(8.0)


def test_the_next_death_is_that_of_the_slot_that_was_silent_for_longest():
    liveness = running()
    liveness.observe("1", 2.0)

    assert liveness.due(3.0) == 5.0
    assert liveness.due(6.0) == 7.0
    assert liveness.due(8.0) == float("inf")
