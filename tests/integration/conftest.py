"""What most integration tests begin with: a pair of sites with names of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.integration.moving import Site
from tests.integration.securing import SecuredBroker, secured_broker

from srm_lab.stack.kafka import KafkaBroker


@pytest.fixture
def site(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Iterator[Site]:
    """Clusters, topics and groups of this test alone on the brokers of the session."""
    with Site(clusters, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker
