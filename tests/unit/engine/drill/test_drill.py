"""A drill proves what a failover would do, touches no group, and leaves nothing behind."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.copying_records import COPY, ORIGINAL, CopiedTopic
from tests.unit.engine.moves.control.moving import Killed, World, busy_world
from tests.unit.engine.status.test_loss_forecast import running as report_positions

from srm.domain.groups.group_sync import all_entries
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.moves.disaster import DRILL_LEASE_MS, Drill, DrillGroup
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.text.documents import split
from srm.engine import drill as drill_run
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.control_topics import CONTROL_ID
from srm.engine.drill import place_of_processes, read_drills, run_drill, write_drill
from srm.engine.emission import emit
from srm.engine.moves.context import MoveContext, ensure_topics, without_source
from srm.errors import ConflictError, NotFoundError, UnavailableError

GONE_PID = 2**22 - 3


def shadows(cluster) -> list[str]:
    return [name for name in cluster.groups() if name.startswith("srm-drill.")]


def ledger(cluster) -> list[str]:
    entries = all_entries(cluster.compacted_topic(internal_topics.LEDGER).read())
    return [entry.group for entry in entries if entry.group.startswith("srm-drill.")]


def context_of(world: CopiedTopic) -> MoveContext:
    return MoveContext(
        world.forward,
        world.backward,
        lambda: world.clock() / 1000,
        pause=lambda seconds: world.clock.advance(round(seconds * 1000)),
    )


@pytest.fixture
def world() -> CopiedTopic:
    made = CopiedTopic()
    made.b.mark("P.Topic")
    made.write(*(b"%d" % number for number in range(10)))
    made.copy()
    made.commit("audit", 4)
    made.commit("billing", 10)
    report_positions(made)
    emit(made.forward)
    return made


def test_everything_is_proven_and_nothing_is_left(world: CopiedTopic) -> None:
    result = run_drill(context_of(world))

    assert result.ok, result.all_problems
    assert {(g.group, g.partitions, g.proven, g.read) for g in result.groups} == {
        ("audit", 1, 1, 1),
        ("billing", 1, 1, 1),
    }
    assert shadows(world.b) == ledger(world.b) == []
    assert world.b.committed_offsets("audit") == {}
    assert result.forecast is not None
    assert set(result.steps) == {"forecast", "plan", "apply", "read"}
    assert [one.drill_id for one in read_drills(world.b)] == [result.drill_id]


def test_the_shadow_is_where_the_group_would_be(world: CopiedTopic, monkeypatch) -> None:
    seen = {}
    read = world.b.read_as_member

    def look(group, partitions, *how):
        seen[group.rpartition(".")[2]] = world.b.committed_offsets(group)
        return read(group, partitions, *how)

    monkeypatch.setattr(world.b, "read_as_member", look)
    run_drill(context_of(world))

    assert seen == {"audit": {COPY: 5}, "billing": {COPY: 11}}


def test_a_map_that_is_off_by_one_fails_the_drill(world: CopiedTopic) -> None:
    world.put(shift=1)

    result = run_drill(context_of(world), groups=("audit",))

    assert not result.ok
    assert "its translation is wrong" in result.problems[0]
    assert shadows(world.b) == []


def test_a_checkpoint_that_is_off_by_one_fails_the_drill(world: CopiedTopic) -> None:
    """The planned move does not use it; without the source it is all that there is."""
    checkpoints = world.b.compacted_topic(internal_topics.checkpoints("P"))
    for key, value in checkpoints.read().items():
        known = Checkpoint.decode(key, value)
        wrong = replace(known, downstream_offset=known.downstream_offset + 1)
        checkpoints.write({wrong.key(): wrong.value()})

    result = run_drill(context_of(world), groups=("audit",))

    [group] = result.groups
    assert (group.proven, group.read, result.problems) == (0, 0, ())
    assert "would be skipped" in group.problems[0]
    assert shadows(world.b) == []


def test_a_drill_of_a_move_that_was_made_calls_no_checkpoint_missing(world: CopiedTopic) -> None:
    context = context_of(world)
    moves.plan(context, MoveRequest("failover", "P", "B"), "m1")
    moves.hold(context, "m1")
    while not moves.wait_status(context, "m1").ready:
        world.clock.advance(1000)
    moves.apply(context, "m1")
    moves.go(context, "m1")

    result = run_drill(context)

    assert [group.problems for group in result.groups] == [(), ()]
    assert "without P: all clients of P->B are already routed to B" in result.problems[-1]


def test_a_group_without_a_checkpoint_fails_the_drill(world: CopiedTopic) -> None:
    world.commit("late", 4)

    result = run_drill(context_of(world))

    assert not result.ok
    assert "group late: Topic-0 has no checkpoint on the target" in result.all_problems[0]


def test_what_would_refuse_the_unplanned_move_alone_fails_the_drill(world: CopiedTopic) -> None:
    world.maps.reports = ()

    result = run_drill(context_of(world))

    [problem] = result.problems
    assert problem == (
        "without P: flow P->B has never copied anything to B: nothing is known about P; start "
        "consumers on B by hand, auto.offset.reset decides where"
    )


def test_a_drill_fails_where_no_broker_coordinates_the_records_of_a_move(world) -> None:
    """The move of the night ended after a minute: taking over srm-control-records timed out."""
    world.b.create_topics([TopicSpec(internal_topics.TRANSACTIONS, 50, 1, {})])
    number = internal_topics.partition_of(CONTROL_ID, 50)
    world.b.leaderless.add(TopicPartition(internal_topics.TRANSACTIONS, number))

    problems = run_drill(context_of(world)).problems

    text = f"__transaction_state-{number} of B has no leader, so no move can be written there"
    assert [f"{text}: start broker 1" in one for one in problems] == [True]


def test_a_drill_warns_of_all_that_a_plan_of_either_move_warns_of(world: CopiedTopic) -> None:
    context, request = context_of(world), MoveRequest("failover", "P", "B")
    ensure_topics(context)
    world.b.join("billing")
    unplanned = replace(request, mode="unplanned")
    here = moves.plan(context, request, dry_run=True).warnings
    lost = moves.plan(without_source(context.forward), unplanned, dry_run=True).warnings

    warnings = run_drill(context).warnings

    assert "topic Topic does not exist on B" in str(here)
    assert "group billing is not changed: it is active on B" in str({*lost} - {*here})
    assert warnings == (*here, *(f"without P: {each}" for each in lost if each not in here))


def test_a_halted_copy_is_a_warning_of_a_drill(world: CopiedTopic) -> None:
    """The planned move would wait in vain; the unplanned one does not need the copy."""
    world.write(b"10", b"11")
    world.put()
    world.clock.advance(60_000)  # its slot is silent

    result = run_drill(context_of(world), groups=("audit",))

    assert result.ok, result.all_problems
    assert result.warnings[0].startswith("not copied: 2 offsets of Topic; replicator down: ")


def test_the_member_reads_by_itself_what_the_proof_says(world: CopiedTopic, monkeypatch) -> None:
    """The offsets are right, and yet what a consumer gets is another record."""
    read = world.b.read_as_member

    def another(*arguments):
        return {p: r and r._replace(value=b"x") for p, r in read(*arguments).items()}

    monkeypatch.setattr(world.b, "read_as_member", another)
    result = run_drill(context_of(world), groups=("audit",))

    [group] = result.groups
    assert (group.proven, group.read) == (1, 0)
    assert "the member read another record at 5" in group.problems[0]


def test_a_member_that_cannot_join_is_said(world: CopiedTopic, monkeypatch) -> None:
    def refuse(*_arguments):
        raise UnavailableError("no coordinator")

    monkeypatch.setattr(world.b, "read_as_member", refuse)
    result = run_drill(context_of(world))

    assert not result.ok
    assert any("no member could join: no coordinator" in why for why in result.all_problems)


def test_members_join_with_the_protocol_of_their_group(world: CopiedTopic, monkeypatch) -> None:
    world.p.join("audit", kind="consumer")
    joined = {}
    read = world.b.read_as_member

    def join(group, partitions, limit_s, kind):
        joined[group.rpartition(".")[2]] = kind
        return read(group, partitions, limit_s, kind)

    monkeypatch.setattr(world.b, "read_as_member", join)
    run_drill(context_of(world))

    assert joined == {"audit": "consumer", "billing": "classic"}


def test_a_group_whose_protocol_the_target_does_not_admit_fails_the_drill(
    world: CopiedTopic,
) -> None:
    world.p.join("audit", kind="consumer")
    world.b.kinds = frozenset({"classic"})

    result = run_drill(context_of(world))

    assert not result.ok
    [named] = [one for one in result.warnings if "which B does not admit" in one]
    assert named.startswith("1 group (audit) with the consumer group protocol")
    [group] = [one for one in result.groups if one.problems]
    assert group.group == "audit"
    assert "no member could join" in group.problems[0]


def test_what_would_block_a_failover_is_a_problem(world: CopiedTopic) -> None:
    world.b.join("audit")

    result = run_drill(context_of(world), groups=("audit",))

    assert not result.ok
    assert any("audit" in problem for problem in result.problems)


def test_a_group_that_does_not_exist_is_named_and_nothing_is_written(world: CopiedTopic) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        run_drill(context_of(world), groups=("nobody",))

    assert read_drills(world.b) == ()


def test_an_error_in_between_leaves_nothing_either(world: CopiedTopic, monkeypatch) -> None:
    def broken(*_arguments, **_named):
        raise RuntimeError("in mid drill")

    monkeypatch.setattr("srm.engine.drill._group", broken)
    with pytest.raises(RuntimeError):
        run_drill(context_of(world))

    assert shadows(world.b) == ledger(world.b) == []
    assert [one.state for one in read_drills(world.b)] == ["interrupted"]


@pytest.mark.parametrize("runner", ["drill", "emission"])
def test_killed_at_any_write_the_next_drill_or_emission_removes_the_leftovers(
    config, runner
) -> None:
    at = 0
    while True:
        at += 1
        ended = True
        for after in (False, True):
            world = busy_world(config)
            world.writes.die_at = (world.writes.count + at, after)
            try:
                run_drill(world.context(), groups=("near", "far"))
            except Killed:
                ended = False
            world.writes.die_at = None
            next_run(world, runner)

            assert shadows(world.b) == ledger(world.b) == []
            assert not [one for one in read_drills(world.b) if one.state == "running"]
        if ended:
            break
    assert at > 5


def next_run(world: World, runner: str) -> None:
    if runner == "drill":
        assert run_drill(world.context(), groups=("near",)).state == "done"
    else:
        emit(world.context().forward)


def running(world: CopiedTopic, **changes: object) -> Drill:
    drill = Drill("d1", "P->B", "running", world.clock(), "elsewhere", 1)
    drill = replace(drill, **changes)
    write_drill(world.b, drill)
    world.b.commit(f"{drill.shadow_prefix}audit", {COPY: 1})
    return drill


def test_a_drill_that_runs_elsewhere_is_left_alone_until_its_time_is_over(world) -> None:
    drill = running(world)

    with pytest.raises(ConflictError, match="drill d1 of P->B runs on elsewhere"):
        run_drill(context_of(world))
    emit(world.forward)
    assert shadows(world.b) == [f"{drill.shadow_prefix}audit"]

    world.clock.advance(DRILL_LEASE_MS)
    emit(world.forward)
    assert shadows(world.b) == []
    [left] = read_drills(world.b)
    assert left.state == "interrupted"


def test_a_drill_whose_process_is_gone_from_this_host_is_removed_at_once(world) -> None:
    running(world, place=place_of_processes(), pid=GONE_PID)

    emit(world.forward)

    assert shadows(world.b) == []


def test_a_drill_in_another_container_of_the_same_host_name_is_left_alone(world) -> None:
    drill = running(world, place="another", host=os.uname().nodename, pid=GONE_PID)

    emit(world.forward)

    assert shadows(world.b) == [f"{drill.shadow_prefix}audit"]


def test_a_drill_is_left_alone_where_nothing_tells_one_host_from_another(
    world: CopiedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill_run, "place_of_processes", lambda: "")
    drill = running(world, place="", pid=GONE_PID)

    emit(world.forward)

    assert shadows(world.b) == [f"{drill.shadow_prefix}audit"]


def test_containers_of_one_kernel_are_different_places() -> None:
    kernel, namespace = place_of_processes().split(" ")

    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() == kernel
    assert str(Path("/proc/self/ns/pid").readlink()) == namespace


def test_a_drill_that_another_user_of_this_host_runs_is_left_alone(
    world: CopiedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    drill = running(world, place=place_of_processes(), pid=1)

    emit(world.forward)

    assert shadows(world.b) == [f"{drill.shadow_prefix}audit"]


def test_a_drill_that_was_taken_for_dead_ends(world: CopiedTopic, monkeypatch) -> None:
    read = world.b.read_as_member

    def late(*arguments):
        [known] = read_drills(world.b)
        write_drill(world.b, replace(known, state="interrupted"))
        return read(*arguments)

    monkeypatch.setattr(world.b, "read_as_member", late)
    with pytest.raises(ConflictError, match="missed its heartbeats"):
        run_drill(context_of(world))

    assert shadows(world.b) == []


def test_many_groups_are_read_without_saying_for_each_that_the_drill_lives(
    world: CopiedTopic, monkeypatch
) -> None:
    """Its record has the names of them all."""
    written: list[Drill] = []
    monkeypatch.setattr(drill_run, "write_drill", lambda target, one, **_: written.append(one))
    monkeypatch.setattr(drill_run, "read_drills", lambda _: tuple(written[-1:]))
    for number in range(40):
        world.commit(f"group{number}", 4)
    emit(world.forward)

    assert run_drill(context_of(world)).ok

    assert len(written) < 10


def test_the_record_of_a_drill_that_finds_much_has_less_than_a_megabyte(
    world: CopiedTopic, monkeypatch
) -> None:
    """Otherwise nobody learns of the rehearsals that fail most."""
    for number in range(300):
        world.commit(f"group{number}", 4)
    emit(world.forward)
    long = property(lambda row: f"{row.upstream}: {'why ' * 1_000}")
    monkeypatch.setattr(drill_run._Row, "proof_problem", long)

    result = run_drill(context_of(world))

    assert [one.drill_id for one in read_drills(world.b)] == [result.drill_id]
    assert not any(group.ok for group in result.groups)
    assert {text[:12] for one in result.groups for text in one.problems} == {"Topic-0: why"}
    assert read_drills(world.b)[0].groups == result.groups


def records_of_drills(world: CopiedTopic) -> dict[bytes, bytes]:
    """Return the records of drills and of their parts."""
    rows = world.b.compacted_topic(internal_topics.MOVES).read()
    return {key: value for key, value in rows.items() if b"drill:" in key}


def test_a_drill_of_many_groups_is_kept_in_records_of_bounded_size(
    world: CopiedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Drill("d1", "P->B", "done", 1, "h", 1)
    names = [f"{number:05}{'g' * 250}" for number in range(5_000)]
    write_drill(world.b, replace(done, groups=tuple(DrillGroup(name, 1, 1, 1) for name in names)))
    [first] = read_drills(world.b)
    assert [one.group for one in first.groups] == names
    assert max(map(len, records_of_drills(world).values())) <= 500_000

    monkeypatch.setattr("srm.domain.moves.disaster.MOST_KEPT", 1)
    world.clock.advance(1_000)
    last = run_drill(context_of(world), groups=("audit",))

    assert [*records_of_drills(world)] == [last.key()]


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_drill_that_is_killed_while_its_records_are_written_is_removed(
    world: CopiedTopic, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srm.domain.text.documents._LARGEST", 5_000)
    groups = tuple(DrillGroup(f"group{number}") for number in range(500))
    done = replace(running(world), state="done", groups=groups)
    moves = world.b.compacted_topic(internal_topics.MOVES)
    moves.write(dict([*split(done.key(), done.value()).items()][:after]))

    world.clock.advance(DRILL_LEASE_MS)
    emit(world.forward)

    assert shadows(world.b) == []
    assert [one.state for one in read_drills(world.b)] == ["interrupted"]
    assert len(records_of_drills(world)) == 1


def test_a_group_that_is_ahead_of_the_copy_is_rehearsed_at_the_end_of_the_copy(world) -> None:
    world.write(b"10", b"11")
    world.put()
    world.commit("audit", 12)

    result = run_drill(context_of(world), groups=("audit",))

    assert result.ok, result.all_problems


def test_a_commit_without_translation_is_not_proven(world: CopiedTopic) -> None:
    world.maps.maps.clear()

    result = run_drill(context_of(world), groups=("audit",))

    assert not result.ok
    assert "Topic-0 was never copied, as the map shows" in result.problems[0]


def test_results_of_a_flow_are_kept_but_not_for_ever(world: CopiedTopic, monkeypatch) -> None:
    monkeypatch.setattr("srm.domain.moves.disaster.MOST_KEPT", 2)
    for _ in range(4):
        world.clock.advance(1_000)
        run_drill(context_of(world), groups=("audit",))

    kept = read_drills(world.b, "P->B")

    assert len(kept) == 2, "with the newest"
    assert kept[-1].time_ms == world.clock()


def test_a_damaged_record_stands_in_nobodys_way(world: CopiedTopic) -> None:
    world.b.compacted_topic(internal_topics.MOVES).write(
        {b"drill:x": json.dumps({"a": 1}).encode()}
    )

    assert run_drill(context_of(world)).ok


def test_what_the_group_has_committed_is_not_touched(world: CopiedTopic) -> None:
    run_drill(context_of(world))

    assert world.p.committed_offsets("audit") == {ORIGINAL: 4}
    assert world.p.groups()["audit"].members == ()
