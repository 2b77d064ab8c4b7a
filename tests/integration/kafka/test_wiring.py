"""A flow opened from a properties file works on real brokers."""

from __future__ import annotations

import pytest

from srm.config.loader import load_config
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.control import control_lists
from srm.engine.control.control_topics import ensure_compacted
from srm.wiring import open_cluster, open_flow

pytestmark = pytest.mark.kafka


def test_an_open_flow_reaches_both_clusters_with_the_control_lists_merged_in(
    clusters, tmp_path, unique
):
    source = f"P{unique}"
    path = tmp_path / "srm.properties"
    path.write_text(
        f"clusters = {source}, B\n"
        f"{source}.bootstrap.servers = {clusters['P'].bootstrap}\n"
        f"B.bootstrap.servers = {clusters['B'].bootstrap}\n"
        f"{source}->B.enabled = true\n"
        f"{source}->B.topics = Payments\n",
        encoding="utf-8",
    )
    config, flow = load_config(path), Flow(source, "B")
    with open_cluster(config, "B") as target:
        ensure_compacted(target, internal_topics.control(source))
        changes = control_lists.ListChange(add=("Orders",))
        control_lists.change(target, flow, "topics", changes, 1000)

    with open_flow(config, flow) as context:
        assert {"Payments", "Orders"} <= set(context.config.topics)
        assert context.source.cluster_id() != context.target.cluster_id()
        assert context.source.log_ends([TopicPartition(unique, 0)]) == {}
        assert not context.maps.load(["Payments"]).maps
        assert not context.reverse_maps.load(["Payments"]).maps
