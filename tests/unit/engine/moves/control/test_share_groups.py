"""Share groups in an unplanned move: the newest checkpoint says of which kind a group is."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.engine.moves.giving_up import COPY, Disaster, disaster

from srm.domain.groups.mm2_records import Checkpoint, TopicIds
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.checkpoints import emit
from srm.engine.groups.group_sync import sync

__all__ = ["disaster"]


def test_a_share_group_is_created_from_its_checkpoint(disaster: Disaster) -> None:
    disaster.world.p.commit("queue", {TopicPartition("Payments", 0): 95})
    disaster.world.p.share("queue", {TopicPartition("Payments", 0): 3})
    emit(disaster.world.context().forward)
    disaster.world.p.fail()

    plan = disaster.planned(groups=("queue",))
    disaster.through("hold", "apply")

    assert disaster.world.b.groups(["queue"])["queue"].kind == "share"
    assert disaster.world.b.committed_offsets("queue")[COPY] == 96
    assert any("records that it acknowledged after them" in line for line in plan.warnings)


def test_a_share_group_that_was_synced_after_its_checkpoint_is_one_still(
    disaster: Disaster,
) -> None:
    place, forward = TopicPartition("Payments", 0), disaster.world.context().forward
    disaster.world.p.commit("queue", {place: 95})
    disaster.world.p.share("queue", {place: 3})
    emit(forward)
    disaster.world.p.commit("queue", {place: 96})
    disaster.world.passing(1_000)
    sync(replace(forward, config=replace(forward.config, sync_group_offsets_enabled=True)))
    disaster.world.p.fail()

    plan = disaster.planned(groups=("queue",))

    assert plan.groups[0].positions[0].resume == 97
    assert any("share group queue continues" in line for line in plan.warnings)


def test_a_group_is_of_the_kind_of_its_newest_checkpoint(disaster: Disaster) -> None:
    """As a share group on B it would refuse its consumers; one of its name was deleted on P."""
    world = disaster.world
    ids = TopicIds(world.p.topics()["B.Payments"].topic_id, world.b.topics()["Payments"].topic_id)
    old = Checkpoint("near", TopicPartition("Payments", 0), 0, 0, ids.metadata(is_share=True))
    world.b.compacted_topic(internal_topics.checkpoints("P")).write({old.key(): old.value()})
    world.passing()
    world.p.commit("near", {TopicPartition("Payments", 0): 96})
    emit(world.context().forward)
    world.p.fail()

    disaster.planned()
    disaster.through("hold", "apply")

    assert world.b.groups(["near"])["near"].kind == "classic"
    assert world.offsets("B", "near")["P.Payments-0"] == 97
