"""Limits: what a flow is allowed to take, by its own file and by the brokers, is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from tests.integration.copying import CopyLab
from tests.integration.kafka_tools import run_tool

from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

RATE = 1_000_000
SIZE = 3_000_000
BROKER_RATE = 1_200_000
BROKER_SIZE = 24_000_000
"""A broker takes the mean of ten seconds, so 12 MB are free, and 8 MB may be under way by the time
it asks for a pause: what is left is worth some seconds."""


def _copy(lab: CopyLab, size: int) -> float:
    """Copy so many bytes; return the seconds it took once the slot had begun."""
    partitions = lab.topic(2)
    producer = lab.producer(**{"batch.size": 20_000})
    for number in range(size // 1000):
        producer.produce(partitions[0].topic, os.urandom(1000), partition=number % 2)
    assert producer.flush(120) == 0
    lab.assign("0", partitions)
    with lab.running():
        began = time.monotonic()
        lab.wait_until_copied(partitions)
        seconds = time.monotonic() - began
    lab.assert_equal(partitions)
    return seconds


def test_a_flow_with_a_limit_copies_no_faster(clusters: Mapping[str, KafkaBroker]) -> None:
    source, target = clusters["P"].bootstrap, clusters["B"].bootstrap

    limited = _copy(CopyLab(source, target, max_bytes_per_second=RATE), SIZE)

    assert limited > SIZE / RATE - 1


@contextmanager
def _client_quota(broker: KafkaBroker, quota: str) -> Iterator[None]:
    """Limit the clients named srm on a broker, by Kafka's own tool."""
    tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap]
    tool += ["--entity-type", "clients", "--entity-name", "srm", "--alter"]
    run_tool(*tool, "--add-config", f"{quota}={BROKER_RATE}")
    try:
        yield
    finally:
        run_tool(*tool, "--delete-config", quota)


@pytest.mark.parametrize(
    ("cluster", "quota"), [("P", "consumer_byte_rate"), ("B", "producer_byte_rate")]
)
def test_a_brokers_quota_slows_the_copy_down_and_harms_nothing(
    clusters: Mapping[str, KafkaBroker],
    cluster: str,
    quota: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)

    with _client_quota(clusters[cluster], quota):
        seconds = _copy(lab, BROKER_SIZE)

    assert seconds > 1, "the broker's quota was too high to be felt"
    # A report that is late says that the machine is busy.
    troubled = {"srm.replication.slot.lifecycle", "srm.replication.slot.fetching"}
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert not [record for record in warnings if record.name in troubled]
