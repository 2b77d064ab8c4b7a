"""Policies on real brokers: names that stay, one way and both ways, and a policy of a user."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests import moves
from tests.integration.moving import begin, pass_gate
from tests.integration.one_name import IDENTITY, NamedTopic
from tests.replicating import configure, replicating
from tests.suffix_policy import SUFFIX_POLICY
from tests.waiting import eventually

from srm.client.consumer import FailoverConsumer
from srm.client.routing import RoutingWatcher
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine import verification
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.topic_sync import sync as sync_topics
from srm.engine.drill import run_drill
from srm.engine.groups.checkpoints import emit
from srm.engine.groups.group_sync import sync
from srm.engine.groups.translate import translate
from srm.engine.ports import FlowContext
from srm.engine.recovery import ReturnedFlow
from srm.engine.verification import VerificationRequest
from srm.engine.why.answer import list_topics
from srm.wiring import open_flow, open_move, open_return
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


class Pair(NamedTopic):
    """Two clusters under aliases of this test, with one topic of one partition on P."""

    def __init__(self, clusters: Mapping[str, KafkaBroker], home: Path, *lines: str) -> None:
        self.unique = uuid.uuid4().hex[:6]
        self.p, self.b, self.topic = f"P{self.unique}", f"B{self.unique}", f"T{self.unique}"
        servers = {self.p: clusters["P"].bootstrap, self.b: clusters["B"].bootstrap}
        own = (line.replace("B->P", f"{self.b}->{self.p}") for line in lines)
        selected = (f"topics = {self.topic}", "groups = .*", "sync.group.offsets.enabled = true")
        self.config: Config = configure(home / "srm.properties", servers, *selected, *own)
        with self.cluster(self.p) as source:
            source.create_topics([TopicSpec(self.topic, 1, 1, {})])

    @property
    def there(self) -> Flow:
        return Flow(self.p, self.b)

    @property
    def back(self) -> Flow:
        return self.there.reverse


def test_a_group_continues_under_the_same_name_one_way(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    pair = Pair(clusters, tmp_path, IDENTITY)
    pair.produce(pair.p, [f"{n}" for n in range(100)])
    pair.commit(pair.p, "g", pair.topic, 60)

    with replicating(pair.config, pair.there):
        pair.copied(pair.there)
        with open_flow(pair.config, pair.there) as context:
            found = translate(context, TopicPartition(pair.topic, 0), 60)
            back = translate(context, TopicPartition(pair.topic, 0), 60, reverse=True)
            rows = {row.topic: row for row in list_topics(context)[0]}
            emit(context, [pair.group("g")])
            sync(context, [pair.group("g")])
            plan = verification.plan(context, VerificationRequest((pair.topic,)))
        pair.commit(pair.p, "g", pair.topic, 70)
        pair.move(pair.p, pair.b, "g")
        with open_move(pair.config, pair.b, pair.p) as back_again:
            request = MoveRequest("failback", pair.b, pair.p, (pair.topic,), (pair.group("g"),))
            blocked = moves.plan(back_again, request, "back")

    assert f"{pair.back} is disabled" in blocked.blocking[0], "records of B would never reach P"
    assert pair.values(pair.b, pair.topic) == [f"{n}" for n in range(100)]
    assert (found.state, found.to_partition.topic, found.to_offset) == (
        "translated",
        pair.topic,
        60,
    )
    assert back.to_offset == 60
    assert (rows[pair.topic].remote_topic, rows[pair.topic].remote_partitions) == (pair.topic, 1)
    assert [(one.topic, one.remote_topic) for one in plan.ranges] == [(pair.topic, pair.topic)]
    moved = pair.committed(pair.b, "g", pair.topic)
    assert moved is not None
    assert pair.values(pair.b, pair.topic, moved)[0] == "70"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_record_of_the_largest_size_is_copied_with_the_header_of_its_origin(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path, is_there: bool
) -> None:
    """``is_there``: the copy exists before, with the limit of its broker."""
    pair = Pair(clusters, tmp_path, IDENTITY)
    if is_there:
        with pair.cluster(pair.b) as target:
            target.create_topics([TopicSpec(pair.topic, 1, 1, {})])
    settings = {**pair.config.client(pair.p, "producer"), "message.max.bytes": 2_000_000}
    producer = Producer({**settings, "compression.type": "none"})
    producer.produce(pair.topic, b"x" * (1_048_588 - 75), partition=0)
    assert producer.flush(60) == 0

    with replicating(pair.config, pair.there), open_flow(pair.config, pair.there) as context:
        if is_there:
            eventually(lambda: "MESSAGE_TOO_LARGE" in stops(context, pair.topic), "it stops")
            sync_topics(context)
        pair.copied(pair.there)

    assert [len(value) for value in pair.values(pair.b, pair.topic)] == [1_048_588 - 75]


def stops(context: FlowContext, topic: str) -> str:
    """Return why the first partition of a topic is stopped, empty if it is not."""
    status = (context.maps.load([topic]).statuses or {}).get(TopicPartition(topic, 0))
    return status.reason if status is not None and status.state == "stopped" else ""


def test_one_name_is_copied_both_ways_without_a_loop_and_groups_move_there_and_back(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    pair = Pair(clusters, tmp_path, IDENTITY, "B->P.enabled = true")
    pair.produce(pair.p, [f"p{n}" for n in range(100)])
    for group, offset in (("all", 100), ("behind", 60)):
        pair.commit(pair.p, group, pair.topic, offset)

    with replicating(pair.config, pair.there, pair.back):
        pair.copied(pair.there)
        eventually(lambda: pair.end(pair.b) > 100, "B has the topic")
        pair.copied(pair.there, pair.back)
        pair.move(pair.p, pair.b, "all", "behind")
        there = {group: pair.committed(pair.b, group, pair.topic) for group in ("all", "behind")}

        pair.produce(pair.b, [f"b{n}" for n in range(50)])
        first_of_b = pair.end(pair.b) - 50
        pair.commit(pair.b, "all", pair.topic, pair.end(pair.b))
        pair.commit(pair.b, "behind", pair.topic, first_of_b + 30)
        pair.copied(pair.there, pair.back)
        pair.move(pair.b, pair.p, "all", "behind")
        again = {group: pair.committed(pair.p, group, pair.topic) for group in ("all", "behind")}

        for burst in range(20):  # both sides write at once
            pair.produce(pair.p, [f"p{burst}-{n}" for n in range(20)])
            pair.produce(pair.b, [f"b{burst}-{n}" for n in range(20)])
        pair.copied(pair.there, pair.back)
        pair.copied(pair.there, pair.back)
        with open_move(pair.config, pair.p, pair.b) as context:
            emit(context.forward)
            drill = run_drill(context, (pair.topic,), (pair.group("all"), pair.group("behind")))
    verified = pair.verified(pair.there, pair.back)

    assert [(one.proven, one.problems) for one in drill.groups] == [(1, ()), (1, ())]
    assert drill.ok, drill.problems
    assert there["all"] is not None
    assert pair.values(pair.b, pair.topic, there["all"])[0] == "b0"
    assert there["behind"] is not None
    assert pair.values(pair.b, pair.topic, there["behind"])[0] == "p60"
    assert again["behind"] is not None
    assert pair.values(pair.p, pair.topic, again["behind"])[0] == "b30"
    assert again["all"] is not None
    assert not any(
        value in {f"b{n}" for n in range(50)}
        for value in pair.values(pair.p, pair.topic, again["all"])
    )
    of_p, of_b = (Counter(pair.values(alias, pair.topic)) for alias in (pair.p, pair.b))
    assert set(of_p.values()) == {1}
    assert of_p == of_b
    assert len(of_p) == 100 + 50 + 800
    assert verified == [("equal", 500), ("equal", 450)]


def test_what_both_clusters_hold_before_the_first_start_is_copied_both_ways(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    pair = Pair(clusters, tmp_path, IDENTITY, "B->P.enabled = true")
    with pair.cluster(pair.b) as target:
        target.create_topics([TopicSpec(pair.topic, 1, 1, {})])
    pair.produce(pair.p, [f"p{n}" for n in range(100)])
    pair.produce(pair.b, [f"b{n}" for n in range(60)])
    pair.commit(pair.p, "g", pair.topic, 40)

    with replicating(pair.config, pair.there, pair.back):
        pair.copied(pair.there, pair.back)
        pair.copied(pair.there, pair.back)
        pair.move(pair.p, pair.b, "g")
    with replicating(pair.config, pair.there, pair.back):
        pair.produce(pair.b, ["b60"])
        pair.copied(pair.there, pair.back)

    wanted = {*(f"p{n}" for n in range(100)), *(f"b{n}" for n in range(61))}
    for alias in (pair.p, pair.b):
        found = Counter(pair.values(alias, pair.topic))
        assert (set(found), set(found.values())) == (wanted, {1})
    moved = pair.committed(pair.b, "g", pair.topic)
    assert moved is not None
    assert {*pair.values(pair.b, pair.topic, moved)} >= wanted - {f"p{n}" for n in range(40)}
    assert {outcome for outcome, _ in pair.verified(pair.there, pair.back)} == {"equal"}


def test_clients_follow_a_move_there_and_back_under_one_name(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    pair = Pair(clusters, tmp_path, IDENTITY, "B->P.enabled = true")
    processed, stop, failures = list[str](), threading.Event(), list[BaseException]()

    def work(watcher: RoutingWatcher) -> None:
        try:
            settings = {"group.id": pair.group("app"), "auto.offset.reset": "earliest"}
            with FailoverConsumer(settings, watcher=watcher) as consumer:
                consumer.subscribe([pair.topic])
                while not stop.is_set():
                    message = consumer.poll(0.5)
                    if message is not None:
                        assert message.error() is None, message.error()
                        processed.append(message.value().decode())
        except BaseException as error:  # noqa: BLE001 -- the test reports it
            failures.append(error)

    def reads(count: int) -> None:
        eventually(lambda: len(processed) >= count or bool(failures), f"{count} are processed")

    pair.produce(pair.p, [f"p{n}" for n in range(50)])
    with replicating(pair.config, pair.there, pair.back), RoutingWatcher(pair.config) as watcher:
        pair.copied(pair.there)
        thread = threading.Thread(target=work, args=(watcher,), daemon=True)
        thread.start()
        try:
            reads(50)
            pair.copied(pair.there, pair.back)
            pair.move(pair.p, pair.b, "app")
            pair.produce(pair.b, [f"b{n}" for n in range(30)])
            reads(80)
            pair.copied(pair.there, pair.back)
            pair.move(pair.b, pair.p, "app")
            pair.produce(pair.p, [f"q{n}" for n in range(20)])
            reads(100)
        finally:
            stop.set()
            thread.join(60)

    assert failures == []
    assert Counter(processed) == Counter(
        [
            *(f"p{n}" for n in range(50)),
            *(f"b{n}" for n in range(30)),
            *(f"q{n}" for n in range(20)),
        ]
    )


def test_a_policy_of_a_user_names_the_copies(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    pair = Pair(clusters, tmp_path, f"replication.policy.class = {SUFFIX_POLICY}")
    pair.produce(pair.p, [f"{n}" for n in range(10)])
    copy = f"{pair.topic}-from-{pair.p}"

    with replicating(pair.config, pair.there):
        pair.copied(pair.there)
        with open_flow(pair.config, pair.there) as context:
            found = translate(context, TopicPartition(pair.topic, 0), 4)
            back = translate(context, TopicPartition(copy, 0), 4, reverse=True)

    assert pair.values(pair.b, copy) == [f"{n}" for n in range(10)]
    assert (found.to_partition.topic, found.to_offset) == (copy, 4)
    assert (back.to_partition.topic, back.to_offset) == (pair.topic, 4)


def test_a_group_moves_there_and_back_under_a_policy_of_a_user(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    suffix = f"replication.policy.class = {SUFFIX_POLICY}"
    pair = Pair(clusters, tmp_path, suffix, "B->P.enabled = true")
    copy = f"{pair.topic}-from-{pair.p}"
    pair.produce(pair.p, [f"{n}" for n in range(10)])
    pair.commit(pair.p, "g", pair.topic, 4)

    with replicating(pair.config, pair.there, pair.back):
        pair.copied(pair.there)
        pair.move(pair.p, pair.b, "g")
        there = pair.committed(pair.b, "g", copy)
        assert there is not None
        pair.commit(pair.b, "g", copy, there + 3)
        pair.move(pair.b, pair.p, "g")
        with open_flow(pair.config, pair.there) as context:
            emit(context, [pair.group("g")])
        pair.leave(pair.p, pair.b, "g")

    assert pair.values(pair.b, copy, there)[0] == "4"
    assert pair.committed(pair.p, "g", pair.topic) == 7
    left_for = pair.committed(pair.b, "g", copy)
    assert left_for is not None
    assert pair.values(pair.b, copy, left_for)[0] == "7"
    assert pair.verified(pair.there) == [("equal", 10)]


def test_the_map_of_a_copy_under_a_former_policy_leads_nowhere(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    pair = Pair(clusters, tmp_path)
    pair.produce(pair.p, [f"{n}" for n in range(10)])
    with replicating(pair.config, pair.there):
        pair.copied(pair.there)
    with replicating(pair.config, pair.there):  # the claim leaves another marker in the old copy
        pair.produce(pair.p, ["10"])
        pair.copied(pair.there)
    file = tmp_path / "srm.properties"
    file.write_text(f"{file.read_text()}replication.policy.class = {SUFFIX_POLICY}\n")
    pair.config = load_config(file)

    copy = f"{pair.topic}-from-{pair.p}"
    with replicating(pair.config, pair.there), open_flow(pair.config, pair.there) as context:
        listed = partial(list_topics, context)
        eventually(lambda: copy in {row.remote_topic for row in listed()[0]}, "it is assigned")
        pair.copied(pair.there)
        found = translate(context, TopicPartition(pair.topic, 0), 10)

    assert found.to_partition.topic == copy
    assert found.to_offset is not None
    assert pair.values(pair.b, copy, found.to_offset) == ["10"]
    assert pair.verified(pair.there) == [("equal", 11)]


def test_after_the_loss_of_a_cluster_its_residue_joins_the_records_of_the_other_under_one_name(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    pair = Pair(clusters, tmp_path, IDENTITY, "B->P.enabled = true")
    pair.produce(pair.p, [f"p{n}" for n in range(50)])
    pair.commit(pair.p, "g", pair.topic, 30)

    with replicating(pair.config, pair.there, pair.back):
        pair.copied(pair.there)
        pair.copied(pair.there, pair.back)
        with open_flow(pair.config, pair.there) as context:
            emit(context, [pair.group("g")])
        request = MoveRequest(
            "failover", pair.p, pair.b, (pair.topic,), (pair.group("g"),), mode="unplanned"
        )
        with open_move(pair.config, pair.p, pair.b, unplanned=True) as lost:
            begin(lost, request, "loss")
            pass_gate(lost, "loss")
        moved = pair.committed(pair.b, "g", pair.topic)
        pair.produce(pair.p, [f"residue{n}" for n in range(5)])
        pair.produce(pair.b, [f"b{n}" for n in range(10)])
        pair.copied(pair.back)
        with open_return(pair.config, pair.there) as (context, logs):
            found = ReturnedFlow(context, logs).inspect()
            ReturnedFlow(context, logs).settle({pair.topic: "merge"}, None, "ann")
        pair.copied(pair.there, pair.back)

    assert moved is not None
    assert pair.values(pair.b, pair.topic, moved)[0] == "p30"
    assert [topic.records for topic in found.topics if topic.topic == pair.topic] == [5]
    of_p, of_b = (Counter(pair.values(alias, pair.topic)) for alias in (pair.p, pair.b))
    assert set(of_p.values()) == {1}
    assert of_p == of_b
    assert len(of_p) == 50 + 5 + 10


def test_what_a_flow_adds_and_leaves_out_is_no_difference(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    """Headers of srm, records excluded by headers, and copies of open and aborted transactions."""
    changes = (
        "provenance.header.enable = true",
        "copy.source.offset.in.header.enabled = true",
        "records.exclude.headers = test-.*",
        "consumer.isolation.level = read_uncommitted",
    )
    pair = Pair(clusters, tmp_path, *changes)
    pair.produce(pair.p, [f"p{n}" for n in range(20)])
    marked = Producer(pair.config.client(pair.p, "producer"))
    marked.produce(pair.topic, b"left out", partition=0, headers=[("test-run", b"1")])
    assert marked.flush(60) == 0
    bank = Producer({**pair.config.client(pair.p, "producer"), "transactional.id": pair.unique})
    bank.init_transactions(60)
    for value in ("aborted", "open"):
        bank.begin_transaction()
        bank.produce(pair.topic, value, partition=0)
        assert bank.flush(60) == 0
        if value == "aborted":
            bank.abort_transaction(60)

    with replicating(pair.config, pair.there):
        eventually(lambda: pair.verified(pair.there) == [("equal", 22)], "the copies are equal")
    bank.abort_transaction(60)
