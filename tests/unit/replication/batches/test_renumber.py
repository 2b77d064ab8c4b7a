"""Batches with holes are made dense where they stand, and keep everything else."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, content, stored

from srm.errors import IntegrityError
from srm.replication.batches.batch import BatchHeader, batches, seal, verify
from srm.replication.batches.rebuild import decode
from srm.replication.batches.renumber import renumber

timestamps = st.integers(0, 2**45)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
# Lengths of one, two and three bytes, as varints have them.
sizes = st.integers(0, 100) | st.integers(0, 9000)
contents = st.tuples(timestamps, st.none() | st.binary(max_size=20), sizes, headers)
deltas = st.integers(1, 150) | st.integers(1, 20_000)


def one(view: bytes) -> BatchHeader:
    [batch] = batches(memoryview(bytearray(view)))
    return batch


def with_holes(*deltas: int) -> bytearray:
    return bytearray(stored([Record(100 + d, 1000, b"k", b"v%d" % d) for d in (0, *deltas)]))


@given(st.integers(0, 2**40), st.lists(st.tuples(deltas, contents), min_size=1, max_size=150))
def test_records_keep_their_content_and_say_where_they_were(
    base: int, found: list[tuple[int, tuple[int, bytes | None, int, list[tuple[str, None]]]]]
) -> None:
    records, offset = [Record(base, 1000, b"first", b"")], base
    for delta, (timestamp, key, size, more) in found:
        offset += delta
        records.append(Record(offset, timestamp, key, bytes(size), list(more)))
    batch = one(stored(records))

    stretches = renumber(batch)

    dense = one(bytes(batch.view))
    verify(dense)
    assert dense.is_dense
    decoded = decode(dense)
    assert [content(record) for record in decoded] == [content(record) for record in records]
    assert [record.offset for record in decoded] == list(range(base, base + len(records)))
    assert [first + i for first, n in stretches for i in range(n)] == [r.offset for r in records]
    assert all(a + n < b for (a, n), (b, _) in pairwise(stretches))


def test_a_batch_whose_first_records_are_gone_begins_behind_them() -> None:
    view = with_holes(1, 5)
    struct.pack_into(">q", view, 0, 90)  # offsets 90, 91 and 95 now
    at = 61
    for delta in (3, 4, 8):
        record = at + 1
        at = record + (view[at] >> 1)
        view[record + 2] = delta << 1
    struct.pack_into(">i", view, 23, 8)
    seal(memoryview(view))

    assert renumber(one(bytes(view))) == [(93, 2), (98, 1)]


def test_a_varint_longer_than_it_has_to_be_is_what_readers_take_it_for() -> None:
    batch = one(bytes(with_holes(*range(70, 200, 2))))

    renumber(batch)

    # The records after the first had distances of two bytes, and have small ones in two bytes now.
    second = 61 + 1 + (batch.view[61] >> 1)
    assert bytes(batch.view[second + 3 : second + 5]) == b"\x82\x00"
    assert [record.offset for record in decode(batch)] == list(range(100, 166))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        pytest.param(60, 9, id="more records than there are"),
        pytest.param(60, 2, id="fewer records than there are"),
        pytest.param(61, 0x7E, id="a length beyond the batch"),
        pytest.param(74, 0x00, id="offsets that do not ascend"),
    ],
)
def test_records_that_are_not_what_the_header_says_are_refused(place: int, value: int) -> None:
    view = with_holes(2, 4)
    assert view[74] == 4  # the second record's distance
    view[place] = value
    seal(memoryview(view))

    with pytest.raises(IntegrityError, match="batch at offset 100 cannot be read"):
        renumber(one(bytes(view)))


@given(st.data())
def test_no_damage_with_a_valid_checksum_ends_in_anything_but_an_integrity_error(
    data: st.DataObject,
) -> None:
    view = with_holes(*range(60, 300, 30))
    for _ in range(data.draw(st.integers(1, 4))):
        view[data.draw(st.integers(61, len(view) - 1))] = data.draw(st.integers(0, 255))
    seal(memoryview(view))

    batch = one(bytes(view))
    try:
        stretches = renumber(batch)
    except IntegrityError:
        return
    assert sum(count for _, count in stretches) == batch.record_count
