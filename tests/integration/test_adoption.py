"""A remote topic that others have filled is adopted: copied after it, and mapped."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.copying import CopyLab, delete_before, described
from tests.waiting import eventually

from srm.clock import now_ms
from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.policy import IdentityReplicationPolicy
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Run, Translated
from srm.domain.recovery.adoption import SLOT
from srm.engine.cluster_ports import TopicSpec
from srm.engine.flows.supervision import pause_in_force
from srm.engine.map_reader import KafkaMapReader
from srm.engine.ports import FlowContext
from srm.errors import ConflictError
from srm.kafka.state.driver_log import KafkaFlowSwitch
from srm.kafka.state.slot_state import MapStarts
from srm.kafka.state.writers import KafkaStateLog
from srm.kafka.wire.cluster import open_wire
from srm.replication.adoption import AdoptionContext, adopt, plan
from srm.replication.report import Reporter
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

COUNT = 100


@pytest.fixture
def lab(clusters: Mapping[str, KafkaBroker]) -> CopyLab:
    return CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)


def mirror(lab: CopyLab, p: AssignedPartition, *stretches: range) -> None:
    """Copy records of the source as MirrorMaker 2 does: some again, or not at all."""
    producer = Producer({**lab.target_props, "enable.idempotence": True})
    log = [record for _, record in read_log(lab.source_props, p.topic, p.partition)]
    for stretch in stretches:
        for record in log[stretch.start : stretch.stop]:
            producer.produce(
                p.target_topic,
                record.value,
                key=record.key,
                partition=p.partition,
                timestamp=max(0, record.timestamp[1]),  # 0 is the time of writing
            )
    assert producer.flush(60) == 0


def values(lab: CopyLab, p: AssignedPartition) -> list[int]:
    return [int(r.value or b"") for _, r in read_log(lab.target_props, p.target_topic, 0)]


def later_ms() -> int:
    return now_ms() + 60_000


def context(lab: CopyLab) -> AdoptionContext:
    maps = KafkaMapReader(lab.target, lab.source, lab.flow)
    switch = KafkaFlowSwitch(lab.flow, lab.target, ClusterClients.alike(lab.target_props))
    config = lab.config
    # Slots that have ended left no driver that says so: they count as silent after a while.
    flow = FlowContext(config, lab.source, lab.target, maps, maps, later_ms, switch=switch)
    state = KafkaStateLog(lab.flow.target, lab.target_props)
    properties = {lab.flow.source: lab.source_props, lab.flow.target: lab.target_props}
    return AdoptionContext(
        flow,
        lambda alias: open_wire(alias, properties[alias]),
        MapStarts(lab.flow, lab.target),
        lambda: Reporter(config, SLOT, state, state, lambda: 0),
        "ann",
    )


def store(lab: CopyLab, p: AssignedPartition, offset: int) -> None:
    """Write MirrorMaker 2's own record of its position."""
    place = {"cluster": lab.flow.source, "partition": p.partition, "topic": p.topic}
    key = json.dumps(["MirrorSourceConnector", place], separators=(",", ":")).encode()
    topic = f"mm2-offsets.{lab.flow.source}.internal"
    lab.target.create_topics([TopicSpec(topic, 3, 1, {"cleanup.policy": "compact"})])
    described(lab.target, topic)
    producer = Producer(lab.target_props)
    producer.produce(topic, b'{"offset":%d}' % offset, key=key)
    assert producer.flush(60) == 0


def test_the_copy_continues_after_what_others_copied_and_maps_it(lab: CopyLab) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    # Killed after 60, after 80, and while it repeats.
    mirror(lab, p, range(60), range(50, 80), range(70, 75))
    store(lab, p, 74)
    lab.assign("0", [p])
    with lab.running():
        eventually(lambda: is_stopped(lab, p), "the slot leaves the topic alone")

    there = context(lab)
    found = plan(there, [p.topic])
    [copy] = found.copies
    assert copy.aligned is not None
    assert (copy.state, copy.stored, copy.aligned.source_next) == ("adopt", 74, 80)
    assert (copy.aligned.copied, copy.aligned.repeated) == (80, 15)
    before = [*range(60), *range(50, 80), *range(70, 75)]
    assert values(lab, p) == before, "a plan writes nothing"
    done = adopt(there, found)

    assert (done.topics, done.records) == ((p.topic,), 80)
    lab.assign("0", [p])  # the pause took it away; a driver would do that
    with lab.running():
        lab.produce(p, range(COUNT, COUNT + 5))
        lab.wait_until_copied([p])
    assert values(lab, p) == [*before, *range(80, COUNT + 5)]
    assert lab.offset_map(p).runs[:2] == (Run(0, 0, 50), Run(50, 60, 30))
    assert_lagging_groups_read_in_order(lab, p, COUNT + 5)
    again = plan(context(lab), [p.topic])
    assert [one.state for one in again.copies] == ["own"]


def assert_lagging_groups_read_in_order(lab: CopyLab, p: AssignedPartition, count: int) -> None:
    known, target = lab.offset_map(p), read_log(lab.target_props, p.target_topic, 0)
    for committed in range(count):
        place = known.forward(committed)
        assert isinstance(place, Translated)
        rest = [int(record.value or b"") for at, record in target if at >= place.offset]
        assert rest[0] == committed
        assert [n for n in dict.fromkeys(rest) if n >= committed] == list(range(committed, count))


def is_stopped(lab: CopyLab, p: AssignedPartition) -> bool:
    status = lab.status(p)
    return status is not None and "srm import mm2" in f"{status.reason} {status.action}"


def test_what_others_skipped_has_to_be_accepted_and_is_noted(lab: CopyLab) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    mirror(lab, p, range(20), range(30, 40))

    found = plan(context(lab), [p.topic])
    [copy] = found.copies
    assert copy.state == "differs"
    assert copy.reason == "10 records not copied at source offsets 20 to 29"
    assert adopt(context(lab), found).topics == ()
    assert adopt(context(lab), found, accepted=True).topics == (p.topic,)

    lab.assign("0", [p])
    with lab.running():
        lab.wait_until_copied([p])
    assert values(lab, p) == [*range(20), *range(30, COUNT)]
    status = lab.status(p)
    assert status is not None
    notes = lab.state().notes_of({p.topic: p.topic_id})[TopicPartition(p.topic, 0)]
    assert [(note.lost_from, note.lost_to) for note in notes] == [(20, 30)]


def test_records_without_a_time_are_found_under_the_time_that_their_copies_got(
    lab: CopyLab,
) -> None:
    [p] = lab.topic()
    producer = lab.producer()
    for number in range(COUNT):
        producer.produce(p.topic, b"%d" % number, key=b"key", timestamp=-1)
    assert producer.flush(60) == 0
    mirror(lab, p, range(60))

    [copy] = plan(context(lab), [p.topic]).copies

    assert copy.aligned is not None
    assert (copy.state, copy.aligned.source_next) == ("adopt", 60)


@pytest.mark.parametrize("policies", [("compact", "delete"), ("delete", "compact")])
def test_each_side_of_one_name_is_compacted_by_its_own_policy(
    clusters: Mapping[str, KafkaBroker], policies: tuple[str, str]
) -> None:
    lab = CopyLab(
        clusters["P"].bootstrap, clusters["B"].bootstrap, policy=IdentityReplicationPolicy()
    )
    name = f"T{uuid.uuid4().hex[:6]}"
    for cluster, policy in zip((lab.source, lab.target), policies, strict=True):
        cluster.create_topics([TopicSpec(name, 1, 1, {"cleanup.policy": policy})])
    [p] = lab.assignable(name)
    lab.produce(p, range(COUNT))
    mirror(lab, p, range(10))
    producer = Producer(lab.target_props)
    producer.produce(p.target_topic, b"of a record that the source has compacted", key=b"key")
    assert producer.flush(60) == 0
    mirror(lab, p, range(10, 50))

    [copy] = plan(context(lab), [p.topic]).copies

    compacts = policies[0] == "compact"
    assert copy.state == ("adopt" if compacts else "differs")
    assert copy.aligned is not None
    assert copy.aligned.compacted == compacts


def test_a_copy_that_grows_after_the_plan_is_left_alone(lab: CopyLab) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    mirror(lab, p, range(50))
    found = plan(context(lab), [p.topic])
    mirror(lab, p, range(50, 60))

    with pytest.raises(ConflictError, match="has grown since"):
        adopt(context(lab), found)
    again = plan(context(lab), [p.topic])
    assert adopt(context(lab), again).records == 60


@pytest.mark.parametrize(
    ("stretches", "source_next"),
    [
        ([range(COUNT, COUNT + 30)], COUNT + 30),
        ([range(80, COUNT + 30), range(90, 95)], COUNT + 30),
        ([range(80, 90)], COUNT),
    ],
)
def test_what_others_copied_after_srm_is_adopted_as_well(
    lab: CopyLab, stretches: list[range], source_next: int
) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    lab.assign("0", [p])
    with lab.running():
        lab.wait_until_copied([p])
    lab.produce(p, range(COUNT, COUNT + 50))
    mirror(lab, p, *stretches)

    found = plan(context(lab), [p.topic])
    [copy] = found.copies
    assert (copy.state, copy.aligned and copy.aligned.source_next) == ("adopt", source_next)
    adopt(context(lab), found)
    lab.assign("0", [p])
    with lab.running():
        lab.wait_until_copied([p])
    copied = [number for stretch in stretches for number in stretch]
    assert values(lab, p) == [*range(COUNT), *copied, *range(source_next, COUNT + 50)]
    assert_lagging_groups_read_in_order(lab, p, COUNT + 50)


def test_an_import_that_was_killed_is_run_again(lab: CopyLab) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    mirror(lab, p, range(50))
    there, broken = context(lab), RuntimeError("killed")

    class Killed(Reporter):
        def prepare(self, *_arguments: Any, **_options: Any) -> Any:
            raise broken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reporter, "prepare", Killed.prepare)
        patch.setattr(KafkaFlowSwitch, "resume", lambda *_, **__: True)
        with pytest.raises(RuntimeError, match="killed"):
            adopt(there, plan(there, [p.topic]))

    there = context(lab)
    adopt(there, plan(there, [p.topic]))
    lab.assign("0", [p])
    with lab.running():
        lab.wait_until_copied([p])
    lab.assert_equal([p])


@pytest.mark.parametrize("deleted_at", ["source", "target"])
def test_what_one_side_has_deleted_is_adopted_by_the_position_of_mirror_maker(
    lab: CopyLab, deleted_at: str
) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    mirror(lab, p, range(COUNT))
    if deleted_at == "source":
        delete_before(lab.source_props, p.topic, COUNT)
    else:
        delete_before(lab.target_props, p.target_topic, COUNT)
    assert [one.state for one in plan(context(lab), [p.topic]).copies] == ["undecided"]
    store(lab, p, COUNT - 1)

    found = plan(context(lab), [p.topic])
    assert [one.state for one in found.copies] == ["adopt"]
    assert adopt(context(lab), found).topics == (p.topic,)
    lab.produce(p, range(COUNT, COUNT + 5))
    lab.assign("0", [p])
    with lab.running():
        lab.wait_until_copied([p])
    kept = [] if deleted_at == "target" else [*range(COUNT)]
    assert values(lab, p) == [*kept, *range(COUNT, COUNT + 5)]


@pytest.mark.parametrize("sign", ["copy", "position"])
def test_a_mirror_maker_that_runs_during_the_walk_is_noticed(lab: CopyLab, sign: str) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    mirror(lab, p, range(50))
    store(lab, p, 10)

    def work(_line: str) -> None:
        if sign == "copy":
            mirror(lab, p, range(50, 60))
        else:
            store(lab, p, 49)

    found = plan(context(lab), [p.topic], show=work)

    name = f"{p.target_topic}-0" if sign == "copy" else f"mm2-offsets.{lab.flow.source}.internal"
    assert found.running.startswith(name)
    with pytest.raises(ConflictError, match=f"MirrorMaker 2 still runs: {name}"):
        adopt(context(lab), found)


def test_an_import_that_was_killed_before_its_end_leaves_no_pause(lab: CopyLab) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    mirror(lab, p, range(50))
    there = context(lab)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaFlowSwitch, "resume", lambda *_, **__: True)
        adopt(there, plan(there, [p.topic]))
    assert pause_in_force(there.flow) is not None

    there = context(lab)
    assert adopt(there, plan(there, [p.topic])).topics == ()
    assert pause_in_force(there.flow) is None
