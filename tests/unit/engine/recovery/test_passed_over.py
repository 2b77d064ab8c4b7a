"""A plan of the failback says what a group will not read any more of what was kept."""

from __future__ import annotations

import pytest
from tests import moves

from srm.domain.flow_state.replication_records import PartitionNotes
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import Flow
from srm.domain.offset_map.offset_map import Run
from srm.engine.groups.group_sync import apply_exact, sync
from srm.engine.moves.context import MoveContext


def with_kept(sites) -> MoveContext:
    """Let P keep its records 100 to 120, and copy the ten after them."""
    flow = Flow("P", "B")
    sites.produce("P", 30)
    sites.runs[flow].append(Run(120, 101, 10))
    sites.clusters["B"].produce("P.Payments", 0, 10)
    sites.copy("P->B", records=0)
    kept = PartitionNotes.from_decision("keep", "r", ("Payments", 0, "id"), (100, 120), "kept", 0)
    sites.maps[flow].notes[sites.payments] = (kept,)
    return MoveContext(sites.flow("B->P"), sites.flow("P->B"))


@pytest.mark.parametrize("read_on_p", [None, 90])
def test_what_was_kept_counts_as_skipped_although_group_sync_has_passed_it(
    sites, read_on_p: int | None
) -> None:
    context = with_kept(sites)
    if read_on_p is not None:
        sites.commit("P", "past", "Payments", read_on_p)
    for at in (101, 105, 107):
        sites.commit("B", "past", "P.Payments", at)
        sync(context.forward)
    assert sites.committed("P", "past", "Payments") == 126
    request = MoveRequest("failback", "B", "P", ("Payments",), ("past",))

    plan = moves.plan(context, request, "m1", dry_run=True)

    assert any("group past skips 20 offsets of Payments-0" in text for text in plan.warnings)


def test_what_a_failback_has_counted_as_skipped_is_no_news_of_the_next(sites) -> None:
    context = with_kept(sites)
    sites.commit("B", "past", "P.Payments", 105)
    apply_exact(context.forward, {"past": {sites.payments: 124}}, operation="move m1")
    sites.commit("B", "past", "P.Payments", 107)
    sync(context.forward)
    assert sites.committed("P", "past", "Payments") == 126
    request = MoveRequest("failback", "B", "P", ("Payments",), ("past",))

    plan = moves.plan(context, request, "m2", dry_run=True)

    assert not any("were kept" in text for text in plan.warnings)


def test_a_group_that_is_past_what_was_kept_is_warned_of(sites) -> None:
    context = with_kept(sites)
    sites.commit("B", "behind", "P.Payments", 101)
    sites.commit("B", "past", "P.Payments", 105)
    request = MoveRequest("failback", "B", "P", ("Payments",), ("behind", "past"))

    plan = moves.plan(context, request, "m1", dry_run=True)

    resumes = {
        g.group: {p.resume for p in g.positions if p.topic == "P.Payments"} for g in plan.groups
    }
    assert resumes == {"behind": {100}, "past": {124}}
    [warning] = [text for text in plan.warnings if "were kept" in text]
    assert "group past skips 20 offsets of Payments-0 that were kept on P" in warning
