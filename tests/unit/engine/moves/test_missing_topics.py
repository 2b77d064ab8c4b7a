"""A target without the topic that producers of a move write: created before they go, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import (
    REQUEST,
    Killed,
    World,
    busy_world,
    config_in,
    run_through,
)
from tests.unit.engine.moves.giving_up import Disaster, disaster
from tests.unit.engine.why.running_flow import RunningFlow, step

from srm.domain.names.rights import Acl, write_denial
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.control_topics import create_control_topics
from srm.engine.control.originals import original_findings
from srm.engine.control.topic_sync import TopicSyncPlan
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.engine.status.observing import flow_status
from srm.engine.why import why_topic
from srm.errors import AuthorizationError, ConflictError, SrmError

__all__ = ["disaster"]

SETTINGS = {"retention.ms": "777", "cleanup.policy": "compact,delete"}
ALLOWED = Acl("topic", "Payments", "User:shop", "Write")
READ = Acl("topic", "P.Payments", "User:ledger", "Read")


@pytest.fixture
def world(config) -> World:
    world = busy_world(config)
    world.b.delete_topic("Payments")
    world.p.alter_topic_configs({"Payments": SETTINGS})
    world.p.create_acls([ALLOWED, write_denial("Payments")])
    return world


def settings_there(world: World) -> dict[str, str]:
    found = world.b.topic_settings(["Payments"])["Payments"]
    return {name: one.value for name, one in found.items() if one.origin == "topic"}


def without_creation(context: MoveContext) -> MoveContext:
    config = replace(context.forward.config, create_missing_topics=False)
    return replace(context, forward=replace(context.forward, config=config))


def test_a_planned_move_creates_the_topic_as_the_plan_shows_it(world: World) -> None:
    plan = moves.plan(world.context(), REQUEST, "m1", dry_run=True)
    run_through(world)

    [line] = [one.text for one in plan.findings if one.id == "no-original"]
    assert line == (
        "topic Payments does not exist on B: a move creates it before clients go, with "
        "1 partition, replication factor 2, cleanup.policy=compact,delete, retention.ms=777, 1 ACL"
    )
    assert settings_there(world) == SETTINGS
    assert world.b.acls() == {ALLOWED}


def test_an_unplanned_move_knows_the_topic_by_its_copy(disaster: Disaster) -> None:
    world = disaster.world
    world.b.alter_topic_configs({"P.Payments": SETTINGS})
    world.b.create_acls([READ])
    world.b.delete_topic("Payments")
    world.p.fail()

    notes = [one.text for one in disaster.planned().findings if one.id == "no-original"]
    disaster.through("hold", "apply", "go")

    assert "cleanup.policy=compact,delete, retention.ms=777, 1 ACL" in notes[0]
    assert notes[1:] == ["no ACL lets a producer write to Payments: add it there"]
    assert settings_there(world) == SETTINGS
    assert replace(READ, name="Payments") in world.b.acls()
    assert world.offsets("B", "near")["Payments-0"] == 0


@pytest.mark.parametrize("mode", ["planned", "unplanned"])
def test_a_topic_with_fewer_partitions_on_the_target_is_named(world: World, mode) -> None:
    create_control_topics(world.b, 1)
    world.b.add_topic("Payments", 1)
    for cluster, topic in ((world.p, "Payments"), (world.b, "P.Payments")):
        cluster.create_partitions({topic: 3})

    plan = moves.plan(world.context(), replace(REQUEST, mode=mode), "m1", dry_run=True)

    [line] = [one.text for one in plan.findings if one.id == "fewer-partitions"]
    assert line == (
        "topic Payments has 1 partition on B and 3 on P: producers that choose another one fail "
        "on B, and keys change their partition; before the move: kafka-topics.sh "
        "--bootstrap-server b:9092 --alter --topic Payments --partitions 3"
    )


@pytest.mark.parametrize("mode", ["planned", "unplanned"])
def test_without_creation_the_plan_is_refused_with_the_command(world: World, mode) -> None:
    request = replace(REQUEST, mode=mode)
    context = without_creation(world.context())
    create_control_topics(world.b, 1)

    plan = moves.plan(context, request, "m1", dry_run=True)
    found, *_ = [one for one in plan.findings if one.id == "no-original"]

    assert found.blocks
    assert found.text.endswith("and P->B.create.missing.topics is false")
    assert plan.blocking[0] == f"{found.text}: {found.action}", "shown with the command"
    assert found.action.startswith("kafka-topics.sh --bootstrap-server b:9092 --create")
    assert "--config cleanup.policy=compact,delete" in found.action or mode == "unplanned"


def test_a_hold_without_creation_reaches_no_client(world: World) -> None:
    context = without_creation(world.context())
    moves.plan(context, REQUEST, "m1")

    with pytest.raises(ConflictError, match="kafka-topics"):
        moves.hold(context, "m1")
    assert world.routes("P") == {}


def test_a_target_that_refuses_the_topic_blocks_the_plan_and_the_hold(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(spec: object, brokers: int) -> SrmError | None:
        del brokers
        return AuthorizationError("no") if getattr(spec, "name", "") == "Payments" else None

    context = world.context()
    ensure_topics(context)
    monkeypatch.setattr(world.b.rights, "refusal", refusal)

    [text] = moves.plan(context, REQUEST, "m1").blocking
    with pytest.raises(AuthorizationError):
        moves.hold(context, "m1")

    assert text == "topic Payments does not exist on B and cannot be created: no"
    assert world.routes("P") == {}


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("call", ["create_topics", "create_acls"])
def test_killed_while_it_creates_and_run_again_it_ends_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str, made: bool
) -> None:
    context, real = world.context(), getattr(world.b, call)
    moves.plan(context, REQUEST, "m1")

    def die(what: object) -> None:
        if made:
            real(what)
        raise Killed

    monkeypatch.setattr(world.b, call, die)
    with pytest.raises(Killed):
        moves.hold(context, "m1")
    monkeypatch.undo()
    run_through(world)

    assert settings_there(world) == SETTINGS
    assert world.b.acls() == {ALLOWED}


def test_a_topic_that_is_deleted_after_the_hold_is_there_before_clients_go(
    disaster: Disaster,
) -> None:
    disaster.world.p.fail()
    disaster.planned()
    disaster.through("hold")
    disaster.world.b.delete_topic("Payments")

    disaster.through("apply", "go")

    assert "Payments" in disaster.world.b.topics()


def test_a_topic_that_exists_is_left_as_it_is(world: World) -> None:
    world.b.add_topic("Payments", 2)

    run_through(world)

    assert world.b.topics()["Payments"].partitions == 2
    assert settings_there(world) == {}


def test_flows_that_keep_names_need_no_other_topic(tmp_path) -> None:
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    loaded = config_in(
        tmp_path,
        "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
        f"P->B.enabled = true\ntopics = Payments\ngroups = .*\nreplication.policy.class = {policy}",
    )
    world = World(loaded)
    world.p.commit("near", {TopicPartition("Payments", 0): 0})

    plan = moves.plan(world.context(), replace(REQUEST, groups=("near",)), "m1", dry_run=True)

    assert "no-original" not in {one.id for one in plan.findings}


def test_status_and_why_name_it_before_the_day() -> None:
    flow = RunningFlow()
    answer = step(why_topic(flow.context, "Topic"), "original")
    hints = flow_status(flow.context).hints
    flow.settings["create_missing_topics"] = False
    refused = why_topic(flow.context, "Topic")

    assert answer.ok
    assert answer.answer.startswith("topic Topic does not exist on B: a move creates it")
    assert answer.answer in hints
    assert refused.verdict.startswith("copied, but: topic Topic does not exist on B, where")
    assert refused.action.startswith("kafka-topics.sh ")


def test_the_plan_shows_settings_that_the_created_topic_does_not_get(world: World) -> None:
    """As for a copy; producers may rely on them."""
    settings = {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}
    world.p.alter_topic_configs({"Payments": settings})

    plan = moves.plan(world.context(), REQUEST, "m1", dry_run=True)
    run_through(world)

    assert next(one.text for one in plan.findings if one.id == "no-original").endswith(
        "retention.ms=777, 1 ACL; without message.timestamp.type=LogAppendTime, "
        "min.insync.replicas=2 (config.properties.exclude)"
    )
    assert settings_there(world) == SETTINGS


def test_each_topic_that_the_target_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = RunningFlow()

    def refusal(spec: TopicSpec, brokers: int) -> SrmError | None:
        del brokers
        return AuthorizationError("no", "grant it") if spec.name == "t99" else None

    monkeypatch.setattr(flow.b.rights, "refusal", refusal)
    planned = TopicSyncPlan(tuple(TopicSpec(f"t{number}", 1, 1, {}) for number in range(100)))
    [refused] = [one for one in original_findings(flow.context, planned) if one.blocks]

    assert refused.text == "topic t99 does not exist on B and cannot be created: no; grant it"


@pytest.mark.parametrize("lost", [False, True])
def test_a_topic_deleted_after_go_is_named_by_report_status_and_why(
    world: World, lost: bool
) -> None:
    run_through(world)
    world.b.delete_topic("Payments")
    if lost:
        world.p.fail()
    context = world.context()
    line = (
        "topic Payments does not exist on B, where a move has led its producers: kafka-topics.sh "
        "--bootstrap-server b:9092 --create --topic Payments --partitions 1"
    )

    [found] = [one for one in moves.report(context, "m1").problems if "Payments" in one]
    hints = flow_status(context.forward).hints
    step_of_why = step(why_topic(context.forward, "Payments"), "original")

    assert found.startswith(line)
    assert [one for one in hints if one.startswith(line)]
    assert not step_of_why.ok
    assert step_of_why.answer == line.partition(": kafka")[0]


def test_the_last_look_at_a_move_keeps_that_its_topic_is_missing(world: World) -> None:
    """The report is final then: what is deleted or exists again later does not count."""
    run_through(world)
    world.b.delete_topic("Payments")
    reports = []
    for _ in range(3):
        reports.append(moves.watch_residue(world.context(), "m1"))
        world.passing(40_000_000)
    world.b.add_topic("Payments")
    final = moves.watch_residue(world.context(), "m1")

    assert [one.residue_over for one in reports] == [False, True, True]
    lines = {next(one for one in each.problems if "Payments does not" in one) for each in reports}
    assert len(lines) == 1
    assert final == reports[-1]


def test_a_report_is_written_although_the_settings_of_copies_may_not_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise AuthorizationError("reading settings of topics on B: no")

    run_through(world)
    world.b.delete_topic("Payments")
    monkeypatch.setattr(world.b, "topic_settings", refused)

    assert moves.report(world.context(), "m1").revision == 1
