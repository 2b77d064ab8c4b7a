"""A flow that brings copies back is the opposite flow, but for its topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from srm.config.loader import load_config
from srm.config.restoring import with_restore
from srm.domain.names.record_headers import RecordSettings
from srm.domain.names.topics import Flow
from srm.domain.recovery.restore import restore_flow
from srm.errors import ConfigError

P_TO_B = Flow("P", "B")
FILE = """
clusters = P, B
P.bootstrap.servers = p:1
B.bootstrap.servers = b:1
topics = .*
replication.policy.separator = _
B->P.replicator.max.bytes.per.second = 1000
B->P.tasks.max = 3
B->P.provenance.header.enable = true
B->P.producer.linger.ms = 77
"""


def test_it_copies_just_these_topics_with_the_limits_and_clients_of_the_way_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "srm.properties"
    path.write_text(FILE)
    flow = restore_flow(P_TO_B)

    config = with_restore(load_config(path), P_TO_B, ["P_a.b", "P_Payments"])

    settings = config.flow(flow)
    names = ("P_a.b", "P_axb", "P_Payments", "P_Other", "Payments", "heartbeats", "P_heartbeats")
    copied = [*filter(settings.names.selects, names)]
    assert copied == ["P_a.b", "P_Payments"]
    assert settings.enabled
    assert settings.names.remote("P_a.b") == "a.b"
    assert (settings.tasks_max, settings.max_bytes_per_second) == (3, 1000)
    assert settings.records == RecordSettings()
    assert config.client("P", "producer", flow)["linger.ms"] == "77"
    for kind in ("admin", "consumer", "producer"):
        source = config.cluster_clients("restore.B", flow)
        assert getattr(source, kind)["bootstrap.servers"] == "b:1"
    assert config.flow(P_TO_B) == load_config(path).flow(P_TO_B)


def test_a_cluster_that_is_not_listed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    path.write_text(FILE)

    with pytest.raises(ConfigError, match="X"):
        with_restore(load_config(path), Flow("X", "B"), [])
