"""Cost of merging for each codec: ``python -m bench.codecs``.

A megabyte of batches as from a producer with default settings, in one thread, from the fetched
bytes to the batches to send. In srm a produce request costs about 100 us (docs/decisions/0010), so
merging pays while a batch costs less.
"""

from __future__ import annotations

import sys
import time
from itertools import cycle, islice

from rich.console import Console
from rich.table import Table

from bench.data import Payload, templates
from srm.config.keys import find_key
from srm.replication.batches.batch import BatchToSend
from srm.replication.batches.merging import Merging
from srm.replication.native.library import native_library

BEFORE = 1 << 20
ROUNDS = 40
PAYLOADS = [
    Payload(1000, batch_records=16),
    Payload(1000, batch_records=128),
    *(Payload(380, "json", codec, 43) for codec in ("none", "snappy", "lz4", "zstd", "gzip")),
    *(Payload(380, "json", codec, 10) for codec in ("lz4", "zstd")),
]


def measure(merging: Merging, payload: Payload) -> tuple[float, int, int, int, int]:
    """Return microseconds, batches and bytes before and after, of about a megabyte of records."""
    count = max(2, BEFORE // (payload.size * payload.batch_records))
    data = bytearray(b"".join(islice(cycle(templates(payload)), count)))
    _number(data, count, payload.batch_records)
    best, sent = float("inf"), list[BatchToSend]()
    for _ in range(ROUNDS):
        began = time.process_time()
        sent = _sent(merging, data)
        best = min(best, time.process_time() - began)
    return best * 1e6, count, len(data), len(sent), sum(len(batch.view) for batch in sent)


def _number(data: bytearray, count: int, records: int) -> None:
    """Give each batch the offsets after those of the previous one, as a broker does."""
    at = 0
    for number in range(count):
        data[at : at + 8] = (number * records).to_bytes(8, "big")
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")


def _sent(merging: Merging, data: bytearray) -> list[BatchToSend]:
    pieces = merging.pieces(memoryview(data), 0, data, 1 << 31)
    return [piece for piece in pieces if isinstance(piece, BatchToSend)]


def main() -> int:
    """Print the table."""
    native = native_library()
    key = find_key("replicator.merge.batch.bytes")
    if native is None or key is None:
        return 1
    merging = Merging(native, int(key.default or 0))
    table = Table("batches of", "KB", "become", "of KB", "us a batch", "us a MB")
    table.columns[0].no_wrap = True
    for payload in PAYLOADS:
        spent, before, size, after, made = measure(merging, payload)
        table.add_row(
            payload.title.replace(" batches of", ""),
            f"{before} x {size / before / 1000:.1f}",
            str(after),
            f"{made / after / 1000:.0f}",
            f"{spent / before:.1f}",
            f"{spent / (payload.size * payload.batch_records * before) * 1e6:.0f}",
        )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
