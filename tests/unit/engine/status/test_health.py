"""One answer to whether a flow is well: its state, and why, with the one thing to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srm.domain.flow_state.replication_records import DriverHeartbeat, Pause
from srm.domain.names.topics import Flow
from srm.domain.text.amount import Reason
from srm.engine.flows.supervision import DriverStatus, FlowSigns, SlotStatus, late_commits
from srm.engine.status.status import (
    FlowStatus,
    TopicState,
    TopicStatus,
    document,
    flow_health,
    hints,
    signs_health,
    topic_health,
)
from srm_lab.testing.flows import flow_config

DRIVER = DriverStatus("d", "local-1", "host-7", 42, 0, age_ms=500, alive=True)
SLOTS = (SlotStatus("0", 1, 2, 500, alive=True), SlotStatus("1", 1, 2, 500, alive=True))
TOPIC = TopicStatus("Payments", "P.Payments", 2, 2, 100, 0, "caught-up")
WELL = FlowStatus(
    Flow("P", "B"), enabled=True, time_ms=1, driver=DRIVER, slots=SLOTS, topics=(TOPIC,)
)


def test_without_its_source_a_flow_that_never_ran_has_nothing_to_move() -> None:
    away = replace(WELL, driver=None, slots=(), topics=(), source_error="no answer")

    [never, silent] = flow_health(away).reasons
    found = [hint.line for hint in hints(flow_config(Flow("P", "B")), away, ())]

    assert never.line == "no replicator has ever run: srm replicate --flow 'P->B'"
    assert silent.line == "P does not answer: no answer"
    assert not [line for line in found if "failover" in line]


def test_a_damaged_heartbeat_is_not_that_of_a_flow_that_never_ran() -> None:
    slots = tuple(replace(slot, alive=False) for slot in SLOTS)

    [reason, *_] = flow_health(replace(WELL, driver=None, slots=slots)).reasons

    assert reason.text == "the replicator has no live slot"


def test_a_flow_that_copies_everything_runs_and_says_nothing() -> None:
    health = flow_health(WELL)

    assert (health.state, health.reasons) == ("RUNNING", ())


@pytest.mark.parametrize(
    ("changed", "state", "text"),
    [
        (replace(WELL, enabled=False), "OFF", "switched off"),
        (replace(WELL, pause=Pause("m", "ada", "moved away", 1)), "PAUSED", "moved away"),
        (replace(WELL, driver=None, slots=()), "STOPPED", "no replicator has ever run"),
        (
            replace(
                WELL,
                driver=replace(DRIVER, alive=False, age_ms=90_000),
                slots=tuple(replace(slot, alive=False) for slot in SLOTS),
            ),
            "STOPPED",
            "the replicator on host-7 sent its last heartbeat 1 min 30 s ago",
        ),
        (
            replace(WELL, driver=replace(DRIVER, troubles=("topic sync: not allowed",))),
            "DEGRADED",
            "topic sync: not allowed",
        ),
        (replace(WELL, topics=()), "IDLE", "no topic is selected"),
        (
            replace(WELL, topics=(), selects=("Payments.*", "Refunds")),
            "IDLE",
            "Payments.*, Refunds matches no topic of P",
        ),
        (
            replace(WELL, topics=(), source_error="no answer"),
            "DEGRADED",
            "P does not answer: no answer",
        ),
        (
            replace(WELL, topics=(TOPIC, replace(TOPIC, topic="T", state="stopped"))),
            "DEGRADED",
            "1 topic stopped: T",
        ),
        (replace(WELL, topics=(replace(TOPIC, state="stopped"),)), "STOPPED", "1 topic stopped"),
        (
            replace(WELL, slots=(SLOTS[0], replace(SLOTS[1], alive=False, host="vm"))),
            "DEGRADED",
            "1 slot of 2 silent: 1 on vm",
        ),
        (replace(WELL, source_error="no answer"), "DEGRADED", "P does not answer: no answer"),
        (replace(WELL, errors={"group g": "no right"}), "DEGRADED", "group g: no right"),
    ],
)
def test_what_is_wrong_decides_the_state_and_is_said(
    changed: FlowStatus, state: str, text: str
) -> None:
    health = flow_health(changed)

    assert health.state == state
    assert health.reasons[0].text.startswith(text)


def test_whoever_has_stopped_the_replicator_is_named_with_the_way_back() -> None:
    driver = replace(DRIVER, alive=False, ended=True, stopped_by="ada@ops", stopped_flow="B->P")

    [reason] = flow_health(replace(WELL, driver=driver)).reasons

    assert reason.text.startswith("ada@ops has stopped the replicator")
    assert reason.action == "srm replicator restart --flow 'B->P'", "where it was asked to stop"


@pytest.mark.parametrize(
    ("actions", "action"),
    [
        (("free the disk", "free the disk"), "free the disk"),
        (("append T0", "append T1"), "for each of these topics, run srm why TOPIC --flow 'P->B'"),
    ],
)
def test_stopped_topics_have_one_action_only_where_it_serves_all(
    actions: tuple[str, str], action: str
) -> None:
    stopped = tuple(
        replace(TOPIC, topic=f"T{number}", state="stopped", action=one)
        for number, one in enumerate(actions)
    )

    [reason] = flow_health(replace(WELL, topics=stopped)).reasons

    assert reason.action == action


def test_a_source_that_is_away_has_what_giving_it_up_would_cost_as_its_action() -> None:
    [reason] = flow_health(replace(WELL, source_error="no answer")).reasons

    assert reason.action == "srm failover plan --mode unplanned --source P --target B"


def test_slots_that_are_heard_of_copy_even_while_their_driver_is_away() -> None:
    assert flow_health(replace(WELL, driver=replace(DRIVER, alive=False))).state == "RUNNING"


@pytest.mark.parametrize(
    ("topic", "state", "text"),
    [
        (replace(TOPIC, state="stopped", reason="0: gone"), "STOPPED", "0: gone"),
        (replace(TOPIC, state="not-created"), "DEGRADED", "the copy is not created yet"),
        (
            replace(TOPIC, state="waiting", reported=1),
            "DEGRADED",
            "1 of 2 partitions are copied",
        ),
        (replace(TOPIC, state="waiting", remaining=5), "DEGRADED", "no replicator copies it now"),
    ],
)
def test_a_topic_says_why_it_is_not_copied(topic: TopicStatus, state: str, text: str) -> None:
    health = topic_health(topic, WELL)

    assert (health.state, health.reasons[0].text) == (state, text)


def test_a_topic_that_lost_something_on_its_way_runs_and_still_says_so() -> None:
    health = topic_health(replace(TOPIC, reason="0: 5 records were lost"), WELL)

    assert (health.state, health.reasons[0].text) == ("RUNNING", "0: 5 records were lost")


@pytest.mark.parametrize(
    ("flow", "of_topic", "text"),
    [
        (
            replace(WELL, driver=replace(DRIVER, alive=False, ended=True)),
            "STOPPED",
            "the replicator on host-7 ended 0 s ago",
        ),
        (replace(WELL, enabled=False), "OFF", "switched off"),
        (replace(WELL, pause=Pause("m", "ada", "moved away", 1)), "PAUSED", "moved away"),
    ],
)
@pytest.mark.parametrize("state", ["copying", "caught-up", "waiting"])
def test_topics_of_a_flow_that_is_not_copied_have_its_state(
    flow: FlowStatus, of_topic: str, text: str, state: TopicState
) -> None:
    health = topic_health(replace(TOPIC, state=state), flow)

    assert (health.state, health.reasons[0].text) == (of_topic, text)


def test_what_a_slot_said_before_a_pause_is_not_shown_as_of_now() -> None:
    """A topic was "connection refused" for as long as the pause lasted, though P answered."""
    topic = replace(TOPIC, state="stopped", reason="0: connection refused")

    health = topic_health(topic, replace(WELL, pause=Pause("m", "ada", "moved away", 1)))

    assert health.reasons[0].text == "before the pause: 0: connection refused"


def test_where_the_source_does_not_answer_no_topic_runs() -> None:
    health = topic_health(TOPIC, replace(WELL, source_error="no broker"))

    assert (health.state, health.reasons[0].text) == ("DEGRADED", "P does not answer")


def test_what_a_slot_says_to_do_is_the_action_of_its_topic_and_of_the_flow() -> None:
    action = "grant Read on topic T to srm's principal"
    stopped = replace(
        TOPIC,
        state="stopped",
        reason=f"0: TOPIC_AUTHORIZATION_FAILED on B; {action}",
        action=action,
    )

    [of_topic] = topic_health(stopped, WELL).reasons
    [of_flow] = flow_health(replace(WELL, topics=(TOPIC, stopped))).reasons

    assert (of_topic.text, of_topic.action) == (stopped.reason, action)
    assert of_flow.action == action


def test_nothing_is_read_out_of_the_words_of_a_record_without_an_action() -> None:
    stopped = replace(TOPIC, state="stopped", reason="0: it was reset: see who grants nothing")

    [reason] = topic_health(stopped, WELL).reasons

    assert reason.action == ""


SIGNS = FlowSigns(
    "P->B", DriverHeartbeat("d", "local-1", "host-7", 42, 1), None, 1, 2, remaining=0, stopped=()
)


@pytest.mark.parametrize(
    ("signs", "state"),
    [
        (SIGNS, "RUNNING"),
        (replace(SIGNS, stopped=(Reason("T-0: no right", "grant Read on topic T"),)), "DEGRADED"),
        (replace(SIGNS, stopped=(Reason("T-0: gone"), Reason("T-1: gone"))), "STOPPED"),
        (replace(SIGNS, driver=None), "STOPPED"),
        (replace(SIGNS, partitions=0, slots=0), "IDLE"),
    ],
)
def test_supervision_decodes_the_state_of_a_flow_with_the_same_words(
    signs: FlowSigns, state: str
) -> None:
    assert signs_health(signs).state == state


def test_the_status_as_json_has_its_fields_and_health_for_flow_and_topics() -> None:
    told = document(replace(WELL, topics=(TOPIC, replace(TOPIC, topic="T", state="stopped"))))

    assert (told["flow"], told["topics"][0]["topic"]) == (
        {"source": "P", "target": "B"},
        "Payments",
    )
    assert told["health"]["state"] == "DEGRADED"
    assert [topic["health"]["state"] for topic in told["topics"]] == ["RUNNING", "STOPPED"]


def test_a_copy_that_is_not_created_leads_to_the_command_that_asks_why() -> None:
    found = flow_health(replace(WELL, topics=(replace(TOPIC, topic="T", state="not-created"),)))

    assert found.reasons[0].action == "srm why T --flow 'P->B'"


@pytest.mark.parametrize(
    ("duties", "troubles", "expected"),
    [
        (("checkpoints", "commits"), (), None),
        (("topics",), (), None),
        (("checkpoints", "group-offsets"), (), "grant Read on topic __consumer_offsets of P"),
        (("checkpoints",), ("checkpoints and group offsets: connection refused",), None),
    ],
)
def test_commits_that_wait_for_the_interval_are_named_with_the_right_that_is_missing(
    duties: tuple[str, ...], troubles: tuple[str, ...], expected: str | None
) -> None:
    found = late_commits(flow_config(), replace(DRIVER, duties=duties, troubles=troubles))

    assert (found.action if found else None) == (
        expected and f"{expected} to srm's principal (docs/security.md)"
    )


def test_groups_that_cannot_be_read_for_the_same_reason_have_one_line() -> None:
    """A coordinator that is silent has thousands; the JSON has the error of each."""
    denied = {f"group g{n}": f"reading offsets of group 'g{n}': denied" for n in range(20)}
    found = flow_health(replace(WELL, errors={**denied, "group h": "late"}))

    first, other = (one.text for one in found.reasons)
    assert first.startswith(
        "group g0: reading offsets of group 'g0': denied; 19 more alike: group g1, group g2, "
    )
    assert other == "group h: late"
