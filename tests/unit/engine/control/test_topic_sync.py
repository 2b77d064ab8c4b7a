"""Remote topics like their sources: created, grown, configured, never shrunk or deleted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from tests.overrides import overrides

from srm.domain.flow_state.replication_records import (
    PAUSE_KEY,
    REPORTS,
    STATE_PARTITIONS,
    AssignedPartition,
    Incarnation,
    PartitionNotes,
    PartitionPosition,
    Pause,
)
from srm.domain.flow_state.slot_records import PositionGroup
from srm.domain.names import internal_topics
from srm.domain.names.rights import Acl, write_denial
from srm.domain.offset_map.offset_map import Position
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.topic_sync import TopicSyncPlan, append, apply, plan, sync
from srm.engine.flows.target_topics import StateTopic
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, ConfigError, NotFoundError


def test_a_sync_does_everything_once(sites) -> None:
    source = sites.clusters["P"]
    source.add_topic("Payments", 4, {"retention.ms": "1000"})
    context = sites.flow("P->B")

    plan = sync(context)

    assert plan.grow == {"P.Payments": 4}
    assert context.target.topics()["P.Payments"].partitions == 4
    assert overrides(context.target, ["P.Payments"])["P.Payments"] == {"retention.ms": "1000"}
    assert sync(context).is_empty


def test_while_a_flow_is_paused_its_copies_are_left_as_they_are(sites) -> None:
    """A rebuilt source has other settings: a shorter retention would delete the only copy."""
    context = sites.flow("P->B")
    sync(context)
    sites.clusters["B"].add_topic(internal_topics.replication("P"), 2)
    StateTopic(context.target, "P").write({PAUSE_KEY: Pause("r1", "ann", "P died", 1).value()})
    sites.clusters["P"].delete_topic("Payments")
    sites.clusters["P"].add_topic("Payments", 4, {"retention.ms": "1000"})

    plan = sync(context)

    assert plan.is_empty
    assert plan.skipped == "P->B is paused: its topics are synced when it resumes"
    assert "retention.ms" not in overrides(context.target, ["P.Payments"])["P.Payments"]

    StateTopic(context.target, "P").write({PAUSE_KEY: None})
    assert sync(context).grow == {"P.Payments": 4}


def test_a_sync_needs_no_right_on_other_topics_of_the_target(sites, monkeypatch) -> None:
    source, target = sites.clusters["P"], sites.clusters["B"]
    source.add_topic("Payments", 4)
    target.add_topic("Accounts", 1)
    settings = target.topic_settings

    def of_ours(topics: Collection[str]) -> object:
        if "Accounts" in topics:
            raise AuthorizationError("reading configs on cluster B: topic Accounts")
        return settings(topics)

    monkeypatch.setattr(target, "topic_settings", of_ours)

    assert sync(sites.flow("P->B")).grow == {"P.Payments": 4}


def test_a_dry_run_changes_nothing(sites) -> None:
    sites.clusters["B"].delete_topic("P.Payments")

    plan = sync(sites.flow("P->B"), dry_run=True)

    assert [spec.name for spec in plan.create] == ["P.Payments"]
    assert "P.Payments" not in sites.clusters["B"].topics()


def reported(context: FlowContext, *partitions: AssignedPartition) -> None:
    """Let a slot report positions, as it does of copies that have begun."""
    entries = tuple(
        PartitionPosition(p.topic_id, p.partition, p.target_topic_id, Position(0, 9, 0), 7, 1)
        for p in partitions
    )
    group = PositionGroup("0", Incarnation(1, "a"), "0", entries)
    topic = internal_topics.replication("P")
    context.target.compacted_topic(topic, REPORTS).write({group.key(): group.value()})


def test_what_others_have_filled_is_decided_about_and_no_copy_that_has_begun(sites) -> None:
    """Partition 0 is a copy, 1 holds records of others, 2 is empty."""
    context, target = sites.flow("P->B"), sites.clusters["B"]
    target.add_topic(internal_topics.replication("P"), STATE_PARTITIONS)
    sites.clusters["P"].add_topic("Payments", 3)
    sync(context)
    for number in (0, 1):
        target.produce("P.Payments", number, 5)
    ids = context.source.topics()["Payments"].topic_id, target.topics()["P.Payments"].topic_id
    here = [AssignedPartition("Payments", n, ids[0], "P.Payments", ids[1]) for n in range(3)]
    reported(context, here[0])

    assert append(context, ["Payments"], "ann", dry_run=True) == (here[1],)
    assert StateTopic(target, "P").read_commands() == {}
    assert append(context, ["Payments"], "ann") == (here[1],)

    [note] = map(PartitionNotes.decode, StateTopic(target, "P").read_commands().values())
    assert (note.decision, note.copy_id, note.time_ms) == (
        *("after", here[1].copy_id),
        context.now_ms(),
    )
    assert note.text.startswith("the copy begins after the records of others in P.Payments (by ")
    assert append(context, ["Payments"], "bob") == (here[1],), "until a slot reports the copy"
    assert len(StateTopic(target, "P").read_commands()) == 1


def test_what_others_have_filled_can_be_decided_about_before_a_replicator_has_run(sites) -> None:
    target = sites.clusters["B"]
    target.produce("P.Payments", 0, 5)

    [decided] = append(sites.flow("P->B"), ["Payments"], "ann")

    assert target.topics()[internal_topics.replication("P")].partitions == STATE_PARTITIONS
    [note] = map(PartitionNotes.decode, StateTopic(target, "P").read_commands().values())
    assert note.copy_id == decided.copy_id


def test_what_the_flow_does_not_copy_is_not_decided_about(sites) -> None:
    with pytest.raises(NotFoundError, match=r"the flow does not copy Other"):
        append(sites.flow("P->B"), ["Payments", "Other"], "ann")


def test_a_part_that_fails_keeps_none_of_the_others_from_being_done(sites) -> None:
    context = sites.flow("P->B")
    plan = TopicSyncPlan(
        create=(TopicSpec("P.New", 1, 99, {}),),
        grow={"P.Payments": 2},
        configs={"P.Payments": {"retention.ms": "1"}},
    )

    with pytest.raises(ConfigError, match=r"topic sync of P->B: creating topics: .*P\.New"):
        apply(context, plan)

    assert context.target.topics()["P.Payments"].partitions == 2
    assert overrides(context.target, ["P.Payments"])["P.Payments"] == {"retention.ms": "1"}


def planned_with_acls(sites, **settings: object) -> FlowContext:
    sites.clusters["P"].create_acls([APP_READS, APP_WRITES, write_denial("Payments")])
    context = sites.flow("P->B")
    return replace(context, config=replace(context.config, **settings))


APP_READS = Acl("topic", "Payments", "User:app", "Read")
APP_WRITES = Acl("topic", "Payments", "User:app", "Write")


def test_acls_of_topics_are_added_once_and_fences_never(sites) -> None:
    context = planned_with_acls(sites)

    copy = replace(APP_READS, name="P.Payments")
    assert sync(context).acls == (copy,)
    assert context.target.acls() == {copy}
    assert sync(context).is_empty


def test_acls_stay_where_their_sync_is_off(sites) -> None:
    assert sync(planned_with_acls(sites, sync_topic_acls_enabled=False)).acls == ()


@pytest.mark.parametrize("alias", ["P", "B"])
def test_a_cluster_that_refuses_acls_is_reported_once_and_the_rest_is_synced(
    sites, alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    context = sites.flow("P->B")
    sites.clusters[alias].take_authorizer_away(f"{alias} has no authorizer {id(caplog)}")
    sites.clusters["P"].add_topic("Payments", 4)

    first, second = sync(context), sync(context)

    assert first.grow == {"P.Payments": 4}
    [note] = second.notes
    assert f"{alias} has no authorizer" in note
    assert caplog.text.count("ACLs are not synced") == 1


def test_an_acl_that_the_source_has_not_is_removed_by_choice_only(sites) -> None:
    """Principals that write to the copy, as the replicator does, keep theirs."""
    context, target = sites.flow("P->B"), sites.clusters["B"]
    stale = Acl("topic", "P.Payments", "User:former", "Read")
    own = [Acl("topic", "P.Payments", "User:srm", each) for each in ("Read", "Write")]
    target.create_acls([stale, *own])

    found = plan(context)
    assert (found.acls, found.surplus_acls) == ((), (stale,))
    apply(context, found)
    assert stale in target.acls()
    apply(context, found, found.surplus_acls)
    assert target.acls() == {*own}


def test_a_plan_compares_quotas_and_users_and_a_sync_does_not(sites) -> None:
    source, target = sites.clusters["P"], sites.clusters["B"]
    alice, default = (("client-id", "x"), ("user", "alice")), (("user", None),)
    source.client_quotas = {alice: {"producer_byte_rate": 1e6}, default: {"request_percentage": 5}}
    target.client_quotas = {default: {"request_percentage": 5}}
    source.users, target.users = {"alice", "bob", "eve"}, {"eve"}

    found = {finding.subject: finding.text for finding in plan(sites.flow("P->B")).findings}

    assert found == {
        "quota of client-id x, user alice": "producer_byte_rate is 1000000 on P, not set on B",
        "users": "2 SCRAM users exist only on P: alice, bob",
    }
    assert sync(sites.flow("P->B")).findings == ()
