"""The first claim on an empty log has no marker, and its batches are known all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.copy.claim_site import (
    ASSIGNED,
    Cluster,
    Site,
    run,
    source_of,
)
from tests.unit.replication.resume.two_logs import OURS

from srm.domain.names.policy import IdentityReplicationPolicy
from srm.domain.offset_map.runs import Lineage, Run
from srm.replication.batches.batch import seal
from srm.replication.mapping.starts import NOWHERE, Start
from srm.replication.partition import PartitionCopy
from srm.replication.ports import FetchedPartition, ProducerId

FIRST = ProducerId(OURS, 0)


def copied(count: int) -> list[bytes]:
    """Return a log that begins with copies, without a marker."""
    found = []
    for i in range(count):
        raw = bytearray(stored([Record(i, 1, b"k", b"%d" % i)], producer_id=OURS))
        raw[53:57] = i.to_bytes(4, "big")
        seal(memoryview(raw))
        found.append(bytes(raw))
    return found


def claimed(
    target: Sequence[bytes], claim: ProducerId, start: Start | None = None, **changes: object
) -> tuple[PartitionCopy, Cluster]:
    """Claim once, on a source of three records; return the copy and the target."""
    log = Cluster(target, [claim])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, start)
        await site.claim()

    return run(lambda: Site(source_of(3), log, **changes), scenario).copy, log


def test_it_writes_nothing_and_is_reported_before_its_first_batch() -> None:
    copy, target = claimed([], FIRST)

    assert (copy.target_next, target.end) == (0, 0)
    assert not copy.wants_data
    assert copy.unreported_claim == FIRST
    assert copy.position().target_lineage == Lineage(((target.leader_epoch, 0),))


@pytest.mark.parametrize(
    ("held", "claim", "start"),
    [
        ([], ProducerId(OURS, 1), None),
        ([marker(0, OURS)], ProducerId(OURS + 1, 0), None),
        ([], ProducerId(OURS + 1, 0), replace(NOWHERE, producer_ids=frozenset({OURS}))),
    ],
    ids=["an older epoch", "a log that is not empty", "another producer id is known"],
)
def test_every_other_claim_writes_a_marker(
    held: list[bytes], claim: ProducerId, start: Start | None
) -> None:
    copy, target = claimed(held, claim, start)

    assert copy.target_next == target.end == len(held) + 1
    assert copy.wants_data


def test_a_claim_on_a_name_of_several_flows_writes_one() -> None:
    """By it the other flows know whose batches follow."""
    policy = IdentityReplicationPolicy()

    _, target = claimed([], FIRST, policy=policy, joined=frozenset({"C"}))

    assert target.end == 1


@pytest.mark.parametrize("count", [1, 3])
def test_its_batches_are_known_without_any_report(count: int) -> None:
    copy, _ = claimed(copied(count), ProducerId(OURS, 1))

    assert (copy.source_next, copy.target_next) == (count, count + 1)
    assert copy.map.last_run == Run(0, 0, count)


def test_its_batches_follow_a_position_at_the_beginning() -> None:
    known = replace(NOWHERE, has_position=True, producer_ids=frozenset({OURS}))
    start = replace(known, written_by=FIRST, target_lineage=Lineage(((0, 0),)))

    copy, _ = claimed(copied(2), ProducerId(OURS, 1), start)

    assert (copy.source_next, copy.target_next) == (2, 3)


def test_its_first_batch_is_alone_in_flight() -> None:
    """A broker takes any sequence number of a producer that it does not know."""
    copy, _ = claimed([], FIRST)
    for raw in copied(2):
        view = memoryview(bytearray(raw))
        part = FetchedPartition(copy.source_id, 0, 0, 2, 2, 0, (), view)
        copy.accept(part, None, copy.fetch_offset, read_committed=True)

    sent = copy.send_next()
    assert not copy.can_send
    assert copy.on_ack(sent, 0, 0)
    assert copy.can_send
