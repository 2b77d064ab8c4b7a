"""Commands over real brokers are seen as traces: an emission, and a move by its steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest
from confluent_kafka import Producer
from tests.integration.moving import Site
from tests.otlp import Collector, collecting
from tests.waiting import eventually

from srm.domain.moves.progress import RUN_STEPS
from srm.domain.names.topics import Flow, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


# By itself it leaves a collector that is busy behind after a second.
PATIENT = (
    "from srm import telemetry; telemetry._FLUSH_S = 60.0; from srm.cli.main import main; main()"
)


def srm(collector: Collector, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    variables = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_METRICS_EXPORTER": "none",
        **environ,
    }
    return subprocess.run(
        [sys.executable, "-c", PATIENT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
    )


def copied(site: Site, group: str) -> Mapping[TopicPartition, int]:
    """Write records and commit in the middle of one partition."""
    producer = Producer(site.config.client(site.p, "producer"))
    for number in range(30):
        producer.produce(site.topic, b"%d" % number, partition=number % 3)
    assert producer.flush(60) == 0
    places = [TopicPartition(f"{site.p}.{site.topic}", number) for number in range(3)]
    site.clusters[site.p].commit_idle(group, {TopicPartition(site.topic, 0): 4})

    def ends() -> Mapping[TopicPartition, int]:
        return site.clusters[site.b].log_ends(places)

    eventually(lambda: sum(ends().values()) >= 30, "everything is copied")
    return ends()


def test_an_emission_and_each_step_of_a_move_are_spans(site: Site) -> None:
    flow, group = Flow(site.p, site.b), site.group("audit")
    with collecting() as collector, site.replicating():
        copied(site, group)
        options = ("--config", str(site.path), "--json")

        emitted = srm(
            collector,
            *("checkpoints", "emit", "--flow", str(flow), "--group", group, *options),
            TRACEPARENT=f"00-{TRACE}-{PARENT}-01",
        )
        assert emitted.returncode == 0, emitted.stderr
        emission = collector.named("checkpoints.emit")
        assert (emission.trace_id, emission.parent_id) == (TRACE, PARENT)
        assert emission.attributes["srm.flow"] == str(flow)
        assert emission.attributes["srm.written"] == 1

        ends = ("--source", site.p, "--target", site.b)
        what = ("--topic", site.topic, "--group", group, "--slow-writer-seconds", "1", "--yes")
        moved = srm(collector, "failover", "run", *ends, *what, *options)
        report = json.loads(moved.stdout)
        refused = srm(
            collector,
            *("failover", "run", "--operation", "failback", *ends, *what, *options),
            *("--move-id", report["move_id"]),
        )
        assert refused.returncode

    whole = [span for span in collector.spans if span.name == "move"]
    steps = [span for span in collector.spans if span.parent_id == whole[0].span_id]
    wanted = ["move.plan", "move.approve", *(f"move.{step.name}" for step in RUN_STEPS)]
    assert [span.name for span in steps] == wanted
    assert {span.attributes["srm.move"] for span in (*steps, *whole)} == {report["move_id"]}
    assert {span.attributes["srm.flow"] for span in steps} == {str(flow)}
    assert whole[0].attributes["srm.ok"] == report["ok"]
    assert whole[0].attributes["srm.rpo_records"] == report["rpo_records"]
    assert whole[1].is_error
    assert whole[1].attributes["error.type"]
    assert whole[1].trace_id == whole[0].trace_id, "all that is done to a move is one trace"
