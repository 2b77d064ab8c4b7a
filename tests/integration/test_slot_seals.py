"""A slot and whoever takes its copies away: no slot outruns a seal, no marker is left to copy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from tests.conftest import BrokerFactory
from tests.integration.copying import CopyLab
from tests.waiting import DEADLINE_S, eventually

from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import AssignedPartition, Assignment, Pause
from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.state.driver_log import KafkaFlowSwitch
from srm.kafka.state.slot_state import KafkaAssignmentFeed
from srm.replication.copy import lifecycle
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

PAUSE = Pause("", "test", "P is given up", 1, "m1")


@pytest.fixture
def lab(broker_factory: BrokerFactory) -> CopyLab:
    return CopyLab(broker_factory("P").bootstrap, broker_factory("B").bootstrap)


@contextmanager
def deaf() -> Iterator[None]:
    """Keep the log of assignments from all slots; everything else answers."""
    is_deaf = threading.Event()

    async def poll(*_: object) -> Assignment | None:
        is_deaf.set()
        raise UnavailableError("the leader of the assignments cannot be reached")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaAssignmentFeed, "poll", poll)
        assert is_deaf.wait(DEADLINE_S)  # a poll from before may hear one more record
        yield


def send(lab: CopyLab, p: AssignedPartition, count: int) -> None:
    producer = lab.producer()
    for number in range(count):
        producer.produce(p.topic, b"%d" % number, partition=p.partition)
    assert producer.flush(60) == 0


def copied(lab: CopyLab, p: AssignedPartition) -> Sequence[object]:
    return read_log(lab.target_props, p.target_topic, p.partition)


def switch_of(lab: CopyLab) -> KafkaFlowSwitch:
    return KafkaFlowSwitch(lab.flow, lab.target, ClusterClients.alike(lab.target_props))


def seal(lab: CopyLab, p: AssignedPartition) -> int:
    """Seal a copy; return where it ends then."""
    place = TopicPartition(p.target_topic, p.partition)
    assert switch_of(lab).seal([place]) == {}
    return lab.target.high_watermarks([place])[place]


def positions(lab: CopyLab) -> list[tuple[int, int]]:
    """Return what slots report of all that they copy: offsets of the source and of the target."""
    reported = (entry.position for report in lab.reports() for entry in report.positions)
    return [(position.source_next, position.target_next) for position in reported]


def test_a_slot_that_cannot_read_its_assignment_does_not_outrun_a_seal(lab: CopyLab) -> None:
    [p] = lab.topic()
    place = TopicPartition(p.target_topic, 0)
    lab.assign("0", [p])

    def reason() -> str:
        status = lab.status(p)
        return status.reason if status else ""

    with lab.running():
        send(lab, p, 50)
        lab.wait_until_copied([p])
        with deaf():
            switch_of(lab).pause(PAUSE)
            end = seal(lab, p)
            send(lab, p, 30)
            eventually(
                lambda: "is read to offset" in reason() or len(copied(lab, p)) > 50,
                "the slot says why it waits",
            )
        eventually(lambda: not positions(lab), "the slot reads that it copies nothing")

    assert lab.target.high_watermarks([place])[place] == end
    assert len(copied(lab, p)) == 50


def test_an_idle_copy_moves_its_position_over_the_markers_at_its_end(
    lab: CopyLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer's position passes them, too: a move would wait for a record that never comes."""
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.2)
    [p] = lab.topic()
    place = TopicPartition(p.target_topic, 0)
    lab.assign("0", [p])

    def is_at_end() -> bool:
        ends = lab.target.high_watermarks([place])
        return positions(lab) == [(10, ends[place])]

    with lab.running():
        send(lab, p, 10)
        lab.wait_until_copied([p])
        seal(lab, p)
        eventually(is_at_end, "the slot that copies it is at its end")
    end = seal(lab, p)
    with lab.running():
        eventually(lambda: is_at_end() and positions(lab) > [(10, end)], "so is one that starts")
        quiet = lab.target.high_watermarks([place])
        seal_seen = positions(lab)
        send(lab, p, 1)
        lab.wait_until_copied([p])

    assert seal_seen == [(10, quiet[place])]
    assert len(copied(lab, p)) == 11
    assert lab.offset_map(p).runs[-1].target_start == quiet[place]
