"""Kafka's own decoder judges what the native path makes."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from tests.batches import Record, marker, stored
from tests.integration.kafka_tools import run_tool
from tests.native import needs_native

from srm.replication.batches.batch import BatchToSend, batches, seal
from srm.replication.batches.merging import Merging
from srm.replication.batches.to_send import batches_to_send
from srm.replication.native.library import NativeLibrary
from srm.replication.ports import FetchedPartition

PROGRAM = Path(__file__).with_name("DecodeBatches.java")
APPEND_TIME = 0x08


def source(rng: random.Random) -> tuple[bytes, dict[int, Record]]:
    """Return a log of batches of all shapes and codecs, and its records by offset."""
    log, offset, records = b"", 0, {}
    for codec in [0] * 12 + [4] * 8 + [3] * 8 + [2] * 8 + [1, 0, 1, 0]:
        if rng.random() < 0.1:
            log += marker(offset, 7)
            offset += 1
        batch = []
        for _ in range(rng.randrange(1, 40)):
            time = rng.choice([1_700_000_000_000 + rng.randrange(9999), -1, 0, 2**40])
            key = rng.choice([None, b"", rng.randbytes(rng.randrange(1, 70))])
            value = rng.choice([None, b"v" * rng.randrange(900), rng.randbytes(200)])
            headers = [("h", rng.choice([None, b"", b"x" * 70]))] * rng.randrange(3)
            batch.append(Record(offset, time, key, value, headers))
            offset += rng.choice([1] * 30 + [2, 300]) if codec == 0 else 1
        raw = bytearray(stored(batch, codec))
        if codec == 0 and rng.random() < 0.3:
            raw[22] |= APPEND_TIME
            struct.pack_into(">q", raw, 35, 1_800_000_000_000)
            seal(memoryview(raw))
            batch = [Record(r.offset, 1_800_000_000_000, r.key, r.value, r.headers) for r in batch]
        log += raw
        records |= {record.offset: record for record in batch}
    return log, records


def hexadecimal(value: bytes | None, mark: str = "x") -> str:
    return "null" if value is None else mark + value.hex()


def line(offset: int, record: Record) -> str:
    parts = [str(offset), str(record.timestamp)]
    parts += [hexadecimal(record.key), hexadecimal(record.value)]
    parts += [f"{name}={hexadecimal(value, '')}" for name, value in record.headers]
    return " ".join(parts)


@needs_native
@pytest.mark.parametrize("limit", [0, 3000, 1_000_000])
def test_java_reads_from_merged_batches_what_was_in_the_source(tmp_path: Path, limit: int) -> None:
    log, records = source(random.Random(limit))
    fetched = FetchedPartition(b"", 0, 0, 0, 0, 0, (), memoryview(bytearray(log)))
    merging = Merging(NativeLibrary(), limit)
    found = batches_to_send(fetched, 0, None, read_committed=True, merging=merging)
    sent = [outgoing for outgoing in found if isinstance(outgoing, BatchToSend)]
    expected = []
    for outgoing in sent:
        merging.native.rewrite(outgoing.view, 5, 1, 2**31 - 2)
        [header] = batches(outgoing.view)
        expected.append(
            f"batch {outgoing.count} {outgoing.count - 1} {outgoing.max_timestamp} {header.codec}"
        )
        expected += [line(n, records[offset]) for n, offset in enumerate(outgoing.offsets())]
    assert [o for outgoing in sent for o in outgoing.offsets()] == sorted(records)
    if limit == 1_000_000:
        assert len(sent) < 20
    path = tmp_path / "batches"
    path.write_bytes(b"".join(outgoing.view for outgoing in sent))

    printed = run_tool(str(PROGRAM), str(path)).stdout.splitlines()

    assert printed == expected
