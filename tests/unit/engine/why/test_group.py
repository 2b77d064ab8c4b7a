"""Why a group is (not) translated and able to move: each link of the chain, broken by itself."""

from __future__ import annotations

import shlex
from dataclasses import replace
from shlex import split

import pytest
from tests.unit.engine.copying_records import COPY, ORIGINAL
from tests.unit.engine.why.running_flow import RunningFlow, step, wrong

from srm.config.model import RedirectSettings
from srm.domain.flow_state.replication_records import PAUSE_KEY, PartitionStatus, Pause
from srm.domain.moves.routing import Ack, Route, group_subject
from srm.domain.names import internal_topics
from srm.domain.names.policy import NameFilter, split_patterns
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import utc
from srm.engine.groups import group_sync
from srm.engine.groups.checkpoints import emit
from srm.engine.ports import FlowContext
from srm.engine.why import in_order, why_group


@pytest.fixture
def flow() -> RunningFlow:
    """The group audit has read eight of ten records, left, and is on the target, too."""
    made = RunningFlow()
    made.commit("audit", 8)
    emit(made.context)
    group_sync.sync(made.context)
    return made


def test_a_group_that_is_translated_and_written_can_move_now(flow: RunningFlow) -> None:
    answer = why_group(flow.context, "audit")

    assert (answer.ok, answer.verdict) == (True, "translated; can move now")
    assert wrong(answer) == []
    assert answer.action == ""


def test_a_name_that_the_source_does_not_have_comes_with_those_that_may_be_meant(
    flow: RunningFlow,
) -> None:
    answer = why_group(flow.context, "Audits")

    assert (answer.known, answer.similar) == (False, ("audit",))
    assert answer.verdict == "not translated: P has no group Audits"


def test_a_group_that_only_its_checkpoints_remember_is_known(flow: RunningFlow) -> None:
    flow.p.expire_group("audit")

    answer = why_group(flow.context, "audit")

    assert answer.known
    assert "P no longer has group audit" in answer.verdict


def test_a_deleted_group_is_deleted_since_the_emission_that_marked_it(flow: RunningFlow) -> None:
    flow.p.expire_group("audit")
    emit(flow.context)
    since = f"deleted on P since {utc(flow.clock())}"
    flow.clock.advance(301_000)
    emit(flow.context)
    answers = [why_group(flow.context, "audit")]
    flow.p.fail()
    answers.append(why_group(flow.context, "audit"))

    verdict = f"not translated: {since}; nothing has to be done"
    assert [answer.verdict for answer in answers] == [verdict] * 2
    assert {(answer.known, answer.action) for answer in answers} == {(True, "")}
    assert not [step for answer in answers for step in answer.steps if step.name == "movable"]


def test_an_obstacle_in_full_comes_without_a_dry_run_that_repeats_it(flow: RunningFlow) -> None:
    flow.b.join("audit")

    answer = why_group(flow.context, "audit")

    assert "group audit is active on B" in answer.verdict
    assert step(answer, "movable").action == ""


def test_groups_without_offsets_say_why_they_are_not_carried_over(flow: RunningFlow) -> None:
    flow.p.join("jobs", kind="other")

    answer = why_group(flow.context, "jobs")

    assert wrong(answer) == ["kind"]
    assert "Connect workers" in answer.verdict


def test_a_group_that_no_list_names_has_the_command_that_adds_it(flow: RunningFlow) -> None:
    flow.settings["groups"] = ("billing",)

    answer = why_group(flow.context, "audit")

    assert wrong(answer) == ["allowed"]
    assert answer.action == "srm-control groups --source P --target B --add audit"


@pytest.mark.parametrize(
    "name", ["it's; id", "a+(b)[", "$(id)", "x,y", "back`id`", "(.|.|.)*[^a-z]" * 9]
)
def test_the_command_that_adds_a_group_adds_this_one_whatever_it_is_called(
    flow: RunningFlow, name: str
) -> None:
    flow.settings["groups"] = ("billing",)
    flow.commit(name, 3)

    answer = why_group(flow.context, name)

    *command, entry = split(answer.action)
    assert command == ["srm-control", "groups", "--source", "P", "--target", "B", "--add"]
    assert NameFilter(split_patterns(entry), ()).matches(name)


@pytest.mark.parametrize("name", ["it's; id", "$(id)"])
def test_the_command_that_moves_a_group_names_it_whatever_it_is_called(
    flow: RunningFlow, name: str
) -> None:
    flow.commit(name, 3)
    emit(flow.context)
    flow.p.fail()

    answer = why_group(flow.context, name)

    assert split(answer.action)[-2:] == ["--group", name]


def test_a_name_that_means_something_to_a_shell_is_one_word_of_the_command(
    flow: RunningFlow,
) -> None:
    name = "x'; rm -rf ~ #(a,b)+"
    flow.commit(name, 1)
    flow.settings["groups"] = ("billing",)

    command = shlex.split(why_group(flow.context, name).action)

    assert command[:-1] == ["srm-control", "groups", "--source", "P", "--target", "B", "--add"]
    assert NameFilter(split_patterns(command[-1])).matches(name)


def test_a_pattern_that_denies_a_group_wins_and_is_named(flow: RunningFlow) -> None:
    flow.list_of("groups", add_deny=("aud.*",))

    answer = why_group(flow.context, "audit")

    assert "denied, and deny lists win: aud.* of the list of srm-control" in answer.verdict
    assert answer.action == "srm-control groups --source P --target B --remove-denylist 'aud.*'"


def test_groups_of_drills_are_nobodys(flow: RunningFlow) -> None:
    flow.commit("srm-drill.x.audit", 1)

    answer = why_group(flow.context, "srm-drill.x.audit")

    assert "made by drills" in step(answer, "not-denied").answer
    assert answer.action == ""


def test_offsets_that_may_not_be_read_are_a_right_that_is_missing(flow: RunningFlow) -> None:
    flow.p.hide_group("audit")

    answer = why_group(flow.context, "audit")

    assert wrong(answer) == ["offsets"]
    assert answer.action == "grant Describe on group audit"


def test_a_partition_that_nobody_leads_keeps_its_offsets_from_being_translated(
    flow: RunningFlow,
) -> None:
    flow.b.leaderless.add(COPY)

    answer = why_group(flow.context, "audit")

    assert wrong(answer) == ["offsets"]
    assert "cluster B: no leader yet for P.Topic-0" in answer.verdict


def test_offsets_in_topics_that_are_not_selected_name_the_topic_and_the_command(
    flow: RunningFlow,
) -> None:
    flow.p.commit("other", {TopicPartition("Else", 0): 1})

    answer = why_group(flow.context, "other")

    assert wrong(answer) == ["offsets"]
    assert answer.action == "srm-control topics --source P --target B --add Else"


def test_a_topic_that_is_denied_is_no_topic_to_add(flow: RunningFlow) -> None:
    flow.list_of("topics", add_deny=("Topic",))

    answer = why_group(flow.context, "audit")

    assert "topic denied by the pattern Topic" in answer.verdict
    assert answer.action == "srm why Topic --flow 'P->B'"


def test_a_group_that_reads_something_else_too_is_translated_in_part(flow: RunningFlow) -> None:
    flow.p.add_topic("Else")
    flow.p.commit("audit", {TopicPartition("Else", 0): 1})

    answer = why_group(flow.context, "audit")

    assert answer.verdict.startswith("translated in part: partition 0: topic not selected")
    assert "movable" in wrong(answer)


def test_a_commit_that_the_copy_has_not_reached_waits_for_the_topic(flow: RunningFlow) -> None:
    flow.write(b"10", b"11")
    flow.commit("audit", 12)

    answer = why_group(flow.context, "audit")

    assert answer.ok is None
    assert answer.verdict == "translated up to the end of the copy; can move, after a wait"
    assert step(answer, "translated").action == "srm why Topic --flow 'P->B' --kind topic"
    assert "replication of Topic from P is 2 records behind" in step(answer, "ready").answer


def test_a_group_whose_topic_nobody_copies_further_cannot_move(flow: RunningFlow) -> None:
    flow.write(b"10", b"11")
    flow.beat(ended=True)

    answer = why_group(flow.context, "audit")

    assert (answer.ok, wrong(answer)) == (False, ["movable"])
    assert answer.verdict.endswith(
        "cannot move: not copied: 2 offsets of Topic; replicator down: the replicator on host-7 "
        "ended 0 s ago"
    )
    assert answer.action == "srm replicate --flow 'P->B'"


def test_a_flow_that_never_ran_is_started_before_anything_else(flow: RunningFlow) -> None:
    """It said "create it with srm topics sync", or without the source to plan a move."""
    flow.b.delete_topic(internal_topics.replication("P"))
    flow.b.delete_topic("P.Topic")
    flow.b.delete_topic(flow.context.config.checkpoints_topic)

    answered = why_group(flow.context, "audit")
    flow.p.fail()
    without_source = why_group(flow.context, "audit")

    assert answered.verdict == "not translated: no replicator has ever run"
    assert answered.action == "srm replicate --flow 'P->B'"
    assert not without_source.known
    assert "failover" not in without_source.action


def test_a_group_whose_partition_is_stopped_cannot_move(flow: RunningFlow) -> None:
    flow.write(b"10", b"11")
    keep_on = "set data.loss.policy=continue to record the loss and continue"
    flow.maps.statuses[ORIGINAL] = PartitionStatus(
        "Topic", 0, "stopped", f"records 10 to 12 are gone; {keep_on}", action=keep_on
    )

    answer = why_group(flow.context, "audit")

    assert wrong(answer) == ["movable"]
    assert "cannot move: replication of Topic-0 is stopped: records 10" in answer.verdict
    assert answer.action == keep_on


def test_a_partition_that_was_never_copied_has_no_place_on_the_target(flow: RunningFlow) -> None:
    flow.maps.maps.clear()

    answer = why_group(flow.context, "audit")

    assert answer.verdict.startswith("not translated: partition 0:")
    assert "srm status --flow 'P->B'" in step(answer, "translated").action


def test_checkpoints_that_are_switched_off_name_the_key(flow: RunningFlow) -> None:
    flow.settings["emit_checkpoints_enabled"] = False

    answer = why_group(flow.context, "audit")

    assert answer.action == "set P->B.emit.checkpoints.enabled=true"


def test_a_checkpoint_that_is_not_there_is_to_be_emitted(flow: RunningFlow) -> None:
    flow.commit("fresh", 5)

    answer = why_group(flow.context, "fresh")

    assert "emitted" in wrong(answer)
    assert answer.action == "srm checkpoints emit --flow 'P->B'"


def test_a_translation_that_the_records_contradict_is_loud(flow: RunningFlow) -> None:
    flow.put(shift=1)
    emit(flow.context)

    answer = why_group(flow.context, "audit")

    assert step(answer, "proven").answer.startswith("WRONG, and not emitted: Topic-0")
    assert step(answer, "proven").action == "srm verify --flow 'P->B'"


def test_a_group_that_is_in_use_on_the_target_is_left_alone_and_cannot_move(
    flow: RunningFlow,
) -> None:
    flow.b.join("audit", "reader")

    answer = why_group(flow.context, "audit")

    assert "it is in use there" in step(answer, "written").answer
    assert "cannot move: group audit is active on B" in answer.verdict
    assert answer.action == "stop it on B"


def test_a_group_that_has_moved_is_where_it_works_and_nobody_is_told_to_stop_it(
    flow: RunningFlow,
) -> None:
    """The first thing to do was to stop it on B: the live application."""
    route_to(flow, "B")
    flow.b.join("audit", "reader")
    flow.b.commit("audit", {COPY: 10})

    answer = why_group(flow.context, "audit")

    assert answer.verdict == "translated; it works on B already: see flow B->P"
    assert (answer.action, "stop it" in str(answer.steps), wrong(answer)) == ("", False, [])


def test_a_group_that_runs_where_its_route_does_not_lead_is_not_said_to_have_moved(
    flow: RunningFlow,
) -> None:
    route_to(flow, "B")
    flow.p.join("audit", "reader")

    assert "cannot move: group:audit is routed to B" in why_group(flow.context, "audit").verdict


def test_a_group_that_is_further_on_the_target_is_not_taken_back(flow: RunningFlow) -> None:
    flow.b.commit("audit", {COPY: 10})

    answer = why_group(flow.context, "audit")

    assert "its offset is ahead there" in step(answer, "written").answer
    assert "movable" in wrong(answer)


def test_offsets_that_are_not_written_yet_are_told_with_what_stands_there_and_what_will(
    flow: RunningFlow,
) -> None:
    before = flow.b.committed_offsets("audit")[COPY]
    flow.commit("audit", 9)
    emit(flow.context)

    answer = why_group(flow.context, "audit")

    assert step(answer, "written").answer == (
        f"1 of 1 partition not yet: B has offset {before} in P.Topic-0, the next group sync writes "
        f"{before + 1}"
    )


def test_without_group_sync_the_offsets_are_written_by_a_move_and_nothing_is_wrong(
    flow: RunningFlow,
) -> None:
    flow.settings["sync_group_offsets_enabled"] = False

    answer = why_group(flow.context, "audit")

    assert answer.ok
    assert "sync.group.offsets.enabled is false" in step(answer, "written").answer


def test_members_that_follow_no_route_have_to_be_stopped_by_somebody(flow: RunningFlow) -> None:
    flow.p.join("audit", "app")

    answer = why_group(flow.context, "audit")

    assert step(answer, "follows").ok is False
    assert "app@127.0.0.1 does not" in step(answer, "follows").answer
    assert "still active on P" in step(answer, "ready").answer


def test_members_that_others_are_told_of_need_not_follow_routes(flow: RunningFlow) -> None:
    flow.settings["redirect"] = RedirectSettings(("routing", "manual"))
    flow.p.join("audit", "app")

    assert "redirected by manual" in step(why_group(flow.context, "audit"), "follows").answer


def test_members_that_have_announced_themselves_follow(flow: RunningFlow) -> None:
    flow.p.join("audit", "app")
    flow.p.add_topic(internal_topics.ROUTING)
    ack = Ack(group_subject("audit"), "app", 0, "resumed", "P", flow.clock())
    flow.p.compacted_topic(internal_topics.ROUTING).write({ack.key(): ack.value()})

    answer = why_group(flow.context, "audit")

    assert step(answer, "follows").ok
    assert step(answer, "ready").answer == (
        "it would wait: group audit is still active on P (app@127.0.0.1): "
        "it follows routes and leaves at the hold"
    )


def test_what_would_not_come_back_is_a_copy_that_the_way_back_does_not_list(
    flow: RunningFlow,
) -> None:
    context = flow.context
    unlisted = replace(flow.backward.config, reverse_checkpointed_topics=())

    answer = why_group(replace(context, opposite=unlisted), "audit")

    assert wrong(answer) == ["way-back"]
    assert answer.verdict.startswith("translated; can move now, but: ")
    assert answer.action == (
        "srm-control reverse-checkpointed-topics --source B --target P --add P.Topic"
    )


def test_a_way_back_that_is_off_is_said(flow: RunningFlow) -> None:
    off = replace(flow.backward.config, enabled=False)

    answer = why_group(replace(flow.context, opposite=off), "audit")

    assert answer.action == "set B->P.enabled=true"


def test_a_source_that_is_away_leaves_the_checkpoints_to_go_on_from(flow: RunningFlow) -> None:
    flow.p.fail()

    answer = why_group(flow.context, "audit")

    assert (answer.ok, answer.known) == (None, True)
    assert answer.verdict.endswith("1 checkpoint on B")
    assert answer.action == (
        "srm failover plan --mode unplanned --source P --target B --group audit"
    )


def test_a_group_without_checkpoints_continues_from_its_own_commits_on_the_target(
    flow: RunningFlow,
) -> None:
    flow.b.commit("reader", {TopicPartition("P.Topic", 0): 5})
    flow.p.fail()

    answer = why_group(flow.context, "reader")

    assert answer.known
    assert step(answer, "movable").answer == "from its last known positions"
    assert answer.action == (
        "srm failover plan --mode unplanned --source P --target B --group reader"
    )


def test_a_group_that_has_moved_is_not_to_be_given_up_for_with_the_source_it_has_left(
    flow: RunningFlow,
) -> None:
    """The one thing to do was an unplanned failover of a group that worked on B all the time."""
    route_to(flow, "B")
    flow.p.fail()

    answer = why_group(flow.context, "audit")

    assert answer.verdict == (
        "its route leads to B, where it is empty: start it there; pending: P does not answer"
    )
    assert (answer.action, answer.works_here, wrong(answer)) == ("bring P back", False, [])


def test_a_group_at_work_is_said_to_be_well_with_what_waits_for_the_dead_cluster(
    flow: RunningFlow,
) -> None:
    """After a disaster its answer was "not translated", or to do: "srm knows no remedy"."""
    route_to(flow, "B")
    flow.b.join("audit", "reader")
    flow.p.fail()
    well = "it works on B (active, 1 member), and nothing is wrong with it there; pending: "

    answer = why_group(flow.context, "audit")

    assert (answer.ok, answer.verdict) == (None, f"{well}P does not answer")
    pause = Pause("1", "me", "unplanned failover m1: P is lost", 1)
    state = flow.b.compacted_topic(internal_topics.replication("P"))
    state.write({PAUSE_KEY: pause.value()})

    answer = why_group(flow.context, "audit")

    paused = "P->B is paused by me: unplanned failover m1: P is lost"
    assert (answer.ok, answer.verdict) == (None, f"{well}P does not answer; {paused}")
    assert answer.action == "bring P back, then srm return status --flow 'P->B'"


def test_a_group_that_was_never_moved_is_where_its_members_are(flow: RunningFlow) -> None:
    flow.b.join("native", "reader")
    flow.p.fail()

    answer = why_group(flow.context, "native")

    assert answer.known
    assert answer.verdict.startswith("it works on B (active, 1 member), and nothing is wrong")


def test_a_group_whose_route_leads_to_a_dead_source_goes_on_from_its_checkpoints(
    flow: RunningFlow,
) -> None:
    route_to(flow, "P")
    flow.p.fail()

    answer = why_group(flow.context, "audit")

    assert answer.action.startswith("srm failover plan --mode unplanned")
    assert answer.works_here


def test_without_a_checkpoint_a_dead_source_leaves_nothing_to_go_on_from(
    flow: RunningFlow,
) -> None:
    flow.p.fail()

    answer = why_group(flow.context, "fresh")

    assert (answer.known, step(answer, "movable").ok) == (False, False)
    assert "auto.offset.reset" in step(answer, "movable").answer


def test_nothing_is_written_by_asking(flow: RunningFlow) -> None:
    before = {name: flow.b.compacted_topic(name).read_stamped() for name in flow.b.topics()}
    committed = flow.b.committed_offsets("audit")

    why_group(flow.context, "audit")

    assert {name: flow.b.compacted_topic(name).read_stamped() for name in flow.b.topics()} == before
    assert flow.b.committed_offsets("audit") == committed
    assert flow.p.committed_offsets("audit") == {ORIGINAL: 8}


def back(flow: RunningFlow) -> FlowContext:
    """The flow back, as commands open it."""
    return replace(flow.backward, opposite=flow.forward.config)


def route_to(flow: RunningFlow, alias: str) -> None:
    """Let a move have sent the group to a cluster."""
    flow.b.add_topic(internal_topics.ROUTING)
    subject = group_subject("audit")
    went = Route(1, alias, "go", "m1", flow.clock(), decided=True, homes=("B", "P"))
    flow.b.compacted_topic(internal_topics.ROUTING).write({subject.encode(): went.value()})


def ways(flow: RunningFlow) -> list[str]:
    """Name the flows in the order in which their answers are shown."""
    asked = [why_group(context, "audit") for context in (back(flow), flow.context)]
    return [str(answer.flow) for answer in in_order(asked)]


def test_the_way_from_where_a_group_has_members_comes_first(flow: RunningFlow) -> None:
    flow.p.join("audit", "app")
    assert ways(flow) == ["P->B", "B->P"]

    flow.p.leave("audit")
    flow.b.join("audit", "app")
    assert ways(flow) == ["B->P", "P->B"]


def test_without_members_the_route_says_where_a_group_works(flow: RunningFlow) -> None:
    assert ways(flow) == ["P->B", "B->P"], "it has read the original on P"

    route_to(flow, "B")
    assert ways(flow) == ["B->P", "P->B"]
