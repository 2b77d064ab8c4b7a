"""Brokers get the same traffic before each engine, so that none finds them warmer than others."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from bench.clusters import Pair, Site
from bench.data import Payload, batch_rounds, copies
from bench.errors import BenchError

TOPIC: Final = "warm-broker"
_PARTITIONS: Final = 4
_RECORDS: Final = 240_000
_PAYLOADS: Final = (Payload(1000, batch_records=16), Payload(1000, batch_records=128))
_LIMIT_S: Final = 120.0


def warm_brokers(pair: Pair) -> None:
    """Write to both brokers and read it again, in batches of 16 and of 128 KB."""
    for site in (pair.source, pair.target):
        for payload in _PAYLOADS:
            site.create(TOPIC, _PARTITIONS)
            rounds = batch_rounds(payload, _PARTITIONS, _RECORDS)
            with site.connect() as broker:
                broker.fill(TOPIC, copies(payload, _PARTITIONS, rounds))
            _read(site, rounds * _PARTITIONS * payload.batch_records)
            site.clean(frozenset(site.topics() - {TOPIC}))


def _read(site: Site, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": "bench-warming"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(_PARTITIONS)])
    deadline = time.monotonic() + _LIMIT_S
    while records > 0:
        records -= sum(message.error() is None for message in consumer.consume(10_000, 0.2))
        if time.monotonic() > deadline:
            raise BenchError(f"the broker of {site.broker.alias} cannot be warmed")
    consumer.close()
