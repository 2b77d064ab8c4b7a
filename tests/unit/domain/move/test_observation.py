from __future__ import annotations

from srm.domain.move.progress import Observation


def looked(before, now_ms, stamp_ms, end, settled=(), host="h"):
    return before.next((host, now_ms, now_ms), stamp_ms, {"T-0": end}, 0, settled)


def test_growth_counts_from_the_brokers_time_of_the_look_that_saw_it():
    grown = looked(Observation("m1", 0), now_ms=100, stamp_ms=0, end=3)
    later = looked(grown, now_ms=900, stamp_ms=5_000, end=3)

    assert grown.standing_ms("T", 5_000) == 0
    assert later.standing_ms("T", 5_800) == 800


def test_a_clock_that_is_wrong_makes_nothing_stand_still():
    by_slow = looked(Observation("m1", 0), now_ms=-8_000, stamp_ms=0, end=3, host="slow")
    stamp = 10_000

    at = by_slow.broker_ms("right", boot_ms=10_100, stamp_ms=stamp)
    seen = looked(by_slow, 10_100, stamp, end=3, host="right")

    assert at == stamp
    assert seen.standing_ms("T", at) == 0


def test_the_host_that_looked_last_knows_how_far_its_clock_is_off():
    before = Observation("m1", 1_000, host="h", boot_ms=1_000)

    assert before.broker_ms("h", boot_ms=1_400, stamp_ms=90_000) == 90_400


def test_growth_after_all_followers_have_stopped_is_by_a_stranger():
    flushing = looked(Observation("m1", 0, {"T-0": 1}), 1, 1, end=5)
    held = looked(flushing, 2, 2, end=5, settled=["T"])
    still = looked(held, 3, 3, end=5, settled=["T"])
    written = looked(still, 4, 4, end=6, settled=["T"])

    assert (still.strangers, written.strangers) == ((), ("T",))
    assert looked(written, 5, 5, end=6).strangers == ("T",)
