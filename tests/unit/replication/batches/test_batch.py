"""Batches are cut, judged and rewritten by their headers alone."""

from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, content, encode

from srm.errors import IntegrityError
from srm.replication.batches.batch import (
    MAX_SEQUENCE,
    Path,
    batches,
    next_sequence,
    rewrite,
    seal,
)
from srm.replication.batches.records import decode

headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
contents = st.lists(
    st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=200), headers),
    min_size=1,
    max_size=20,
)


Raw = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def records_of(
    raw: Raw,
) -> list[Record]:
    return [
        Record(offset, 1_700_000_000_000 + offset, key, value, found)
        for offset, (key, value, found) in enumerate(raw)
    ]


def at_offset(view: memoryview, base_offset: int, **fields: int) -> memoryview:
    """Give a batch a base offset and other header fields, as a broker would have stored it."""
    copy = bytearray(view)
    struct.pack_into(">q", copy, 0, base_offset)
    if "attributes" in fields:
        struct.pack_into(">h", copy, 21, fields["attributes"])
    if "last_offset_delta" in fields:
        struct.pack_into(">i", copy, 23, fields["last_offset_delta"])
    if "producer_id" in fields:
        struct.pack_into(">q", copy, 43, fields["producer_id"])
    if "count" in fields:
        struct.pack_into(">i", copy, 57, fields["count"])
    seal(memoryview(copy))
    if "crc" in fields:
        struct.pack_into(">I", copy, 17, fields["crc"])
    return memoryview(copy)


@given(contents, st.integers(0, 4), st.integers(0, 2**62), st.integers(0, 2**15 - 1))
def test_a_rewritten_batch_is_valid_and_its_content_untouched(
    raw: Raw,
    codec: int,
    producer_id: int,
    epoch: int,
) -> None:
    records = records_of(raw)
    stored = at_offset(encode(records, codec), 1000, attributes=codec | 0x10 | 0x40)
    payload = bytes(stored[61:])

    rewrite(stored, producer_id, epoch, 7)

    library = DefaultRecordBatch(bytes(stored))
    assert library.validate_crc()
    assert (library.base_offset, library.producer_id, library.producer_epoch) == (
        0,
        producer_id,
        epoch,
    )
    assert library.base_sequence == 7
    assert not library.is_transactional
    assert bytes(stored[61:]) == payload
    [batch] = batches(stored)
    assert [content(r) for r in decode(batch)] == [content(r) for r in records]


@given(contents, st.data())
def test_a_batch_that_was_damaged_on_the_way_is_still_seen_to_be_when_it_is_ours(
    raw: Raw, data: st.DataObject
) -> None:
    stored = at_offset(encode(records_of(raw), 0), 1000, attributes=0x10, producer_id=5)
    at = data.draw(st.integers(17, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))

    rewrite(stored, 9, 3, 7)

    assert not DefaultRecordBatch(bytes(stored)).validate_crc()


def test_a_batch_of_several_megabytes_is_valid_when_it_is_ours() -> None:
    stored = at_offset(encode(records_of([(None, bytes(2_500_000), [])]), 0), 1000, producer_id=5)

    rewrite(stored, 9, 3, 7)

    assert DefaultRecordBatch(bytes(stored)).validate_crc()


@given(st.lists(contents, min_size=1, max_size=4), st.integers(0, 60))
def test_only_whole_batches_are_cut(
    many: list[Raw],
    missing: int,
) -> None:
    ends = accumulate((len(raw) for raw in many), initial=0)
    views = [
        at_offset(encode(records_of(raw), 0), offset)
        for raw, offset in zip(many, ends, strict=False)
    ]
    fetched = b"".join(views)

    found = list(batches(memoryview(fetched[: len(fetched) - missing])))

    whole = len(views) if missing == 0 else len(views) - 1
    assert [bytes(batch.view) for batch in found[:whole]] == [bytes(v) for v in views[:whole]]
    assert all(len(batch.view) == len(view) for batch, view in zip(found, views, strict=False))


def test_a_batch_that_begins_before_the_end_of_another_one_ends_the_cutting() -> None:
    """Offsets are not covered by the checksum; a wrong one would put all behind it elsewhere."""
    view = encode(records_of([(b"k", b"v", [])] * 3), 0)
    found = batches(memoryview(bytes(at_offset(view, 10)) + bytes(at_offset(view, 12))))

    assert next(found).base_offset == 10
    with pytest.raises(
        IntegrityError, match="batch at offset 12 follows batches with higher offsets"
    ):
        next(found)


@pytest.mark.parametrize("fields", [{"count": -1}, {"last_offset_delta": -1}])
def test_counts_below_zero_are_damage(fields: dict[str, int]) -> None:
    view = encode(records_of([(b"k", b"v", [])] * 3), 0)

    with pytest.raises(IntegrityError, match="batch at offset 7 claims"):
        list(batches(memoryview(at_offset(view, 7, **fields))))


def test_the_header_decides_how_a_batch_travels() -> None:
    view = encode(records_of([(b"k", b"v", [])] * 3), 0)

    def path(wanted: int = 100, **fields: int) -> Path:
        [batch] = batches(at_offset(view, 100, **fields))
        return batch.path(wanted)

    assert path() is Path.PASS
    assert path(attributes=0x10) is Path.PASS
    assert path(attributes=0x30) is Path.DROP
    assert path(count=0) is Path.DROP
    assert path(wanted=103) is Path.DROP
    assert path(wanted=101) is Path.REBUILD
    assert path(last_offset_delta=5) is Path.REBUILD
    assert path(last_offset_delta=5, attributes=0x03) is Path.REBUILD
    assert path(last_offset_delta=5, wanted=101) is Path.REBUILD
    assert path(attributes=0x08) is Path.REBUILD


def test_an_unknown_format_is_refused_with_its_offset() -> None:
    view = at_offset(encode(records_of([(b"k", b"v", [])]), 0), 42)
    view[16] = 3

    with pytest.raises(IntegrityError, match="offset 42 has format 3"):
        list(batches(view))


@given(st.integers(0, MAX_SEQUENCE - 1), st.integers(1, 10_000))
def test_sequence_numbers_wrap_to_zero(sequence: int, count: int) -> None:
    following = next_sequence(sequence, count)

    assert 0 <= following < MAX_SEQUENCE
    assert (following - sequence) % MAX_SEQUENCE == count
