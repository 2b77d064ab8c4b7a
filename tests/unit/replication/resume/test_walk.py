"""The resume walk finds the position, and where each record stands, whatever is gone by now."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import (
    OURS,
    Log,
    compacted,
    log_of,
    pairs,
    source_and_copy,
    walked,
)

from srm.errors import IntegrityError, UnavailableError
from srm.replication.mapping.starts import Start
from srm.replication.resume import resume
from srm.replication.resume.source_lookahead import Comparison

keys = st.lists(st.integers(0, 6), min_size=1, max_size=60)
sizes = st.lists(st.integers(1, 7), min_size=1, max_size=5)


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
    assert "target offsets 1000 to 1499 were deleted there before they were in the map" in note
    assert note.endswith("source offsets from 1000 on is copied again")


def test_a_target_that_is_cut_off_behind_our_back_is_compared_again() -> None:
    target = Log([marker(50, OURS, 3)])

    with pytest.raises(UnavailableError, match="retrying"):
        walked(log_of([Record(0, 1, b"k", b"v")], [1], 1, -1), target, Start(0, 60), Comparison())


def test_a_batch_of_its_own_that_is_left_out_is_not_taken_for_the_equal_one_behind_it() -> None:
    """It is too large to be looked at record by record without need."""
    source = [Record(o, 1, b"k", (b"x" if o in (1, 2) else b"z") * 9000) for o in range(4)]
    target = [Record(at, 1, b"k", source[o].value) for at, o in enumerate((0, 2))]
    logs = log_of(source, [1], 4, 1), log_of(target, [1], 2, OURS)

    found = walked(*logs, Start(0, 0), Comparison(left_out=((1, 2),)))

    assert pairs(found) == {0: 0, 1: 2}
    assert found.source_next == 3


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


def test_a_copy_of_which_retention_has_left_nothing_is_walked_without_a_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As srm return does after a quiet time: the seal's marker has expired, too."""
    monkeypatch.setattr(resume, "_MARKER_DEADLINE_S", 0.2)
    records = [Record(offset, offset, f"k{offset}".encode(), b"v") for offset in range(13)]
    known = Start(10, 12, frozenset({OURS}))

    found = walked(
        log_of(records, [4], 13, -1), Log([], log_start=13), known, Comparison(), claim=None
    )

    assert (found.source_next, found.runs) == (10, ())
