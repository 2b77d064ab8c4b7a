"""What one waiting process remembers of its looks."""

from __future__ import annotations

from srm.domain.moves.progress import Observation

TOPIC, GROUP = "topic:T", "group:g"


def looked(before, clock, offset, settled=(), subject=TOPIC):
    return before.next(clock, {subject: {"T-0": offset}}, (0, 0), settled)


def test_a_topic_rests_since_it_was_last_seen_to_grow():
    began = looked(Observation(100.0), 100.0, 3)
    grown = looked(began, 100.5, 4)
    later = looked(grown, 101.3, 4)

    assert began.rested_s(TOPIC, 100.4) == 100.4 - 100.0
    assert grown.rested_s(TOPIC, 100.5) == 0
    assert later.rested_s(TOPIC, 101.3) == 101.3 - 100.5


def test_commits_of_a_group_that_had_members_at_the_look_before_did_not_move():
    working = Observation(0.0).next(1.0, {}, (0, 0), ())
    left = looked(working, 2.0, 7, subject=GROUP)
    moved = looked(left, 3.0, 8, subject=GROUP)

    assert (left.moved, moved.moved) == ({}, {GROUP: {"T-0": 3.0}})


def test_an_offset_that_has_expired_does_not_count_and_one_that_is_new_is():
    before = looked(Observation(0.0), 1.0, 7, subject=GROUP)
    gone = before.next(2.0, {GROUP: {}}, (0, 0), ())

    assert gone.moved == {}
    assert looked(gone, 3.0, 8, subject=GROUP).moved == {GROUP: {"T-0": 3.0}}


def test_growth_after_all_followers_have_stopped_is_by_a_stranger():
    flushing = looked(looked(Observation(0.0), 0.0, 1), 1.0, 5)
    held = looked(flushing, 2.0, 5, settled=["T"])
    still = looked(held, 3.0, 5, settled=["T"])
    written = looked(still, 4.0, 6, settled=["T"])

    assert (still.unrouted, written.unrouted) == (frozenset(), {"T"})
    assert looked(written, 5.0, 6).unrouted == {"T"}


def test_the_fingerprint_is_the_same_until_something_moves():
    one = looked(Observation(0.0), 1.0, 5)
    other = looked(Observation(-9.0), 7.0, 5)

    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != looked(one, 2.0, 6).fingerprint
