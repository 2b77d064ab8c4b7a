"""Warm-up of brokers: the same traffic before each engine, for equal conditions."""

from __future__ import annotations

import time
from typing import Final

import psutil
from confluent_kafka import Consumer, TopicPartition

from bench.clusters import Pair, Site
from bench.data import Payload, batch_rounds, copies
from bench.errors import BenchError
from bench.tree import come_to_rest, cpu_seconds

TOPIC: Final = "warm-broker"
_PARTITIONS: Final = 4
_WARMED: Final = (
    (Payload(1000, batch_records=16), 240_000),
    (Payload(1000, batch_records=128), 240_000),
    (Payload(200), 40_000),
)
_LIMIT_S: Final = 120.0
_QUIET_CORES: Final = 0.1
_QUIET_S: Final = 30.0
_LOOK_S: Final = 1.0


def warm_brokers(pair: Pair) -> None:
    """Write to both brokers and read it again: batches of 16 and of 128 KB, and single records.

    Then wait until their JIT compilers are idle.
    """
    sites = (pair.source, pair.target)
    for site in sites:
        for payload, records in _WARMED:
            site.create(TOPIC, _PARTITIONS)
            rounds = batch_rounds(payload, _PARTITIONS, records)
            with site.connect() as broker:
                broker.fill(TOPIC, copies(payload, _PARTITIONS, rounds))
            _read(site, rounds * _PARTITIONS * payload.batch_records)
            site.clean(frozenset(site.topics() - {TOPIC}))
    brokers = [psutil.Process(site.broker.pid) for site in sites]
    come_to_rest(lambda: sum(map(cpu_seconds, brokers)), _QUIET_CORES, _QUIET_S, _LOOK_S)


def _read(site: Site, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": "bench-warming"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(_PARTITIONS)])
    deadline = time.monotonic() + _LIMIT_S
    while records > 0:
        records -= sum(message.error() is None for message in consumer.consume(10_000, 0.2))
        if time.monotonic() > deadline:
            raise BenchError(f"the broker of {site.broker.alias} cannot be warmed")
    consumer.close()
