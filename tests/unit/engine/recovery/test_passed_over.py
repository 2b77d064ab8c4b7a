"""A plan of the failback says what a group will not read any more of what was kept."""

from __future__ import annotations

from tests import moves

from srm.domain.flow_state.replication_records import PartitionNotes
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import Flow
from srm.domain.offset_map.offset_map import Run
from srm.engine.moves.records import MoveContext


def test_a_group_that_is_past_what_was_kept_is_warned_of(sites) -> None:
    flow = Flow("P", "B")
    sites.produce("P", 30)
    sites.runs[flow].append(Run(120, 101, 10))
    sites.clusters["B"].produce("P.Payments", 0, 10)
    sites.copy("P->B", records=0)
    kept = PartitionNotes.from_decision("keep", "r", ("Payments", 0, "id"), (100, 120), "kept", 0)
    sites.maps[flow].notes[sites.payments] = (kept,)
    sites.commit("B", "behind", "P.Payments", 101)
    sites.commit("B", "past", "P.Payments", 105)
    context = MoveContext(sites.flow("B->P"), sites.flow("P->B"))
    request = MoveRequest("failback", "B", "P", ("Payments",), ("behind", "past"))

    plan = moves.plan(context, request, "m1", dry_run=True)

    resumes = {
        g.group: {p.resume for p in g.positions if p.topic == "P.Payments"} for g in plan.groups
    }
    assert resumes == {"behind": {100}, "past": {124}}
    [warning] = [text for text in plan.warnings if "were kept" in text]
    assert "group past skips 20 offsets of Payments-0 that were kept on P" in warning
