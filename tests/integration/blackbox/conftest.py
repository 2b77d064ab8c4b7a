"""A stage for each scenario, on brokers that all share; the Java clients are compiled once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.conftest import BrokerFactory
from tests.integration.blackbox.programs import compile_clients
from tests.integration.blackbox.stage import Stage

from srm_lab.stack.kafka import KafkaBroker


@pytest.fixture(scope="session")
def java_clients(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Class path of the Java clients."""
    return compile_clients(tmp_path_factory.mktemp("java-clients"))


@pytest.fixture
def primary(broker_factory: BrokerFactory) -> KafkaBroker:
    """A cluster that may die: only one test uses it."""
    return broker_factory("P")


@pytest.fixture
def quiet_stage(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path, java_clients: str
) -> Iterator[Stage]:
    """Two clusters with a topic, no replicator yet, and no clients."""
    made = Stage(clusters, tmp_path, java_clients)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def stage(quiet_stage: Stage) -> Iterator[Stage]:
    """Two clusters with a topic, replicated both ways, and no clients yet."""
    with quiet_stage.site.replicating():
        yield quiet_stage
