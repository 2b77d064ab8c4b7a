"""Why a topic is (not) copied: each link of the chain, broken by itself, with what mends it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.engine.one_name import OneName
from tests.unit.engine.status.test_loss_forecast import running
from tests.unit.engine.why.running_flow import RunningFlow, step, wrong

from srm.domain.flow_state.replication_records import (
    PAUSE_KEY,
    PartitionNotes,
    PartitionStatus,
    Pause,
)
from srm.domain.metrics import Statistics, WindowMetric
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.control.recorded_copies import with_recorded
from srm.engine.why import why_topic
from srm.replication.codes import REFUSED

PLACE = TopicPartition("Topic", 0)


@pytest.fixture
def flow() -> RunningFlow:
    return RunningFlow()


def test_where_everything_is_in_order_there_is_nothing_to_do(flow: RunningFlow) -> None:
    answer = why_topic(flow.context, "Topic")

    assert (answer.ok, answer.verdict, answer.action) == (True, "copied, and caught up", "")
    assert {step.ok for step in answer.steps} == {True}


def test_a_topic_may_be_named_by_the_name_of_its_copy(flow: RunningFlow) -> None:
    answer = why_topic(flow.context, "P.Topic")

    assert (answer.subject, answer.asked) == ("Topic", "P.Topic")
    assert answer.ok


def test_a_topic_of_the_source_that_looks_like_a_copy_is_taken_by_its_own_name(
    flow: RunningFlow,
) -> None:
    flow.p.add_topic("P.Topic")

    assert why_topic(flow.context, "P.Topic").asked == ""


def test_a_flow_that_is_off_copies_nothing(flow: RunningFlow) -> None:
    flow.settings["enabled"] = False

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["enabled"]
    assert answer.verdict == "not copied: P->B is switched off"
    assert answer.action == "set P->B.enabled=true"


def test_a_paused_flow_names_who_paused_it_and_what_ends_that(flow: RunningFlow) -> None:
    pause = Pause("r", "ada", "P was given up", 1)
    flow.b.compacted_topic(internal_topics.replication("P")).write({PAUSE_KEY: pause.value()})

    answer = why_topic(flow.context, "Topic")

    assert "paused by ada: P was given up" in answer.verdict
    assert answer.action == "srm return status --flow 'P->B'"


def test_a_name_that_the_source_does_not_have_comes_with_those_that_may_be_meant(
    flow: RunningFlow,
) -> None:
    answer = why_topic(flow.context, "topic")

    assert (answer.known, answer.similar) == (False, ("Topic",))
    assert answer.verdict == "not copied: P has no topic topic"


def test_a_topic_that_srm_may_not_see_is_not_called_absent(flow: RunningFlow) -> None:
    flow.p.rights.take("Describe", "Topic")

    answer = why_topic(flow.context, "Topic")

    assert answer.known
    assert step(answer, "exists").answer == "P does not let srm see whether the topic exists"
    assert answer.action.startswith("grant Read on topic Topic of P")


def test_a_topic_that_was_deleted_says_that_its_copy_is_left(flow: RunningFlow) -> None:
    flow.p.delete_topic("Topic")

    answer = why_topic(flow.context, "Topic")

    assert answer.known
    assert answer.verdict == "not copied: P has no topic Topic, B still has its copy P.Topic"


def test_a_topic_that_only_the_target_has_is_no_copy_under_one_name(tmp_path: Path) -> None:
    world = OneName(tmp_path, "topics = .*\n")
    world.clusters["B"].add_topic("Own")
    world.record(Flow("P", "B"))
    context = world.context()
    known = with_recorded(context.config, context.source, context.target)

    answer = why_topic(replace(context, config=known), "Own")

    assert answer.verdict == "not copied: P has no topic Own"


@pytest.mark.parametrize(("alias", "topic"), [("P", "Topic"), ("B", "P.Topic")])
def test_partitions_that_nobody_leads_are_named_instead_of_an_error(
    flow: RunningFlow, alias: str, topic: str
) -> None:
    {"P": flow.p, "B": flow.b}[alias].leaderless.add(TopicPartition(topic, 0))

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["served"]
    assert f"no leader for partition 0 of {topic} on {alias} (broker 1)" in answer.verdict


def test_internal_topics_are_never_copied(flow: RunningFlow) -> None:
    flow.p.add_topic("__consumer_offsets")

    answer = why_topic(flow.context, "__consumer_offsets")

    assert wrong(answer) == ["not-internal"]
    assert answer.action == ""


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ((r"B\.Topic",), "go back by reverse checkpoints"),
        ((), "srm-control reverse-checkpointed-topics --source P --target B --add B.Topic"),
    ],
)
def test_a_copy_does_not_go_round_in_circles_and_says_what_becomes_of_its_groups(
    flow: RunningFlow, listed: tuple[str, ...], said: str
) -> None:
    flow.settings["reverse_checkpointed_topics"] = listed
    flow.p.add_topic("B.Topic")

    answer = why_topic(flow.context, "B.Topic")

    assert wrong(answer) == ["no-cycle"]
    assert said in step(answer, "no-cycle").answer


def test_a_topic_that_no_list_names_has_the_command_that_adds_it(flow: RunningFlow) -> None:
    flow.settings["topics"] = ("Other",)

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["allowed"]
    assert "none of 1 pattern matches" in answer.verdict
    assert answer.action == "srm-control topics --source P --target B --add Topic"


def test_the_pattern_that_selects_is_named_with_the_list_it_is_from(flow: RunningFlow) -> None:
    flow.settings["topics"] = ()
    flow.list_of("topics", add=("To.*",))

    answer = why_topic(flow.context, "Topic")

    assert step(answer, "allowed").answer == "To.* of the list of srm-control"
    assert step(why_topic(RunningFlow().context, "Topic"), "allowed").answer == "T.* of P->B.topics"


def test_a_pattern_of_the_file_that_denies_wins_and_is_to_be_taken_out_of_its_key(
    flow: RunningFlow,
) -> None:
    flow.settings["topics_exclude"] = (r".*\.replica", "To.*")

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["not-denied"]
    assert answer.verdict == "not copied: denied, and deny lists win: To.* of P->B.topics.exclude"
    assert answer.action == "remove To.* from P->B.topics.exclude"


def test_a_pattern_that_denies_by_default_is_called_that(flow: RunningFlow) -> None:
    flow.settings |= {"topics": (".*",), "topics_exclude": (r".*\.replica",)}
    flow.p.add_topic("old.replica")

    assert (
        r".*\.replica of P->B.topics.exclude by default"
        in why_topic(flow.context, "old.replica").verdict
    )


def test_a_pattern_of_srm_control_that_denies_is_taken_back_there(flow: RunningFlow) -> None:
    flow.list_of("topics", add_deny=("Topic",))

    answer = why_topic(flow.context, "Topic")

    assert answer.action == ("srm-control topics --source P --target B --remove-denylist Topic")


@pytest.mark.parametrize("operation", ["Read", "DescribeConfigs"])
def test_a_right_on_the_source_is_missed_by_name(flow: RunningFlow, operation: str) -> None:
    flow.p.rights.take(operation, "Topic")

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["read-right"]
    assert answer.action.startswith(f"grant {operation} on topic Topic of P to srm's principal")


def test_a_right_on_the_target_is_missed_by_name(flow: RunningFlow) -> None:
    flow.b.rights.take("Write", "P.Topic")

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["write-right"]
    assert answer.action.startswith("grant Write on topic P.Topic of B")


def test_without_a_replicator_the_command_is_the_one_that_starts_it(flow: RunningFlow) -> None:
    flow.clock.advance(60_000)

    answer = why_topic(flow.context, "Topic")

    assert "the replicator on host-7 sent its last heartbeat 1 min ago" in answer.verdict
    assert answer.action == "srm replicate --flow 'P->B'"
    told = step(answer, "assigned")
    assert (told.ok, told.answer) == (None, "assigned to slot 0, silent for 1 min")
    assert step(answer, "heard").ok is None  # nobody asks P


def test_where_nobody_copies_no_slot_is_alive_and_no_partition_goes_on(flow: RunningFlow) -> None:
    """Even in the first seconds, in which its slots were heard of a moment ago."""
    flow.beat(ended=True)

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["replicator", "partitions"]
    assert step(answer, "assigned").ok is None
    assert step(answer, "assigned").answer == "assigned to slot 0, not running"
    assert step(answer, "partitions").answer == "partition 0 waiting: no replicator copies it now"
    assert answer.action == "srm replicate --flow 'P->B'"


def test_what_a_stopped_partition_has_still_to_copy_has_no_eta_and_is_no_loss_yet(
    flow: RunningFlow,
) -> None:
    flow.write(b"10", b"11")
    flow.maps.statuses[PLACE] = PartitionStatus("Topic", 0, "stopped", "gone", 10, 12)

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["partitions", "lag"]
    assert step(answer, "lag").answer == ("2 offsets to copy, 2 offsets in stopped partition 0")
    assert (step(answer, "losses").ok, step(answer, "losses").answer) == (
        None,
        "partition 0 stopped before it was",
    )


def test_a_copy_that_cannot_be_created_says_why(flow: RunningFlow) -> None:
    flow.b.delete_topic("P.Topic")
    flow.b.rights.take("Create", "P.Topic")

    answer = why_topic(flow.context, "Topic")

    assert "P.Topic cannot be created" in answer.verdict
    assert answer.action == "grant Create on P.Topic"


def test_settings_of_the_topic_are_part_of_the_request_for_its_copy(flow: RunningFlow) -> None:
    flow.b.delete_topic("P.Topic")
    flow.p.alter_topic_configs({"Topic": {"retention.ms": "-1"}})
    flow.b.rights.forbidden = {"retention.ms": "-1"}

    answer = why_topic(flow.context, "Topic")

    assert "P.Topic cannot be created: topic P.Topic: policy violation" in answer.verdict
    assert answer.action == "change retention.ms"


def test_a_setting_that_the_target_refuses_is_named_for_a_copied_topic(flow: RunningFlow) -> None:
    flow.b.add_topic("Topic")
    flow.p.alter_topic_configs({"Topic": {"retention.ms": "-1"}})
    flow.b.rights.forbidden = {"retention.ms": "-1"}

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["settings"]
    assert answer.verdict.startswith("copied, but: topic P.Topic: policy violation")


def test_a_copy_that_is_to_be_created_in_a_moment_is_nothing_wrong_yet(flow: RunningFlow) -> None:
    flow.b.delete_topic("P.Topic")

    answer = why_topic(flow.context, "Topic")
    found = step(answer, "copy")

    assert (answer.ok, answer.verdict.split(";")[0]) == (
        None,
        "not copied yet: P.Topic does not exist yet",
    )
    assert (found.ok, found.action) == (None, "srm topics sync --flow 'P->B'")


def test_a_copy_with_too_few_partitions_is_to_be_grown(flow: RunningFlow) -> None:
    flow.p.create_partitions({"Topic": 3})

    answer = why_topic(flow.context, "Topic")

    assert "P.Topic has 1 of 3 partitions" in answer.verdict
    assert answer.action == "srm topics sync --flow 'P->B'"


def test_partitions_that_no_slot_was_given_are_named(flow: RunningFlow) -> None:
    flow.p.create_partitions({"Topic": 2})
    flow.b.create_partitions({"P.Topic": 2})

    answer = why_topic(flow.context, "Topic")

    assert answer.verdict == "copied in part: 1 partition unassigned: 1"
    assert wrong(answer) == ["assigned"]


def test_a_slot_that_is_silent_copies_nothing_while_another_one_lives(flow: RunningFlow) -> None:
    """What it said last was copying, and that was the answer for as long as it was dead."""
    [report] = flow.maps.reports
    flow.clock.advance(60_000)
    flow.beat()
    flow.maps.reports = (report, replace(report, slot="1", time_ms=flow.clock(), positions=()))

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer)[:1] == ["assigned"]
    assert answer.verdict == "not copied: assigned to slot 0, silent for 1 min"


def test_a_former_topic_of_the_same_name_has_no_part_in_the_assignment(flow: RunningFlow) -> None:
    flow.p.add_topic("Topic")

    assert "assigned" in wrong(why_topic(flow.context, "Topic"))


def test_a_stopped_partition_says_why_and_what_its_slot_says_to_do(flow: RunningFlow) -> None:
    action = "set data.loss.policy=continue to record it"
    reason = f"retention has deleted what comes next; {action}"
    flow.maps.statuses[PLACE] = PartitionStatus("Topic", 0, "stopped", reason, 3, 5, action=action)

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["partitions"]
    assert answer.verdict.endswith(
        "partition 0 stopped: retention has deleted what comes next (offsets 3 to 4)"
    ), "the words of its status"
    assert answer.action == action


def test_a_record_above_the_limit_of_the_copy_shows_the_limit_of_both_sides(
    flow: RunningFlow,
) -> None:
    """A topic sync that is due raises it: the stop looked as if only an operator could end it."""
    refusal = REFUSED[10]
    reason = f"P.Topic refused 1 record: {refusal.name}; {refusal.action}"
    status = PartitionStatus("Topic", 0, "stopped", reason, 3, 4, action=refusal.action)
    flow.maps.statuses[PLACE] = status
    flow.b.alter_topic_configs({"P.Topic": {"max.message.bytes": "1000"}})
    flow.p.alter_topic_configs({"Topic": {"max.message.bytes": "5000"}})

    due = why_topic(flow.context, "Topic")
    flow.b.alter_topic_configs({"P.Topic": {"max.message.bytes": "5000"}})
    equal = why_topic(flow.context, "Topic")

    limits = "max.message.bytes is 5000 for Topic on P and 1000 for P.Topic on B"
    assert due.verdict.endswith(f"{limits}; the next topic sync changes it")
    assert due.action == "srm topics sync --flow 'P->B'"
    assert equal.verdict.endswith("and 5000 for P.Topic on B")
    assert equal.action == refusal.action


def test_records_that_were_lost_on_the_way_are_said_of_a_topic_that_goes_on(
    flow: RunningFlow,
) -> None:
    note = PartitionNotes("0", "Topic", 0, "id").with_loss(3, 5, "refused", flow.clock())
    flow.maps.notes[PLACE] = (note,)

    answer = why_topic(flow.context, "Topic")

    assert wrong(answer) == ["losses"]
    assert answer.verdict.startswith("copied, but: 0: lost 2 source offsets, 3 to 4: refused")


def test_of_a_topic_that_was_created_again_it_is_said_where_its_copy_begins(
    flow: RunningFlow,
) -> None:
    note = PartitionNotes("0", "Topic", 0, "id").with_begin(7, flow.clock())
    flow.maps.notes[PLACE] = (note,)

    answer = why_topic(flow.context, "Topic")

    assert step(answer, "copy").answer == (
        "P.Topic with 1 partition; the topic was re-created: its copy begins at target offset "
        "7 of partition 0, earlier records belong to the former topic"
    )
    assert wrong(answer) == []


def test_a_source_that_has_not_answered_its_slots_lately_is_told_of(flow: RunningFlow) -> None:
    flow.clock.advance(60_000)
    flow.beat()
    [report] = flow.maps.reports
    flow.maps.reports = (replace(report, time_ms=flow.clock()),)

    found = step(why_topic(flow.context, "Topic"), "heard")

    assert (found.ok, found.answer) == (False, "P last answered the slots 1 min ago")


def test_what_is_left_to_copy_has_an_eta_from_the_rate_of_late(flow: RunningFlow) -> None:
    flow.settings["max_bytes_per_second"] = 1000
    flow.write(*(b"%d" % number for number in range(20)))
    running(flow)
    names, minute = ("P", "B", "topic", "Topic", "P.Topic"), (flow.clock() - 60_000, flow.clock())
    window = WindowMetric(*names, *minute, 120, 9, Statistics(), Statistics(), Statistics())
    flow.b.add_topic(internal_topics.METRICS_WINDOWS)
    flow.b.compacted_topic(internal_topics.METRICS_WINDOWS).write({b"w": window.value()})

    answer = why_topic(flow.context, "Topic")

    assert answer.verdict == "copied, with a lag of 20 offsets"
    assert step(answer, "lag").answer == (
        "20 offsets to copy, at most about 10 s at 2 records/s, the highest recent rate; "
        "P->B is limited to 1,000 bytes per second"
    )


def test_a_source_that_does_not_answer_leaves_what_the_target_knows(flow: RunningFlow) -> None:
    flow.p.fail()

    answer = why_topic(flow.context, "Topic")

    assert (answer.ok, answer.known) == (None, True)
    assert answer.verdict.startswith("not known: P does not answer")
    assert step(answer, "partitions").ok
    assert [step(answer, name).ok for name in ("served", "lag")] == [None, None]


def test_the_last_known_state_is_in_the_verdict_without_the_source(flow: RunningFlow) -> None:
    flow.p.fail()
    first = why_topic(flow.context, "Topic")
    flow.clock.advance(120_000)

    later = why_topic(flow.context, "Topic")

    assert first.verdict.endswith("; 0 s ago: copied, and caught up")
    assert later.verdict.startswith("P does not answer: the replicator on host-7 sent its last")
    assert later.verdict.endswith("; 2 min ago: copied, and caught up")
    assert later.action == "srm replicate --flow 'P->B'"


def test_a_source_that_answers_neither_its_slots_nor_srm_may_have_to_be_given_up(
    flow: RunningFlow,
) -> None:
    flow.clock.advance(60_000)
    flow.beat()
    [report] = flow.maps.reports
    flow.maps.reports = (replace(report, time_ms=flow.clock()),)
    flow.p.fail()

    answer = why_topic(flow.context, "Topic")

    assert answer.verdict == "copied, but: P last answered the slots 1 min ago"
    assert answer.action == "srm failover plan --mode unplanned --source P --target B"


def test_heartbeats_need_no_list(flow: RunningFlow) -> None:
    flow.settings |= {"topics": (), "heartbeats_replication_enabled": True}
    flow.p.add_topic("heartbeats")

    assert step(why_topic(flow.context, "heartbeats"), "allowed").ok


def test_the_flow_is_the_one_that_was_asked(flow: RunningFlow) -> None:
    assert why_topic(flow.context, "Topic").flow == Flow("P", "B")
