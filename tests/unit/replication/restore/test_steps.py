"""A rebuilt cluster gets its topics back, wherever the process that does it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest
from tests.overrides import overrides
from tests.unit.replication.restore.world import (
    BACK,
    FORWARD,
    HOLE,
    MARKER,
    WORST_DAY,
    KilledError,
    World,
)

from srm.domain.flow_state.replication_records import AssignedPartition, Pause
from srm.domain.groups.mm2_records import TopicIds
from srm.domain.moves.disaster import Outcome
from srm.domain.names import internal_topics
from srm.domain.names.policy import IdentityReplicationPolicy
from srm.domain.names.record_headers import (
    PROVENANCE_HEADER,
    ClusterIds,
    Provenance,
    RecordSettings,
    Transform,
)
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Translated
from srm.engine.map_reader import KafkaMapReader
from srm.errors import ConflictError, FencedError, UsageError
from srm.kafka.state.slot_state import MapStarts
from srm.replication.mapping import map_writer
from srm.replication.ports import DecodedRecord
from srm.replication.restore import topic_handover
from srm.replication.restore.flow_state import RestoreState, open_restores
from srm.replication.restore.steps import Restored, check, plan, restore

FIRST = [MARKER, 0, 1, HOLE, 2, MARKER, 3, 4]
PAYMENTS = [
    [*FIRST, HOLE, 10, HOLE, 11, HOLE, 12, 13, HOLE, 14, MARKER],  # of claims and compaction
    [MARKER],  # nothing was ever copied
    [],
]


@pytest.fixture(autouse=True)
def _small_records() -> Iterator[None]:
    """Blocks of two runs and chunks of two entries, so that a short map has them all."""
    with (
        patch.object(map_writer, "RUNS_PER_BLOCK", 2),
        patch.object(map_writer, "ENTRIES_PER_CHUNK", 2),
        patch.object(topic_handover, "RUNS_AT_ONCE", 1),
        patch.object(topic_handover, "RUNS_PER_REPORT", 3),
    ):
        yield


def world(**others) -> World:
    made = World({"Payments": PAYMENTS, **others})
    made.checkpoint("audit", TopicPartition("P.Payments", 0), old=977, downstream=6)
    made.life.writes = 0
    return made


def check_exact(made: World, topic: str = "Payments", partitions: int = 3) -> None:
    """Everything stands once on either side, and the flow goes on behind it."""
    maps = KafkaMapReader(made.b, made.p, FORWARD).load([topic])
    for number in range(partitions):
        original, copy = TopicPartition(topic, number), TopicPartition(f"P.{topic}", number)
        log, copied = made.logs["P", original], made.logs["B", copy]
        records = [entry for entry in log if isinstance(entry, int)]
        assert records == [entry for entry in copied if isinstance(entry, int)]
        known = maps.maps[original]
        pairs = made.pairs(original, copy)
        assert [
            (run.source_start + n, run.target_start + n)
            for run in known.runs
            for n in range(run.count)
        ] == pairs
        for here, there in pairs:
            assert known.forward(here) == Translated(there)
            assert known.backward(there + 1) == Translated(here + 1)
        ids = made.p.topics()[topic].topic_id, number
        assigned = AssignedPartition(
            topic, number, ids[0], f"P.{topic}", made.b.topics()[f"P.{topic}"].topic_id
        )
        start = MapStarts(FORWARD, made.b).load([assigned])[assigned]
        assert not isinstance(start, Exception)
        assert not [e for e in log[start.source_next :] if isinstance(e, int)]
        assert not [e for e in copied[start.target_next :] if isinstance(e, int)]
        assert not [e for e in log[: start.source_next] if e not in (*records, MARKER)]
        assert start.target_next == len(copied)


def test_everything_is_restored_once_and_the_flow_goes_on_behind_it() -> None:
    made = world()

    done = restore(made.context())

    assert done == Restored(("Payments",), 10, 1, goes_on=True, unrestored=())
    check_exact(made)
    assert not made.is_paused(made.b, FORWARD)
    assert made.is_paused(made.p, BACK)
    # The last thing in an original is a claim: who copied it back can write no more.
    assert made.epochs[f"{BACK}-Payments-0"] == 2
    assert made.logs["P", TopicPartition("Payments", 0)][-1] == MARKER
    assert overrides(made.p, ["Payments"])["Payments"] == {"retention.ms": "-1"}


def test_checkpoints_say_where_groups_stand_on_the_rebuilt_cluster() -> None:
    made = world()

    restore(made.context())

    place = TopicPartition("P.Payments", 0)
    [(there, _)] = [p for p in made.pairs(TopicPartition("Payments", 0), place) if p[1] == 4]
    assert made.checkpoints()["audit", place] == (there + 1, 6)
    [audit] = [one for one in made.records_of_checkpoints() if one.topic_partition == place]
    ids = made.p.topics()["Payments"].topic_id, made.b.topics()["P.Payments"].topic_id
    assert audit.topic_ids == TopicIds(*ids)


def writes_of_a_whole_restore() -> int:
    made = world(Orders=[[MARKER, 7, 8]])
    restore(made.context())
    return made.life.writes


def test_killed_at_any_write_and_run_again_it_ends_the_same() -> None:
    total = writes_of_a_whole_restore()
    assert total > 60
    for killed_at in range(1, total + 1):
        made = world(Orders=[[MARKER, 7, 8]])
        made.life.ends_at = killed_at
        with pytest.raises(KilledError):
            restore(made.context())
        made.life.ends_at = 10**9
        check_guarded(made)

        done = restore(made.context())

        assert done.goes_on, killed_at
        check_exact(made)
        check_exact(made, "Orders", 1)
        assert made.checkpoints()["audit", TopicPartition("P.Payments", 0)][0] < 20
        assert not made.is_paused(made.b, FORWARD)
        assert made.is_paused(made.p, BACK)


def check_guarded(made: World) -> None:
    """While the flow would copy anything twice, its pause cannot be ended otherwise."""
    forward = made.context().forward
    blocked = "".join(open_restores(forward))
    originals = made.p.topics()
    for (alias, place), log in made.logs.items():
        if alias != "P" or not [entry for entry in log if isinstance(entry, int)]:
            continue
        topic, copy = place.topic, f"P.{place.topic}"
        ids = originals[topic].topic_id, made.b.topics()[copy].topic_id
        told = RestoreState.read(made.p, BACK).position(
            made.b.topics()[copy], place.partition, ids[0]
        )
        known = RestoreState.read(made.b, FORWARD).position(
            originals[topic], place.partition, ids[1]
        )
        behind = known.source_next if known else 0
        if told and [entry for entry in log[behind:] if isinstance(entry, int)]:
            assert f"topic {topic} was interrupted" in blocked


def test_killed_again_and_again_and_compacted_in_between_it_ends_the_same() -> None:
    made = world(Orders=[[MARKER, 7, 8]])
    for lives in range(3, 400, 4):
        made.life.ends_at = made.life.writes + lives
        try:
            restore(made.context())
            break
        except KilledError:
            for cluster, alias in ((made.b, "P"), (made.p, BACK.source)):
                for name in (internal_topics.replication(alias), internal_topics.offset_map(alias)):
                    for number in range(cluster.partition_counts().get(name, 0)):
                        cluster.compact(name, number)
    else:
        raise AssertionError("it never came to an end")

    check_exact(made)
    check_exact(made, "Orders", 1)


def test_the_report_of_the_disaster_is_closed() -> None:
    made = world()

    restore(made.context())

    [value] = made.b.compacted_topic(internal_topics.MOVES).read().values()
    found = Outcome.decode(value)
    assert (found.move_id, found.flow, found.source_return) == ("m1", "P->B", "rebuilt")
    assert open_restores(made.context().forward) == ()


def test_run_again_when_all_is_done_it_writes_nothing() -> None:
    made = world()
    restore(made.context())
    before = made.life.writes

    done = restore(made.context())

    assert done.goes_on
    assert made.life.writes == before


def test_the_pause_stands_while_a_topic_is_not_restored() -> None:
    made = world(Orders=[[MARKER, 7, 8]])

    first = restore(made.context(), ["Payments"])

    assert first.unrestored == ("Orders",)
    assert not first.goes_on
    assert made.is_paused(made.b, FORWARD)
    assert "Orders" not in made.p.topics()

    assert restore(made.context(), ["Orders"]).goes_on
    check_exact(made)
    check_exact(made, "Orders", 1)
    assert not made.is_paused(made.b, FORWARD)


def test_a_flow_that_is_not_paused_is_left_alone() -> None:
    made = world()
    made.context().forward.own_switch.resume()
    before = made.life.writes

    with pytest.raises(ConflictError, match="not paused"):
        restore(made.context())

    assert made.life.writes == before


def test_a_cluster_that_has_come_back_with_its_data_is_left_alone() -> None:
    made = world()
    [former] = [t.topic_id for t in _copied(made)]
    made.p.add_topic("Payments", 3, topic_id=former)
    before = made.life.writes

    with pytest.raises(ConflictError, match="srm return"):
        restore(made.context())

    assert made.life.writes == before


def test_under_a_later_pause_a_restored_cluster_has_data_of_its_own() -> None:
    made = world()
    restore(made.context())
    topic = made.p.topics()["Payments"].topic_id
    copied = _copied(made)[0]
    again = type(copied)("Payments", topic, copied.target_topic, copied.target_topic_id, "n", "b")
    made.b.compacted_topic(internal_topics.replication("P")).write({again.key(): again.value()})
    made.context().forward.own_switch.pause(Pause("r2", "ann", "the second time", 9))

    with pytest.raises(ConflictError, match="srm return"):
        restore(made.context())

    assert made.is_paused(made.b, FORWARD)


def test_an_original_with_records_of_others_is_left_alone() -> None:
    made = world()
    made.p.add_topic("Payments", 3)
    made.append("P", TopicPartition("Payments", 2), 99)
    before = made.life.writes

    planned = plan(made.context())

    assert [each.state for each in planned.topics] == ["refused"]
    with pytest.raises(ConflictError, match="Payments-2 on P holds records"):
        check(planned)
    assert made.life.writes == before


def test_records_that_others_write_between_ours_are_found_before_the_flow_goes_on() -> None:
    made = world()
    context = made.context()
    copying = context.copy

    def copy(copies) -> None:
        made.p.life.ends_at = made.life.writes + 9
        try:
            copying(copies)
        except KilledError:
            made.p.life.ends_at = 10**9
            made.append("P", TopicPartition("Payments", 0), 99)
        copying(copies)

    with pytest.raises(ConflictError, match="Payments-0 on P holds a record at offset"):
        restore(_with_copy(context, copy))

    assert made.is_paused(made.b, FORWARD)


def test_records_that_others_write_after_the_end_are_copied_by_the_flow_that_goes_on() -> None:
    made = world()
    context = made.context()
    copying = context.copy

    def copy(copies) -> None:
        copying(copies)
        made.append("P", TopicPartition("Payments", 0), 99)

    assert restore(_with_copy(context, copy)).goes_on

    assigned = AssignedPartition(
        "Payments",
        0,
        made.p.topics()["Payments"].topic_id,
        "P.Payments",
        made.b.topics()["P.Payments"].topic_id,
    )
    start = MapStarts(FORWARD, made.b).load([assigned])[assigned]
    assert not isinstance(start, Exception)
    log = made.logs["P", TopicPartition("Payments", 0)]
    assert [e for e in log[start.source_next :] if isinstance(e, int)] == [99]


def test_a_restore_that_was_stopped_while_another_one_ended_leaves_its_work_alone() -> None:
    made = world()
    context = made.context()
    copying = context.copy

    def copy(copies) -> None:
        copying(copies)
        assert restore(made.context()).goes_on  # while this one did not get the processor

    with pytest.raises(FencedError, match="was claimed by another process"):
        restore(_with_copy(context, copy))

    check_exact(made)
    assert not made.is_paused(made.b, FORWARD)


def test_a_pause_that_was_written_in_between_is_left_alone() -> None:
    made = world()
    context = made.context()
    copying = context.copy

    def copy(copies) -> None:
        copying(copies)
        context.forward.own_switch.pause(Pause("r2", "bob", "unplanned failover m2", 9, "m2"))

    with pytest.raises(ConflictError, match="paused again by bob"):
        restore(_with_copy(context, copy))

    assert made.is_paused(made.b, FORWARD)


def test_a_settlement_that_looked_before_a_restore_began_cannot_end_the_pause() -> None:
    made = world()
    context = made.context()
    copying = context.copy

    def copy(copies) -> None:
        with pytest.raises(ConflictError, match="paused again"):
            context.forward.own_switch.resume(request=WORST_DAY.request)
        copying(copies)

    assert restore(_with_copy(context, copy)).goes_on
    check_exact(made)


def test_a_restore_whose_pause_was_settled_before_it_began_copies_nothing() -> None:
    made = world()
    context = made.context()

    def tell(line: str) -> None:
        if line.startswith("creating"):
            context.forward.own_switch.resume(request=WORST_DAY.request)

    with pytest.raises(ConflictError, match="does not stand"):
        restore(context, show=tell)

    assert not any(made.logs.get(("P", TopicPartition("Payments", n))) for n in range(3))


def test_the_flow_does_not_go_on_while_another_restore_copies_back() -> None:
    """What it copied from then on would come back to P as records of its own."""
    made = world()
    context = made.context()

    def tell(line: str) -> None:
        if line.startswith("handing over"):
            other = replace(WORST_DAY, request="r9")
            context.forward.own_switch.pause(other)  # as the other one begins

    with pytest.raises(ConflictError, match="paused again by"):
        restore(context, show=tell)

    assert made.is_paused(made.b, FORWARD)
    assert restore(context).goes_on
    check_exact(made)


def test_under_one_name_a_restore_is_refused_with_what_to_do_instead() -> None:
    context = world().context()
    policy = IdentityReplicationPolicy(source_alias="P")
    one_name = {"policy": policy, "back": replace(policy, source_alias="B"), "both_enabled": True}
    config = replace(context.forward.config, **one_name)

    with pytest.raises(UsageError, match="run srm return settle --flow 'P->B' --merge") as refused:
        plan(replace(context, forward=replace(context.forward, config=config)))
    assert "run B->P, which copies all of them" in str(refused.value)

    transform = Transform(RecordSettings(provenance=True), ClusterIds("b", "new"), "B", "T", "T")
    headers = ((PROVENANCE_HEADER, Provenance("old", "T", 1).value()),)
    assert not transform.drops(DecodedRecord(0, 1, b"k", b"v", headers))
    same = replace(transform, clusters=ClusterIds("b", "old"))
    assert same.drops(DecodedRecord(0, 1, b"k", b"v", headers))


def test_a_copy_that_is_not_restored_to_its_end_is_not_handed_over() -> None:
    made = world()

    with pytest.raises(ConflictError, match="run this again"):
        restore(_with_copy(made.context(), lambda _copies: None))

    assert made.is_paused(made.b, FORWARD)


def _with_copy(context, copy):
    return replace(context, copy=copy)


def _copied(made: World):
    return RestoreState.read(made.b, FORWARD).state.copied
