"""What is told of the past of a flow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.service_views import look_at
from tests.unit.engine.copying_records import ORIGINAL, CopiedTopic

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    DriverRequest,
    PartitionNotes,
)
from srm.engine.flows.supervision import DriverStatus
from srm.service.views.documents import Event
from srm.service.views.flow_rows import FlowLook
from srm.service.views.views import events

DRIVER = DriverStatus("d", "local-1", "host-7", 42, 0, age_ms=500, alive=True, started_ms=7)


def of_replicator(look: FlowLook, driver: DriverStatus) -> list[tuple[int, str]]:
    assert look.view is not None
    view = replace(look.view, status=replace(look.view.status, driver=driver))
    found: tuple[Event, ...] = events(replace(look, view=view), (), ())
    return [(one.time_ms, one.text) for one in found if one.kind == "replicator"]


@pytest.fixture
def look(world: CopiedTopic) -> FlowLook:
    return look_at(world.forward)


def test_whoever_has_stopped_the_replicator_is_named_for_each_of_its_flows(look: FlowLook) -> None:
    stopped = replace(DRIVER, alive=False, ended=True, stopped_by="ada@ops", stopped_flow="another")

    [ended, began] = of_replicator(look, stopped)

    assert ended[1] == "ada@ops has stopped the replicator on host-7"
    assert began == (7, "the replicator on host-7 started")


def test_after_a_restart_the_stop_and_the_new_beginning_are_told(look: FlowLook) -> None:
    again = replace(DRIVER, obeyed=DriverRequest("r", "stop", "ada@ops", 5))

    assert of_replicator(look, again) == [
        (7, "the replicator on host-7 started"),
        (5, "ada@ops requested a stop of the replicator"),
    ]


def test_a_replicator_that_was_killed_is_told_as_last_heard_of(look: FlowLook) -> None:
    [(_, text), _] = of_replicator(look, replace(DRIVER, alive=False))

    assert text == "the replicator on host-7 sent its last heartbeat"


def test_a_decision_to_copy_after_others_is_one_event(world: CopiedTopic) -> None:
    assigned = AssignedPartition("Topic", 0, "id", "P.Topic", "remote")
    world.maps.notes[ORIGINAL] = (PartitionNotes.after_others(assigned, "ann", 7),)

    found = events(look_at(world.forward), (), ())

    of_notes = [(one.kind, one.time_ms) for one in found if one.partition == 0]
    assert of_notes == [("decision", 7)]
