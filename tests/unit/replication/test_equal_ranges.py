"""What the bytes of batches prove is what comparing record by record finds, and nothing else."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.batches import Record as Stored
from tests.batches import marker, stored
from tests.native import CANNOT_BUILD
from tests.unit.replication.resume.two_logs import Log as Broker

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Run, coalesce
from srm.domain.verification.compared_record import ComparedRecord
from srm.domain.verification.comparison import compare
from srm.domain.verification.verification import RangeResult
from srm.domain.verification.verification_plan import RangePlan, cut
from srm.errors import UnavailableError
from srm.replication import equal_ranges
from srm.replication.batches.batch import seal
from srm.replication.equal_ranges import prove_equal, unmapped_copies
from srm.replication.log_reader import LogReader
from srm.replication.native.library import FILE, NativeLibrary
from srm.replication.ports import FetchedPartition

if CANNOT_BUILD:
    pytest.skip("there was nothing to build the native library with", allow_module_level=True)

NATIVE = NativeLibrary(FILE)
FIRST, ABORTER = 100, 7
TRANSACTIONAL, APPEND_TIME, COMMIT = 0x10, 0x08, 1

parts = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=200)
headers = st.lists(st.tuples(st.text("aß", max_size=2), parts), max_size=2)
contents = st.tuples(st.integers(0, 2000), parts, parts, headers)


@dataclass
class Log:
    """Batches of one side as a broker holds them, and the committed records in them."""

    batches: list[bytes]
    records: list[ComparedRecord]
    aborted: list[tuple[int, int, int]]
    """Producer, first offset and the offset of the marker."""
    fetched: int = 3
    """How many batches come at once."""

    @property
    def end(self) -> int:
        return behind(self.batches[-1]) if self.batches else 0


def behind(batch: bytes) -> int:
    (base,) = struct.unpack_from(">q", batch)
    (delta,) = struct.unpack_from(">i", batch, 23)
    return int(base + delta + 1)


@dataclass
class Reader:
    """Gives out a log as :class:`srm.replication.log_reader.LogReader` does."""

    log: Log
    partition: TopicPartition

    async def fetch(self, offset: int, _max_bytes: int, _wait_ms: int) -> FetchedPartition:
        if offset >= self.log.end:
            raise UnavailableError("nothing is there")
        ahead = [batch for batch in self.log.batches if behind(batch) > offset]
        given, rest = ahead[: self.log.fetched], ahead[self.log.fetched :]
        last = behind(given[-1])
        aborted = [
            (p, first) for p, first, end in self.log.aborted if first < last and end >= offset
        ]
        raw = bytearray(b"".join(given) + (rest[0][:-1] if rest else b""))
        answer = (b"id", 0, 0, self.log.end, self.log.end, 0, tuple(aborted), memoryview(raw))
        return FetchedPartition(*answer)


def batch_of(records: list[ComparedRecord], codec: int, *, producer: int = -1) -> bytes:
    rows = [
        Stored(r.offset, r.timestamp_ms, r.key, r.value, [(n, v) for n, v in r.headers])
        for r in records
    ]
    raw = bytearray(stored(rows, codec, producer))
    if producer >= 0:
        raw[22] |= TRANSACTIONAL
    struct.pack_into(">i", raw, 12, 3)
    seal(memoryview(raw))
    return bytes(raw)


def commit_marker(offset: int) -> bytes:
    raw = bytearray(marker(offset, 9))
    at = raw.index(struct.pack(">hh", 0, 0), 61)
    struct.pack_into(">hh", raw, at, 0, COMMIT)
    seal(memoryview(raw))
    return bytes(raw)


codecs = st.sampled_from([0, 0, 0, 1, 2, 3, 4])


@st.composite
def sources(draw: st.DrawFn) -> Log:
    """Records, transactions that were aborted or committed, and gaps between them."""
    offset = draw(st.sampled_from([0, 5, 2**31]))
    log = Log([], [], [], draw(st.integers(1, 4)))
    open_since: int | None = None
    for _ in range(draw(st.integers(1, 8))):
        shape = draw(st.sampled_from(["data"] * 5 + ["aborted", "abort", "commit", "gap"]))
        if shape == "gap":
            offset += draw(st.integers(1, 5))
            continue
        if shape == "commit" or (shape == "abort" and open_since is None):
            log.batches.append(commit_marker(offset))
            offset += 1
            continue
        if shape == "abort" and open_since is not None:
            log.batches.append(marker(offset, ABORTER))
            log.aborted.append((ABORTER, open_since, offset))
            open_since = None
            offset += 1
            continue
        found = []
        for content in draw(st.lists(contents, min_size=1, max_size=5)):
            time, key, value, named = content
            found.append(ComparedRecord(offset, key, value, tuple(named), time))
            offset += draw(st.sampled_from([1, 1, 1, 1, 2, 9]))
        if shape == "aborted":
            open_since = found[0].offset if open_since is None else open_since
            log.batches.append(batch_of(found, draw(codecs), producer=ABORTER))
        else:
            log.batches.append(
                batch_of(found, draw(codecs), producer=draw(st.sampled_from([-1, 9])))
            )
            log.records += found
    if open_since is not None:
        log.batches.append(marker(offset, ABORTER))
        log.aborted.append((ABORTER, open_since, offset))
    return log


@st.composite
def copies(draw: st.DrawFn, source: Log) -> tuple[Log, tuple[Run, ...]]:
    """The records in other batches, after a marker here and there, with what the map says of it."""
    log, runs, offset = Log([], [], [], draw(st.integers(1, 4))), [], FIRST
    left = list(source.records)
    while left:
        if draw(st.integers(0, 3)) == 0:
            log.batches.append(marker(offset, 1))
            offset += 1
        size = draw(st.integers(1, len(left)))
        taken, left = left[:size], left[size:]
        copied = [r._replace(offset=offset + place) for place, r in enumerate(taken)]
        runs += [Run(r.offset, c.offset, 1) for r, c in zip(taken, copied, strict=True)]
        log.batches.append(batch_of(copied, draw(codecs)))
        log.records += copied
        offset += size
    return log, tuple(coalesce(runs))


def damaged(draw: st.DrawFn, log: Log) -> Log:
    """Lose, repeat or change a record of a log, or leave it as it is."""
    what = draw(st.sampled_from(["nothing", "nothing", "value", "time", "missing", "extra"]))
    if what == "nothing" or not log.records:
        return log
    at = draw(st.integers(0, len(log.records) - 1))
    records, chosen = list(log.records), log.records[at]
    if what == "value":
        records[at] = chosen._replace(value=(chosen.value or b"") + b"!")
    elif what == "time":
        records[at] = chosen._replace(timestamp_ms=chosen.timestamp_ms + 1)
    elif what == "missing":
        del records[at]
    else:
        records.append(chosen._replace(offset=max(log.end, chosen.offset + 1)))
    return Log([batch_of([r], draw(codecs)) for r in records], records, [], log.fetched)


def some_gone(draw: st.DrawFn, log: Log) -> Log:
    """Compact a log: records go, their batches stay or go with them."""
    kept = [r for r in log.records if draw(st.booleans())]
    return Log([batch_of([r], draw(codecs)) for r in kept], kept, [], log.fetched)


def plan_for(source: Log, target: Log, runs: tuple[Run, ...]) -> RangePlan:
    end = max(source.end, max((run.source_end for run in runs), default=0))
    target_end = max(FIRST, target.end, max((run.target_end for run in runs), default=0))
    names = ("pay", 0, "P.pay")
    return RangePlan(*names, 0, end, source.end, FIRST, target_end, max(FIRST, target.end), runs)


def by_bytes(plan: RangePlan, source: Log, target: Log) -> RangeResult | None:
    read, written = [Reader(log, TopicPartition("pay", 0)) for log in (source, target)]
    return asyncio.run(prove_equal(plan, read, written, NATIVE))  # type: ignore[arg-type]


def by_records(plan: RangePlan, source: Log, target: Log) -> RangeResult:
    def within(log: Log, start: int, end: int) -> list[ComparedRecord]:
        return [r for r in log.records if start <= r.offset < end]

    return compare(
        plan,
        within(source, plan.source_start, plan.source_end),
        within(target, plan.target_start, plan.target_end),
    )


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_equality_is_proven_exactly_where_records_are_equal_with_the_same_result(data):
    source = data.draw(sources())
    target, runs = data.draw(copies(source))
    compacted = data.draw(st.booleans())
    if compacted:
        source, target = some_gone(data.draw, source), some_gone(data.draw, target)
    target = damaged(data.draw, target)
    whole = replace(
        plan_for(source, target, runs), compacted=compacted, timestamps=data.draw(st.booleans())
    )
    for plan in cut(whole, data.draw(st.sampled_from([1, 3, 1000]))):
        expected, found = by_records(plan, source, target), by_bytes(plan, source, target)

        # A log that ends before its range does may have lost its end, or not have it yet.
        is_whole = plan.source_end <= source.end and plan.target_end <= max(FIRST, target.end)
        if found is not None:
            assert found == expected
        elif is_whole:
            assert expected.difference is not None
        if expected.difference is not None:
            assert found is None


def simple() -> tuple[Log, Log, RangePlan]:
    records = [ComparedRecord(n, b"k%d" % n, b"v", (), n) for n in range(6)]
    copied = [record._replace(offset=FIRST + record.offset) for record in records]
    source = Log([batch_of(records[:2], 0), batch_of(records[2:], 0)], records, [])
    target = Log([batch_of(copied, 0)], copied, [])
    return source, target, plan_for(source, target, (Run(0, FIRST, 6),))


def test_the_leader_epoch_of_what_was_read_is_told_with_where_it_reached():
    source, target, plan = simple()

    found = by_bytes(plan, source, target)

    assert found is not None
    assert (found.source.epoch, found.source.reached) == (3, 6)
    assert (found.target.epoch, found.target.reached) == (3, FIRST + 6)


def with_wrong_checksum(batch: bytearray) -> None:
    batch[17] ^= 1  # the records are as they were


def with_old_format(batch: bytearray) -> None:
    batch[16] = 1


def with_unknown_codec(batch: bytearray) -> None:
    batch[22] |= 5
    seal(memoryview(batch))


def with_records_that_are_not_compressed(batch: bytearray) -> None:
    batch[22] |= 4
    seal(memoryview(batch))


def with_a_count_too_large(batch: bytearray) -> None:
    struct.pack_into(">i", batch, 57, 7)
    seal(memoryview(batch))


@pytest.mark.parametrize(
    "strange",
    [
        with_wrong_checksum,
        with_old_format,
        with_unknown_codec,
        with_records_that_are_not_compressed,
        with_a_count_too_large,
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_strange_is_left_to_consumers(strange, side):
    *logs, plan = simple()
    batch = bytearray(logs[side].batches[0])
    strange(batch)
    logs[side].batches[0] = bytes(batch)

    assert by_bytes(plan, *logs) is None


def test_a_batch_that_comes_twice_is_left_to_consumers():
    source, target, plan = simple()
    source.batches.insert(1, source.batches[0])

    assert by_bytes(plan, source, target) is None


def test_records_that_were_left_by_decision_are_left_to_consumers():
    source, target, plan = simple()

    assert by_bytes(replace(plan, decided=((0, 1),)), source, target) is None


def test_a_log_that_gives_nothing_is_left_to_consumers(monkeypatch):
    source, target, plan = simple()

    class Silent(Reader):
        async def fetch(self, *_: int) -> FetchedPartition:
            return FetchedPartition(b"id", 0, 0, 6, 6, 0, (), memoryview(bytearray()))

    monkeypatch.setattr(equal_ranges, "_SILENCE_S", 0.0)
    readers = Silent(source, TopicPartition("pay", 0)), Reader(target, TopicPartition("pay", 0))

    assert asyncio.run(prove_equal(plan, *readers, NATIVE)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gap", "writer", "expected"),
    [
        pytest.param(4, 7, [(13, 15)], id="copies whose originals were compacted unmapped"),
        pytest.param(1, 7, [], id="more copies than the source has lost"),
        pytest.param(4, 8, [], id="records of another producer"),
    ],
)
def test_copies_outside_the_map_are_known_by_their_writer_and_by_room_on_the_source(
    gap: int, writer: int, expected: list[tuple[int, int]]
) -> None:
    def batch(offsets: range, producer: int) -> bytes:
        return stored([Stored(at, 1, b"k", b"%d" % at) for at in offsets], producer_id=producer)

    first, again, last = range(10, 13), range(13, 15), range(16, 20)
    log = Broker([batch(first, 7), batch(again, writer), marker(15, 7, 3), batch(last, 7)], 10)
    plan = RangePlan("T", 0, "P.T", 100, 107 + gap, 107 + gap, 10, 20, 20, [])
    plan = replace(plan, runs=[Run(100, 10, 3), Run(103 + gap, 16, 4)])
    reader = LogReader(log, TopicPartition("P.T", 0), b"", False)  # type: ignore[arg-type]

    assert asyncio.run(unmapped_copies(plan, reader)) == expected
