"""Records that are decoded and encoded again keep their content, order and source offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, encode

from srm.domain.names.record_headers import Header
from srm.replication.batches.batch import batches
from srm.replication.batches.records import decode
from srm.replication.batches.records import encode as encode_records

timestamps = st.integers(-1, 2**45)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
contents = st.tuples(
    timestamps, st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=200), headers
)


@given(st.dictionaries(st.integers(0, 200), contents, min_size=1), st.integers(0, 4))
def test_a_rebuilt_batch_has_the_same_records_and_says_where_they_were(
    records: dict[int, tuple[int, bytes | None, bytes | None, list[Header]]], codec: int
) -> None:
    offsets = sorted(records)

    [built] = encode_records([Record(o, *records[o]) for o in offsets], codec)

    [batch] = batches(built.view)
    decoded = [(r.timestamp, r.key, r.value, r.headers) for r in decode(batch)]
    assert decoded == [records[o] for o in offsets]
    assert built.max_timestamp == batch.max_timestamp == max(records[o][0] for o in offsets)
    assert [first + i for first, n in built.stretches for i in range(n)] == offsets
    assert all(a + n < b for (a, n), (b, _) in pairwise(built.stretches))


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=40),
    st.integers(100, 6000),
    st.integers(0, 4),
)
def test_pieces_keep_to_the_limit_as_far_as_single_records_can(
    sizes: list[int], limit: int, codec: int
) -> None:
    records = [Record(i, 1000 + i, b"k", bytes(n)) for i, n in enumerate(sizes)]

    pieces = list(encode_records(records, codec, limit=limit))

    assert all(len(piece.view) <= limit or piece.count == 1 for piece in pieces)
    decoded = [r for piece in pieces for batch in batches(piece.view) for r in decode(batch)]
    assert [(r.timestamp, r.value) for r in decoded] == [(r.timestamp, r.value) for r in records]


def test_a_record_without_a_timestamp_does_not_shift_the_others() -> None:
    records = [Record(0, -1, b"k", b"v"), Record(1, 1000, b"k", b"v"), Record(2, -1, b"k", b"v")]

    [batch] = batches(encode(records))

    assert [r.timestamp for r in decode(batch)] == [-1, 1000, -1]
