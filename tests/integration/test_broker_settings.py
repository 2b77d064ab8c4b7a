"""The settings of a cluster's brokers, which claims depend on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from srm.config.model import ClusterClients
from srm.kafka.cluster import KafkaCluster
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(400)]


def settings_of(servers: str) -> dict[str, str]:
    with KafkaCluster("X", ClusterClients.alike({"bootstrap.servers": servers})) as cluster:
        return cluster.broker_configs()


def test_settings_are_read_from_every_broker_and_one_that_hangs_holds_nobody_up(
    cluster_factory: Callable[..., list[KafkaBroker]],
) -> None:
    brokers = cluster_factory("X", 2, **{"producer.id.expiration.ms": "60000"})
    every_broker = ",".join(broker.bootstrap for broker in brokers)

    everybody = settings_of(every_broker)
    hangs = brokers[1].pid
    assert hangs is not None
    os.kill(hangs, signal.SIGSTOP)
    try:
        the_rest = settings_of(brokers[0].bootstrap)
    finally:
        os.kill(hangs, signal.SIGCONT)

    assert everybody["producer.id.expiration.ms"] == "60000"
    assert the_rest["producer.id.expiration.ms"] == "60000"
