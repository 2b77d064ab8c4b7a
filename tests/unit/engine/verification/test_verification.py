"""Planning a verification from both clusters' state, and keeping its latest results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srm.domain.flow_state.replication_records import PartitionNotes
from srm.domain.names import internal_topics
from srm.domain.names.flow_topics import FlowTopics
from srm.domain.names.record_headers import RecordSettings
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Run
from srm.domain.verification.verification import (
    PartitionVerification,
    VerificationSummary,
    merge,
    verdict,
)
from srm.engine import verification
from srm.engine.ports import FlowMaps
from srm.engine.verification import VerificationRequest
from srm.errors import IntegrityError, NotFoundError, UnavailableError

FLOW = Flow("P", "B")


@pytest.fixture
def empty(new_sites):
    return new_sites()


@pytest.fixture
def copied(empty):
    empty.produce("P", 100)
    empty.copy("P->B", claim=1)
    return empty


def test_everything_copied_is_planned(copied):
    plan = verification.plan(copied.flow("P->B"))

    (payments,) = plan.ranges
    assert (payments.topic, payments.partition, payments.remote_topic) == (
        "Payments",
        0,
        "P.Payments",
    )
    assert (payments.source_start, payments.source_end) == (0, 100)
    assert (payments.target_start, payments.target_end) == (0, 101)
    assert payments.runs == (Run(0, 1, 100),)
    assert (payments.compacted, payments.timestamps) == (False, True)
    assert plan.unverified == ()


def test_only_the_newest_records_are_planned_when_asked_for_few(copied):
    (payments,) = verification.plan(copied.flow("P->B"), VerificationRequest(max_records=10)).ranges

    assert payments.runs == (Run(90, 91, 10),)


def test_what_both_logs_no_longer_hold_is_not_planned(copied):
    copied.clusters["P"].trim("Payments", 0, 20)
    copied.clusters["B"].trim("P.Payments", 0, 31)

    (payments,) = verification.plan(copied.flow("P->B")).ranges

    assert payments.runs == (Run(30, 31, 70),)
    assert (payments.source_start, payments.target_start) == (30, 31)


def test_what_was_discarded_is_excused_while_the_source_holds_it_and_no_longer(copied):
    source = copied.clusters["P"]
    place = "Payments", 0, source.topics()["Payments"].topic_id
    copied.maps[FLOW].notes[TopicPartition("Payments", 0)] = (
        PartitionNotes.from_decision("discard", "r", place, (50, 60), "discarded", 1, epoch=0),
    )

    def excused() -> bool:
        [payments] = verification.plan(copied.flow("P->B")).ranges
        return "50 to 59" in payments.left_out

    assert excused()
    log = source._existing(TopicPartition("Payments", 0))
    log.truncate(55)
    log.grow(45, 0)
    assert not excused()


@pytest.mark.parametrize("by_decision", [True, False])
def test_what_the_source_has_lost_since_it_was_copied_is_no_part_of_the_copy_and_told(
    copied, by_decision
):
    """A settled return has found it, or a slot with data.loss.policy=continue; that lost more."""
    place = "Payments", 0, copied.clusters["P"].topics()["Payments"].topic_id
    why = "P has lost them"
    cut = PartitionNotes.from_decision("cut", "r", place, (100, 104), why, 1, target_next=105)
    if not by_decision:
        cut = PartitionNotes("0", *place).with_loss(100, 104, why, 1).with_cut(100, 105)
        cut = PartitionNotes.decode(cut.with_loss(110, 111, "deleted", 2).value())
    copied.clusters["B"].produce("P.Payments", 0, 4)
    copied.maps[FLOW].notes[TopicPartition("Payments", 0)] = (cut,)

    [payments] = verification.plan(copied.flow("P->B")).ranges

    assert payments.only_copied == ((101, 105),)
    assert "target offsets 101 to 104 are lost on the source" in payments.left_out


def test_what_a_topic_of_the_same_name_left_before_is_no_part_of_the_copy_and_told(empty):
    empty.clusters["B"].produce("P.Payments", 0, 7)
    empty.produce("P", 10)
    empty.copy("P->B", claim=1)
    noted = PartitionNotes("0", "Payments", 0, "id").with_begin(7, 0)
    empty.maps[FLOW].notes[TopicPartition("Payments", 0)] = (noted,)

    (payments,) = verification.plan(empty.flow("P->B")).ranges

    assert (payments.target_start, payments.target_end) == (7, 18)
    assert "target offsets 0 to 6 belong to the former" in payments.left_out
    assert payments.left_out == merge(payments, [], 0).reason


def test_what_the_map_knows_is_compared_though_a_copy_began_later_in_a_former_remote_topic(copied):
    noted = PartitionNotes("0", "Payments", 0, "id").with_begin(50, 0)
    copied.maps[FLOW].notes[TopicPartition("Payments", 0)] = (noted,)

    (payments,) = verification.plan(copied.flow("P->B")).ranges

    assert payments.target_start <= payments.runs[0].target_start == 1


def test_a_partition_whose_next_records_are_gone_is_not_called_equal(copied):
    copied.produce("P", 20)
    copied.clusters["P"].trim("Payments", 0, 110)

    plan = verification.plan(copied.flow("P->B"))

    (payments,) = plan.unverified
    assert plan.ranges == ()
    assert "srm why Payments" in payments.reason


@pytest.mark.parametrize("side", ["P", "B"])
def test_a_compacted_topic_on_either_side_is_planned_as_such(copied, side):
    topic = {"P": "Payments", "B": "P.Payments"}[side]
    copied.clusters[side].alter_topic_configs({topic: {"cleanup.policy": "compact,delete"}})

    assert verification.plan(copied.flow("P->B")).ranges[0].compacted


def test_brokers_that_compact_and_stamp_by_default_are_known(copied) -> None:
    copied.clusters["B"].defaults |= {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
    }

    [planned] = verification.plan(copied.flow("P->B")).ranges

    assert (planned.compacted, planned.timestamps) == (True, False)


def test_timestamps_are_not_compared_where_the_target_stamps_records(copied):
    copied.clusters["B"].alter_topic_configs(
        {"P.Payments": {"message.timestamp.type": "LogAppendTime"}}
    )

    assert not verification.plan(copied.flow("P->B")).ranges[0].timestamps


@pytest.mark.parametrize(("shared", "end"), [(True, 124), (False, 101)])
def test_copies_behind_an_open_transaction_of_others_count_under_a_shared_name(
    copied, monkeypatch, shared, end
):
    monkeypatch.setattr(FlowTopics, "is_shared", lambda _names, _topic: shared)
    copied.clusters["B"].produce_in("app", "P.Payments", 0, 3)
    copied.produce("P", 20)
    copied.copy("P->B")

    context = copied.flow("P->B")
    config = replace(context.config, records=RecordSettings(provenance=True))

    (payments,) = verification.plan(replace(context, config=config)).ranges

    assert (payments.shared, payments.target_log_end) == (shared, end)


def test_partitions_without_a_copy_are_unverified_with_the_reason(empty):
    empty.produce("P", 5)
    (not_copied,) = verification.plan(empty.flow("P->B")).unverified
    empty.clusters["B"].delete_topic("P.Payments")
    (no_topic,) = verification.plan(empty.flow("P->B")).unverified

    assert (not_copied.outcome, no_topic.outcome) == ("unverified", "unverified")
    assert not_copied.reason.endswith("srm why Payments --flow 'P->B' shows the cause")
    assert "P.Payments-0 does not exist" in no_topic.reason


def test_a_map_that_cannot_be_trusted_fails_the_partition(copied):
    class Damaged:
        def load(self, topics, wanted):
            assert (topics, [*wanted]) == (("Payments",), [copied.payments])
            return FlowMaps({}, errors={copied.payments: "block 7 is damaged"})

    plan = verification.plan(replace(copied.flow("P->B"), maps=Damaged()))

    assert plan.ranges == ()
    assert plan.unverified[0].outcome == "failed"
    assert "block 7 is damaged" in plan.unverified[0].reason


def test_a_topic_that_the_flow_does_not_copy_is_refused(copied):
    with pytest.raises(NotFoundError, match="does not copy Orders"):
        verification.plan(copied.flow("P->B"), VerificationRequest(("Payments", "Orders")))


def test_the_latest_result_of_each_partition_is_kept(copied):
    context = copied.flow("P->B")
    copied.clusters["B"].add_topic(internal_topics.verification("P"))
    old, new = (PartitionVerification("Payments", 0, "P.Payments", "equal", t) for t in (1, 2))
    other = PartitionVerification("Payments", 1, "P.Payments", "unverified", 1, reason="why")

    verification.record(context, (old, other))
    verification.record(context, (new,))

    assert verification.latest(context.target, FLOW) == VerificationSummary(FLOW, (new, other))


def test_the_verdict_puts_differences_before_failures_and_pardons_what_is_not_copied():
    def of(*outcomes: str) -> VerificationSummary:
        return VerificationSummary(
            FLOW,
            tuple(PartitionVerification("t", n, "P.t", o, 1) for n, o in enumerate(outcomes)),  # type: ignore[arg-type]
        )

    assert verdict(of("equal", "unverified")) is None
    assert isinstance(verdict(of("equal", "failed")), UnavailableError)
    assert isinstance(verdict(of("failed", "different")), IntegrityError)
