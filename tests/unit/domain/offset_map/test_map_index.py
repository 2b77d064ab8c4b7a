"""Records of the map's index survive their encoding; entries are found by bisection."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.names.topics import topic_id_text
from srm.domain.offset_map.map_records import (
    Entries,
    IndexEntry,
    IndexKey,
    IndexKind,
    IndexRecord,
    MapBlock,
    decode_block_key,
    decode_index,
    decode_index_key,
    is_index_key,
)
from srm.domain.offset_map.offset_map import Run
from srm.errors import IntegrityError

offsets = st.integers(0, 2**50)
small = st.integers(0, 40)
int62 = st.integers(-(2**60), 2**60)
topic_ids = st.binary(min_size=16, max_size=16).map(topic_id_text)
keys = st.builds(
    IndexKey,
    st.sampled_from(IndexKind),
    topic_ids,
    st.integers(0, 2**31 - 1),
    topic_ids,
    st.tuples(int62, int62),
    st.integers(0, 2**62),
)
entries = st.lists(
    st.builds(
        lambda source, span, target, more, fewer, place, key, owner: IndexEntry(
            source,
            source + span,
            target,
            target + span + more,
            max(0, span - fewer),
            place,
            target + key,
            *owner,
        ),
        offsets,
        small,
        offsets,
        small,
        small,
        offsets,
        small,
        st.tuples(int62, int62),
    ),
    max_size=20,
).map(Entries.of)


@st.composite
def records(draw: st.DrawFn) -> IndexRecord:
    table = draw(entries)
    return IndexRecord(
        draw(keys), table, draw(st.integers(0, len(table))), draw(st.integers(-1, 2**62))
    )


@st.composite
def in_order(draw: st.DrawFn) -> Entries:
    """Draw entries that do not cut each other."""
    source = target = 0
    rows = []
    for gaps, spans in draw(
        st.lists(st.tuples(st.tuples(small, small), st.tuples(small, small)), max_size=20)
    ):
        source, target = source + gaps[0], target + gaps[1]
        count = min(spans) + 1
        rows.append(
            IndexEntry(
                source, source + spans[0] + 1, target, target + spans[1] + 1, count, *[0] * 4
            )
        )
        source, target = source + spans[0] + 1, target + spans[1] + 1
    return Entries.of(rows)


@given(records())
def test_records_of_the_index_survive_a_round_trip(record: IndexRecord) -> None:
    assert decode_index(record.key.encode(), record.value()) == record


@given(keys)
def test_keys_of_the_index_are_no_keys_of_blocks(key: IndexKey) -> None:
    encoded = key.encode()

    assert is_index_key(encoded)
    assert decode_index_key(encoded) == key
    with pytest.raises(IntegrityError):
        decode_block_key(encoded)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_foreign_bytes_raise_nothing_but_an_integrity_error(key: bytes, value: bytes) -> None:
    for found in (key, b"C" + key.ljust(64, b"\0")[:64]):
        try:
            decode_index(found, value)
        except IntegrityError:
            continue


@given(records(), st.data())
def test_a_damaged_record_is_another_one_or_an_integrity_error(
    record: IndexRecord, data: st.DataObject
) -> None:
    value = bytearray(record.value())
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(IntegrityError, match="damaged"):
        decode_index(record.key.encode(), bytes(value[:cut]))

    value[cut] = data.draw(st.integers(0, 255))
    try:
        found = decode_index(record.key.encode(), bytes(value))
    except IntegrityError:
        return
    assert (found.entries.source_start <= found.entries.source_end).all()
    assert (found.entries.target_start <= found.entries.target_end).all()


def test_a_later_format_is_refused_with_advice() -> None:
    record = IndexRecord(
        IndexKey(IndexKind.ROOT, topic_id_text(bytes(16)), 0, topic_id_text(bytes(16)), (1, 2)),
        Entries.of(()),
    )

    with pytest.raises(IntegrityError, match="upgrade srm"):
        decode_index(record.key.encode(), b"\x02" + record.value()[1:])


def test_an_entry_leads_to_the_key_of_its_block_or_chunk() -> None:
    block = MapBlock(
        "T", topic_id_text(b"\1" * 16), 3, topic_id_text(b"\2" * 16), (7,), (Run(5, 6, 7),)
    )
    block = replace(block, owner=(7, 1))
    key = IndexKey(IndexKind.CHUNK, block.topic_id, 3, block.target_topic_id, (7, 1), 6)
    chunk = IndexRecord(key, Entries.of([IndexEntry.of_block(block, 99)]))
    row = chunk.entries[0]._replace(key_start=key.number, place=100)
    root = IndexRecord(replace(key, kind=IndexKind.ROOT, number=0), Entries.of([row]))

    assert (chunk.entries[0].source_end, chunk.entries[0].target_end) == (12, 13)
    assert chunk.entries[0].records == 7
    assert chunk.block_key(0) == block.block_key
    assert root.chunk_key(0) == key
