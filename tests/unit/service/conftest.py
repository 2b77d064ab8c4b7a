"""One flow with ten copied records, three that are not, and a group, seen by the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from fastapi.testclient import TestClient
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.engine.status.test_loss_forecast import running

from srm.engine.groups.checkpoints import emit
from srm.service.app import create_app
from srm.service.routes.actions import Actions
from srm.service.views import watching
from srm.service.views.flow_rows import Committed
from srm.service.views.views import Views


@pytest.fixture(autouse=True)
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for clusters that cannot be reached, unless a test has others."""
    away = Committed(error="nobody is there")
    monkeypatch.setattr(watching, "query_cluster", lambda *_: away)


@pytest.fixture
def world() -> CopiedTopic:
    made = CopiedTopic.in_part()
    made.commit("audit", 8)
    made.p.join("audit")
    running(made)
    emit(made.forward)
    return made


@pytest.fixture
def views(world: CopiedTopic) -> Views:
    return still_views(look_at(world.forward))


@pytest.fixture
def acting(world: CopiedTopic, views: Views) -> Actions:
    """Actions on the fakes."""
    return Actions(views.config, lambda alias: nullcontext({"P": world.p, "B": world.b}[alias]))


@pytest.fixture
def client(views: Views, acting: Actions) -> Iterator[TestClient]:
    app = create_app(views, acting=acting)
    with TestClient(app, raise_server_exceptions=False) as opened:
        yield opened
