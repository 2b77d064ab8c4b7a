"""The status of a flow: numbers from the map, liveness by age, and hints one can type."""

from __future__ import annotations

from dataclasses import replace

from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    REQUEST_KEY,
    DriverHeartbeat,
    DriverRequest,
    PartitionPosition,
    PartitionStatus,
    SlotReport,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.engine.groups.checkpoints import emit
from srm.engine.status.observing import flow_status
from srm.engine.status.status import flow_health

PAYMENTS = TopicPartition("Payments", 0)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def replicator_runs(sites, age_ms: int = 0, *, ended: bool = False) -> None:
    now = sites.clock() - age_ms
    beat = DriverHeartbeat("d-1", "local-1", "host-7", 42, now, ended=ended)
    topic = internal_topics.replication("P")
    if topic not in sites.clusters["B"].topics():
        sites.clusters["B"].add_topic(topic)
    sites.clusters["B"].compacted_topic(topic).write({DRIVER_KEY: beat.value()})
    entry = PartitionPosition(TOPIC_ID, 0, TOPIC_ID, Position(100, 101, 100), 1, 0)
    sites.maps[Flow("P", "B")].reports = (SlotReport("0", 3, now, (entry,)),)


def test_a_flow_at_rest_is_caught_up_with_nothing_to_hint_at(sites) -> None:
    replicator_runs(sites)
    sites.commit("P", "billing", "Payments", 40)
    sites.clusters["B"].add_topic(internal_topics.checkpoints("P"))
    emit(sites.flow("P->B"))

    status = flow_status(sites.flow("P->B"))

    [topic] = status.topics
    assert (topic.topic, topic.remote_topic, topic.state) == ("Payments", "P.Payments", "caught-up")
    assert (topic.partitions, topic.reported, topic.copied, topic.remaining) == (1, 1, 101, 0)
    assert [(g.group, g.source_state, g.target_state) for g in status.groups] == [
        ("billing", "empty", "dead")
    ]
    assert status.groups[0].partitions == {"translated": 1}
    assert status.hints == ()


def test_a_driver_that_has_ended_copies_nothing_though_its_slots_were_heard_of_just_now(
    sites,
) -> None:
    sites.produce("P", 25)
    replicator_runs(sites, ended=True)

    status = flow_status(sites.flow("P->B"))

    assert status.idle == "no replicator copies it now"
    assert status.topics[0].state == "waiting"


def test_a_driver_whose_slots_are_all_silent_copies_nothing(sites) -> None:
    sites.produce("P", 25)
    replicator_runs(sites)
    report = replace(sites.maps[Flow("P", "B")].reports[0], time_ms=sites.clock() - 60_000)
    sites.maps[Flow("P", "B")].reports = (report,)

    status = flow_status(sites.flow("P->B"))

    assert flow_health(status).state == "STOPPED"
    assert status.topics[0].state == "waiting", "as its health says"


def test_what_is_left_to_copy_is_counted_from_the_position(sites) -> None:
    replicator_runs(sites)
    sites.produce("P", 25)
    sites.commit("P", "billing", "Payments", 110)

    status = flow_status(sites.flow("P->B"))

    assert (status.topics[0].state, status.topics[0].remaining, status.remaining) == (
        "copying",
        25,
        25,
    )
    assert (status.groups[0].partitions, status.groups[0].remaining) == ({"not-copied-yet": 1}, 10)
    assert status.groups[0].lag == 15


def test_liveness_is_the_age_of_the_last_sign_of_life(sites) -> None:
    replicator_runs(sites, age_ms=60_000)

    status = flow_status(sites.flow("P->B"))

    assert status.driver is not None
    assert (status.driver.age_ms, status.driver.alive, status.driver.host) == (
        60_000,
        False,
        "host-7",
    )
    assert [(slot.slot, slot.alive, slot.partitions) for slot in status.slots] == [("0", False, 1)]
    assert any("srm replicate --flow 'P->B'" in hint for hint in status.hints)


def test_a_replicator_that_was_stopped_on_request_says_who_did_and_how_it_is_started(sites) -> None:
    replicator_runs(sites)
    beat = DriverHeartbeat("d-1", "local-1", "host-7", 42, sites.clock(), ended=True)
    request = DriverRequest("r-1", "stop", "ada@ops", sites.clock())
    sites.clusters["B"].compacted_topic(internal_topics.replication("P")).write(
        {DRIVER_KEY: beat.value(), REQUEST_KEY: request.value()}
    )

    status = flow_status(sites.flow("P->B"))

    assert status.driver is not None
    assert (status.driver.alive, status.driver.ended) == (False, True)
    [hint, *_] = status.hints
    assert (
        hint == "ada@ops has stopped the replicator, 0 s ago: srm replicator restart --flow 'P->B'"
    )


def test_a_replicator_that_was_stopped_by_a_request_of_another_of_its_flows_says_so(sites) -> None:
    replicator_runs(sites)
    beat = DriverHeartbeat(
        *("d-1", "local-1", "host-7", 42, sites.clock()),
        ended=True,
        stopped_by="ada@ops",
        stopped_flow="B->P",
    )
    table = sites.clusters["B"].compacted_topic(internal_topics.replication("P"))
    table.write({DRIVER_KEY: beat.value()})

    status = flow_status(sites.flow("P->B"))

    assert "ada@ops has stopped the replicator" in status.hints[0]
    assert "srm replicator restart --flow 'B->P'" in status.hints[0]


def test_a_replicator_that_runs_tells_since_when_and_what_ended_the_one_before(sites) -> None:
    replicator_runs(sites)
    request = DriverRequest("r-1", "stop", "ada@ops", 5)
    beat = DriverHeartbeat(
        *("d-2", "local-2", "host-7", 42, sites.clock()), started_after="r-1", started_ms=7
    )
    sites.clusters["B"].compacted_topic(internal_topics.replication("P")).write(
        {DRIVER_KEY: beat.value(), REQUEST_KEY: request.value()}
    )

    driver = flow_status(sites.flow("P->B")).driver

    assert driver is not None
    assert (driver.request, driver.obeyed, driver.stopped_by) == (None, request, "")
    assert driver.started_ms == 7


def test_a_stopped_partition_stops_its_topic_with_the_reason_and_the_lost_range(sites) -> None:
    sites.maps[Flow("P", "B")].statuses[PAYMENTS] = PartitionStatus(
        "Payments", 0, "stopped", "retention overrun; set a policy", 10, 20, action="set a policy"
    )

    [topic] = flow_status(sites.flow("P->B")).topics

    assert topic.state == "stopped"
    assert topic.reason == "partition 0: retention overrun (offsets 10 to 19)"
    assert topic.action == "set a policy"


def test_a_reason_that_names_its_partition_or_range_is_not_told_of_them_once_more(sites) -> None:
    sites.maps[Flow("P", "B")].statuses[PAYMENTS] = PartitionStatus(
        "Payments", 0, "stopped", "Payments-0: records 10 to 19 are gone", 10, 20
    )

    [topic] = flow_status(sites.flow("P->B")).topics

    assert topic.reason == "partition 0: records 10 to 19 are gone"


def test_what_is_wrong_with_several_partitions_alike_is_told_once(sites) -> None:
    sites.clusters["P"].add_topic("Wide", 3)
    for number, why in enumerate(["P is away", "no right", "P is away"]):
        sites.maps[Flow("P", "B")].statuses[TopicPartition("Wide", number)] = PartitionStatus(
            "Wide", number, "stopped", why
        )

    sites.change("P->B", topics=("Wide",))

    found = flow_status(sites.flow("P->B")).topics

    assert [topic.reason for topic in found] == [
        "partitions 0, 2: P is away; partition 1: no right"
    ]


def test_what_a_slot_says_to_do_is_not_said_of_a_map_that_is_damaged(sites) -> None:
    maps = sites.maps[Flow("P", "B")]
    maps.statuses[PAYMENTS] = PartitionStatus(
        "Payments", 0, "stopped", "no right; grant Read", action="grant Read"
    )
    maps.errors[PAYMENTS] = "a block is missing"

    [topic] = flow_status(sites.flow("P->B")).topics

    assert (topic.reason, topic.action) == ("partition 0: a block is missing", "")


def test_a_topic_without_its_replica_is_not_created_yet(sites) -> None:
    sites.clusters["B"].delete_topic("P.Payments")

    [topic] = flow_status(sites.flow("P->B")).topics

    assert topic.state == "not-created"


def test_what_nobody_has_begun_to_copy_is_all_left_to_copy(sites) -> None:
    sites.maps[Flow("P", "B")].maps.clear()
    sites.clusters["P"].trim("Payments", 0, 30)

    status = flow_status(sites.flow("P->B"))

    assert (status.topics[0].copied, status.topics[0].remaining, status.remaining) == (0, 70, 70)


def test_nothing_is_called_copying_while_no_replicator_is_alive(sites) -> None:
    replicator_runs(sites)
    sites.produce("P", 25)
    sites.clock.advance(60_000)

    [topic] = flow_status(sites.flow("P->B")).topics

    assert (topic.state, topic.remaining) == ("waiting", 25)


def test_a_partition_nobody_reports_waits(sites) -> None:
    sites.maps[Flow("P", "B")].maps.clear()

    [topic] = flow_status(sites.flow("P->B")).topics

    assert (topic.state, topic.reported) == ("waiting", 0)


def test_where_nothing_is_selected_the_hints_say_what_to_type(sites) -> None:
    sites.change("P->B", topics=(), groups=(), enabled=False)

    hints = "\n".join(flow_status(sites.flow("P->B")).hints)

    assert "P->B.enabled=true" in hints
    assert "srm-control topics --source P --target B --add 'TOPIC'" in hints
    assert "srm-control groups --source P --target B --add 'GROUP'" in hints


def test_commits_on_an_unlisted_replica_give_the_command_that_lists_it(sites) -> None:
    sites.change("P->B", reverse_checkpointed_topics=())
    sites.commit("P", "billing", "B.Payments", 20)
    sites.commit("P", "billing", "Payments", 20)

    hints = "\n".join(flow_status(sites.flow("P->B")).hints)

    assert "reverse-checkpointed-topics --source P --target B --add B.Payments" in hints


def test_a_damaged_driver_record_is_an_error_next_to_the_rest(sites) -> None:
    topic = internal_topics.replication("P")
    sites.clusters["B"].add_topic(topic)
    sites.clusters["B"].compacted_topic(topic).write({DRIVER_KEY: b"?"})

    status = flow_status(sites.flow("P->B"))

    assert status.driver is None
    assert "damaged" in status.errors["driver"]
    assert len(status.topics) == 1
