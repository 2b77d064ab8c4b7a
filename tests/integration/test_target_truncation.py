"""A target that lost the end of its log gets it again, whoever notices, and it is told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.conftest import BrokerFactory
from tests.faults.campaign.truncation import cut
from tests.integration.copying import CopyLab
from tests.waiting import eventually

from srm.domain.offset_ranges import both_ends
from srm.domain.replication_records import AssignedPartition
from srm.domain.topics import TopicPartition
from srm.errors import SrmError
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 10


def _send(lab: CopyLab, p: AssignedPartition, value: bytes) -> None:
    producer = lab.producer(**{"linger.ms": 0})
    producer.produce(p.topic, value, partition=p.partition)
    assert producer.flush(120) == 0


def _copy_one_by_one(lab: CopyLab, p: AssignedPartition) -> None:
    """Make one batch of each record, so that the log can be cut between any two."""
    for number in range(RECORDS):
        _send(lab, p, b"record %d" % number)
        lab.wait_until_copied([p])


def _lose(
    lab: CopyLab, target: KafkaBroker, p: AssignedPartition, records: int, *, state: bool
) -> tuple[int, int]:
    """Cut the last records off the target's log, with what the broker knows of producers.

    Returns:
        The end of the log now, and before.
    """
    place = TopicPartition(p.target_topic, 0)
    batches = lab.target.high_watermarks([place])[place]  # with the markers of claims
    end = cut(target, p.target_topic, 0, share=(batches - records + 0.5) / batches)
    assert end == batches - records
    if not state:
        for snapshot in (target.home / "data" / f"{p.target_topic}-0").glob("*.snapshot"):
            snapshot.unlink()
    target.start()
    target.wait_ready()
    return end, batches


def _told(lab: CopyLab, p: AssignedPartition, lost: tuple[int, int]) -> bool:
    status = lab.status(p)
    return status is not None and f"offsets {both_ends(*lost)} are gone" in status.reason


def _is_equal(lab: CopyLab, p: AssignedPartition) -> bool:
    """Whether copy and map are right; the report from before the loss says so too early."""
    try:
        lab.assert_equal([p])
    except (AssertionError, SrmError):
        return False
    return True


@pytest.mark.parametrize(("lost", "producer_state"), [(2, True), (5, True), (2, False)])
def test_a_target_that_lost_its_end_gets_it_again(
    clusters: Mapping[str, KafkaBroker],
    broker_factory: BrokerFactory,
    lost: int,
    producer_state: bool,
) -> None:
    target = broker_factory("B")
    lab = CopyLab(clusters["P"].bootstrap, target.bootstrap)
    [p] = lab.topic()
    lab.assign("0", [p])
    with lab.running():
        _copy_one_by_one(lab, p)
    gone = _lose(lab, target, p, lost, state=producer_state)

    with lab.running():
        eventually(
            lambda: _told(lab, p, gone), "the loss is told though nothing new is to be copied"
        )
        _send(lab, p, b"one more")
        eventually(lambda: _is_equal(lab, p), "what was lost is there again, and in the map")

    assert _told(lab, p, gone)


@pytest.mark.parametrize("more", [True, False])
def test_the_slot_that_copied_notices_that_the_target_lost_its_end(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, more: bool
) -> None:
    """Soon where there is more to copy; within half a minute where there is not."""
    target = broker_factory("B")
    lab = CopyLab(clusters["P"].bootstrap, target.bootstrap)
    [p] = lab.topic()
    lab.assign("0", [p])
    with lab.running():
        _copy_one_by_one(lab, p)
        gone = _lose(lab, target, p, 3, state=True)
        if more:
            _send(lab, p, b"one more")
        eventually(lambda: _told(lab, p, gone), "the loss is told")
        eventually(lambda: _is_equal(lab, p), "what was lost is there again, and in the map")
