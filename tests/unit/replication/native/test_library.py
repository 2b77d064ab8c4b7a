"""The native library does what the plain path does, and believes nothing a batch says of itself."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, content, marker, stored
from tests.native import CANNOT_BUILD

from srm.errors import IntegrityError
from srm.replication import codes
from srm.replication.batches import batch as plain
from srm.replication.batches import merging as merges
from srm.replication.batches.batch import BatchToSend, Dropped, batches, seal
from srm.replication.batches.merging import Merging
from srm.replication.batches.records import decode
from srm.replication.batches.to_send import TargetLimits, batches_to_send
from srm.replication.native import library
from srm.replication.native.library import FILE, Kind, NativeLibrary, native_library
from srm.replication.ports import FetchedPartition, Produced

HEADER = 61
APPEND_TIME, TRANSACTIONAL = 0x08, 0x10

if CANNOT_BUILD:
    pytest.skip("there was nothing to build the native library with", allow_module_level=True)

LIBRARIES = [
    pytest.param(NativeLibrary(FILE, use_instruction=instruction), id=name)
    for instruction, name in ((True, "instruction"), (False, "tables"))
]

times = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_000_500),
    st.sampled_from([-1, 0, 2**40, 2**62]),
)
payload = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=100, max_size=300))
headers = st.lists(st.tuples(st.text("ab", max_size=2), payload), max_size=2)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of all shapes, as a broker would hand them out."""
    log, offset = b"", draw(st.sampled_from([0, 5, 2**31, 2**40]))
    for _ in range(draw(st.integers(0, 8))):
        shape = draw(st.sampled_from(["data"] * 6 + ["time", "marker", "empty", "tail"]))
        if shape == "marker":
            log += marker(offset, 7)
            offset += 1
            continue
        records = []
        for _ in range(draw(st.integers(1, 12))):
            records.append(Record(offset, draw(times), draw(payload), draw(payload), draw(headers)))
            offset += draw(st.sampled_from([1] * 8 + [2, 200]))
        raw = bytearray(stored(records, draw(st.sampled_from([0, 0, 0, 0, 1, 2, 3, 3, 4, 4]))))
        if shape == "time":
            raw[22] |= APPEND_TIME
            struct.pack_into(">q", raw, 35, draw(st.integers(0, 2**41)))
        if shape == "empty":
            del raw[HEADER:]
            struct.pack_into(">i", raw, 8, HEADER - 12)
            struct.pack_into(">i", raw, 57, 0)
        if shape == "tail":  # compaction took the last records
            struct.pack_into(">i", raw, 23, records[-1].offset - records[0].offset + 3)
            offset = records[-1].offset + 4
        if draw(st.booleans()):
            raw[22] |= TRANSACTIONAL
            struct.pack_into(">qhi", raw, 43, 9, 1, 2**31 - 2)
        struct.pack_into(">i", raw, 12, draw(st.integers(0, 3)))
        seal(memoryview(raw))
        log += raw
        offset = max(offset, records[-1].offset + 1)
    return log


def fetched(log: bytes) -> FetchedPartition:
    return FetchedPartition(b"", 0, 0, 100, 100, 0, (), memoryview(bytearray(log)))


def travelled(log: bytes, wanted: int, merging: Merging | None) -> list[BatchToSend | Dropped]:
    return list(batches_to_send(fetched(log), wanted, None, read_committed=True, merging=merging))


def sent(found: list[BatchToSend | Dropped]) -> Iterator[tuple[object, ...]]:
    """Each record, with its offset at the source."""
    for outgoing in found:
        if isinstance(outgoing, BatchToSend):
            [header] = batches(outgoing.view)
            records = decode(header)
            assert DefaultRecordBatch(bytes(outgoing.view)).validate_crc()
            assert header.is_dense
            assert header.record_count == outgoing.count == len(outgoing.offsets())
            assert header.max_timestamp == outgoing.max_timestamp
            for record, offset in zip(records, outgoing.offsets(), strict=True):
                yield (offset, *content(record))


@pytest.mark.parametrize("native", LIBRARIES)
@given(data=st.data())
def test_the_same_records_travel_as_on_the_plain_path(
    native: NativeLibrary, data: st.DataObject
) -> None:
    log = data.draw(logs())
    whole = list(batches(memoryview(log)))
    end = whole[-1].last_offset + 1 if whole else 0
    first = whole[0].base_offset if whole else 0
    wanted = data.draw(st.integers(first, end + 2) | st.just(0))
    limit = data.draw(st.sampled_from([0, 1, 150, 400, 2000, 1_000_000]))
    cut = data.draw(st.sampled_from([0, 0, 1, 17, 60, 300]))
    log = log[: len(log) - cut]

    found = travelled(log, wanted, Merging(native, limit))

    expected = travelled(log, wanted, None)
    assert list(sent(found)) == list(sent(expected))
    if expected:
        assert found[-1].source_next == expected[-1].source_next
        assert found[-1].leader_epoch == expected[-1].leader_epoch
    ends = [outgoing.source_next for outgoing in found]
    assert ends == sorted(ends)
    for outgoing in found:
        if isinstance(outgoing, BatchToSend):
            first_offset = outgoing.stretches[0][0]
            assert first_offset < outgoing.source_next
            if outgoing.is_merged and len(outgoing.stretches) > 1 and limit:
                parts = [b for b in whole if first_offset <= b.last_offset < outgoing.source_next]
                assert len(outgoing.view) <= limit or len([b for b in parts if b.record_count]) <= 3


@pytest.mark.parametrize("native", LIBRARIES)
@given(
    data=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=6),
    log=logs(),
    valid=st.booleans(),
)
def test_a_damaged_batch_is_left_to_the_plain_path_or_passes_with_its_damage(
    native: NativeLibrary, log: bytes, data: list[tuple[int, int]], *, valid: bool
) -> None:
    raw = bytearray(log)
    for at, byte in data:
        if raw:
            raw[at % len(raw)] = byte
    if valid:
        for found in _sealed(raw):
            seal(found)
    room = bytearray(len(raw) * 2 + 4096)
    merged = native.merge(memoryview(raw), room, wanted=0, limit=10**6, largest=1 << 16)

    assert 0 <= merged.end <= len(raw)
    at = 0
    for outgoing in merged.outgoing:
        memory = room if outgoing.kind == Kind.MADE else raw
        assert outgoing.at >= 0
        assert outgoing.at + outgoing.size <= len(memory)
        if outgoing.kind == Kind.MADE:
            assert outgoing.at == at
            at += outgoing.size
            made = memory[outgoing.at : at]
            assert DefaultRecordBatch(bytes(made)).validate_crc()
            assert DefaultRecordBatch(bytes(made)).next_offset == outgoing.records


def _sealed(raw: bytearray) -> Iterator[memoryview]:
    try:
        for found in batches(memoryview(raw)):
            if len(found.view) > HEADER:
                yield found.view
    except IntegrityError:
        return


@pytest.mark.parametrize("native", LIBRARIES)
def test_a_damaged_batch_is_not_merged_so_that_its_checksum_stays_wrong(
    native: NativeLibrary,
) -> None:
    """A new checksum would make the damage valid; as it is the target's broker refuses it."""
    good, size = stored([Record(0, 1, b"k", b"v")]), 9000
    bad = bytearray(stored([Record(1, 1, b"k", b"v" * size)]))
    bad[-size // 2] ^= 1
    log = good + bytes(bad) + stored([Record(2, 1, b"k", b"v")])

    before, damaged, after = travelled(log, 0, Merging(native, 10**6))

    assert bytes(damaged.view) == bytes(bad)
    assert [r[0] for r in sent([before, after])] == [0, 2]
    bad[23:27] = struct.pack(">i", 7)  # a hole at its end: it would be made anew
    with pytest.raises(IntegrityError, match="offsets 1 to 8 are damaged"):
        travelled(bytes(bad), 0, Merging(native, 10**6))


@pytest.mark.parametrize("native", LIBRARIES)
@pytest.mark.parametrize("time", [0, APPEND_TIME])
def test_of_a_batch_whose_last_records_are_gone_nothing_is_sent_behind_those_that_are_left(
    native: NativeLibrary, time: int
) -> None:
    raw = bytearray(stored([Record(o, 1, None, b"v") for o in range(3)]))
    struct.pack_into(">i", raw, 23, 10)
    raw[22] |= time
    seal(memoryview(raw))

    assert travelled(bytes(raw), 3, Merging(native, 10**6)) == [Dropped(11, -1)]


@pytest.mark.parametrize("codec", [3, 4])
def test_a_compressed_batch_that_holds_much_more_than_it_seems_is_not_opened(codec: int) -> None:
    bomb = stored([Record(0, 1, None, bytes(250_000))], codec)
    after = stored([Record(1, 1, None, b"v")], codec)
    assert len(bomb) < 1 << 15

    sent_alone = travelled(bomb + after, 0, Merging(NativeLibrary(), 10**6))

    assert [bytes(outgoing.view) for outgoing in sent_alone] == [bomb, after]


@pytest.mark.parametrize(
    ("codec", "count", "value"),
    [*((codec, 100, b"the same again " * 10) for codec in (2, 3, 4)), (2, 3, bytes(60_000))],
)
def test_batches_of_default_producers_are_merged_however_well_they_compress(
    codec: int, count: int, value: bytes
) -> None:
    """Librdkafka fills batch.size, 16 KB, before compression; Java cuts snappy at each 32 KB."""
    one, two = (
        stored([Record(o + i, 5, None, value) for i in range(count)], codec) for o in (0, count)
    )

    [merged] = travelled(one + two, 0, Merging(NativeLibrary(), 10**6))

    assert merged.stretches == [(0, 2 * count)]
    assert [offset for offset, *_ in sent([merged])] == list(range(2 * count))


@pytest.mark.parametrize("codec", [2, 3, 4])
def test_small_compressed_batches_leave_as_one_that_is_compressed_too(codec: int) -> None:
    log = b"".join(
        stored([Record(o + i, 5, b"k", b"some words" * 20) for i in range(4)], codec)
        for o in range(0, 40, 4)
    )

    [merged] = travelled(log + marker(40, 7), 0, Merging(NativeLibrary(), 10**6))

    [header] = batches(merged.view)
    assert (header.codec, merged.count, merged.stretches) == (codec, 40, [(0, 40)])
    assert (merged.source_next, len(list(sent([merged])))) == (41, 40)
    assert len(merged.view) < len(log) / 2


def test_what_does_not_fit_into_one_compressed_batch_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here its stretches do not: there is a marker behind each record."""
    monkeypatch.setattr(library, "_MOST_STRETCHES", 16)
    log = b"".join(
        stored([Record(offset, 5, None, b"words" * 9)], 3) + marker(offset + 1, 7)
        for offset in range(0, 100, 2)
    )

    found = travelled(log, 0, Merging(NativeLibrary(), 10**6))

    assert [offset for offset, *_ in sent(found)] == list(range(0, 100, 2))


def test_threads_do_not_get_what_others_have_merged() -> None:
    """Tests run several slots in one process; the product has one in each."""
    whole = Merging(NativeLibrary(), 10**6)

    def merge(first: int) -> int:
        records = [
            [Record(first + o + i, 5, None, b"v" * 200) for i in range(8)] for o in range(0, 800, 8)
        ]
        log = b"".join(stored(part) for part in records)
        wanted = list(range(first, first + 800))
        return sum([o for o, *_ in sent(travelled(log, 0, whole))] != wanted for _ in range(20))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(merge, (0, 10_000, 20_000, 30_000))) == [0, 0, 0, 0]


def test_only_so_many_compressed_batches_are_opened_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = b"".join(stored([Record(o, 5, None, b"words" * 9)], 3) for o in range(100))
    each = merges._OPENED_EVER + merges._OPENED_EACH * len(log) // 100
    monkeypatch.setattr(merges, "_OPENED_AT_ONCE", 50 * each)

    found = travelled(log, 0, Merging(NativeLibrary(), 10**6))

    assert len(found) == 51
    assert [offset for offset, *_ in sent(found)] == list(range(100))


def test_a_learned_limit_is_one_for_compressed_bytes() -> None:
    log = b"".join(stored([Record(o, 5, None, b"words" * 90)], 3) for o in range(100))
    limits = TargetLimits()
    limits.learn(Produced(min(codes.TOO_LARGE), -1), len(log), [1, 2], is_merged=True)
    whole = Merging(NativeLibrary(), 10**6)
    part = fetched(log)

    found = list(batches_to_send(part, 0, None, read_committed=True, merging=whole, limits=limits))

    assert len(found) in (2, 3)


@pytest.mark.parametrize(
    "merging", [None, Merging(NativeLibrary(), 10**6)], ids=["plain", "native"]
)
@pytest.mark.parametrize(
    ("at", "bit"),
    [(22, 5), (23, 7), (60, 0), (0, 7)],
    ids=["marker", "last offset", "count", "offset"],
)
@pytest.mark.parametrize("codec", [0, 3])
def test_a_bit_that_makes_a_batch_look_as_if_there_was_nothing_in_it_is_noticed(
    merging: Merging | None, at: int, bit: int, codec: int
) -> None:
    """A marker, a last offset before the first, no records, or an offset that is not its own."""
    parts = [bytearray(stored([Record(offset, 5, None, b"v")], codec)) for offset in (12, 13, 14)]
    parts[1][at] ^= 1 << bit
    found = batches_to_send(
        fetched(b"".join(parts)), 12, None, read_committed=True, merging=merging
    )

    arrived: list[BatchToSend | Dropped] = []
    with pytest.raises(IntegrityError):
        arrived.extend(found)
    assert [offset for offset, *_ in sent(arrived)] in ([12], [])


@pytest.mark.parametrize("native", LIBRARIES)
@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=5),
    st.integers(0, 2**62),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
)
def test_a_batch_is_rewritten_as_by_the_plain_path(
    native: NativeLibrary, values: list[bytes], producer: int, epoch: int, sequence: int
) -> None:
    raw = bytearray(stored([Record(7 + i, 5, None, value) for i, value in enumerate(values)]))
    raw[22] |= TRANSACTIONAL
    seal(memoryview(raw))
    expected = bytearray(raw)
    plain.rewrite(memoryview(expected), producer, epoch, sequence)

    native.rewrite(memoryview(raw), producer, epoch, sequence)

    assert raw == expected


@pytest.mark.parametrize("native", LIBRARIES)
@given(st.binary(max_size=64), st.integers(0, 5000))
def test_the_checksum_is_the_library_s_at_every_length(
    native: NativeLibrary, data: bytes, size: int
) -> None:
    raw = memoryview(bytearray((data * (size // max(1, len(data)) + 1))[:size]))
    assert native.crc32c(raw) == crc32c(raw)


def test_the_library_is_there_after_an_installation() -> None:
    """Without a compiler the build hook gets one from PyPI."""
    assert native_library() is not None
