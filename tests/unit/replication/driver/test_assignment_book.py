from __future__ import annotations

from srm.domain.flow_state.replication_records import AssignedPartition, Assignment
from srm.replication.driver.assignment import AssignmentBook

A, B = (AssignedPartition("t", n, "id", "P.t", "target") for n in range(2))


def test_generations_go_on_from_the_highest_that_was_ever_published():
    book = AssignmentBook()
    book.load(Assignment("0", 41, (A,)))
    book.load(Assignment("1", 7, (B,)))

    changes = book.changes({"0": (A, B), "1": ()})

    assert changes == (Assignment("0", 42, (A, B)), Assignment("1", 42, ()))


def test_what_has_not_changed_is_not_published_again():
    book = AssignmentBook()
    book.load(Assignment("0", 1, (A,)))

    assert book.changes({"0": (A,), "1": (B,)}) == (Assignment("1", 2, (B,)),)


def test_a_slot_that_is_not_alive_is_told_to_hold_nothing():
    book = AssignmentBook()
    book.load(Assignment("0", 1, (A,)))
    book.load(Assignment("9", 1, (B,)))

    assert Assignment("9", 2, ()) in book.changes({"0": (A, B)})


def test_a_slot_without_partitions_before_and_after_gets_no_record():
    assert AssignmentBook().changes({"0": ()}) == ()


def test_a_stuck_slot_gets_a_newer_generation_of_the_same_partitions():
    book = AssignmentBook()
    book.load(Assignment("0", 3, (A,)))

    assert book.changes({"0": (A,)}, again=["0"]) == (Assignment("0", 4, (A,)),)
