"""The resume walk finds the position, and where each record stands, whatever is gone by now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, marker, stored

from srm.domain.topics import TopicPartition
from srm.errors import IntegrityError, UnavailableError
from srm.replication import codes
from srm.replication.batches.batch import batches
from srm.replication.batches.rebuild import decode
from srm.replication.ports import Fetched, FetchedPartition, FetchFrom, ProducerId
from srm.replication.slot.claim import Claim
from srm.replication.slot.log_reader import LogReader
from srm.replication.slot.resume import Resumed, Start, resume
from srm.replication.slot.source_ahead import Comparison

OURS, FOREIGN = 7, 8
CLAIM = Claim(ProducerId(OURS, 3), float("inf"))


class Log:
    """One partition of one cluster, as batches."""

    def __init__(self, stored_batches: Sequence[bytes], log_start: int = 0) -> None:
        self._batches = list(stored_batches)
        self._ends = [next(batches(memoryview(raw))).last_offset + 1 for raw in self._batches]
        self.start = log_start
        self.end = max([log_start, *self._ends])
        self.fetches = 0

    def append(self, raw: bytes) -> None:
        self._batches.append(raw)
        self._ends.append(next(batches(memoryview(raw))).last_offset + 1)
        self.end = self._ends[-1]

    async def leader(self, partition: TopicPartition) -> int:
        del partition
        return 1

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        del partition
        return self.start, self.end

    async def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        del partition
        found = [
            record.offset
            for raw in self._batches
            for record in decode(next(batches(memoryview(raw))), self.start)
            if record.timestamp >= time_ms
        ]
        return min(found, default=self.end)

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **options: Any) -> Fetched:
        del node, options
        self.fetches += 1
        [wanted] = partitions
        error, raw = 0, b""
        if not self.start <= wanted.offset <= self.end:
            error = codes.OFFSET_OUT_OF_RANGE
        else:
            found = [
                b for b, end in zip(self._batches, self._ends, strict=True) if end > wanted.offset
            ]
            raw = b"".join(found[:3])
        records = memoryview(bytearray(raw))
        part = FetchedPartition(b"", 0, error, self.end, self.end, self.start, (), records)
        return Fetched(0, [part], None)


def walked(
    source: Log, target: Log, start: Start, comparison: Comparison, claim: Claim | None = CLAIM
) -> Resumed:
    readers = [LogReader(log, TopicPartition("T", 0), b"", True) for log in (source, target)]  # type: ignore[arg-type]
    return asyncio.run(resume(*readers, start, claim, comparison))


def log_of(
    records: Sequence[Record], sizes: Sequence[int], end: int, producer_id: int, start: int = 0
) -> Log:
    """Cut records into batches; a marker of the claim ends the target's log."""
    found, at = [], 0
    for index in range(len(records)):
        size = sizes[index % len(sizes)]
        if records[at : at + size]:
            found.append(stored(records[at : at + size], producer_id=producer_id))
        at += size
    if producer_id == OURS:
        return Log([*found, marker(end, OURS, 3)], start)
    return Log([*found, marker(end, 99)], start)


def pairs(resumed: Resumed) -> dict[int, int]:
    return {
        run.target_start + i: run.source_start + i for run in resumed.runs for i in range(run.count)
    }


def compacted(records: Sequence[Record], upto: int) -> list[Record]:
    """Return what the cleaner leaves of a log: before an offset, the newest record of each key."""
    newest = {record.key: record.offset for record in records}
    return [r for r in records if r.offset >= upto or newest[r.key] == r.offset]


keys = st.lists(st.integers(0, 6), min_size=1, max_size=60)
sizes = st.lists(st.integers(1, 7), min_size=1, max_size=5)


def source_and_copy(
    key_numbers: Sequence[int], gaps: Mapping[int, int], copied: int, shift: int
) -> tuple[list[Record], list[Record], dict[int, int]]:
    """Make a source with holes, and a dense copy of its first records."""
    source, offset = [], 0
    for index, key in enumerate(key_numbers):
        offset += gaps.get(index, 0)
        source.append(Record(offset, 1000 + offset, str(key).encode(), str(offset).encode()))
        offset += 1
    where = {shift + i: record.offset for i, record in enumerate(source[:copied])}
    target = [Record(shift + i, r.timestamp, r.key, r.value) for i, r in enumerate(source[:copied])]
    return source, target, where


@given(
    keys,
    st.dictionaries(st.integers(0, 59), st.integers(1, 3), max_size=8),
    st.data(),
    sizes,
    sizes,
)
def test_the_position_is_exact_however_both_sides_are_batched_and_compacted(
    key_numbers: list[int],
    gaps: dict[int, int],
    data: st.DataObject,
    source_sizes: list[int],
    target_sizes: list[int],
) -> None:
    copied = data.draw(st.integers(0, len(key_numbers)))
    source, target, where = source_and_copy(key_numbers, gaps, copied, shift=5)
    source_left = compacted(source, data.draw(st.integers(0, 80)))
    target_left = compacted(target, data.draw(st.integers(0, 80)))
    end = source[-1].offset + 1

    found = walked(
        log_of(source_left, source_sizes, end, -1),
        log_of(target_left, target_sizes, 5 + copied, OURS),
        Start(0, 5, frozenset({OURS})),
        Comparison(),
    )

    # What the source still holds from the position on is exactly what was not copied: what stands
    # before it and was copied may be gone on both sides.
    still = {r.offset for r in source_left}
    on_target = {where[r.offset] for r in target_left} & still
    assert pairs(found).items() <= where.items()
    assert set(pairs(found).values()) >= on_target
    not_copied = {r.offset for r in source_left} - set(where.values())
    assert not any(offset < found.source_next for offset in not_copied)
    assert all(offset < found.source_next for offset in on_target)
    assert found.target_next == 5 + copied + 1


@given(keys, st.integers(0, 60), st.integers(0, 60), sizes)
def test_a_source_that_retention_shortened_still_shows_the_position(
    key_numbers: list[int], copied: int, trimmed: int, batch_sizes: list[int]
) -> None:
    copied, trimmed = min(copied, len(key_numbers)), min(trimmed, len(key_numbers))
    source, target, where = source_and_copy(key_numbers, {}, copied, shift=9)

    found = walked(
        log_of(source[trimmed:], batch_sizes, len(source), -1, start=trimmed),
        log_of(target, [3], 9 + copied, OURS),
        Start(0, 9, frozenset({OURS})),
        Comparison(),
    )

    at_the_end = {copied + 1} if copied == len(source) else set()  # behind the marker
    assert found.source_next in {copied} | at_the_end
    if trimmed < copied:
        assert pairs(found) == where


def test_a_target_that_retention_shortened_is_walked_from_where_it_begins() -> None:
    source, target, where = source_and_copy([1] * 20, {}, 10, shift=0)

    found = walked(
        log_of(source, [5], 20, -1),
        Log([stored(target[6:], producer_id=OURS), marker(10, OURS, 3)], log_start=6),
        Start(2, 2, frozenset({OURS})),
        Comparison(),
    )

    assert found.source_next == 10
    assert pairs(found) == {t: s for t, s in where.items() if t >= 6}


def test_what_retention_took_from_the_target_before_the_map_told_of_it_is_told() -> None:
    source = [Record(1000 + i, 1000 + i, b"k", b"%d" % i) for i in range(600)]
    target = Log([marker(1500, OURS, 3)], log_start=1500)
    start = Start(1000, 1000, frozenset({OURS}))

    found = walked(log_of(source, [50], 1600, -1, start=1000), target, start, Comparison())

    [note] = found.notes
    assert "target offsets 1000 to 1500 were deleted there before they were in the map" in note
    assert note.endswith("source offsets from 1000 on is copied again")


def test_a_target_that_is_cut_off_behind_our_back_is_compared_again() -> None:
    target = Log([marker(50, OURS, 3)])

    with pytest.raises(UnavailableError, match="asked again"):
        walked(log_of([Record(0, 1, b"k", b"v")], [1], 1, -1), target, Start(0, 60), Comparison())


def test_records_left_out_are_a_hole_if_they_are_noted_as_lost() -> None:
    source, target, _ = source_and_copy([1] * 10, {}, 10, shift=1)
    left = [
        Record(i, r.timestamp, r.key, r.value) for i, r in enumerate(target[:4] + target[6:], 1)
    ]

    logs = log_of(source, [10], 10, -1), log_of(left, [8], 9, OURS)

    found = walked(*logs, Start(0, 0), Comparison(left_out=((4, 6),)))

    assert found.source_next == 10
    assert pairs(found) == {1: 0, 2: 1, 3: 2, 4: 3, 5: 6, 6: 7, 7: 8, 8: 9}
    assert not found.notes

    with pytest.raises(IntegrityError, match="undecidable at target offset 5"):
        walked(*logs, Start(0, 0), Comparison())

    unnoted = walked(*logs, Start(0, 0), Comparison(accepts_loss=True))
    assert (unnoted.source_next, unnoted.runs) == (10, found.runs)
    assert unnoted.notes[0].startswith("2 records at source offsets 4 to 5 are not on the target")


def test_a_record_of_ours_that_the_source_never_held_is_undecidable() -> None:
    source, target, _ = source_and_copy([1, 2, 3], {}, 3, shift=1)
    wrong = [*target[:2], Record(3, 1, b"other", b"other")]
    logs = log_of(source, [3], 3, -1), log_of(wrong, [3], 4, OURS)

    with pytest.raises(IntegrityError, match=r"undecidable at target offset 3"):
        walked(*logs, Start(0, 0), Comparison())

    found = walked(*logs, Start(0, 0), Comparison(accepts_loss=True))
    assert found.source_next == 2
    assert "target offsets 3 to 3 are gone from the source" in found.notes[0]


def test_headers_that_srm_adds_and_times_that_the_target_gives_are_not_compared() -> None:
    source = [Record(0, 1000, b"k", b"v", [("a", b"1")]), Record(1, 1001, b"k", b"w")]
    target = [
        Record(1, 1000, b"k", b"v", [("a", b"1"), ("origin", b"P")]),
        Record(2, 1001, b"k", b"w", [("origin", b"P")]),
    ]
    raw = bytearray(stored(target, producer_id=OURS))
    raw[22] |= 0x08
    raw[35:43] = (5000).to_bytes(8, "big")

    found = walked(
        log_of(source, [2], 2, -1),
        Log([marker(0, OURS, 2), bytes(raw), marker(3, OURS, 3)]),
        Start(0, 0),
        Comparison(added_headers={"origin"}),
    )

    assert pairs(found) == {1: 0, 2: 1}


def test_batches_of_others_are_a_hole_and_told() -> None:
    source, target, _ = source_and_copy([1] * 4, {}, 2, shift=1)
    log = Log(
        [
            marker(0, OURS, 2),
            stored(target, producer_id=OURS),
            stored([Record(3, 1, b"x", b"x")], producer_id=FOREIGN),
            marker(4, OURS, 3),
        ]
    )

    found = walked(log_of(source, [2], 4, -1), log, Start(0, 0), Comparison())

    assert (found.source_next, found.target_next) == (2, 5)
    assert found.notes == ("foreign records at target offsets 3 to 4",)


def test_of_many_batches_of_others_the_first_ones_and_the_last_one_are_told() -> None:
    theirs = [stored([Record(2 * i, 1, b"x", b"x")], producer_id=FOREIGN) for i in range(1, 500)]
    log = Log([*theirs, marker(1000, OURS, 3)])

    found = walked(log_of([Record(0, 1, None, b"v")], [2], 1, -1), log, Start(0, 1), Comparison())

    assert len(found.notes) == 21
    assert found.notes[0] == "foreign records at target offsets 2 to 3"
    assert found.notes[-1] == "more of them, last at target offsets 998 to 999"


def test_a_batch_that_was_on_its_way_to_a_deleted_remote_topic_is_no_copy_in_the_next_one() -> None:
    """Taken for one, it would pass all records before it, which the new topic does not hold."""
    source, _, _ = source_and_copy([1] * 6, {}, 6, shift=0)
    stray = [Record(i, r.timestamp, r.key, r.value) for i, r in enumerate(source[4:])]
    log = Log([stored(stray, producer_id=OURS), marker(2, OURS, 3)])

    found = walked(log_of(source, [6], 6, -1), log, Start(0, 0, fresh=True), Comparison())

    assert (found.source_next, found.target_next, found.runs) == (0, 3, ())
    assert found.notes == ("foreign records at target offsets 0 to 2",)


def test_a_claim_that_nobody_knows_of_any_more_is_told_by_its_marker() -> None:
    """All state is lost, and the broker has given the new claim another producer id."""
    source, target, _ = source_and_copy([1] * 4, {}, 2, shift=1)
    log = Log([marker(0, FOREIGN), stored(target, producer_id=FOREIGN), marker(3, OURS, 3)])

    found = walked(log_of(source, [2], 4, -1), log, Start(0, 0, fresh=True), Comparison())

    assert (found.source_next, found.target_next, found.notes) == (2, 4, ())
    assert pairs(found) == {1: 0, 2: 1}


def test_a_transaction_of_somebody_who_has_ended_another_one_is_foreign() -> None:
    source, _, _ = source_and_copy([1] * 4, {}, 2, shift=0)
    theirs = bytearray(stored([Record(1, 1, b"x", b"x")], producer_id=FOREIGN))
    theirs[22] |= 0x10  # transactional
    log = Log([marker(0, FOREIGN), bytes(theirs), marker(2, OURS, 3)])

    found = walked(log_of(source, [2], 4, -1), log, Start(0, 0, fresh=True), Comparison())

    assert (found.source_next, found.runs) == (0, ())
    assert found.notes == ("foreign records at target offsets 1 to 2",)


def test_records_of_a_topic_that_had_the_name_before_are_passed_and_nothing_is_skipped() -> None:
    _, former, _ = source_and_copy([1] * 4, {}, 4, shift=1)
    source = [Record(offset, 5000 + offset, b"new", b"new") for offset in range(3)]
    copied = [Record(5, 5000, b"new", b"new")]
    target = Log([stored(former, producer_id=OURS), marker(5, OURS, 3)])

    known = Start(0, 0, fresh=True, has_former=True)
    found = walked(log_of(source, [3], 3, -1), target, known, Comparison())

    assert (found.source_next, found.target_next, found.runs) == (0, 6, ())
    [note] = found.notes
    assert note.startswith("4 records at target offsets 1 to 4 are of a topic that had the name")

    target = Log(
        [
            stored(former, producer_id=OURS),
            stored(copied, producer_id=OURS),
            marker(6, OURS, 3),
        ]
    )

    found = walked(log_of(source, [3], 3, -1), target, known, Comparison())

    assert (found.source_next, found.target_next) == (1, 7)
    assert pairs(found) == {5: 0}


def test_without_a_known_former_topic_records_that_the_source_lacks_are_undecidable() -> None:
    """A filter that has changed, or a source that was truncated, looks the same."""
    _, former, _ = source_and_copy([1] * 4, {}, 4, shift=1)
    source = [Record(offset, 5000 + offset, b"new", b"new") for offset in range(3)]
    target = Log([stored(former, producer_id=OURS), marker(5, OURS, 3)])

    with pytest.raises(IntegrityError, match="undecidable"):
        walked(log_of(source, [3], 3, -1), target, Start(0, 0, fresh=True), Comparison())


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


def test_thousands_of_records_that_the_source_does_not_hold_are_looked_up_at_once() -> None:
    former = [Record(n, 1, None, b"former %d" % n) for n in range(4000)]
    source = [Record(n, 2, None, b"new %d" % n) for n in range(20_000)]
    target = Log([stored(former, producer_id=OURS), marker(4000, OURS, 3)])
    began = time.process_time()
    source_log = log_of(source, [1000], 20_000, -1)

    found = walked(source_log, target, Start(0, 0, fresh=True), Comparison())

    assert (found.source_next, found.target_next) == (0, 4001)
    assert time.process_time() - began < 5, "not one pass over the source for each of them"
    assert source_log.fetches < 20, "nor a long poll at its end"


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
    assert found.notes == (
        "1 records at target offsets 50 to 50 are gone from the source: not in the map",
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


@given(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data())
def test_it_does_not_matter_how_a_batch_was_cut_compressed_or_rebuilt_on_its_way(
    count: int, sent_sizes: list[int], data: st.DataObject
) -> None:
    """The copy path has limits, a transform and a state of the source that are gone by now."""
    source, target, where = source_and_copy([1] * count, {}, count, shift=1)
    codecs = data.draw(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=3))
    headers = data.draw(st.sampled_from([[], [("origin", b"P")]]))
    sent, at = [], 0
    while at < count:
        size = sent_sizes[len(sent) % len(sent_sizes)]
        part = [
            Record(r.offset, r.timestamp, r.key, r.value, headers) for r in target[at : at + size]
        ]
        sent.append(stored(part, codecs[len(sent) % len(codecs)], producer_id=OURS))
        at += size
    log = Log([*sent, marker(count + 1, OURS, 3)])

    found = walked(
        log_of(source, [data.draw(st.integers(1, 50))], count, -1),
        log,
        Start(0, 1),
        Comparison(added_headers={"origin"}),
    )

    assert (found.source_next, found.target_next) == (count, count + 2)
    assert pairs(found) == where
