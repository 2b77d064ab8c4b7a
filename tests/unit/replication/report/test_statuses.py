"""Since when a partition is in its state: tries, new owners and restarts change nothing of that."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.replication.copy.reporters import ASSIGNED
from tests.unit.replication.copy.test_copying import Loop, Session

from srm.domain.flow_state.replication_records import REPORTS, STATE_PARTITIONS, PartitionStatus
from srm.domain.names import internal_topics
from srm.kafka.state.slot_state import MapStarts
from srm.replication.claim import Claim
from srm.replication.mapping.starts import NOWHERE, Start
from srm.replication.partition import PartitionCopy, Phase, Stop
from srm.replication.ports import Fetched, ProducerId
from srm.replication.report import Statuses
from srm.replication.resume.resume import Resumed, Walked
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.flows import P_TO_B

CLAIM = Claim(ProducerId(7, 1), float("inf"))
STOPPED = PartitionStatus("T", 0, "stopped", "records are gone", 3, 5, 1_000, "accept the loss")


class Told:
    """What is told of one partition, and when it is told again."""

    def __init__(self, copy: PartitionCopy) -> None:
        self.copy = copy
        self.last: PartitionStatus | None = None
        self._statuses = Statuses("the map")

    def at(self, now_ms: int) -> tuple[str, int]:
        for status in self._statuses.changes([self.copy], now_ms, due=False, rests_due=False):
            self.last = status
        assert self.last is not None
        return self.last.state, self.last.time_ms


def stop(copy: PartitionCopy, reason: str = "records 3 to 5 are gone") -> None:
    copy.rest(Phase.STOPPED, Stop(reason, blocked=(3, 5)))


def test_tries_that_lead_to_nothing_do_not_begin_the_state_again() -> None:
    told = Told(PartitionCopy(ASSIGNED, Start(3, 3)))
    copy = told.copy
    assert told.at(1) == ("copying", 1)
    stop(copy)
    assert told.at(1_000) == ("stopped", 1_000)

    for turn in range(2):
        copy.take_up()
        assert told.at(2_000 + turn) == ("stopped", 1_000)
        copy.begin_claiming()
        assert told.at(3_000 + turn) == ("stopped", 1_000)
        copy.begin_copying(CLAIM, Resumed(3, 4))
        assert told.at(4_000 + turn) == ("stopped", 1_000)
        stop(copy, f"records 3 to {6 + turn} are gone")
        assert told.at(5_000 + turn) == ("stopped", 1_000)

    assert told.last is not None
    assert told.last.reason == "records 3 to 7 are gone"


def test_a_walk_of_the_logs_is_told_and_the_stop_after_it_is_the_old_one() -> None:
    told = Told(PartitionCopy(ASSIGNED, Start(3, 3)))
    stop(told.copy)
    told.at(1_000)
    told.copy.take_up()
    told.copy.begin_claiming()
    told.copy.note_walk(CLAIM, Walked(1, 9, None))
    assert told.at(2_000) == ("claiming", 2_000)

    stop(told.copy)

    assert told.at(3_000) == ("stopped", 1_000)


def test_a_partition_that_went_on_is_in_trouble_again(caplog: pytest.LogCaptureFixture) -> None:
    told = Told(PartitionCopy(ASSIGNED, Start(3, 3)))
    stop(told.copy)
    told.at(1_000)
    told.copy.take_up()
    told.at(1_500)
    assert caplog.messages == []
    assert told.copy.note_source_answered()
    assert told.at(2_000) == ("copying", 2_000)

    stop(told.copy)

    assert told.at(3_000) == ("stopped", 3_000)
    assert caplog.messages == ["copied again after a stop: T-0"]


def test_a_partition_that_went_on_with_nothing_to_copy_tells_no_old_reason() -> None:
    """No claim is taken then, which would have ended the reason."""
    told = Told(PartitionCopy(ASSIGNED, Start(3, 3)))
    told.copy.rest(Phase.STOPPED, Stop("B cannot be reached", blocked=(3, 5), action="start B"))
    told.at(1_000)
    told.copy.take_up()
    assert told.at(1_500) == ("stopped", 1_000)
    assert told.last is not None
    assert told.last.reason == "B cannot be reached"

    assert told.copy.note_source_answered()

    assert told.at(2_000) == ("copying", 2_000)
    assert told.last == PartitionStatus("T", 0, "copying", time_ms=2_000)


def test_a_new_owner_continues_what_was_told_before_it() -> None:
    copy = PartitionCopy(ASSIGNED, Start(3, 3, at_rest=STOPPED))
    told = Told(copy)

    assert told.at(9_000) == ("stopped", 1_000)
    assert told.last is STOPPED
    stop(copy)
    assert told.at(9_500) == ("stopped", 1_000)

    other = Told(PartitionCopy(ASSIGNED, Start(3, 3, at_rest=STOPPED)))
    assert other.at(9_000) == ("stopped", 1_000)
    other.copy.note_source_answered()
    assert other.at(9_100) == ("copying", 9_100)


def test_what_cannot_be_written_down_stops_for_as_long_as_that() -> None:
    told = Told(PartitionCopy(ASSIGNED, Start(3, 3)))
    told.copy.hold_back(held=True)
    assert told.at(1_000) == told.at(2_000) == ("stopped", 1_000)
    told.copy.hold_back(held=False)
    assert told.at(3_000) == ("copying", 3_000)
    told.copy.hold_back(held=True)
    assert told.at(4_000) == ("stopped", 4_000)


def test_an_answer_of_the_source_without_news_is_a_proof_that_a_partition_goes_on() -> None:
    """Of a partition without news a fetch session says nothing at all."""

    async def scenario() -> None:
        copy = PartitionCopy(ASSIGNED, Start(3, 3))
        stop(copy)
        copy.take_up()

        await Loop(Session(Fetched([], None))).run(copy)

        assert not copy.is_troubled

    asyncio.run(scenario())


def test_no_answer_of_the_source_proves_nothing_to_a_partition_that_has_to_write() -> None:
    copy = PartitionCopy(ASSIGNED, NOWHERE)
    stop(copy)
    copy.take_up()

    assert copy.needs_claim
    assert not copy.note_source_answered()


@pytest.mark.parametrize("state", ["stopped", "waiting", "copying"])
def test_where_a_partition_starts_tells_whether_it_was_at_rest(state: str) -> None:
    target = FakeCluster("B")
    target.add_topic(internal_topics.replication("P"), STATE_PARTITIONS)
    target.add_topic("P.T", 1, topic_id=ASSIGNED.target_topic_id)
    status = replace(STOPPED, state=state)
    table = target.compacted_topic(internal_topics.replication("P"), REPORTS)
    table.write({status.key(): status.value()})

    found = MapStarts(P_TO_B, target).load([ASSIGNED])

    assert found == ({} if state == "copying" else {ASSIGNED: replace(NOWHERE, at_rest=status)})
