"""Moves that wait in one triggerer share one set of clients for each cluster."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.replicating import configure

from srm.engine.control.control_topics import ensure_compacted
from srm_airflow.clusters import SharedClusters
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.airflow, pytest.mark.kafka]

TOPIC = "srm-shared-clusters"


def followers() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("srm-tables-shared")]


def test_many_waits_have_one_consumer_of_our_topics_and_the_last_one_closes_it(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    servers = {f"shared{name}": clusters[name].bootstrap for name in ("P", "B")}
    config, shared = configure(tmp_path / "srm.properties", servers), SharedClusters()

    with shared.open(config, servers) as first:
        target = first["sharedB"]
        ensure_compacted(target, TOPIC, 1)
        target.compacted_topic(TOPIC).write({b"key": b"1"})
        with shared.open(config, ["sharedB"]) as second:
            assert second["sharedB"] is target
            assert second["sharedB"].compacted_topic(TOPIC).read() == {b"key": b"1"}
        target.compacted_topic(TOPIC).write({b"key": b"2"})
        assert target.compacted_topic(TOPIC).read() == {b"key": b"2"}, "its own write is seen"
        assert followers() == ["srm-tables-sharedB"]

    assert followers() == []


def test_other_logins_are_other_clients(tmp_path: Path) -> None:
    ends = {"P": "127.0.0.1:1", "B": "127.0.0.1:2"}
    one = configure(tmp_path / "one.properties", ends)
    other = configure(tmp_path / "other.properties", ends, "B.sasl.username = other")
    shared = SharedClusters()

    with shared.open(one, ends) as first, shared.open(other, ends) as second:
        assert first["P"] is second["P"]
        assert first["B"] is not second["B"]
