"""All who say what a commit means on the other side say the same number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests import moves
from tests.unit.domain.groups.copy_history import COPY, ORIGINAL, History, histories

from srm.domain.groups.translation import Direction
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.checkpoints import survey
from srm.engine.groups.group_sync import sync
from srm.engine.groups.translate import translate
from srm.engine.moves.context import MoveContext

GROUP = "billing"
REQUEST = MoveRequest("failover", "P", "B", ("Payments",), (GROUP,), accept_skips=True)


def build(sites, history: History) -> None:
    """Let both clusters hold what happened."""
    source, target = sites.clusters["P"], sites.clusters["B"]
    source.produce("Payments", 0, history.stable)
    if len(history.original) > history.stable:
        source.produce_in("somebody", "Payments", 0, len(history.original) - history.stable)
    target.produce("P.Payments", 0, len(history.copy))
    source.trim("Payments", 0, history.starts[0])
    target.trim("P.Payments", 0, history.starts[1])
    reader = sites.maps[sites.flow("P->B").config.flow]
    reader.maps[ORIGINAL] = history.offset_map
    reader.notes[ORIGINAL] = history.notes


@settings(deadline=None, max_examples=150)
@given(histories(), st.sampled_from(["forward", "reverse"]), st.data())
def test_checkpoint_group_sync_move_and_translate_say_the_same(
    new_sites: Callable[[], object], history: History, direction: Direction, data: st.DataObject
) -> None:
    assume(history.starts[1] <= history.reported)  # the fake keeps records for markers
    sites = new_sites()
    build(sites, history)
    flow, place = (
        (sites.flow("P->B"), ORIGINAL) if direction == "forward" else (sites.flow("B->P"), COPY)
    )
    end = len(history.original) if direction == "forward" else len(history.copy)
    commit = data.draw(st.integers(0, end + 1))
    flow.source.commit(GROUP, {place: commit})

    [checkpoint] = survey(flow).outcomes
    [synced] = sync(flow, dry_run=True).decisions
    asked = translate(sites.flow("P->B"), place, commit, reverse=direction == "reverse")
    position = position_of(sites, flow.config.flow.source, place)

    assert asked.state == checkpoint.state
    if position.state != "no-commit":  # a move calls it so where there is nothing to read
        assert position.state == checkpoint.state
        assert position.remaining == asked.remaining == checkpoint.remaining
    assert synced.offset == checkpoint.downstream_offset
    if checkpoint.state == "translated":
        assert position.resume == asked.to_offset == checkpoint.downstream_offset
        assert position.skipped == asked.skipped == checkpoint.total_skipped
    else:
        assert position.resume is None
        assert asked.to_offset is None


def position_of(sites, source: str, place: TopicPartition):
    target = "B" if source == "P" else "P"
    flows = sites.flow(f"{source}->{target}"), sites.flow(f"{target}->{source}")
    context = MoveContext(*flows, pause=lambda _seconds: None)
    plan = moves.plan(context, replace(REQUEST, source=source, target=target), dry_run=True)
    [row] = [p for p in plan.groups[0].positions if p.topic == place.topic]
    return row
