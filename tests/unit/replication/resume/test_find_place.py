"""Without a map the logs are compared where they meet, however far apart they begin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import CLAIM, OURS, Log, pairs, walked

from srm.domain.names.topics import TopicPartition
from srm.errors import IntegrityError
from srm.replication.batches.batch import BatchHeader
from srm.replication.log_reader import LogReader
from srm.replication.mapping.starts import Start
from srm.replication.resume.find_place import CommonRecord, NoPlace, find_place
from srm.replication.resume.walk import Comparison

BIG = b"x" * (1 << 20)
STATES = [
    pytest.param(Start(0, 0, frozenset({OURS}), has_position=False), id="all that is known lost"),
    pytest.param(Start(0, 70, frozenset({OURS}), fresh=True), id="never copied, as it seems"),
]


def is_ours(batch: BatchHeader) -> bool:
    return batch.producer_id == OURS and not batch.is_control


def found(source: Log, target: Log, source_start: int = 0, target_start: int = 0) -> object:
    read, written = [LogReader(log, TopicPartition("T", 0), b"", True) for log in (source, target)]  # type: ignore[arg-type]
    return asyncio.run(find_place(read, written, source_start, target_start, is_ours))


def source_log(records: Sequence[Record], start: int = 0) -> Log:
    end = records[-1].offset + 1 if records else start
    return Log([*(stored([record]) for record in records), marker(end, 99)], start)


def target_log(records: Sequence[Record], start: int = 0) -> Log:
    """Hold copies, and the marker of the claim that resumes."""
    end = records[-1].offset + 1 if records else start
    copies = [stored([record], producer_id=OURS) for record in records]
    return Log([*copies, marker(end, CLAIM.producer.id, CLAIM.producer.epoch)], start)


@pytest.mark.parametrize("start", STATES)
@pytest.mark.parametrize("accepts_loss", [False, True])
def test_a_target_that_begins_64_mib_after_its_source_is_not_copied_again(
    start: Start, accepts_loss: bool
) -> None:
    records = [Record(i, 1000 + i, None, b"%d " % i + BIG) for i in range(80)]

    resumed = walked(
        source_log(records),
        target_log(records[70:], start=70),
        start,
        Comparison(accepts_loss=accepts_loss),
    )

    assert resumed.source_next in {80, 81}  # perhaps behind the source's own marker
    assert resumed.target_next == 81
    assert pairs(resumed) == {offset: offset for offset in range(70, 80)}
    [note] = resumed.notes
    assert "source offset 70 was found at target offset 70" in note


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 60), st.integers(0, 9), st.data())
def test_the_place_is_that_of_the_first_record_that_both_logs_hold(
    count: int, source_start: int, target_start: int, shift: int, data: st.DataObject
) -> None:
    source_start, target_start = min(source_start, count), min(target_start, count)
    times = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    records = [Record(i, 1000 + times[i], None, b"%d" % i) for i in range(count)]
    copies = [Record(shift + r.offset, r.timestamp, r.key, r.value) for r in records]

    place = found(
        source_log(records[source_start:], source_start),
        target_log(copies[target_start:], shift + target_start),
        source_start,
        shift + target_start,
    )

    both = max(source_start, target_start)
    expected = CommonRecord(both, shift + both) if both < count else NoPlace.NOTHING_IN_COMMON
    assert place == expected


def test_records_of_large_batches_have_their_own_offsets() -> None:
    records = [Record(i, 1000, None, b"%d" % i) for i in range(3000)]
    copies = [Record(9 + r.offset, 1000, None, r.value) for r in records]
    target = Log([stored(copies[2900:], producer_id=OURS), marker(3009, OURS, 3)], 2909)
    source = Log([stored(records), marker(3000, 99)])

    assert found(source, target, 0, 2909) == CommonRecord(2900, 2909)


def test_equal_records_around_one_that_is_there_once_are_aligned_by_it() -> None:
    values = [b"tick"] * 6 + [b"tock"] + [b"tick"] * 6
    records = [Record(i, 1, None, value) for i, value in enumerate(values)]

    assert found(source_log(records), target_log(records[2:], 2), 0, 2) == CommonRecord(2, 2)


def test_equal_records_alone_are_no_place() -> None:
    records = [Record(i, 1, None, b"tick") for i in range(20)]

    assert found(source_log(records), target_log(records[5:], 5), 0, 5) is NoPlace.UNCLEAR


def test_a_record_that_comes_again_later_is_no_place() -> None:
    records = [Record(i, 1, None, b"%d" % (i % 10)) for i in range(20)]

    assert found(source_log(records), target_log(records[10:15], 10), 0, 10) is NoPlace.UNCLEAR


def test_a_target_that_gives_its_own_times_is_searched_by_content() -> None:
    records = [Record(i, 1000 + i, None, b"%d" % i) for i in range(20)]
    raw = bytearray(stored(records[10:], producer_id=OURS))
    raw[22] |= 0x08
    raw[35:43] = (99_000).to_bytes(8, "big")
    target = Log([bytes(raw), marker(20, OURS, 3)], 10)

    assert found(source_log(records), target, 0, 10) == CommonRecord(10, 10)


def test_records_of_a_whole_target_are_no_reason_to_pass_records_of_the_source() -> None:
    """What the target should hold before them was never there: it is undecidable, not passed."""
    records = [Record(i, 1000 + i, None, b"%d" % i) for i in range(20)]
    copies = [Record(i - 9, r.timestamp, None, r.value) for i, r in enumerate(records)][10:]
    target = Log([marker(0, OURS, 2), stored(copies, producer_id=OURS), marker(11, OURS, 3)])

    with pytest.raises(IntegrityError, match="undecidable"):
        walked(source_log(records), target, Start(0, 0, fresh=True), Comparison())


def test_a_source_that_was_trimmed_is_met_where_it_begins() -> None:
    records = [Record(i, 1000 + i, None, b"%d" % i) for i in range(30)]
    copies = [Record(1 + r.offset, r.timestamp, None, r.value) for r in records[:25]]
    target = Log([marker(0, OURS, 2), stored(copies, producer_id=OURS), marker(26, OURS, 3)])

    resumed = walked(source_log(records[20:], 20), target, Start(0, 0, fresh=True), Comparison())

    assert resumed.source_next == 25
    assert pairs(resumed) == {1 + offset: offset for offset in range(20, 25)}


@pytest.mark.parametrize("trimmed", ["source", "target"])
def test_equal_records_of_logs_that_were_trimmed_are_undecidable_without_a_map(
    trimmed: str,
) -> None:
    ticks = [Record(i, 1, None, b"tick") for i in range(90)]
    copies = [Record(1 + i, 1, None, b"tick") for i in range(84)]
    if trimmed == "source":
        first = [marker(0, OURS, 2), stored(copies, producer_id=OURS)]
        logs = source_log(ticks[80:], 80), Log([*first, marker(85, OURS, 3)])
    else:
        logs = source_log(ticks), target_log(copies[80:], 81)
    start = Start(0, 0, frozenset({OURS}), fresh=True)

    with pytest.raises(IntegrityError, match="undecidable"):
        walked(*logs, start, Comparison())

    assert walked(*logs, start, Comparison(accepts_loss=True)).runs
