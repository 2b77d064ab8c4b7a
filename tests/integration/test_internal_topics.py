"""Kafka's own replication policies, run on the names of srm's topics."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.integration.kafka_tools import run_tool

from srm.domain.names import internal_topics

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(300)]

PROBE: Final = str(Path(__file__).with_name("InternalTopicsProbe.java"))
OURS: Final = {
    internal_topics.LEDGER,
    internal_topics.ROUTING,
    internal_topics.CLIENTS,
    internal_topics.MOVES,
    internal_topics.METRICS_WINDOWS,
    internal_topics.SERVICES,
    internal_topics.offset_map("P"),
    internal_topics.offset_map("restore.P"),
    internal_topics.replication("P"),
    internal_topics.control("P"),
    internal_topics.raw_metrics("P"),
    internal_topics.verification("P"),
}
OF_CONNECT: Final = {"connect-configs", "connect-offsets", "connect-status"}
OF_USERS: Final = {
    "orders",
    "orders.internal",
    "orders-internal",
    "P.orders.internal",
    "mm2-orders",
    "orders.checkpoints",
    "_orders",
}


@pytest.mark.parametrize("policy", ["default", "identity"])
@pytest.mark.parametrize("separator", [".", "-", "_"])
def test_mirrormaker_calls_each_of_our_topics_internal_and_we_each_of_its(
    policy: str, separator: str
) -> None:
    theirs = {
        internal_topics.offset_syncs("B", separator),
        internal_topics.checkpoints("P", separator),
        "__consumer_offsets",
        ".hidden",
    }
    everything = OURS | theirs | OF_CONNECT | OF_USERS
    done = run_tool(PROBE, policy, separator, *everything)

    internal = set(done.stdout.split())
    assert internal == OURS | theirs
    ours = {name for name in everything if internal_topics.is_internal(name, separator)}
    assert ours == internal | OF_CONNECT
