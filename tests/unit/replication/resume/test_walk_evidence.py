"""What stands on one side only is passed with evidence, however equal the records are."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import (
    OURS,
    Log,
    log_of,
    pairs,
    source_and_copy,
    walked,
)

from srm.errors import IntegrityError
from srm.replication.mapping.starts import Start
from srm.replication.resume import evidence
from srm.replication.resume.evidence import LogReading, distinct
from srm.replication.resume.source_lookahead import Comparison


def test_records_that_the_source_was_truncated_of_have_given_their_offsets_back() -> None:
    """As many records as were lost would be skipped of those that took their places."""
    _, copied, _ = source_and_copy([1] * 4, {}, 4, shift=1)
    target = Log([stored(copied, producer_id=OURS), marker(5, OURS, 3)])
    source = [Record(offset, 5000 + offset, b"new", b"new") for offset in range(9)]

    found = walked(log_of(source, [3], 9, -1), target, Start(0, 0), Comparison(accepts_loss=True))

    assert (found.source_next, found.target_next) == (0, 6)


def test_keys_that_come_again_behind_a_truncation_are_no_sign_of_compaction() -> None:
    _, copied, _ = source_and_copy([1] * 4, {}, 4, shift=1)
    target = Log([stored(copied, producer_id=OURS), marker(5, OURS, 3)])
    source = [Record(offset, 5000 + offset, b"1", b"new") for offset in range(9)]
    accepts = Comparison(accepts_loss=True)

    for start in (Start(0, 0, truncated=True), Start(0, 0)):
        found = walked(log_of(source, [3], 9, -1), target, start, accepts)
        assert (found.source_next, found.target_next) == (0, 6)

    with pytest.raises(IntegrityError, match="undecidable"):
        walked(log_of(source, [3], 9, -1), target, Start(0, 0), Comparison())


def with_log_append_time(raw: bytes) -> bytes:
    return raw[:22] + bytes([raw[22] | 0x08]) + raw[23:]


@pytest.mark.parametrize("log_append_time", [False, True])
def test_an_equal_record_far_ahead_is_not_taken_for_one_that_compaction_removed(
    log_append_time: bool,
) -> None:
    """Offset 100 was copied, then compacted; all between it and the equal one at 5000 is new."""
    time_ms = 9000 if log_append_time else 7
    source = [Record(100 + i, 7, b"k%d" % i, b"v%d" % i) for i in range(1, 40)]
    source.append(Record(5000, time_ms, b"k0", b"UP"))
    copied = stored([Record(50, 7, b"k0", b"UP")], producer_id=OURS)
    target = Log([with_log_append_time(copied) if log_append_time else copied, marker(51, OURS, 3)])

    found = walked(log_of(source, [5], 5001, -1, start=100), target, Start(100, 50), Comparison())

    assert (found.source_next, found.target_next, found.runs) == (101, 52, ())
    [note] = found.notes
    assert note.startswith(
        "1 records at target offsets 50 to 50 are gone from the source (compacted"
    )


def test_constant_records_behind_a_gap_that_retention_left_are_undecidable() -> None:
    """Those of 100 to 109 were copied; those of 200 and on are equal, and were not."""
    source = [Record(200 + i, 1000 + i, None, b"beat") for i in range(40)]
    copied = stored([Record(50 + i, 1000, None, b"beat") for i in range(10)], producer_id=OURS)
    target = Log([with_log_append_time(copied), marker(60, OURS, 3)])
    logs = log_of(source, [5], 240, -1, start=200), target

    with pytest.raises(IntegrityError, match="equal records leave source offsets 110 to 210"):
        walked(*logs, Start(100, 50), Comparison())

    found = walked(*logs, Start(100, 50), Comparison(accepts_loss=True))
    assert found.source_next == 110, "rather a second time than not at all"


def test_few_values_in_any_order_show_where_a_trimmed_target_begins() -> None:
    """Its first record is equal to some 80 of those that may have stood before it."""
    chance = random.Random(63)
    values = [b"v%d" % chance.randrange(5) for _ in range(400)]
    source = [Record(i, 1000, None, value) for i, value in enumerate(values)]
    left = [Record(1 + i, 1000, None, values[i]) for i in range(332, 369)]
    copied = with_log_append_time(stored(left, producer_id=OURS))
    target = Log([copied, marker(370, OURS, 3)], log_start=333)

    found = walked(log_of(source, [5], 400, -1), target, Start(0, 1), Comparison())

    assert found.source_next == 369
    assert pairs(found) == {1 + i: i for i in range(332, 369)}


def test_so_many_ways_to_read_equal_records_as_memory_has_room_for_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 700 equal records may be the first that a trimmed target still holds."""
    source = [Record(i, 1000, None, b"beat") for i in range(700)]
    copied = stored([Record(701 + i, 1000, None, b"beat") for i in range(3)], producer_id=OURS)
    target = Log([with_log_append_time(copied), marker(704, OURS, 3)], log_start=701)
    logs = log_of(source, [5], 700, -1), target
    followed = list[int]()

    def count(places: list[LogReading]) -> list[LogReading]:
        followed.append(len(places))
        return distinct(places)

    monkeypatch.setattr(evidence, "distinct", count)
    with pytest.raises(IntegrityError, match="equal records leave too many ways to read it"):
        walked(*logs, Start(0, 1), Comparison())
    found = walked(*logs, Start(0, 1), Comparison(accepts_loss=True))

    assert found.source_next == 3, "rather a second time than not at all"
    assert evidence.MOST_PLACES // 2 <= max(followed) <= evidence.MOST_PLACES


def test_a_target_that_lost_what_stands_before_a_record_is_undecidable() -> None:
    """Nothing is empty on the target, so there is no place for what was passed."""
    source, _, _ = source_and_copy([1] * 10, {}, 10, shift=1)
    later = Record(1, source[7].timestamp, source[7].key, source[7].value)
    target = Log([stored([later], producer_id=OURS), marker(2, OURS, 3)])

    with pytest.raises(IntegrityError, match="does not follow on the source from offset 0"):
        walked(log_of(source, [10], 10, -1), target, Start(0, 1), Comparison())


def test_what_a_compacted_target_lacks_must_be_there_with_a_later_record_of_its_key() -> None:
    source = [Record(i, 1000 + i, b"k%d" % (i % 2), b"v%d" % i) for i in range(4)]
    lost = [Record(3, 1002, b"k0", b"v2")]  # 1 and 2 are empty, k1 is nowhere

    def target(records: Sequence[Record], end: int) -> Log:
        return Log([stored(records, producer_id=OURS), marker(end, OURS, 3)])

    with pytest.raises(IntegrityError, match="undecidable"):
        walked(log_of(source, [9], 4, -1), target(lost, 4), Start(0, 1), Comparison())

    left = [*lost, Record(4, 1003, b"k1", b"v3")]
    found = walked(log_of(source, [9], 4, -1), target(left, 5), Start(0, 1), Comparison())
    assert pairs(found) == {3: 2, 4: 3}
    assert (found.source_next, found.notes) == (4, ())


def test_sequence_numbers_tell_how_many_copies_stood_where_the_target_is_empty() -> None:
    """Two equal records at 0 and 2: the second one is there, as one claim has written all three."""
    source = [Record(i, 1000, b"k%d" % (i % 2), b"v") for i in range(5)]
    before = [Record(1, 999, b"x", b"x")]
    copied = bytearray(stored([Record(4, 1000, b"k0", b"v")], producer_id=OURS))
    copied[53:57] = (3).to_bytes(4, "big")
    last = bytearray(stored([Record(5, 1000, b"k1", b"v")], producer_id=OURS))
    last[53:57] = (4).to_bytes(4, "big")
    target = Log([stored(before, producer_id=OURS), bytes(copied), bytes(last), marker(6, OURS, 3)])
    first = Record(10, 999, b"x", b"x")
    shifted = [Record(11 + r.offset, r.timestamp, r.key, r.value) for r in source]

    found = walked(
        log_of([first, *shifted], [9], 16, -1, start=10), target, Start(10, 1), Comparison()
    )

    assert found.source_next == 15
    assert pairs(found) == {1: 10, 4: 13, 5: 14}


@pytest.mark.parametrize("log_append_time", [False, True])
def test_records_of_the_source_are_not_passed_for_one_of_several_equal_ones(
    log_append_time: bool,
) -> None:
    """Compaction took what was copied; equal records of its keys, which came later, are needed."""
    keys = [b"k2", b"k1", b"k0", b"k2", b"k1"]
    copied = [Record(1 + i, 7, key, b"UP") for i, key in enumerate(keys)]
    left = [(30, b"k1"), (31, b"k2"), (32, b"k0"), (33, b"k1"), (34, b"k0"), (35, b"k2")]
    source = [Record(offset, 7, key, b"UP") for offset, key in left]
    batch = stored(copied, producer_id=OURS)
    target = Log([with_log_append_time(batch) if log_append_time else batch, marker(6, OURS, 3)])
    logs = log_of(source, [3], 36, -1), target

    with pytest.raises(IntegrityError, match="undecidable"):
        walked(*logs, Start(0, 1), Comparison())

    found = walked(*logs, Start(0, 1), Comparison(accepts_loss=True))
    assert found.source_next == 32, "rather a second time than not at all"
    assert pairs(found) == {2: 30, 4: 31}


def test_no_record_is_passed_unproven_once_the_source_lacks_a_record_that_was_copied() -> None:
    """Both originals are gone: the record at 2 only equals that of the second copy."""
    source = [Record(1, 7, b"k1", b"new"), Record(2, 7, b"k2", b"UP")]
    copied = [Record(1, 7, b"k3", b"UP"), Record(2, 7, b"k2", b"UP")]
    target = log_of(copied, [2], 3, OURS)

    found = walked(
        log_of(source, [2], 3, -1, start=1),
        target,
        Start(1, 1, frozenset({OURS})),
        Comparison(accepts_loss=True),
    )

    assert (found.source_next, pairs(found)) == (1, {})


def test_what_was_passed_by_evidence_is_copied_again_once_the_evidence_is_disproved() -> None:
    """The copy at 2 is of a record that compaction took, so that of 10 was not at offset 1."""
    source = [Record(10, 7, b"k2", b"a"), Record(11, 7, b"k1", b"b"), Record(12, 7, b"k2", b"c")]
    copied = [Record(2, 7, b"k1", b"b"), Record(3, 7, b"k2", b"other")]

    found = walked(
        log_of(source, [3], 13, -1),
        log_of(copied, [2], 4, OURS),
        Start(0, 1, frozenset({OURS})),
        Comparison(accepts_loss=True),
    )

    assert found.source_next <= 10
    assert pairs(found) == {}
