from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection

import pytest
from tests.overrides import overrides

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import DRIVER_KEY, STATE_PARTITIONS, DriverHeartbeat
from srm.domain.flow_state.replication_state import CopiedTopic, GoneTopics
from srm.domain.groups.group_sync import LedgerEntry
from srm.domain.groups.mm2_records import Checkpoint, TopicIds
from srm.domain.names import internal_topics
from srm.domain.names.policy import IdentityReplicationPolicy
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import grant
from srm.engine.cluster_ports import TopicDescription, TopicSpec
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ListChange
from srm.engine.control.control_topics import CLIENTS_TOPICS, COMPACTED_CONFIGS
from srm.engine.ports import FlowContext, FlowMaps
from srm.errors import AuthorizationError, UnavailableError
from srm.replication.driver.discovery import GONE_S, Discovery
from srm_lab.testing import flows
from srm_lab.testing.fake_cluster import FakeCluster

FLOW = Flow("P", "B")


class NoMaps:
    def load(self, topics: object) -> FlowMaps:
        del topics
        return FlowMaps({})


def flow_config(*topics: str, **changes: object) -> FlowConfig:
    usual = {
        "topics": topics,
        "topics_exclude": (r".*[\-\.]internal", "__.*"),
        "config_properties_exclude": ("min\\.insync\\.replicas",),
        "replication_factor": 2,
        "offset_syncs_replication_factor": 3,
        "checkpoints_replication_factor": 3,
        "heartbeats_replication_factor": 3,
        "emit_heartbeats_enabled": True,
        "heartbeats_replication_enabled": True,
    }
    return flows.flow_config(FLOW, **{**usual, **changes})


class Site:
    def __init__(
        self, source: FakeCluster | None = None, target: FakeCluster | None = None
    ) -> None:
        self.source = source or FakeCluster("P")
        self.target = target or FakeCluster("B")

    def discovery(
        self, config: FlowConfig, clock: Callable[[], float] = time.monotonic
    ) -> Discovery:
        context = FlowContext(config, self.source, self.target, NoMaps(), NoMaps(), lambda: 0)
        return Discovery(context, clock)

    def allow(self, *topics: str) -> None:
        if internal_topics.control("P") not in self.target.topics():
            self.target.add_topic(internal_topics.control("P"))
        control_lists.change(self.target, FLOW, "topics", ListChange(add=topics), 0)

    def disallow(self, *topics: str) -> None:
        control_lists.change(self.target, FLOW, "topics", ListChange(remove=topics), 0)


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_selected_topic_gets_a_remote_one_and_is_assigned_with_both_ids(site):
    topic_id = site.source.add_topic("orders", 3, {"retention.ms": "5", "min.insync.replicas": "2"})
    site.source.add_topic("other", 1)

    found = site.discovery(flow_config("orders")).round()

    remote = site.target.topics()["P.orders"]
    assert (remote.partitions, found.pending) == (3, ())
    assert overrides(site.target, ["P.orders"]) == {"P.orders": {"retention.ms": "5"}}
    assert [p.partition for p in found.partitions] == [0, 1, 2]
    assert {p.topic_id for p in found.partitions} == {topic_id}
    assert {(p.target_topic, p.target_topic_id) for p in found.partitions} == {
        ("P.orders", remote.topic_id)
    }


def test_internal_topics_cycles_and_what_is_not_selected_are_left_alone(site):
    for name in (internal_topics.control("B"), "B.orders", "__consumer_offsets", "unselected"):
        site.source.add_topic(name)
    site.source.add_topic("heartbeats")

    found = site.discovery(flow_config("(?!unselected).*")).round()

    assert [p.topic for p in found.partitions] == ["heartbeats"]


def write_state(site: Site, source: str, target_id: str, *, active=True, ended=False, at_ms=0):
    """Write the state of a flow that copies or has copied a topic."""
    name = internal_topics.replication(source)
    if name not in site.target.topics():
        site.target.add_topic(name, STATE_PARTITIONS)
    copied = CopiedTopic("orders", "x", "orders", target_id, "a", "b", active)
    driver = DriverHeartbeat("d", "", "", 0, at_ms, ended=ended)
    table = site.target.compacted_topic(name, 0)
    table.write({copied.key(): copied.value(), DRIVER_KEY: driver.value()})


def test_without_prefixes_a_copy_of_another_cluster_gets_no_second_writer(site, caplog):
    site.source.add_topic("orders")
    site.source.add_topic("own")
    theirs = site.target.add_topic("orders")
    for state, target_id in (("A", theirs), ("C", "gone")):
        write_state(site, state, target_id)
    config = flow_config("orders", "own", policy=IdentityReplicationPolicy(".", "P"))

    found = site.discovery(config).round()

    assert {p.target_topic for p in found.partitions} == {"own"}
    assert "not copied: orders of B is the copy of a flow that is not joined" in caplog.text


@pytest.mark.parametrize("left", [{"active": False}, {"ended": True}, {"at_ms": -60_000}], ids=str)
def test_a_topic_that_another_flow_copies_no_longer_is_left_to_the_claim(site, left):
    site.source.add_topic("orders")
    write_state(site, "A", site.target.add_topic("orders"), **left)
    config = flow_config("orders", policy=IdentityReplicationPolicy(".", "P"))

    assert [p.topic for p in site.discovery(config).round().partitions] == ["orders"]


@pytest.mark.parametrize(("other", "keeps"), [("A", False), ("Q", True)])
def test_of_two_flows_that_began_to_copy_into_a_topic_together_one_keeps_it(site, other, keeps):
    site.source.add_topic("orders")
    target_id = site.target.add_topic("orders")
    for source in ("P", other):
        write_state(site, source, target_id)
    config = flow_config("orders", policy=IdentityReplicationPolicy(".", "P"))

    assert bool(site.discovery(config).round().partitions) is keeps


def test_a_topic_that_srm_control_adds_or_removes_is_so_from_the_next_round(site):
    site.source.add_topic("orders")
    discovery = site.discovery(flow_config())
    before = discovery.round()

    site.allow("orders")

    added = discovery.round()
    site.disallow("orders")

    assert before.partitions == ()
    assert [p.topic for p in added.partitions] == ["orders"]
    assert discovery.round().partitions == ()


def test_lists_are_not_read_in_each_round_while_they_have_no_topic(site, monkeypatch):
    """A topic that is not there takes two requests more to be told from one that is hidden."""
    site.source.add_topic("orders")
    times = itertools.chain((0.0, 1.0), itertools.count(2.0, 0.001))
    discovery = site.discovery(flow_config("orders"), times.__next__)
    for _ in range(2):
        discovery.round()
    reads = []
    read = site.target.compacted_topic
    monkeypatch.setattr(
        site.target, "compacted_topic", lambda topic: reads.append(topic) or read(topic)
    )

    for _ in range(3):
        discovery.round()
    without_topic = list(reads)
    site.allow("more")
    site.source.add_topic("more")
    reads.clear()
    found = discovery.round()
    discovery.round()

    assert without_topic == []
    assert {p.topic for p in found.partitions} == {"orders", "more"}
    assert len(reads) == 2


def test_partitions_added_on_the_source_are_added_on_the_target(site):
    site.source.add_topic("orders", 1)
    discovery = site.discovery(flow_config("orders"))
    discovery.round()

    site.source.create_partitions({"orders": 4})
    found = discovery.round()

    assert site.target.topics()["P.orders"].partitions == 4
    assert len(found.partitions) == 4


def test_a_topic_created_again_has_another_id(site):
    site.source.add_topic("orders")
    discovery = site.discovery(flow_config("orders"))
    before = discovery.round()

    site.source.delete_topic("orders")
    gone = discovery.round()
    site.source.add_topic("orders")
    after = discovery.round()

    assert gone.partitions == ()
    assert before.partitions[0].topic_id != after.partitions[0].topic_id
    assert before.partitions[0].target_topic_id == after.partitions[0].target_topic_id


def test_a_remote_topic_that_cannot_be_created_is_pending_and_stops_no_other(caplog):
    site = Site()
    site.source.add_topic("small", 1)
    discovery = site.discovery(flow_config(".*", replication_factor=1))
    discovery.round()
    refused = site.discovery(flow_config(".*", replication_factor=9))
    site.source.add_topic("large", 1)

    found = [refused.round(), refused.round()]

    assert [p.topic for p in found[1].partitions] == ["small"]
    assert found[1].pending == ("large",)
    assert len([r for r in caplog.records if "replication factor 9" in r.getMessage()]) == 1


def test_an_outage_is_reported_not_taken_for_an_empty_cluster(site):
    site.source.add_topic("orders")
    discovery = site.discovery(flow_config("orders"))
    discovery.round()

    site.source.fail()

    with pytest.raises(UnavailableError):
        discovery.round()


def test_internal_topics_are_created_on_the_target_with_their_settings(site):
    site.discovery(flow_config(internal_replication_factor=3)).prepare()

    topics = site.target.topics()
    names = sorted(topics)
    assert set(site.source.topics()) == {*CLIENTS_TOPICS}, "clients announce themselves"
    assert set(names) == {
        internal_topics.checkpoints("P"),
        "heartbeats",
        internal_topics.LEDGER,
        internal_topics.raw_metrics("P"),
        internal_topics.MOVES,
        internal_topics.offset_map("P"),
        internal_topics.replication("P"),
        *CLIENTS_TOPICS,
    }
    configs = overrides(site.target, names)
    assert topics[internal_topics.offset_map("P")].partitions == 8
    assert configs[internal_topics.raw_metrics("P")] == {
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
    }
    stamps = {
        internal_topics.checkpoints("P"),
        internal_topics.LEDGER,
        internal_topics.MOVES,
        *CLIENTS_TOPICS,
    }
    in_sync, stamped = {"min.insync.replicas": "2"}, {"message.timestamp.type": "LogAppendTime"}
    a_day = {"cleanup.policy": "compact,delete", "retention.ms": "86400000"}
    assert topics[internal_topics.CLIENTS].partitions == 4
    for name in set(names) - {internal_topics.raw_metrics("P")}:
        clocked = stamped if name in stamps else {}
        kept = a_day if name == internal_topics.CLIENTS else {}
        assert configs[name] == {**COMPACTED_CONFIGS, **in_sync, **clocked, **kept}


def test_without_the_right_to_make_the_topics_of_moves_the_flow_runs_and_says_so_once(caplog):
    class Narrow(FakeCluster):
        def create_topics(self, specs: Collection[TopicSpec]) -> None:
            if any(spec.name == internal_topics.ROUTING for spec in specs):
                raise AuthorizationError("creating topics on cluster B: not allowed")
            super().create_topics(specs)

    site = Site(Narrow("P"), Narrow("B"))
    site.discovery(flow_config()).prepare()

    assert internal_topics.replication("P") in site.target.topics()
    [text] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert text == (
        "B: the topics of moves and routes cannot be created; clients that follow routes are "
        "unknown until the first move: creating topics on cluster B: not allowed"
    )


@pytest.mark.parametrize(
    ("location", "on_source", "on_target"),
    [
        ("source", {"mm2-offset-syncs.B.internal"}, set()),
        ("target", set(), {"mm2-offset-syncs.P.internal"}),
    ],
)
def test_offset_syncs_are_kept_where_the_location_says(site, location, on_source, on_target):
    site.discovery(flow_config(offset_syncs_location=location)).round()

    assert set(site.source.topics()) == on_source
    assert {name for name in site.target.topics() if name.startswith("mm2")} == on_target


def test_offset_syncs_go_to_the_target_when_the_source_refuses_them(caplog):
    class ReadOnly(FakeCluster):
        def create_topics(self, specs: object) -> None:
            del specs
            raise AuthorizationError("creating topics on cluster P: not allowed")

    site = Site(ReadOnly("P"))
    discovery = site.discovery(flow_config("orders"))

    discovery.round()
    discovery.round()

    assert "mm2-offset-syncs.P.internal" in site.target.topics()
    warnings = [r for r in caplog.records if "offset syncs go to" in r.getMessage()]
    assert len(warnings) == 1


def test_topics_that_exist_are_not_created_again(site):
    site.source.add_topic("orders")
    discovery = site.discovery(flow_config("orders"))
    discovery.prepare()
    discovery.round()
    created: list[TopicSpec] = []
    site.target.create_topics = created.extend
    site.source.create_topics = created.extend

    discovery.prepare()
    discovery.round()

    assert created == []


def test_ids_are_asked_for_again_only_after_a_rest_or_when_something_has_changed(site):
    """Each look at the clock is a second later, so a close look takes one and the rest twenty."""
    site.source.add_topic("orders")
    discovery = site.discovery(flow_config("orders", "more"), itertools.count().__next__)
    discovery.round()
    first = discovery.round()
    site.source.delete_topic("orders")
    anew = site.source.add_topic("orders")

    assert discovery.round() is first
    ids = [{p.topic_id for p in discovery.round().partitions} for _ in range(30)]
    assert ids[0] != {anew}
    assert ids[-1] == {anew}
    discovery.round()
    site.source.add_topic("more")
    discovery.round()
    assert {p.topic for p in discovery.round().partitions} == {"orders", "more"}


def test_a_quick_look_at_ids_takes_next_to_nothing_of_a_core_and_nobody_waits_long(site):
    """What takes 20 ms is done each other round of two seconds; 5 s is the longest rest of such."""
    site.source.add_topic("orders")
    times = itertools.chain((0.0, 0.02, 0.1, 0.12), itertools.count(2.0, 0.2))
    discovery = site.discovery(flow_config("orders"), times.__next__)
    for _ in range(2):  # after the first one there is a remote topic
        discovery.round()
    site.source.delete_topic("orders")
    anew = site.source.add_topic("orders")

    too_early, in_time = discovery.round(), discovery.round()

    assert {p.topic_id for p in too_early.partitions} != {anew}
    assert {p.topic_id for p in in_time.partitions} == {anew}


def test_a_topic_that_cannot_be_created_does_not_make_each_look_a_close_one(site):
    """The first look after its refusal is close, and then one after each rest."""
    site.source.add_topic("large")
    looks, create = [], site.target.create_topics
    site.target.create_topics = lambda specs: looks.append(specs) or create(specs)
    config = flow_config(".*", replication_factor=9)
    discovery = site.discovery(config, itertools.count().__next__)

    found = [discovery.round() for _ in range(40)]

    assert {one.pending for one in found} == {("large",)}
    tries = [specs for specs in looks if specs and specs[0].name == "P.large"]
    assert 3 <= len(tries) <= 5


def test_a_topic_that_may_not_be_seen_is_told_from_one_that_does_not_exist(caplog):
    """It is named in the settings, or was there before; each is told once."""

    class Hiding(FakeCluster):
        hidden: frozenset[str] = frozenset()

        def topics(self) -> dict[str, TopicDescription]:
            return {n: t for n, t in super().topics().items() if n not in self.hidden}

        def log_starts(self, partitions):
            if any(p.topic in self.hidden for p in partitions):
                raise AuthorizationError("listing offsets on cluster P: not allowed")
            return super().log_starts(partitions)

    source = Hiding("P")
    site = Site(source)
    source.add_topic("payments")
    source.add_topic("orders-1")
    discovery = site.discovery(flow_config(r"orders-\d", "payments", "absent"))
    discovery.round()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    source.hidden = frozenset({"payments", "orders-1"})
    discovery.round()
    discovery.round()

    told = [r.getMessage() for r in caplog.records if "is not copied" in r.getMessage()]
    assert told == [
        f"P->B: {name} is not copied: {grant('Read', name, 'P')}"
        for name in ("orders-1", "payments")
    ]


def test_a_state_topic_of_an_earlier_version_gets_a_partition_for_reports(site):
    site.target.add_topic(internal_topics.replication("P"), 1)
    discovery = site.discovery(flow_config("orders"))

    for _ in range(2):
        discovery.prepare()

    assert site.target.topics()[internal_topics.replication("P")].partitions == STATE_PARTITIONS


def test_topics_that_are_gone_are_told_from_such_that_are_only_hidden(site):
    clock = [0.0]
    discovery = site.discovery(flow_config("orders"), lambda: clock[0])
    site.source.add_topic("orders")
    found = discovery.round()
    found = discovery.round() if found.pending else found
    [assigned] = found.partitions
    copied = CopiedTopic(
        *(assigned.topic, assigned.topic_id, assigned.target_topic, assigned.target_topic_id),
        *(found.source_cluster, found.target_cluster),
    )
    assert discovery.find_deleted([copied]) == GoneTopics()

    site.source.delete_topic("orders")
    for number in range(4):
        clock[0] += GONE_S
        site.source.add_topic(f"other-{number}")  # a change, so that it looks closely
        discovery.round()
        gone = discovery.find_deleted([copied])

    assert gone == GoneTopics(source=frozenset({assigned.topic_id}))


def test_places_of_groups_in_topics_that_are_gone_are_deleted_on_both_sides(site):
    clock = [1000.0]
    ids = {}
    for cluster, name in ((site.source, "Payments"), (site.target, "P.Payments")):
        ids[cluster.alias] = cluster.add_topic(name)
        origin = site.source if cluster is site.target else site.target
        table = cluster.compacted_topic(internal_topics.checkpoints(origin.alias))
        cluster.add_topic(internal_topics.checkpoints(origin.alias))
        place = TopicPartition(name, 0)
        one = Checkpoint("g", place, 7, 7, TopicIds("elsewhere", ids[cluster.alias]).metadata())
        table.write({one.key(): one.value()})
        entry = LedgerEntry("g", place, ids[cluster.alias], None, 7, "P", "sync")
        cluster.add_topic(internal_topics.LEDGER)
        cluster.compacted_topic(internal_topics.LEDGER).write({entry.key(): entry.value()})
    copied = CopiedTopic(
        *("Payments", ids["P"], "P.Payments", ids["B"]),
        *(site.source.cluster_id(), site.target.cluster_id()),
    )
    discovery = site.discovery(flow_config("Payments"), lambda: clock[0])
    discovery.round()
    discovery.find_deleted([copied])
    discovery.forget([copied])
    assert site.target.compacted_topic(internal_topics.LEDGER).read()

    site.source.delete_topic("Payments")
    site.target.delete_topic("P.Payments")
    for _ in range(4):
        clock[0] += GONE_S
        discovery.round()
        discovery.find_deleted([copied])
    discovery.forget([copied])

    for cluster, origin in ((site.source, "B"), (site.target, "P")):
        rows = cluster.compacted_topic(internal_topics.checkpoints(origin)).read()
        [one] = [Checkpoint.decode(*row) for row in rows.items()]
        assert (one.upstream_offset, one.downstream_offset) == (0, 0)
        assert not cluster.compacted_topic(internal_topics.LEDGER).read()
