"""What a slot knows of its source when that is gone."""

from __future__ import annotations

from srm.replication.copy.slot import SourceSigns


def signs(*looks: tuple[float | None, dict[str, int], float]) -> SourceSigns:
    known = SourceSigns()
    for heard_at, ends, now in looks:
        known.look(heard_at, dict(ends), now)
    return known


def test_a_source_that_never_answered_has_been_silent_for_ever() -> None:
    assert signs((None, {}, 1.0)).silent_s(2.0) == float("inf")


def test_the_silence_counts_from_the_last_answer() -> None:
    known = signs((1.0, {"a": 1}, 1.1), (2.0, {"a": 1}, 2.1), (None, {"a": 1}, 3.1))

    assert known.silent_s(5.0) == 3.0


def test_the_growth_is_the_most_of_the_last_looks_all_partitions_together() -> None:
    known = signs(
        (1.0, {"a": 1, "b": 1}, 1.0), (2.0, {"a": 31, "b": 11}, 2.0), (3.0, {"a": 36, "b": 11}, 3.0)
    )

    assert known.growth == 40


def test_a_partition_that_comes_again_is_no_growth() -> None:
    assert signs((1.0, {"a": 1}, 1.0), (2.0, {"a": 6, "b": 900}, 2.0)).growth == 5


def test_what_a_partition_held_when_it_was_first_heard_of_is_no_growth() -> None:
    """Until its first answer its end is 0: a restart behind 200,000 records is no burst."""
    assert signs((1.0, {"a": 1, "b": 0}, 1.0), (2.0, {"a": 6, "b": 900}, 2.0)).growth == 5


def test_a_slot_that_copies_nothing_any_more_knows_of_no_growth() -> None:
    assert signs((1.0, {"a": 1}, 1.0), (2.0, {"a": 90}, 2.0), (None, {}, 3.0)).growth == 0


def test_a_source_that_does_not_answer_does_not_stand_still() -> None:
    dead = [(2.0, {"a": 51}, 3.0 + second) for second in range(60)]

    assert signs((1.0, {"a": 1}, 1.0), (2.0, {"a": 51}, 2.0), *dead).growth == 50


def test_a_burst_of_long_ago_is_forgotten() -> None:
    calm = [(2.0 + second, {"a": 50}, 2.0 + second) for second in range(1, 30)]

    assert signs((1.0, {"a": 1}, 1.0), (2.0, {"a": 50}, 2.0), *calm).growth == 0


def test_a_transaction_that_stays_open_holds_back_what_stands_behind_it() -> None:
    known = SourceSigns()

    known.look(1.0, {"a": 10, "b": 10}, 1.0, {"a": 30, "b": 20})
    assert not known.held_back, "it may be over in a moment"
    known.look(2.0, {"a": 10, "b": 20}, 2.0, {"a": 50, "b": 30})
    known.look(None, {"a": 10, "b": 20}, 3.0, {"a": 50, "b": 30})

    assert known.held_back == {"a": 50}, "the transactions of b come and go"
