"""Record batches as from producers, encoded once and appended repeatedly."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_TEMPLATES: Final = 16
_NO_LIMIT: Final = 2**31 - 1
_MERCHANTS: Final = ("books", "grocery", "fuel", "travel", "pharmacy", "garden", "music", "shoes")
_STATES: Final = ("authorized", "captured", "refunded", "declined")
_WORDS: Final = ("order", "customer", "delivery", "late", "invoice", "street", "parcel", "window")


@dataclass(frozen=True)
class Payload:
    """Properties of the records of a case.

    Attributes:
        size: bytes of a value; texts are filled up to it.
        content: ``random`` bytes, or compressible ``json`` events.
        codec: compression of the batches.
        batch_records: records in a batch.
    """

    size: int
    content: str = "random"
    codec: str = "none"
    batch_records: int = 1

    @property
    def title(self) -> str:
        """Describe it in a few words."""
        size = f"{self.size // 1000} KB" if self.size >= 1000 else f"{self.size} B"
        codec = "" if self.codec == "none" else f" {self.codec}"
        kind = "JSON" if self.content == "json" else self.content
        return f"{size} {kind}{codec}, {self.batch_title}"

    @property
    def batch_title(self) -> str:
        """Describe the batch size before compression."""
        if self.batch_records == 1:
            return "one record a batch"
        before = "" if self.codec == "none" else f" before {self.codec}"
        return f"batches of {self.size * self.batch_records / 1000:.0f} KB{before}"


def encode(values: list[tuple[bytes | None, bytes]], codec: str) -> bytes:
    """Return one batch of (key, value) records with the present time."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_NO_LIMIT,
    )
    now_ms = time.time_ns() // 1_000_000
    for offset, (key, value) in enumerate(values):
        builder.append(offset, timestamp=now_ms, key=key, value=value, headers=[])
    return bytes(builder.build())


def one_record() -> bytes:
    """Return a batch of one small record, the first one of a partition."""
    return encode([(None, b"x")], "none")


def value(payload: Payload, random_source: random.Random) -> bytes:
    """Return the value of one record."""
    if payload.content == "random":
        return random_source.randbytes(payload.size)
    return _event(payload.size, random_source)


def _event(size: int, random_source: random.Random) -> bytes:
    """Return a payment event, filled up to the size with words."""
    event = {
        "event_id": f"{random_source.getrandbits(64):016x}",
        "type": "payment",
        "state": random_source.choice(_STATES),
        "customer": f"C-{random_source.randrange(100_000):06d}",
        "account": {"country": "AT", "currency": "EUR", "branch": random_source.randrange(200)},
        "amount": random_source.randrange(100_000) / 100,
        "merchant": {"kind": random_source.choice(_MERCHANTS), "id": random_source.randrange(5000)},
        "created": f"2026-05-{random_source.randrange(1, 29):02d}T12:00:00.000Z",
        "note": "",
    }
    missing = size - len(json.dumps(event))
    words = random_source.choices(_WORDS, k=max(0, missing) // 4)  # the shortest has four letters
    event["note"] = " ".join(words)[: max(0, missing)]
    return json.dumps(event).encode()


@cache
def templates(payload: Payload) -> tuple[bytes, ...]:
    """Return a few different batches, the same in each run."""
    random_source = random.Random(f"{payload}")  # noqa: S311 -- repeatable data
    return tuple(
        encode(
            [(None, value(payload, random_source)) for _ in range(payload.batch_records)],
            payload.codec,
        )
        for _ in range(_TEMPLATES)
    )


def records_in(size: int) -> int:
    """Return the number of records that :func:`sized` puts into a batch."""
    return max(1, round(size / 1000))


@cache
def sized(size: int) -> tuple[bytes, ...]:
    """Return a few batches of random bytes, about 1 KB a record, of exactly that size on the wire.

    Raises:
        ValueError: the size is too small for a batch.
    """
    random_source = random.Random(size)  # noqa: S311 -- repeatable data
    count = records_in(size)
    lengths = [size // count // 2] * count

    def batch() -> bytes:
        return encode([(None, random_source.randbytes(length)) for length in lengths], "none")

    while (missing := size - len(batch())) >= count:
        lengths = [length + missing // count for length in lengths]
    lengths[0] = max(0, lengths[0] + missing)
    batches = tuple(batch() for _ in range(_TEMPLATES))
    if {len(each) for each in batches} != {size}:
        raise ValueError(f"no batch has {size} bytes")
    return batches


def batch_rounds(payload: Payload, partitions: int, records: int) -> int:
    """Return the number of batches per partition for at least that many records in total."""
    return max(1, -(-records // (partitions * payload.batch_records)))


def copies(payload: Payload, partitions: int, rounds: int) -> Iterator[Mapping[int, bytes]]:
    """Yield requests that give each partition ``rounds`` batches."""
    batches = templates(payload)
    for number in range(rounds):
        yield {p: batches[(number + p) % len(batches)] for p in range(partitions)}


def keyed_requests(
    payload: Payload, partitions: int, rounds: int, kept: float
) -> Iterator[Mapping[int, bytes]]:
    """Yield requests of records of which compaction keeps about the given share.

    Kept records have unique keys. The others repeat a few keys, so that each batch loses some
    records.
    """
    random_source = random.Random(f"{payload} {kept}")  # noqa: S311 -- repeatable data
    values = [value(payload, random_source) for _ in range(256)]
    number = 0
    for _ in range(rounds):
        request = {}
        for partition in range(partitions):
            records: list[tuple[bytes | None, bytes]] = []
            for _ in range(payload.batch_records):
                number += 1
                own = random_source.random() < kept
                key = f"k{number:010d}" if own else f"hot{number % 50:02d}"
                records.append((key.encode(), values[number % 256]))
            request[partition] = encode(records, payload.codec)
        yield request
