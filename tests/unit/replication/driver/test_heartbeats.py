"""Heartbeats of flows that are copied, and of those that are off."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.mm2 import decode_heartbeat
from tests.overrides import overrides
from tests.replicating import configure
from tests.waiting import DEADLINE_S, eventually

from srm.config.model import FlowConfig
from srm.domain.names.internal_topics import HEARTBEATS
from srm.domain.names.topics import Flow
from srm.errors import AuthorizationError
from srm.replication.driver import duties
from srm.replication.driver.duties import disabled_flows, emit_heartbeats
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.flows import flow_config

P_TO_B, B_TO_P = Flow("P", "B"), Flow("B", "P")
SERVERS = {"P": "p:1", "B": "b:1", "C": "c:1"}


def off(flow: Flow) -> FlowConfig:
    return flow_config(flow, enabled=False, emit_heartbeats_enabled=True)


def beats(cluster: FakeCluster) -> set[Flow]:
    rows = cluster.compacted_topic(HEARTBEATS).read()
    return {decode_heartbeat(key, value).flow for key, value in rows.items()}


def emit_until(cluster: FakeCluster, *flows: FlowConfig, done: object) -> None:
    """Emit until ``done``, a function without arguments, returns something true."""
    stop = threading.Event()
    thread = threading.Thread(target=emit_heartbeats, args=(cluster, flows, lambda: 7, stop))
    thread.start()
    try:
        eventually(done, "the heartbeats")
    finally:
        stop.set()
        thread.join(DEADLINE_S)


def test_each_cluster_of_an_application_gets_heartbeats_of_the_flows_that_are_off(
    tmp_path: Path,
) -> None:
    config = configure(tmp_path / "p", SERVERS, "C->P.emit.heartbeats.enabled = false")

    found = disabled_flows(config, [P_TO_B])

    assert {alias: [one.flow for one in flows] for alias, flows in found.items()} == {
        "P": [B_TO_P],
        "B": [Flow("C", "B")],
    }


def test_a_source_without_a_heartbeats_topic_gets_one() -> None:
    source = FakeCluster("P")
    flows = off(B_TO_P), off(Flow("C", "P"))

    emit_until(source, *flows, done=lambda: HEARTBEATS in source.topics() and beats(source))

    assert beats(source) == {B_TO_P, Flow("C", "P")}
    assert overrides(source, [HEARTBEATS])[HEARTBEATS]["cleanup.policy"] == "compact"


def test_a_source_that_refuses_heartbeats_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source, tries = FakeCluster("P"), list[int]()
    monkeypatch.setattr(duties, "_LONG_REFUSED_S", 0.0)

    def refuse(_: object) -> None:
        tries.append(1)
        raise AuthorizationError("cluster P: grant Create on topic heartbeats")

    monkeypatch.setattr(source, "create_topics", refuse)
    settings = flow_config(B_TO_P, emit_heartbeats_enabled=True)

    emit_until(source, settings, done=lambda: len(tries) > 1)

    [line] = [one.getMessage() for one in caplog.records]
    assert line.startswith(
        "B->P: writing heartbeats (unless emit.heartbeats.enabled = false) fails"
    )
