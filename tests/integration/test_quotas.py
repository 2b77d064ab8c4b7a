"""Limits: what a flow is allowed to take, by its own file and by the brokers, is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.integration.copying import CopyLab
from tests.integration.kafka_tools import client_quota

from srm.kafka.wire import brokers
from srm.kafka.wire.security import read_security
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

RATE = 1_000_000
SIZE = 6_000_000
BROKER_RATE = 1_200_000
BROKER_SIZE = 30_000_000
SMALL_RATE = 300_000
SMALL_SIZE = 12_000_000
SILENCE_S = 8.0
"""8 MB are on their way before the broker demands its first pause, of some 18 s: longer than the
copy waits for a silent broker."""
TOOK_S = 4.0
"""Without a limit each copy takes 2 s, most of them until the next report. A broker takes the mean
of ten seconds, so 12 MB are free, and 8 MB may be under way by the time it demands a pause: the
rest takes it 8 s."""


def _copy(
    source: str,
    target: str,
    size: int,
    partition_count: int = 2,
    **config: object,
) -> tuple[float, str]:
    """Copy so many bytes; return the seconds from before the slot began, and the topic."""
    patient = {"socket.timeout.ms": "120000"}  # no request fails because the machine is busy
    lab = CopyLab(*({"bootstrap.servers": at, **patient} for at in (source, target)), **config)
    partitions = lab.topic(partition_count)
    producer = lab.producer(**{"batch.size": 20_000})
    for number in range(size // 1000):
        partition = number % partition_count
        producer.produce(partitions[0].topic, os.urandom(1000), partition=partition)
    assert producer.flush(120) == 0
    lab.assign("0", partitions)
    began = time.monotonic()
    with lab.running():
        lab.wait_until_copied(partitions)
        seconds = time.monotonic() - began
    lab.assert_equal(partitions)
    return seconds, partitions[0].topic


def test_a_flow_with_a_limit_copies_no_faster(clusters: Mapping[str, KafkaBroker]) -> None:
    source, target = clusters["P"].bootstrap, clusters["B"].bootstrap

    seconds, _ = _copy(source, target, SIZE, max_bytes_per_second=RATE)

    assert seconds > TOOK_S


@pytest.mark.parametrize(
    ("cluster", "quota"), [("P", "consumer_byte_rate"), ("B", "producer_byte_rate")]
)
def test_a_brokers_quota_slows_the_copy_down_and_harms_nothing(
    clusters: Mapping[str, KafkaBroker],
    cluster: str,
    quota: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, target = clusters["P"].bootstrap, clusters["B"].bootstrap

    with client_quota(clusters[cluster], quota, BROKER_RATE):
        seconds, topic = _copy(source, target, BROKER_SIZE)

    assert seconds > TOOK_S, "the broker's quota was too high to be felt"
    assert not _warnings(caplog, topic)


@pytest.mark.timeout(600)
def test_pauses_that_are_longer_than_a_silent_broker_is_waited_for_break_nothing(
    clusters: Mapping[str, KafkaBroker],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = clusters["P"].bootstrap, clusters["B"].bootstrap
    monkeypatch.setattr(  # of the copy alone: librdkafka's clients keep their time
        brokers,
        "read_security",
        lambda *of: replace(read_security(*of), request_timeout_s=SILENCE_S),
    )

    with client_quota(clusters["B"], "producer_byte_rate", SMALL_RATE):
        _, topic = _copy(source, target, SMALL_SIZE, partition_count=12)

    assert not _warnings(caplog, topic)


def _warnings(caplog: pytest.LogCaptureFixture, topic: str) -> list[str]:
    """Return why partitions of a topic have stopped."""
    logged = [r for r in caplog.records if r.name == "srm.replication.copy.lifecycle"]
    said = [r.getMessage() for r in logged if r.levelname == "WARNING"]
    return [text for text in said if topic in text]
