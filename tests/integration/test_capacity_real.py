"""``srm capacity`` beside a running source: what it says of traffic that is known."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench.data import encode, records_in, sized
from bench.wire import BrokerSocket
from typer.testing import CliRunner

from srm.cli.main import app
from srm.engine.ports import TopicSpec
from srm.kafka.cluster import KafkaCluster
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

CONFIG = """
clusters = P, B
P.bootstrap.servers = {source}
B.bootstrap.servers = {target}
P->B.enabled = true
P->B.topics = {prefix}-.*
"""
ROUNDS = 40
RECORDS = 16


def large_lz4() -> bytes:
    """Return a batch of about 16 KB that lz4 could not make smaller."""
    source = random.Random(1)
    return encode([(None, source.randbytes(990)) for _ in range(RECORDS)], "lz4")


def test_what_is_known_of_the_traffic_is_what_is_read(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    prefix = f"capacity-{uuid.uuid4().hex[:8]}"
    large, small, quiet = f"{prefix}-large", f"{prefix}-small", f"{prefix}-quiet"
    source = clusters["P"].bootstrap
    props = {"bootstrap.servers": source}
    with KafkaCluster("P", props, props, props) as cluster:
        counts = {large: 4, small: 8, quiet: 2}
        cluster.create_topics([TopicSpec(name, n, 1, {}) for name, n in counts.items()])
    batch, tiny = large_lz4(), sized(1000)[0]
    with BrokerSocket(source) as broker:
        broker.fill(large, [dict.fromkeys(range(4), batch)] * ROUNDS)
        broker.fill(small, [dict.fromkeys(range(8), tiny)] * ROUNDS)
    config = tmp_path / "srm.properties"
    config.write_text(CONFIG.format(source=source, target=clusters["B"].bootstrap, prefix=prefix))

    command = ["capacity", "--config", str(config), "--window", "1", "--json"]
    result = CliRunner().invoke(app, command)

    assert result.exit_code == 0, result.output
    [flow] = json.loads(result.stdout)
    # Heartbeats of other tests are copied without being selected.
    found = {row["topic"]: row for row in flow["topics"] if row["topic"].startswith(prefix)}
    assert {name: row["load"]["partitions"] for name, row in found.items()} == counts
    assert found[large]["load"]["batch_bytes"] == len(batch)
    assert found[large]["load"]["codec"] == "lz4"
    assert found[small]["load"]["batch_bytes"] == 1000
    assert found[small]["load"]["codec"] == "none"
    assert found[quiet]["load"]["megabytes_per_s"] == 0
    # All was written within the last hour, and nothing while it was watched.
    per_hour = {large: 4 * ROUNDS * RECORDS, small: 8 * ROUNDS * records_in(1000), quiet: 0}
    for name, records in per_hour.items():
        assert found[name]["rates"]["hour"] == pytest.approx(records / 3600), name
        assert found[name]["rates"]["day"] == pytest.approx(records / 86_400), name
        assert found[name]["rates"]["now"] == 0, name
    assert found[large]["load"]["megabytes_per_s"] == pytest.approx(
        4 * ROUNDS * len(batch) / 3600 / 1e6
    )
    assert {row["peak"] for name, row in found.items() if name != quiet} == {"hour"}
    assert found[quiet]["sampled"] is False
    assert flow["capacity"]["slots"] == 1
