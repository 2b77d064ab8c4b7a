"""The resume walk beside batches of others, of a former topic, or of a forgotten claim."""

from __future__ import annotations

import struct
import time

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import (
    FOREIGN,
    OURS,
    Log,
    log_of,
    of_epoch,
    pairs,
    source_and_copy,
    walked,
)

from srm.domain.names.record_headers import PROVENANCE_HEADER, ClusterIds, RecordSettings, Transform
from srm.errors import IntegrityError
from srm.replication.batches.batch import HEADER_SIZE, seal
from srm.replication.mapping.starts import Start
from srm.replication.resume.source_lookahead import Comparison

FORGOTTEN = 9


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
    assert found.notes == ("foreign records at target offsets 3 to 3",)


def test_of_many_batches_of_others_the_first_ones_and_the_last_one_are_told() -> None:
    theirs = [stored([Record(2 * i, 1, b"x", b"x")], producer_id=FOREIGN) for i in range(1, 500)]
    log = Log([*theirs, marker(1000, OURS, 3)])

    found = walked(log_of([Record(0, 1, None, b"v")], [2], 1, -1), log, Start(0, 1), Comparison())

    assert len(found.notes) == 21
    assert found.notes[0] == "foreign records at target offsets 2 to 2"
    assert found.notes[-1] == "more of them, last at target offsets 998 to 998"


def test_a_batch_that_was_on_its_way_to_a_deleted_remote_topic_is_no_copy_in_the_next_one() -> None:
    """Taken for one, it would pass all records before it, which the new topic does not hold."""
    source, _, _ = source_and_copy([1] * 6, {}, 6, shift=0)
    stray = [Record(i, r.timestamp, r.key, r.value) for i, r in enumerate(source[4:])]
    log = Log([of_epoch(2, stored(stray, producer_id=OURS)), marker(2, OURS, 3)])

    found = walked(log_of(source, [6], 6, -1), log, Start(0, 0, fresh=True), Comparison())

    assert (found.source_next, found.target_next, found.runs) == (0, 3, ())
    assert found.notes == ("foreign records at target offsets 0 to 1",)


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
    assert found.notes == ("foreign records at target offsets 1 to 1",)


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


def test_a_walk_passes_copies_of_a_flow_from_another_cluster_under_its_own_claim() -> None:
    """All state is lost: both claims look alike, and each record shows by whom it came."""
    source, target, _ = source_and_copy([1] * 4, {}, 2, shift=3)
    theirs = [(PROVENANCE_HEADER, b"b-id,T,1")]
    mine = [(PROVENANCE_HEADER, b"b-id,T,1"), (PROVENANCE_HEADER, b"a-id,T,2")]
    ours = [Record(r.offset, r.timestamp, r.key, r.value, mine) for r in target]
    log = Log(
        [
            marker(0, FOREIGN),
            stored([Record(1, 1, b"x", b"x", theirs)], producer_id=FOREIGN),
            marker(2, FORGOTTEN),
            stored(ours, producer_id=FORGOTTEN),
            stored([Record(5, 1, b"y", b"y", theirs)], producer_id=FOREIGN),
            marker(6, OURS, 3),
        ]
    )

    found = walked(log_of(source, [2], 4, -1), log, Start(0, 0, fresh=True), among_others())

    assert (found.source_next, found.target_next, found.notes) == (2, 7, ())
    assert pairs(found) == {3: 0, 4: 1}


def among_others() -> Comparison:
    settings = RecordSettings(provenance=True)
    transform = Transform(settings, ClusterIds("a-id", "c-id"), "A", "T", "T")
    return Comparison(settings.target_only, transform=transform, is_shared=True, joins=True)


@pytest.mark.parametrize("start", [Start(0, 0, fresh=True), Start(0, 1, frozenset({OURS}))])
@pytest.mark.parametrize("count", [0, 3], ids=["emptied by compaction", "without headers"])
def test_what_another_claim_wrote_is_no_copy_of_ours_unless_its_header_says_so(
    start: Start, count: int
) -> None:
    """Taken for copies that compaction removed, it would pass three records for copied."""
    source, _, _ = source_and_copy([1] * 6, {}, 6, shift=1)
    theirs = [Record(number, 9, b"theirs", b"x") for number in (2, 3, 4)]
    batch = stored(theirs, producer_id=FOREIGN)
    log = Log([marker(0, OURS), marker(1, FOREIGN), batch if count else emptied(batch)])
    log.append(marker(5, OURS, 3))

    found = walked(log_of(source, [2], 6, -1), log, start, among_others())

    assert (found.source_next, found.target_next, found.runs) == (0, 6, ())


def emptied(batch: bytes) -> bytes:
    """Return what compaction keeps of a producer's last batch."""
    left = memoryview(bytearray(batch[:HEADER_SIZE]))
    struct.pack_into(">i", left, 8, HEADER_SIZE - 12)
    struct.pack_into(">i", left, HEADER_SIZE - 4, 0)
    seal(left)
    return bytes(left)


def test_thousands_of_records_that_the_source_does_not_hold_are_looked_up_at_once() -> None:
    former = [Record(n, 1, None, b"former %d" % n) for n in range(4000)]
    source = [Record(n, 2, None, b"new %d" % n) for n in range(20_000)]
    target = Log([of_epoch(2, stored(former, producer_id=OURS)), marker(4000, OURS, 3)])
    began = time.thread_time()
    source_log = log_of(source, [1000], 20_000, -1)

    found = walked(source_log, target, Start(0, 0, fresh=True), Comparison())

    assert (found.source_next, found.target_next) == (0, 4001)
    assert time.thread_time() - began < 20, "not one pass over the source for each of them"
    assert source_log.fetches < 20, "nor a long poll at its end"
