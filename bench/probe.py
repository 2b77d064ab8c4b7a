"""Processes that measure latency: one produces at a steady rate, the others watch a topic.

    python -m bench.probe produce BOOTSTRAP TOPIC PARTITIONS RATE SECONDS SKIP_SECONDS
    python -m bench.probe watch BOOTSTRAP TOPIC PARTITION,...

Each record carries the time just before it was passed to the producer; a watcher reads single
records with ``poll()``. Records of the first ``SKIP_SECONDS`` are marked and not counted. The last
one of each partition is marked too and ends the watch.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import OFFSET_END as END
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.results import percentiles

SKIPPED, COUNTED, LAST = range(3)
_HEAD: Final = struct.Struct(">qb")
_PADDING: Final = bytes(200 - _HEAD.size)
_SLOWEST_TICK_S: Final = 0.001
_BURST: Final = 40
_FLUSH_S: Final = 60
_READY_S: Final = 30.0
_LOST_S: Final = 60.0
_LINGER_FROM_RATE: Final = 5000


def record(mark: int, now_ns: int) -> bytes:
    """Return a record's value."""
    return _HEAD.pack(now_ns, mark) + _PADDING


def read(value: bytes, now_ns: int) -> tuple[int, float]:
    """Return mark and age in milliseconds."""
    sent_ns, mark = _HEAD.unpack_from(value)
    return mark, (now_ns - sent_ns) / 1e6


def produce(
    bootstrap: str, topic: str, partitions: int, rate: int, seconds: float, skip_seconds: float
) -> dict[str, float]:
    """Produce at the rate, in small ticks; return the outcome."""
    linger_ms = 0 if rate < _LINGER_FROM_RATE else 1
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": linger_ms})
    tick_s = max(_SLOWEST_TICK_S, _BURST / rate) if rate >= _LINGER_FROM_RATE else 1 / rate
    total, skipped = int(rate * (seconds + skip_seconds)), int(rate * skip_seconds)
    began = time.monotonic()
    sent = 0
    while sent < total:
        due = min(total, int((time.monotonic() - began) * rate))
        for number in range(sent, due):
            mark = SKIPPED if number < skipped else COUNTED
            producer.produce(topic, record(mark, time.time_ns()), partition=number % partitions)
        sent = max(sent, due)
        producer.poll(0)
        ahead = began + (sent / rate) + tick_s - time.monotonic()
        if ahead > 0:
            time.sleep(min(ahead, tick_s))
    took = time.monotonic() - began
    for number in range(partitions):
        producer.produce(topic, record(LAST, time.time_ns()), partition=number)
    left = producer.flush(_FLUSH_S)
    return {"records": sent, "seconds": round(took, 3), "left": left}


def watch(bootstrap: str, topic: str, partitions: Sequence[int]) -> dict[str, object]:
    """Watch partitions from their end until the last record of each; return milliseconds."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench-probe", "enable.auto.commit": False}
    )
    consumer.assign([_at_end(consumer, topic, number) for number in partitions])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    ages: dict[int, list[float]] = {number: [] for number in partitions}
    open_ones = set(partitions)
    heard = time.monotonic()
    while open_ones and time.monotonic() - heard < _LOST_S:
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            continue
        now_ns = time.time_ns()
        heard = time.monotonic()
        mark, age_ms = read(message.value(), now_ns)
        if mark == COUNTED:
            ages[message.partition()].append(age_ms)
        elif mark == LAST:
            open_ones.discard(message.partition())
    consumer.close()
    return {
        "records": sum(map(len, ages.values())),
        "all": percentiles(age for values in ages.values() for age in values),
        "max_by_partition": {n: round(max(values), 3) for n, values in ages.items() if values},
        "unfinished": sorted(open_ones),
    }


def _at_end(consumer: Consumer, topic: str, number: int) -> TopicPartition:
    """Return the current log end; OFFSET_END would be resolved too late."""
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, number, END), timeout=_READY_S)
    return TopicPartition(topic, number, high)


def main() -> None:
    """Run the command of the arguments and print the outcome as JSON."""
    role, bootstrap, topic, *rest = sys.argv[1:]
    outcome: dict[str, object]
    if role == "produce":
        partitions, rate = int(rest[0]), int(rest[1])
        outcome = dict(produce(bootstrap, topic, partitions, rate, float(rest[2]), float(rest[3])))
    else:
        outcome = watch(bootstrap, topic, [int(number) for number in rest[0].split(",")])
    sys.stdout.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main()
