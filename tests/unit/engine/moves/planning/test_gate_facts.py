"""What may fool a gate: transactions, groups of other kinds, holes in the copy, missing rights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, held

from srm.config.loader import load_config
from srm.domain.flow_state.replication_records import DRIVER_KEY, DriverHeartbeat, PartitionNotes
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.moves.report import MoveReport
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_loader import unread
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.engine.flows.target_topics import StateTopic
from srm.engine.moves.context import MoveContext
from srm.engine.moves.facts import TopicPair
from srm.engine.moves.reading import read_facts
from srm.errors import AuthorizationError, GateClosedError, UsageError

PAYMENTS = TopicPartition("Payments", 0)
ALL = MoveRequest("failover", "P", "B")
NEAR = replace(REQUEST, groups=("near",))


def finish(world: World, context: MoveContext, *groups: str) -> MoveReport:
    """Go and report, with the members at work on B."""
    moves.apply(context, "m1")
    moves.go(context, "m1")
    for group in groups:
        world.b.join(group)
    moves.verify(context, "m1")
    return moves.report(context, "m1")


def waiting(world: World, context: MoveContext) -> tuple[str, ...]:
    moves.wait_status(context, "m1")
    world.passing()
    return moves.wait_status(context, "m1").blocking


class Counted(tuple[TopicPair, ...]):
    """Pairs that count how often all of them are gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[TopicPair]:
        Counted.rounds += 1
        return super().__iter__()


def test_no_group_is_compared_with_each_topic(world: World) -> None:
    """Thousands of groups and of topics are millions of comparisons."""
    found = read_facts(world.context(), ALL, ("Payments",), ("near",))
    groups = tuple(f"group-{n}" for n in range(100))
    place = TopicPartition("P.Payments", 0)
    target = replace(found.target, committed={name: {place: 1} for name in groups})
    source = replace(found.source, committed={name: {PAYMENTS: 1} for name in groups})
    facts = replace(found, groups=groups, source=source, target=target, pairs=Counted(found.pairs))

    assert [len(plan.positions) for plan in facts.plans] == [2] * 100
    assert Counted.rounds < 10


def test_an_open_transaction_does_not_hide_what_others_write(world: World) -> None:
    world.p.produce_in("someone", "Payments", 0, 1, age_ms=9_000)
    world.report("P", "B")
    context = held(world)
    world.p.produce("Payments", records=50)
    status = moves.wait_status(context, "m1")

    assert (
        "topic Payments is still written to on P (50 offsets since the hold)" in status.blocking[0]
    )
    [reason] = [r for r in waiting(world, context) if "transaction" in r]
    assert reason.startswith(
        "51 records of Payments-0 on P cannot be copied: a transaction is open"
    )
    assert "from offset 100 on (producer id 1000, transactional id 'someone', age 9 s)" in reason
    assert "kafka-transactions.sh" in reason
    with pytest.raises(GateClosedError, match="transaction is open"):
        moves.apply(context, "m1")

    world.p.end_transaction("someone")
    world.copy("P", "B")
    assert waiting(world, context) == ()


def test_a_busy_plain_producer_does_not_look_like_an_open_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends of a log are read one after the other, and it grows in between."""
    stable = world.p.log_ends
    marks = world.p.high_watermarks

    def writing(read):
        def call(partitions):
            world.p.produce("Payments", records=5)
            return read(partitions)

        return call

    monkeypatch.setattr(world.p, "log_ends", writing(stable))
    monkeypatch.setattr(world.p, "high_watermarks", writing(marks))
    plan = moves.plan(world.context(), REQUEST, dry_run=True)

    assert [warning for warning in plan.warnings if "transaction" in warning] == []


def test_what_an_accepted_transaction_holds_back_is_in_the_report(world: World) -> None:
    world.p.produce_in("someone", "Payments", 0, 1)
    world.p.produce("Payments", records=50)
    context = held(world, replace(REQUEST, accept_open_transactions=True))
    assert waiting(world, context) == ()
    report = finish(world, context, "near", "far")

    assert (report.rpo_records, report.ok) == (51, False)
    assert "Payments-0: 51 records missing on B from offset 100 on" in report.problems[1]


def test_what_is_written_after_go_into_an_open_transactions_partition_is_residue(
    world: World,
) -> None:
    world.p.produce_in("someone", "Payments", 0, 1)
    context = held(world, replace(REQUEST, accept_open_transactions=True))
    waiting(world, context)
    finish(world, context, "near", "far")
    world.p.produce("Payments", records=7)
    moves.verify(context, "m1")

    assert dict(moves.report(context, "m1").residue) == {"Payments": 7}


def test_a_group_that_read_into_an_accepted_transaction_reads_that_part_again(
    world: World,
) -> None:
    world.p.produce_in("someone", "Payments", 0, 1)
    world.p.produce("Payments", records=50)
    world.start("near", "P", {"Payments": 140})
    plain = moves.plan(world.context(), NEAR, dry_run=True)
    accepted = moves.plan(
        world.context(), replace(NEAR, accept_open_transactions=True), dry_run=True
    )

    assert plain.groups[0].positions[0].state == "not-copied-yet"
    row = accepted.groups[0].positions[0]
    assert (row.state, row.resume, row.re_read) == ("translated", 101, 40)


def test_rights_that_hide_the_transactions_do_not_open_the_gate(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise AuthorizationError("grant Read on topic Payments")

    world.p.produce_in("someone", "Payments", 0, 1)
    world.report("P", "B")
    monkeypatch.setattr(world.p, "open_transactions", refuse)
    context = held(world)

    [reason] = waiting(world, context)
    assert "its owner is not visible (grant Read on topic Payments)" in reason


def test_offsets_in_an_undecided_transaction_are_waited_for(world: World) -> None:
    world.p.commit_in("app", "near", {PAYMENTS: 100})
    context = held(world)

    [reason] = waiting(world, context)
    assert "group near has offsets of Payments-0 in a transaction on P" in reason
    world.p.end_transaction("app")
    assert waiting(world, context) == ()
    moves.apply(context, "m1")
    assert world.offsets("B", "near")["P.Payments-0"] == 101


def test_the_first_commit_of_a_partition_may_be_the_undecided_one(world: World) -> None:
    world.p.commit_in("app", "near", {TopicPartition("B.Payments", 0): 1})

    assert "offsets of B.Payments-0 in a transaction" in waiting(world, held(world))[0]


def test_a_live_streams_group_is_chosen_and_closes_the_gate(world: World) -> None:
    world.p.join("app", "streams-1", kind="streams")
    world.p.commit("app", {PAYMENTS: 10})
    everything = moves.plan(world.context(), MoveRequest("failover", "P", "B"), dry_run=True)
    context = held(world, replace(REQUEST, groups=("near", "far", "app")))

    assert everything.group_names == ("app", "far", "near")
    assert waiting(world, context) == (
        "group app is still active on P (streams-1@127.0.0.1): stop it there",
    )


def test_an_absent_group_that_has_commits_may_have_members(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = held(world)
    monkeypatch.setattr(world.p, "committed_offsets", lambda _: {PAYMENTS: 10})
    world.p.expire_group("far")

    [reason] = [r for r in waiting(world, context) if "far" in r]
    assert "absent but has committed offsets" in reason


def test_groups_without_offsets_are_not_moved(world: World) -> None:
    world.p.join("workers", kind="other")

    assert moves.plan(world.context(), ALL, dry_run=True).group_names == ("far", "near")
    with pytest.raises(UsageError, match="'workers' on P cannot be moved"):
        moves.plan(world.context(), replace(REQUEST, groups=("workers",)), dry_run=True)


def test_a_plan_counts_what_a_share_group_receives_again(world: World) -> None:
    """Only its start offset moves: 95 of 100, of which it has acknowledged two after it."""
    world.p.commit("queue", {PAYMENTS: 95})
    world.p.share("queue", {PAYMENTS: 3})
    world.p.resets["queue"] = "earliest"

    plan = moves.plan(world.context(), ALL, dry_run=True)

    [queue] = [group for group in plan.groups if group.group == "queue"]
    assert (queue.lag, queue.re_read) == (5, 2)
    assert (
        "share group queue continues at its start offsets: 2 records that it acknowledged after "
        "them are delivered again on B, and delivery counts begin at 0"
    ) in plan.warnings
    assert any(
        "share.auto.offset.reset = earliest on P and latest on B" in w for w in plan.warnings
    )


def test_a_share_group_does_not_move_where_it_cannot_be(world: World) -> None:
    """The others move; it would fail between the hold and the redirect."""
    world.p.commit("queue", {PAYMENTS: 95})
    world.p.share("queue", {PAYMENTS: 3})
    world.b.kinds = frozenset({"classic", "consumer"})

    plan = moves.plan(world.context(), ALL, dry_run=True)

    assert plan.group_names == ("far", "near")
    assert any("share group queue is not moved: B has no share groups" in w for w in plan.warnings)
    with pytest.raises(UsageError, match="'queue' cannot be moved: B has no share groups"):
        moves.plan(world.context(), replace(REQUEST, groups=("queue",)), dry_run=True)


def test_a_group_does_not_move_to_one_of_its_name_that_takes_no_such_offsets(world: World) -> None:
    """Brokers answer that it does not exist, at apply: clients would be held until the limit."""
    world.p.commit("queue", {PAYMENTS: 95})
    world.p.share("queue", {PAYMENTS: 3})
    world.b.commit("queue", {TopicPartition("P.Payments", 0): 3})
    world.b.share("near", {})

    near, queue = moves.plan(world.context(), ALL, dry_run=True).blocking

    assert near.startswith("group near is a classic group on P, but a share one on B: delete it")
    assert queue.startswith("group queue is a share group on P, but a classic one on B: delete it")


def test_a_share_group_stays_one_on_the_target(world: World) -> None:
    """A classic group of its name there would shut its consumers out."""
    world.p.commit("queue", {PAYMENTS: 95})
    world.p.share("queue", {PAYMENTS: 3})
    context = held(world, replace(REQUEST, groups=("queue",)))
    assert waiting(world, context) == ()

    moves.apply(context, "m1")

    assert world.b.groups(["queue"])["queue"].kind == "share"
    assert world.b.committed_offsets("queue")[TopicPartition("P.Payments", 0)] == 96


def holes(world: World, runs: list[Run], target_next: int, **notes: object) -> None:
    reader = world.maps[Flow("P", "B")]
    reader.maps[PAYMENTS] = OffsetMap.of(runs, Position(100, target_next, 100), open_end=False)
    if notes:
        note = PartitionNotes("0", "Payments", 0, "id", **notes)
        reader.notes[PAYMENTS] = (note.with_loss(40, 60, "too large", 0),)


@pytest.mark.parametrize(
    ("runs", "notes", "missing", "why"),
    [
        (
            [Run(0, 0, 40), Run(60, 40, 40)],
            {"loss": ""},
            20,
            "20 offsets never copied, as noted",
        ),
        ([Run(60, 0, 40)], {}, 50, "50 offsets from before the first copied record"),
    ],
    ids=["refused", "before the first copied record"],
)
def test_records_that_were_never_copied_are_skipped_records(
    world: World, runs: list[Run], notes: dict[str, object], missing: int, why: str
) -> None:
    holes(world, runs, 80, **notes)
    world.p.leave("far")
    request = replace(REQUEST, groups=("far",))
    blocked = moves.plan(world.context(), request, dry_run=True)
    world.p.join("far")

    assert f"would skip {missing} records it has still to read ({why})" in blocked.blocking[0]
    context = held(world, replace(request, accept_skips=True))
    assert waiting(world, context) == ()
    report = finish(world, context, "far")
    assert (report.ok, report.rpo_records, report.groups["far"].skipped) == (
        False,
        missing,
        missing,
    )
    assert any(f"Payments-0: {missing} " in problem for problem in report.problems)


def test_records_that_an_operator_has_kept_on_the_source_are_not_missing_on_the_target(
    world: World,
) -> None:
    holes(world, [Run(0, 0, 40), Run(60, 40, 40)], 80, loss="", decision="keep")
    context = held(world, replace(REQUEST, groups=("near",)))
    assert waiting(world, context) == ()

    report = finish(world, context, "near")

    assert (report.ok, report.rpo_records) == (True, 0), report.problems


def test_noted_losses_count_as_far_as_the_log_holds_them_where_the_map_is_not_loaded(
    world: World,
) -> None:
    holes(world, [Run(0, 0, 40), Run(60, 40, 40)], 80, loss="")
    world.p.trim("Payments", 0, 50)
    facts = read_facts(world.context(), NEAR, ("Payments",), ("near",))
    maps = replace(facts.maps, maps={PAYMENTS: unread(Position(100, 80, 100))})

    [partition] = replace(facts, maps=maps).replication

    assert partition.lost == 60 - 50


def test_a_partition_of_the_target_without_a_copy_on_the_source_has_a_place_of_its_own(
    world: World,
) -> None:
    world.b.create_partitions({"Payments": 2, "P.Payments": 2})

    [plan] = read_facts(world.context(), NEAR, ("Payments",), ("near",)).plans

    assert [(row.target_topic, row.partition) for row in plan.positions] == [
        ("P.Payments", 0),
        ("Payments", 0),
        ("Payments", 1),
    ]


def test_a_damaged_map_is_no_missing_one(world: World) -> None:
    world.maps[Flow("P", "B")].errors[PAYMENTS] = "block 7 is damaged"
    [reason] = [r for r in moves.plan(world.context(), NEAR, dry_run=True).blocking if "near" in r]

    assert "offset map of Payments-0 cannot be used: block 7 is damaged" in reason
    assert "restart the replicator" in reason


def test_a_move_back_asks_before_it_skips_what_the_original_has_dropped(world: World) -> None:
    world.b.commit("back", {TopicPartition("P.Payments", 0): 10})
    world.p.trim("Payments", 0, 50)
    request = MoveRequest("failback", "B", "P", ("Payments",), ("back",))
    blocked = moves.plan(world.context("B", "P"), request, dry_run=True)
    accepted = moves.plan(
        world.context("B", "P"), replace(request, accept_skips=True), dry_run=True
    )

    assert "would skip 40 records" in blocked.blocking[0]
    [row] = [p for p in accepted.groups[0].positions if p.topic == "P.Payments"]
    assert (accepted.blocking, row.resume, row.skipped) == ((), 50, 40)


def test_what_producers_write_on_the_target_before_its_consumers_come_is_read(
    world: World,
) -> None:
    """A first failover with Kafka's default auto.offset.reset=latest."""
    world.b.produce("Payments", records=4)  # once, before any replication; now B starts at 2
    world.b.trim("Payments", 0, 2)
    world.maps[Flow("B", "P")].maps.clear()
    context = held(world)
    waiting(world, context)
    moves.apply(context, "m1")

    assert world.offsets("B", "near")["Payments-0"] == 2


def test_a_group_that_knows_the_targets_own_topic_keeps_its_place_there(world: World) -> None:
    world.b.produce("Payments", records=4)
    world.b.commit("near", {TopicPartition("Payments", 0): 3})
    context = held(world)
    waiting(world, context)
    moves.apply(context, "m1")

    assert world.offsets("B", "near")["Payments-0"] == 3


def test_partitions_left_to_the_reset_policy_are_a_warning(world: World) -> None:
    world.b.produce("Payments", records=5)
    world.copy("B", "P")
    plan = moves.plan(world.context(), NEAR, dry_run=True)

    warning = plan.warnings[-1]
    assert "group near has committed nothing for B.Payments-0" in warning
    assert "as auto.offset.reset" in warning


def test_a_group_that_may_not_be_read_has_its_own_reason_and_hides_no_other(world: World) -> None:
    world.p.hide_group("near")
    plan = moves.plan(world.context(), REQUEST, dry_run=True)

    assert [len(group.positions) for group in plan.groups] == [2, 0]
    assert all("near" in reason for reason in plan.blocking)
    assert any("grant Describe on group near" in reason for reason in plan.blocking)


def test_a_group_that_may_not_be_read_is_named_where_all_groups_move(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = world.p.committed_offsets

    def refuse(group: str) -> dict[TopicPartition, int]:
        if group == "near":
            raise AuthorizationError("grant Describe on group near")
        return committed(group)

    monkeypatch.setattr(world.p, "committed_offsets", refuse)
    plan = moves.plan(world.context(), MoveRequest("failover", "P", "B"), dry_run=True)

    assert plan.group_names == ("far",)
    assert "group near is not moved: grant Describe on group near" in plan.warnings


KEPT = "replication.policy.class = IdentityReplicationPolicy"
FAN_IN = ("A->C", "B->C", "C->A")


@pytest.mark.parametrize(
    ("source", "target", "topic", "named"),
    [
        ("C", "A", "Payments", ["B->C"]),
        ("A", "C", "Payments", ["C->A"]),
        ("C", "B", "Payments", ["A->C"]),
        ("B", "C", "Payments", []),
        ("C", "A", "Orders", []),
        ("A", "C", "Orders", []),
    ],
)
def test_a_plan_names_flows_that_copy_records_of_a_third_cluster_to_topics_of_the_source(
    source: str, target: str, topic: str, named: list[str], tmp_path: Path
) -> None:
    """The gate waits while its topics grow, as a copied record counts like any other."""
    world = copying(tmp_path, *FAN_IN, settings=KEPT)

    assert inflows(world, source, target, topic) == named


def test_flows_into_the_source_are_named_also_where_the_move_has_no_way_back(
    tmp_path: Path,
) -> None:
    world = copying(tmp_path, "B->C", "C->A", settings=KEPT)

    assert inflows(world, "C", "A", "Payments") == ["B->C"]


def test_the_hop_before_is_named_when_its_copies_move_along_a_chain(tmp_path: Path) -> None:
    world = copying(tmp_path, "A->B", "B->C", copy="A.Payments")

    assert inflows(world, "B", "C", "A.Payments") == ["A->B"]


def test_a_flow_whose_replicator_is_stopped_is_not_named(tmp_path: Path) -> None:
    world = copying(tmp_path, "B->C", "C->A", settings=KEPT, ended=True)

    assert inflows(world, "C", "A", "Payments") == []


def copying(
    home: Path, *flows: str, settings: str = "", copy: str = "Payments", ended: bool = False
) -> World:
    """Return clusters A, B and C, and these flows that copy Payments; others are off."""
    file = home / "srm.properties"
    servers = "".join(f"{alias}.bootstrap.servers = {alias}:9092\n" for alias in "ABC")
    enabled = "".join(f"{flow}.enabled = true\n{flow}.topics = .*\n" for flow in flows)
    file.write_text(f"clusters = A, B, C\n{servers}{enabled}{settings}\n")
    world = World(load_config(file), aliases=("A", "B", "C"), topics=("Payments", "Orders"))
    for flow in map(Flow.parse, flows):
        here, there = (world.clusters[alias] for alias in (flow.source, flow.target))
        there.add_topic(internal_topics.replication(flow.source), 2)
        copied = CopiedTopic(
            *("Payments", here.topics()["Payments"].topic_id),
            *(copy, there.topics()[copy].topic_id),
            *(here.cluster_id(), there.cluster_id()),
        )
        driver = DriverHeartbeat("d1", "app", "host", 1, world.clock(), ended=ended)
        records = {copied.key(): copied.value(), DRIVER_KEY: driver.value()}
        StateTopic(there, flow.source).write(records)
    return world


def inflows(world: World, source: str, target: str, topic: str) -> list[str]:
    """Plan a move, and return the flows of third clusters that its plan names."""
    move = MoveRequest("failback", source, target, topics=(topic,))
    warnings = moves.plan(world.context(source, target), move, dry_run=True).warnings
    return [line.split(" ")[0] for line in warnings if "copies records of another" in line]


def test_groups_without_a_place_in_the_same_partitions_share_a_warning(world: World) -> None:
    """Hundreds of groups read one topic alone: a line of each would hide all other warnings."""
    world.b.produce("Payments", records=5)
    world.copy("B", "P")

    warnings = moves.plan(world.context(), REQUEST, dry_run=True).warnings

    [warning] = [one for one in warnings if "auto.offset.reset" in one]
    assert "2 groups (far, near) have committed nothing for B.Payments-0" in warning
