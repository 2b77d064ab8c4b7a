"""A topic is deleted and re-created on both sides, and some groups have not run since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.integration.kafka_tools import run_tool
from tests.integration.returning import Pair
from tests.waiting import eventually

from srm.clock import now_ms
from srm.domain.groups.group_sync import all_entries
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.checkpoints import emit, forget_topics, read_checkpoints
from srm.engine.groups.group_sync import sync
from srm.engine.ports import FlowContext
from srm.wiring import open_flow, open_move
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

PROBE = Path(__file__).with_name("RemoteClusterProbe.java")


@pytest.fixture
def pair(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Iterator[Pair]:
    made = Pair(clusters["P"], clusters["B"], tmp_path, ["Payments"])
    yield made
    made.close()


@pytest.fixture
def context(pair: Pair) -> Iterator[FlowContext]:
    with open_flow(pair.config, pair.flow) as found:
        yield replace(found, config=replace(found.config, sync_group_offsets_enabled=True))


def translated_by_kafka(pair: Pair, group: str) -> set[str]:
    """Return what RemoteClusterUtils says of a group."""
    place = pair.servers[pair.b], pair.p, group
    said = run_tool(str(PROBE), *place, check=False).stdout.splitlines()
    return {line for line in said if line.startswith("offset ")}


def test_places_in_a_former_life_neither_move_a_group_nor_stop_its_sync(
    pair: Pair, context: FlowContext
) -> None:
    [topic], target = pair.topics, pair.clusters[pair.b]
    remote, unique = pair.remote(topic), pair.unique
    asleep, awake = f"asleep-{unique}", f"awake-{unique}"
    place = TopicPartition(remote, 0)
    with pair.replicating(pair.flow):
        pair.produce(pair.p, topic, [f"former {n}" for n in range(100)])
        pair.wait_until_copied([topic])
    for group in (asleep, awake):
        pair.commit(pair.p, group, {topic: 90})
    assert emit(context).written == 2
    assert sync(context).applied == 2
    former = target.committed_offsets(asleep)[place]
    assert former >= 90
    assert translated_by_kafka(pair, asleep) == {f"offset {place} {former}"}
    former_id = target.topics()[remote].topic_id

    pair.create_again(pair.p, topic)
    pair.create_again(pair.b, remote)
    for cluster in pair.clusters.values():
        eventually(
            lambda at=cluster: not at.committed_offsets(asleep), "brokers forget the offsets"
        )
    with pair.replicating(pair.flow):
        pair.produce(pair.p, topic, [f"new {n}" for n in range(30)])
        pair.wait_until_copied([topic])

    # One group works again, on the target, below where srm once wrote.
    pair.commit(pair.b, awake, {remote: 5})
    pair.commit(pair.p, awake, {topic: 20})
    assert sync(context, [awake]).actions == {"write": 1}
    assert emit(context).written == 1
    copied = dict(enumerate(pair.values(pair.b, remote), pair.log(pair.b, remote)[0][0]))
    assert copied[target.committed_offsets(awake)[place]] == "new 20"

    # The other has not run since, and the source dies.
    with open_move(pair.config, pair.p, pair.b, unplanned=True) as moving:
        request = MoveRequest("failover", pair.p, pair.b, (topic,), (asleep,), mode="unplanned")
        [plan] = moves.plan(moving, replace(request, slow_writer_seconds=0.0), "m").groups
        report = moves.carry_out(moving, "m", poll_seconds=0.1)
    [moved] = [position for position in plan.positions if position.target_topic == remote]
    assert (moved.resume, moved.skipped) == (0, 0)
    assert report.ok, report.problems
    assert target.committed_offsets(asleep)[place] == 0

    # Its checkpoint is deleted with the topic, and MM2's readers still read all others.
    forget_topics(target, internal_topics.checkpoints(pair.p), {former_id}, now_ms())
    rows = target.compacted_topic(internal_topics.checkpoints(pair.p)).read()
    assert {
        c.group: c.downstream_offset for c in (Checkpoint.decode(*r) for r in rows.items())
    } == {
        asleep: 0,
        awake: target.committed_offsets(awake)[place],
    }
    for group in (asleep, awake):
        offset = target.committed_offsets(group)[place]
        assert translated_by_kafka(pair, group) == {f"offset {place} {offset}"}
    ledger = all_entries(target.compacted_topic(internal_topics.LEDGER).read())
    ids = {e.group: e.topic_id for e in ledger if e.topic_partition == place}
    assert ids == dict.fromkeys((asleep, awake), target.topics()[remote].topic_id)
    found = read_checkpoints(target, internal_topics.checkpoints(pair.p), target.topics())
    assert {one.group for one in found} == {asleep, awake}
