"""Segments of the formats before Kafka 0.11, which a broker still gives out, are copied."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from tests.conftest import BrokerFactory
from tests.integration.copying import CopyLab

from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.versions]


BEGAN_MS = time.time_ns() // 1_000_000


def _old_segment(count: int) -> bytes:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    for offset in range(count):
        builder.append(
            offset, timestamp=BEGAN_MS + offset, key=b"k", value=f"old {offset}".encode()
        )
    return bytes(builder.build())


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_an_old_segment_is_copied_and_what_follows_it_too(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, version: str
) -> None:
    source = broker_factory("P", version=version)
    lab = CopyLab(source.bootstrap, clusters["B"].bootstrap)
    [p] = lab.topic(configs={"retention.ms": "-1"})
    source.stop()
    folder = source.home / "data" / f"{p.topic}-0"
    [segment] = folder.glob("*.log")
    for index in folder.glob("*index"):
        index.unlink()
    segment.write_bytes(_old_segment(30))
    source.start()
    source.wait_ready()
    producer = lab.producer()
    producer.produce(p.topic, b"new", partition=0)
    assert producer.flush(120) == 0
    lab.assign("0", [p])

    with lab.running():
        lab.wait_until_copied([p])

    lab.assert_equal([p])
    values = [
        r.value for _, r in read_log(lab.target_props["bootstrap.servers"], p.target_topic, 0)
    ]
    assert values == [*(f"old {n}".encode() for n in range(30)), b"new"]
