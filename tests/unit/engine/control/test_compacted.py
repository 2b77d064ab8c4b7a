"""Topics that hold state of srm: how they are created."""

from __future__ import annotations

import pytest
from tests.overrides import overrides

from srm.domain.names import internal_topics
from srm.engine.control.control_topics import (
    compacted_spec,
    create_control_topics,
    ensure_compacted,
)
from srm_lab.testing.fake_cluster import FakeCluster


@pytest.mark.parametrize(
    ("replicas", "in_sync"), [(4, "2"), (3, "2"), (2, "1"), (1, "1"), (-1, None)], ids=str
)
def test_state_can_be_written_while_one_broker_of_its_replicas_is_dead(
    replicas: int, in_sync: str | None
) -> None:
    """Of -1 the broker chooses both; its default of 2 would stop the moves of a cluster of two."""
    assert compacted_spec("state", replicas).configs.get("min.insync.replicas") == in_sync


def test_control_topics_and_tables_are_created_so() -> None:
    cluster = FakeCluster("B")
    create_control_topics(cluster, 3)
    ensure_compacted(cluster, "table", 1, 3, {"retention.ms": "1000"})

    names = [internal_topics.MOVES, internal_topics.ROUTING, internal_topics.LEDGER, "table"]
    found = overrides(cluster, names)

    assert {name: found[name]["min.insync.replicas"] for name in names} == dict.fromkeys(names, "2")
    assert found["table"]["retention.ms"] == "1000"
