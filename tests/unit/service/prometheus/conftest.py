"""A flow of which everything is known that metrics can tell: windows, a move, a drill, a proof."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.conftest import client, views, world  # noqa: F401 - fixtures
from tests.unit.service.prometheus.moves import released_move, reported_move, running_move

from srm.domain.groups.proof import FlowProof
from srm.domain.metrics import Statistics
from srm.domain.moves.disaster import Drill, DrillGroup
from srm.engine.flows.supervision import DriverStatus
from srm.service.views.series import Measured
from srm.service.views.views import Views

MEASURED = Measured(
    60_000,
    120_000,
    records=600,
    bytes=90_000,
    byte_rate=Statistics(1000.0, 2000.0, 9000.0, 6),
    replication_latency_ms=Statistics(2.0, 80.0, 2700.0, 600),
    checkpoint_latency_ms=Statistics(10.0, 40.0, 50.0, 2),
    replication_records_lag=Statistics(),
)
DRIVER = DriverStatus("d", "local-1", "host-7", 42, 0, age_ms=500, alive=True)
DRILL = Drill(
    "d1",
    "P->B",
    "done",
    50_000,
    "host",
    1,
    groups=(DrillGroup("audit", 1, 1, 1),),
    steps={"shadow": 1.5, "read": 2.0},
)


@pytest.fixture
def everything(world: CopiedTopic) -> Views:  # noqa: F811 - the fixture
    look = look_at(world.forward)
    assert look.view is not None
    assert look.view.status.standing is not None
    proof = FlowProof("P->B", 70_000, 250, groups=1, sampled=1, proven=1)
    status = look.view.status
    status = replace(status, standing=replace(status.standing, proof=proof), driver=DRIVER)
    view = replace(look.view, status=status)
    measured = {"": MEASURED, "Topic": MEASURED}
    look = replace(look, view=view, looked_ms=MEASURED.end_ms + 20_000, measured=measured)
    moves = [running_move("m1", "held"), released_move("m2"), reported_move("m3")]
    made = still_views(look, moves={"B": moves})
    [watch] = made._watches.values()
    watch.look = replace(watch.look, drills=(DRILL,))  # type: ignore[misc]
    return made
