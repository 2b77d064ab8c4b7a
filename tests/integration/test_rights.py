"""The rights of docs/security.md: enough for everything, and each one that is missing is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from tests.integration.rights import Right, documented, user_with
from tests.integration.securing import SecuredBroker
from tests.replicating import at_work, driver_of, is_copied, one_broker_as_two_clusters
from tests.served import served
from tests.waiting import DEADLINE_S, eventually

from srm.cli.flows.doctor import Checks, rights_of
from srm.config.loader import load_config
from srm.config.model import ClusterClients, FlowConfig
from srm.domain.flow_state.replication_records import REPORTS, PartitionStatus
from srm.domain.names import internal_topics
from srm.domain.names.rights import FlowNames, service_rights
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import Cluster, TopicSpec
from srm.engine.control import topic_sync
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.groups import checkpoints, group_sync
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.state.driver_log import KafkaDriverLog
from srm.kafka.state.writers import KafkaStateLog
from srm.replication.copy.slot import SlotSpec
from srm.replication.driver.duties import emit_heartbeats
from srm.service.app import create_app
from srm.service.views.views import Views
from srm.spark.slot import run_slot
from srm.wiring import flow_context
from srm_lab.testing.flows import flow_config

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

FLOW = Flow("P", "B")
TOPIC = "payments"
_STATUS = f"status:{TOPIC}-0".encode()
RECORDS = 200
GROUP = "analytics"
COMMITS_OF_P = TopicPartition("__consumer_offsets", 0)


@pytest.fixture(scope="module")
def secured(secured: SecuredBroker) -> Iterator[SecuredBroker]:
    """Let one broker be both clusters: the users show which of them a client means."""
    with one_broker_as_two_clusters():
        yield secured


@dataclass
class Srm:
    """What srm does for one flow, as the users that were given rights."""

    source: dict[str, str]
    target: dict[str, str]
    config: FlowConfig

    def spec(self) -> SlotSpec:
        sides = (ClusterClients.alike(self.source), ClusterClients.alike(self.target))
        return SlotSpec(self.config, "0", *sides)

    @contextmanager
    def context(self) -> Iterator[FlowContext]:
        with (
            KafkaCluster("P", ClusterClients.alike(self.source), timeout_s=60) as source,
            KafkaCluster("B", ClusterClients.alike(self.target), timeout_s=60) as target,
        ):
            yield flow_context(self.config, source, target, self.spec().target)

    @contextmanager
    def replicating(self) -> Iterator[FlowContext]:
        """Run a driver, a slot and heartbeats in threads."""
        spec = self.spec()
        with (
            self.context() as context,
            at_work(
                driver_of(context, spec).run,
                partial(run_slot, spec),
                partial(emit_heartbeats, context.target, [context.config], context.now_ms),
            ),
        ):
            yield context


def srm_with(secured: SecuredBroker, rights: tuple[Right, ...]) -> Srm:
    users = {
        alias: user_with(secured, [right for right in rights if right.cluster == alias])
        for alias in ("P", "B")
    }
    config = flow_config(
        FLOW,
        topics=(TOPIC,),
        groups=(GROUP,),
        emit_heartbeats_enabled=True,
        reverse_checkpointed_topics=(rf"B\.{TOPIC}",),
    )
    return Srm(users["P"], users["B"], config)


@dataclass(frozen=True)
class World:
    """Both clusters, with everything that one complete run has left there."""

    secured: SecuredBroker
    emitted: checkpoints.CheckpointSummary
    synced: group_sync.GroupSyncSummary

    def produce(self) -> None:
        """Write one more record to the source topic."""
        producer = Producer({"bootstrap.servers": self.secured.broker.bootstrap})
        producer.produce(TOPIC, b"one more", partition=0)
        producer.flush()

    def forget_trouble(self) -> None:
        """Take back what was told of the partition: trouble goes on since it began."""
        plain = {"bootstrap.servers": self.secured.broker.bootstrap}
        with KafkaCluster("B", ClusterClients.alike(plain)) as cluster:
            table = cluster.compacted_topic(internal_topics.replication("P"), REPORTS)
            table.write({_STATUS: None})


@pytest.fixture(scope="module")
def world(secured: SecuredBroker) -> World:
    """A topic with records, a group in the middle of them, and everything that srm does with them.

    From the first topic to a group that stands on the target, with the documented rights alone.
    """
    plain = {"bootstrap.servers": secured.broker.bootstrap}
    with KafkaCluster("P", ClusterClients.alike(plain)) as cluster:
        topics = [TopicSpec(TOPIC, 1, 1, {"retention.ms": "999999999"})]
        cluster.create_topics([*topics, TopicSpec(f"B.{TOPIC}", 1, 1, {})])
        producer = Producer(plain)
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=0)
        producer.flush()
        group = {TopicPartition(TOPIC, 0): RECORDS // 2, TopicPartition(f"B.{TOPIC}", 0): 0}
        cluster.commit_idle(GROUP, group)
    with srm_with(secured, documented()).replicating() as context:
        eventually(lambda: is_copied(context, TOPIC), "copied")
        topic_sync.sync(context)
        return World(secured, checkpoints.emit(context), group_sync.sync(context))


def test_the_documented_rights_are_enough_for_everything(world: World) -> None:
    assert world.emitted.states == {"translated": 2}, world.emitted
    assert not world.emitted.errors
    assert world.synced.applied == 1, world.synced


def test_the_service_answers_with_the_rights_to_read_alone(world: World, tmp_path: Path) -> None:
    names = FlowNames(FLOW, flow_config(FLOW).policy, (TOPIC,), (GROUP,), "P")
    needed = [
        Right(one.cluster, operation, one.option, one.name, one.prefixed)
        for one in service_rights(names)
        for operation in one.operations
    ]
    lines = ["clusters = P, B", "P->B.enabled = true", f"topics = {TOPIC}", f"groups = {GROUP}"]
    for alias in ("P", "B"):
        user = user_with(world.secured, [right for right in needed if right.cluster == alias])
        if alias == "B":  # one address may not stand for two clusters
            user["bootstrap.servers"] = user["bootstrap.servers"].replace("127.0.0.1", "localhost")
        lines += [f"{alias}.{name} = {value}" for name, value in user.items()]
    path = tmp_path / "srm.properties"
    path.write_text("\n".join(lines))

    with (
        served(create_app(Views(load_config(path)))) as address,
        httpx.Client(base_url=f"{address}/v2/flows/P/B", trust_env=False, timeout=60) as client,
    ):
        group = f"/groups/{GROUP}"
        eventually(lambda: client.get(group).is_success, "it has looked at both clusters")
        flow = client.get(f"{address}/v2/flows/P/B").json()
        eventually(lambda: not client.get(group).json()["unread"], "both show its offsets")
        eventually(
            lambda: client.get("/topics").json()["items"][0]["lag"] is not None,
            "both show their ends",  # other tests of this file write what nothing copies
        )
        [topic] = client.get("/topics").json()["items"]

    assert flow["error"] == ""
    assert (topic["topic"], topic["lag"] >= 0) == (TOPIC, True)


# ----- what each right is for: the call that fails without it, and gives or raises the reason


def copy(srm: Srm, world: World) -> str:
    """Run a slot until the partition says what keeps it from copying one more record."""
    reasons: list[str] = []

    def stopped(context: FlowContext) -> bool:
        table = context.target.compacted_topic(internal_topics.replication("P"), REPORTS).read()
        told = table.get(_STATUS)
        if told is None:
            return False
        status = PartitionStatus.decode(told)
        reasons.append(status.reason)
        return status.state == "stopped"

    world.forget_trouble()
    world.produce()
    with at_work(partial(run_slot, srm.spec())), srm.context() as context:
        eventually(lambda: stopped(context), "stopped")
    return reasons[-1]


def emit(srm: Srm, _: World) -> str:
    with srm.context() as context:
        return str(checkpoints.emit(context).errors)


def sync(srm: Srm, _: World) -> str:
    with srm.context() as context:
        return str(group_sync.sync(context).errors)


def sync_topics(srm: Srm, _: World) -> None:
    with srm.context() as context:
        topic_sync.sync(context)


def drive(srm: Srm, _: World) -> None:
    log = KafkaDriverLog(FLOW, ClusterClients.alike(srm.target))
    try:
        log.fence()
        log.read()
        log.publish({b"a": b"b"})
    finally:
        log.close()


def write_offset_syncs(srm: Srm, _: World) -> None:
    log = KafkaStateLog("P", srm.source)
    log.write(internal_topics.offset_syncs("B"), b"a", b"b")
    log.flush(DEADLINE_S)


def on_source(call: Callable[[Cluster], None]) -> Callable[[Srm, World], None]:
    def work(srm: Srm, _: World) -> None:
        with srm.context() as context:
            call(context.source)

    return work


def on_target(call: Callable[[Cluster], None]) -> Callable[[Srm, World], None]:
    def work(srm: Srm, _: World) -> None:
        with srm.context() as context:
            call(context.target)

    return work


def create(name: str) -> Callable[[Cluster], None]:
    return lambda cluster: cluster.create_topics([TopicSpec(name, 1, 1, {})])


USES: dict[str, tuple[Callable[[Srm, World], str | None], str]] = {
    "Read topic payments on P": (copy, "on P: .* grant Read on topic payments"),
    "DescribeConfigs topic payments on P": (
        sync_topics,
        "cluster P: topic payments: .* grant DescribeConfigs on topic payments",
    ),
    "Create topic mm2-offset-syncs.B.internal on P": (
        on_source(create(internal_topics.offset_syncs("B"))),
        "cluster P: .* grant Create on topic mm2-offset-syncs.B.internal",
    ),
    "Write topic mm2-offset-syncs.B.internal on P": (
        write_offset_syncs,
        "cluster P: .* grant Write on topic mm2-offset-syncs.B.internal",
    ),
    "Read topic __srm-* on P": (emit, "cluster P: .* grant Read on topic __srm-"),
    "Read topic __consumer_offsets on P": (
        on_source(lambda cluster: cluster.first_records([(COMMITS_OF_P, 0)], committed=False)),
        "cluster P: .* grant Read on topic __consumer_offsets",
    ),
    "Describe group * on P": (emit, "cluster P: .* grant Describe on group analytics"),
    "Create topic P.* on B": (
        on_target(create("P.new")),
        "cluster B: .* grant Create on topic P.new",
    ),
    "Write topic P.* on B": (copy, "on B: .* grant Write on topic P.payments"),
    "Read topic P.* on B": (copy, "on B; grant Read on topic P.payments"),
    "Alter topic P.* on B": (
        on_target(lambda cluster: cluster.create_partitions({"P.payments": 2})),
        "cluster B: .* grant Alter on topic P.payments",
    ),
    "AlterConfigs topic P.* on B": (
        on_target(lambda cluster: cluster.alter_topic_configs({"P.payments": {"segment.ms": "9"}})),
        "cluster B: .* grant AlterConfigs on topic P.payments",
    ),
    "Create topic heartbeats on B": (
        on_target(create("heartbeats")),
        "cluster B: .* grant Create on topic heartbeats",
    ),
    "Write topic heartbeats on B": (
        on_target(lambda cluster: cluster.compacted_topic("heartbeats").write({b"a": b"b"})),
        "cluster B: .* grant Write on topic heartbeats",
    ),
    "Create topic __srm-* on B": (
        on_target(create("__srm-new")),
        "cluster B: .* grant Create on topic __srm-new",
    ),
    "Write topic __srm-* on B": (
        drive,
        f"cluster B: .* grant Write on topic {internal_topics.replication('P')}",
    ),
    "Read topic __srm-* on B": (
        drive,
        f"cluster B: .* grant Read on topics? .*{internal_topics.replication('P')}",
    ),
    "DescribeConfigs topic __srm-* on B": (
        on_target(lambda cluster: ensure_compacted(cluster, internal_topics.LEDGER)),
        f"cluster B: .* grant DescribeConfigs on topic {internal_topics.LEDGER}",
    ),
    "Read topic __consumer_offsets on B": (
        on_target(lambda cluster: cluster.first_records([(COMMITS_OF_P, 0)], committed=False)),
        "cluster B: .* grant Read on topic __consumer_offsets",
    ),
    "Delete group * on B": (
        on_target(lambda cluster: cluster.delete_groups(["analytics"])),
        "cluster B: .* grant Delete on group analytics",
    ),
    "Write transactional-id srm-* on B": (
        copy,
        r"on B: .* grant Write on transactional id srm-P->B-P.payments-0",
    ),
    "Read topic payments on B": (
        on_target(lambda cluster: cluster.commit_idle(GROUP, {TopicPartition(TOPIC, 0): 1})),
        "cluster B: .* grant Read on topic payments",
    ),
    "Read group * on B": (
        on_target(lambda cluster: cluster.commit_idle(GROUP, {TopicPartition("P.payments", 0): 1})),
        "cluster B: .* grant Read on group analytics",
    ),
}
BROKER_SETTINGS = "DescribeConfigs cluster kafka-cluster on B"
OTHER_COPIES = "Describe topic B.* on P"


def test_every_documented_right_has_a_use() -> None:
    assert USES.keys() | {BROKER_SETTINGS, OTHER_COPIES} == {str(right) for right in documented()}


@pytest.mark.parametrize("missing", USES)
def test_a_right_that_is_missing_is_named(world: World, missing: str) -> None:
    """With its operation, its resource and the cluster, in the one call that needs it."""
    use, expected = USES[missing]
    srm = srm_with(world.secured, documented(without=missing))

    try:
        told = use(srm, world)
    except AuthorizationError as error:
        told = str(error)

    assert told is not None
    assert re.search(expected, told), told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("", ""),
        ("Read topic payments on P", "Describe on topic payments of P"),
        ("DescribeConfigs topic payments on P", "DescribeConfigs on topic payments of P"),
        ("Write topic P.* on B", "Write on topic P.payments of B"),
        ("AlterConfigs topic P.* on B", "AlterConfigs on topic P.payments of B"),
        ("Write topic heartbeats on B", "Describe on topic heartbeats of B"),
    ],
)
def test_a_check_of_the_clusters_finds_the_right_on_topics_that_is_missing(
    world: World, missing: str, named: str
) -> None:
    """A topic whose one right is missing may not even be seen."""
    srm, checks = srm_with(world.secured, documented(without=missing)), Checks()

    with srm.context() as context:
        checks.run("rights", partial(rights_of, context))

    texts = [one.text for one in checks if one.state == "problem"]
    assert texts == ([f"srm lacks {named}"] if missing else [])
    assert {one.exit_code for one in checks.failures} == ({9} if missing else set())


@pytest.mark.parametrize("cluster", ["P", "B"])
def test_a_missing_optional_right_is_a_warning(world: World, cluster: str) -> None:
    rights = documented(without=f"Read topic __consumer_offsets on {cluster}")
    srm, checks = srm_with(world.secured, rights), Checks()

    with srm.context() as context:
        checks.run("rights", partial(rights_of, context))

    expected = f"srm lacks Describe on topic __consumer_offsets of {cluster}"
    assert [(one.state, one.text) for one in checks] == [("warning", expected)]


def test_without_the_brokers_settings_defaults_are_assumed_and_the_right_is_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    srm = srm_with(world.secured, documented(without=BROKER_SETTINGS))

    with KafkaCluster("B", ClusterClients.alike(srm.target)) as cluster:
        assert cluster.broker_configs() == {}
    assert "assuming Kafka's defaults" in caplog.text
    assert "grant DescribeConfigs on the cluster" in caplog.text


def test_offset_syncs_go_to_the_target_where_the_source_only_lets_srm_read(world: World) -> None:
    """The slot finds out by a refused record, which is not lost."""
    here, there = internal_topics.offset_syncs("B"), internal_topics.offset_syncs("P")
    rights = [right for right in documented() if right.name != here]
    rights += [Right("B", operation, "--topic", there) for operation in ("Create", "Write")]
    plain = {"bootstrap.servers": world.secured.broker.bootstrap}

    with srm_with(world.secured, tuple(rights)).replicating():
        world.produce()
        with KafkaCluster("B", ClusterClients.alike(plain)) as cluster:
            eventually(lambda: cluster.compacted_topic(there).read(), "offset syncs on the target")


def test_a_group_is_followed_only_in_topics_that_srm_may_see(world: World) -> None:
    """A broker leaves out what a group has committed in the others, so nobody can tell."""
    srm = srm_with(world.secured, documented(without=OTHER_COPIES))

    with srm.context() as context:
        seen = {outcome.upstream.topic for outcome in checkpoints.emit(context).outcomes}

    assert {outcome.upstream.topic for outcome in world.emitted.outcomes} == {TOPIC, "B.payments"}
    assert seen == {TOPIC}


def test_a_group_that_may_not_be_described_on_the_target_fails_alone(world: World) -> None:
    plain = {"bootstrap.servers": world.secured.broker.bootstrap}
    with KafkaCluster("P", ClusterClients.alike(plain)) as cluster:
        cluster.commit_idle("hidden", {TopicPartition(TOPIC, 0): 10})
    rights = (
        *(one for one in documented() if (one.cluster, one.option) != ("B", "--group")),
        *(Right("B", operation, "--group", GROUP) for operation in ("Read", "Describe")),
    )
    srm = srm_with(world.secured, rights)
    srm.config = replace(srm.config, groups=(GROUP, "hidden"))

    with srm.context() as context:
        summary = group_sync.sync(context)

    assert list(summary.errors) == ["hidden"]
    assert "grant Describe on group hidden" in summary.errors["hidden"]
    assert {decision.group for decision in summary.decisions if decision.action == "unchanged"} == {
        GROUP
    }


def test_a_look_at_a_cluster_needs_no_right_on_it(secured: SecuredBroker) -> None:
    user = user_with(secured, [])

    with KafkaCluster("P", ClusterClients.alike(user)) as cluster:
        found = cluster.facts()

    assert (found.brokers, found.release, found.ahead_ms) == (1, "4.1", None)
