"""An unplanned move after topics were deleted and re-created on both sides."""

from __future__ import annotations

from dataclasses import replace

from tests import moves
from tests.overrides import overrides
from tests.unit.engine.moves.control.moving import busy_world
from tests.unit.engine.moves.giving_up import COPY, Disaster, disaster

from srm.config.model import Config
from srm.domain.groups.group_sync import LedgerEntry
from srm.domain.groups.mm2_records import Checkpoint, TopicIds
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.engine.groups.checkpoints import emit
from srm.engine.groups.group_sync import apply_exact
from srm.engine.moves.context import ensure_topics

__all__ = ["disaster"]


def test_a_group_that_has_not_run_since_begins_at_the_start_of_the_new_log(
    disaster: Disaster,
) -> None:
    world = disaster.world
    ids = TopicIds("former topic", "former copy").metadata()
    old = Checkpoint("old", COPY, 5000, 5100, ids)
    world.b.compacted_topic(internal_topics.checkpoints("P")).write({old.key(): old.value()})
    apply_exact(world.context().forward, {"old": {COPY: 90}}, operation="former move")
    world.b.delete_topic("P.Payments")
    world.b.add_topic("P.Payments")
    world.b.produce("P.Payments", 0, 101)
    disaster.copied(Position(100, 101, 107), heard_ms=world.clock())
    world.b.trim("P.Payments", 0, 3)
    world.p.fail()

    [group] = disaster.planned(groups=("old",)).groups
    disaster.through("hold", "apply", "go")

    position, _empty = group.positions
    assert (position.resume, position.skipped, position.lag) == (3, 3, 97)
    assert world.offsets("B", "old") == {"P.Payments-0": 3, "Payments-0": 0}
    assert moves.report(disaster.context, "m1").ok


def test_a_place_in_a_partition_that_no_copy_has_keeps_no_group_from_moving(
    disaster: Disaster,
) -> None:
    world = disaster.world
    lost, copy_id = TopicPartition("P.Payments", 5), world.b.topics()["P.Payments"].topic_id
    ensure_topics(world.context())
    entry = LedgerEntry("far", lost, copy_id, None, 40, "P", "former move", settled=True)
    world.b.compacted_topic(internal_topics.LEDGER).write({entry.key(): entry.value()})
    world.p.fail()

    plan = disaster.planned()
    disaster.through("hold", "apply", "go")

    assert plan.blocking == ()
    [warning] = [line for line in plan.warnings if "Payments-5" in line]
    assert warning.startswith("group far, Payments-5: committed offset None on P cannot be")
    assert world.offsets("B", "near") == {"P.Payments-0": 96, "Payments-0": 0}
    assert world.offsets("B", "far") == {"P.Payments-0": 10, "Payments-0": 0}


def test_the_clock_of_the_host_that_wrote_for_a_group_decides_nothing(disaster: Disaster) -> None:
    world = disaster.world
    forward = world.context().forward
    ahead = replace(forward, now_ms=lambda: world.clock() + 3_600_000)
    apply_exact(ahead, {"near": {COPY: 40}})
    world.passing()
    world.p.commit("near", {TopicPartition("Payments", 0): 90})
    emit(forward)
    world.p.fail()

    [near] = [group for group in disaster.planned().groups if group.group == "near"]

    assert [position.resume for position in near.positions] == [91, 0]


def test_brokers_stamp_the_records_whose_times_are_compared(config: Config) -> None:
    """A checkpoint and an own write of srm: the newer one is where a group continues."""
    world = busy_world(config)
    forward = world.context().forward
    emit(forward)
    apply_exact(forward, {"near": {COPY: 40}})

    topics = (internal_topics.checkpoints("P"), internal_topics.LEDGER)
    configs = overrides(world.b, topics)
    assert {one: configs[one]["message.timestamp.type"] for one in topics} == dict.fromkeys(
        topics, "LogAppendTime"
    )
