"""Headers that are added, kept and read back; records that are left out by them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, at_offset, content, encode

from srm.domain.names.record_headers import (
    PROVENANCE_HEADER,
    SOURCE_OFFSETS_HEADER,
    ClusterIds,
    Provenance,
    RecordSettings,
    Transform,
    parse_overrides,
)
from srm.replication.batches.batch import BatchToSend, Dropped, batches
from srm.replication.batches.records import decode
from srm.replication.batches.to_send import batches_to_send
from srm.replication.ports import FetchedPartition

CLUSTERS = ClusterIds("source-id", "target-id")


def transform(settings: RecordSettings) -> Transform:
    return Transform(settings, CLUSTERS, "P", "T", "P.T")


def sent(records: list[Record], settings: RecordSettings) -> list[BatchToSend | Dropped]:
    log = at_offset(encode(records), records[0].offset)
    fetched = FetchedPartition(b"", 0, 0, 99, 99, 0, (), memoryview(bytearray(log)))
    return list(
        batches_to_send(fetched, 0, None, read_committed=True, transform=transform(settings))
    )


names = st.sampled_from(["a", "b", "test-1", PROVENANCE_HEADER, SOURCE_OFFSETS_HEADER])
values = st.none() | st.binary(max_size=6) | st.just(b'{"E":5}')
records = st.lists(st.lists(st.tuples(names, values), max_size=4), min_size=1, max_size=12)


@given(records, st.booleans(), st.booleans(), st.sampled_from([(), ("test-.*",)]))
def test_own_headers_content_and_order_stay(
    headers: list[list[tuple[str, bytes | None]]],
    provenance: bool,
    source_offsets: bool,
    exclude: tuple[str, ...],
) -> None:
    settings = RecordSettings(
        provenance=provenance, source_offsets=source_offsets, exclude_headers=exclude
    )
    originals = [Record(7 + i, 1000 + i, b"k", b"v", found) for i, found in enumerate(headers)]

    found = sent(originals, settings)

    kept = [
        r for r in originals if not (exclude and any(name == "test-1" for name, _ in r.headers))
    ]
    made = [outgoing for outgoing in found if isinstance(outgoing, BatchToSend)]
    assert [offset for outgoing in made for offset in outgoing.offsets()] == [
        r.offset for r in kept
    ]
    assert found[-1].source_next == 7 + len(originals)
    copies = [r for outgoing in made for batch in batches(outgoing.view) for r in decode(batch)]
    for original, copy in zip(kept, copies, strict=True):
        assert content(copy)[:3] == content(original)[:3]
        if not (provenance or source_offsets):
            assert copy.headers == original.headers
            continue
        replaced = {SOURCE_OFFSETS_HEADER} if source_offsets else set()
        own = [header for header in original.headers if header[0] not in replaced]
        assert copy.headers[: len(own)] == own
        added = dict(copy.headers[len(own) :])
        if source_offsets:
            assert json.loads(added[SOURCE_OFFSETS_HEADER] or b"")["P"] == original.offset
        if provenance:
            place = Provenance.decode(added[PROVENANCE_HEADER])
            assert place is not None
            assert (place.cluster_id, place.topic) == ("source-id", "T")


def test_a_batch_that_loses_nothing_to_a_filter_is_not_rebuilt() -> None:
    [outgoing] = sent(
        [Record(i, 1000, b"k", b"v") for i in range(20)], RecordSettings(exclude_headers=("x",))
    )

    assert isinstance(outgoing, BatchToSend)
    assert outgoing.owner is None


def test_overrides_read_times_that_are_open_on_either_side() -> None:
    [first, second, third] = parse_overrides("c,t,-; c.*,[ab]{1,2},5-;c,t,-9")

    assert first.matches(Provenance("c", "t", 0))
    assert second.matches(Provenance("c2", "ab", 5))
    assert not second.matches(Provenance("c2", "ab", 4))
    assert third.matches(Provenance("c", "t", 9))
    assert not third.matches(Provenance("c", "t", 10))


@given(st.text(max_size=20).map(str.encode) | st.binary(max_size=20))
def test_a_header_that_is_not_ours_is_no_provenance(value: bytes) -> None:
    found = Provenance.decode(value)

    assert found is None or found.value().count(b",") == 2
