"""A remote topic that was deleted is created and filled again, and somebody is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.batches import Record, stored
from tests.unit.replication.copy.claim_site import ASSIGNED, Cluster, Site, run, source_of
from tests.unit.replication.resume.two_logs import FOREIGN, OURS

from srm.domain.flow_state.replication_records import (
    REPORTS,
    STATE_PARTITIONS,
    AssignedPartition,
    Incarnation,
    PartitionPosition,
)
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.flow_state.slot_records import PositionGroup
from srm.domain.names import internal_topics
from srm.domain.offset_map.offset_map import Position
from srm.kafka.state.slot_state import MapStarts
from srm.replication.mapping.starts import NOWHERE, Start
from srm.replication.partition import Phase
from srm.replication.ports import ProducerId
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.flows import P_TO_B

FORMER = replace(ASSIGNED, target_topic_id="C" * 21 + "g")
FORMER_SOURCE = "D" * 21 + "g"


def reported(
    target_next: int, of: AssignedPartition = FORMER, producer: tuple[int, int] = (7, 1)
) -> FakeCluster:
    """A target on which a slot has told how far it was, and the remote topic is empty."""
    target = FakeCluster("B")
    target.add_topic(internal_topics.replication("P"), STATE_PARTITIONS)
    target.add_topic("P.T", 1, topic_id=ASSIGNED.target_topic_id)
    position = Position(target_next, target_next, target_next)
    entry = PartitionPosition(of.topic_id, 0, of.target_topic_id, position, *producer)
    group = PositionGroup("0", Incarnation(1, "a"), "0", (entry,))
    table = target.compacted_topic(internal_topics.replication("P"), REPORTS)
    table.write({group.key(): group.value()})
    names = of.topic, of.topic_id, of.target_topic, of.target_topic_id
    copied = CopiedTopic(*names, "p-id", "b-id", active=False)
    target.compacted_topic(internal_topics.replication("P")).write({copied.key(): copied.value()})
    return target


@pytest.mark.parametrize("source_id", [ASSIGNED.topic_id, FORMER_SOURCE])
def test_what_was_copied_to_a_topic_that_is_gone_is_known_to_be_copied_again(
    source_id: str,
) -> None:
    """So a batch to the former topic is known in the present one, if both sides are new, too."""
    former = replace(FORMER, topic_id=source_id)

    found = MapStarts(P_TO_B, reported(9, former)).load([ASSIGNED])

    assert found == {ASSIGNED: replace(NOWHERE, copy_is_gone=True, producer_ids=frozenset({7}))}


@pytest.mark.parametrize(("at", "epoch"), [(9, 1), (0, 0)], ids=["copied", "claimed"])
def test_the_copy_of_a_former_source_is_not_gone(at: int, epoch: int) -> None:
    """Its owner may still write to the log, which is empty."""
    former = replace(ASSIGNED, topic_id=FORMER_SOURCE)

    found = MapStarts(P_TO_B, reported(at, former, (7, epoch))).load([ASSIGNED])

    assert found == {ASSIGNED: Start(0, at, frozenset({7}), fresh=True, has_former=True)}


def test_a_topic_that_was_never_copied_has_lost_no_copy() -> None:
    assert MapStarts(P_TO_B, reported(0, producer=(-1, -1))).load([ASSIGNED]) == {}


def test_a_first_claim_may_have_written_to_the_topic_that_is_gone() -> None:
    """It has no marker: its position is at the start until its first batch is reported."""
    found = MapStarts(P_TO_B, reported(0, producer=(7, 0))).load([ASSIGNED])

    assert found == {ASSIGNED: replace(NOWHERE, copy_is_gone=True, producer_ids=frozenset({7}))}


def test_a_copy_is_gone_until_another_claim_is_reported() -> None:
    """The next owner's reports before its claim do not show whose the first batch is."""
    target = reported(0, producer=(7, 0))
    entry = PartitionPosition(*ASSIGNED.copy_id, Position(0, 0, 0), -1, -1)
    group = PositionGroup("1", Incarnation(2, "b"), "1", (entry,))
    table = target.compacted_topic(internal_topics.replication("P"), REPORTS)
    table.write({group.key(): group.value()})

    found = MapStarts(P_TO_B, target).load([ASSIGNED])[ASSIGNED]

    assert isinstance(found, Start)
    assert (found.copy_is_gone, found.producer_ids) == (True, frozenset({7}))


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (replace(NOWHERE, copy_is_gone=True), ["P.T-0 is not the topic of the earlier copy"]),
        (NOWHERE, []),
    ],
)
def test_a_copy_that_begins_again_is_told_of(start: Start, told: list[str]) -> None:
    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, start)

    site = run(lambda: Site(source_of(3), Cluster([])), scenario)

    assert [note.split(":")[0] for note in site.told.notes] == told


@pytest.mark.parametrize("producer", [OURS, FOREIGN], ids=["a former owner", "another program"])
def test_a_batch_that_was_in_flight_to_the_gone_topic_is_no_record_of_others(producer: int) -> None:
    """A broker takes it by name: it is the first in the new topic, before any claim there."""
    target = Cluster(
        [stored([Record(0, 1, b"k", b"9")], producer_id=producer)], [ProducerId(OURS, 2)]
    )
    start = replace(NOWHERE, copy_is_gone=True, producer_ids=frozenset({OURS}))

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, start)
        await site.until(lambda: site.copy.phase is Phase.IDLE)
        site.lifecycle.claim(site.copy)
        await site.until(lambda: site.copy.phase in (Phase.COPYING, Phase.STOPPED))

    site = run(lambda: Site(source_of(3), target), scenario)

    is_ours = producer == OURS
    assert site.copy.phase is (Phase.COPYING if is_ours else Phase.STOPPED)
    assert ("holds records that srm did not copy" in site.copy.reason) is not is_ours
    if is_ours:
        assert (site.copy.source_next, site.copy.target_next) == (0, 2)
