"""Flows between real brokers: their configuration, and their drivers and slots in threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.waiting import DEADLINE_S

from srm.clock import now_ms
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.flow_state.replication_records import DriverHeartbeat
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.ports import FlowContext
from srm.kafka.cluster import KafkaCluster
from srm.kafka.state.driver_log import KafkaDriverLog
from srm.replication.copy.slot import SlotSpec
from srm.replication.driver.discovery import Discovery
from srm.replication.driver.driver import FlowDriver
from srm.spark.slot import run_slot
from srm.wiring import open_flow

PATIENT: Final = {"refresh_s": 0.5, "slot_timeout_s": 300.0, "grace_s": 300.0}
"""On a busy machine a living slot is silent for seconds; no test that uses this loses one."""

Work = Callable[[threading.Event], object]
"""A loop that ends when the event is set."""


def configure(file: Path, servers: Mapping[str, str], *lines: str) -> Config:
    """Write and load the properties of clusters with one broker each, by alias.

    The flow from the first cluster to the second is enabled; ``lines`` come last.
    """
    source, target = list(servers)[:2]
    topics = ("offset-syncs.topic.", "checkpoints.topic.", "heartbeats.topic.", "")
    text = (
        f"clusters = {', '.join(servers)}",
        *(f"{alias}.bootstrap.servers = {address}" for alias, address in servers.items()),
        f"{source}->{target}.enabled = true",
        *(f"{topic}replication.factor = 1" for topic in topics),
        *lines,
    )
    file.write_text("\n".join(text) + "\n")
    return load_config(file)


def slot_of(config: Config, flow: Flow, name: str = "0") -> SlotSpec:
    """Return what a slot of a flow needs."""
    sides = (config.cluster_clients(alias, flow) for alias in (flow.source, flow.target))
    return SlotSpec(config.flow(flow), name, *sides)


def driver_of(
    context: FlowContext,
    spec: SlotSpec,
    name: str = "driver",
    *,
    slots: Collection[str] = ("0",),
    timing: Mapping[str, Any] = PATIENT,
) -> FlowDriver:
    """Return the driver of an open flow, with the settings and clients of one of its slots."""
    flow = context.config.flow
    return FlowDriver(
        flow,
        KafkaDriverLog(flow, spec.target),
        Discovery(replace(context, config=spec.flow_config)),
        slots=slots,
        identity=lambda: DriverHeartbeat(
            name, f"app-{name}", "elsewhere", os.getpid(), now_ms(), flows=(str(flow),)
        ),
        **timing,
    )


@contextmanager
def one_broker_as_two_clusters() -> Iterator[None]:
    """Give each alias a cluster id of its own, though both clusters are one broker."""
    shared = KafkaCluster.known_id

    def known_id(cluster: KafkaCluster) -> str | None:
        found = shared.__get__(cluster)
        return found and f"{found} as {cluster.alias}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaCluster, "known_id", property(known_id))
        yield


@contextmanager
def at_work(*works: Work) -> Iterator[None]:
    """Run each in a thread until the block ends; the test fails with what any of them raises."""
    stop, failures = threading.Event(), list[BaseException]()

    def run(work: Work) -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001 -- the test reports it
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert not any(thread.is_alive() for thread in threads), "a thread did not stop"
    assert not failures, failures


@contextmanager
def replicating(
    config: Config, *flows: Flow, copying: Callable[[SlotSpec, threading.Event], object] = run_slot
) -> Iterator[None]:
    """Run the driver and one slot of each flow until the block ends."""

    def drive(spec: SlotSpec, stop: threading.Event) -> None:
        with open_flow(config, spec.flow_config.flow) as context:
            driver_of(context, spec).run(stop)

    specs = [slot_of(config, flow) for flow in flows]
    for spec in specs:
        with open_flow(config, spec.flow_config.flow) as context:
            Discovery(replace(context, config=spec.flow_config)).prepare()
    with at_work(*(partial(work, spec) for spec in specs for work in (drive, copying))):
        yield


@contextmanager
def application_of(file: Path, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``srm replicate`` as a user does, in a process group that is killed afterwards."""
    command = [sys.executable, "-m", "srm.cli.main", "replicate", "--config", str(file), *options]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)


def is_copied(context: FlowContext, topic: str) -> bool:
    """Whether reports say that all which a source topic holds now is copied."""
    partitions = context.source.topics()[topic].partitions
    ends = context.source.log_ends([TopicPartition(topic, n) for n in range(partitions)])
    maps = context.maps.load([topic])
    reached = {place: maps.get(place).position for place in ends}
    return all((at := reached[p]) is not None and at.source_next >= end for p, end in ends.items())
