"""Answers to fetches that hold no partition: refusals, pauses and bytes that cannot be decoded."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests.unit.kafka.wire.metadata_brokers import Cluster, MetadataBroker
from tests.waiting import DEADLINE_S, until

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.errors import SrmError, UnavailableError
from srm.kafka.wire.cluster import WireCluster
from srm.replication import codes
from srm.replication.copy.fetching import Quota, SourceLoop
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy
from srm.replication.ports import Fetched, FetchFrom

UNKNOWN_SERVER_ERROR = -1
TOPIC_ID = bytes(15) + b"\x01"
NOTHING = b"\x01\x00"
"""No topic, and no tagged field."""


def head(error: int = 0, throttle_ms: int = 0, session: int = 0) -> bytes:
    return b"\0" + struct.pack(">ihi", throttle_ms, error, session)


def one_partition() -> bytes:
    partition = struct.pack(">ihqqq", 0, 0, 5, 5, 0) + b"\x00" + struct.pack(">i", -1) + b"\x01\x00"
    return head() + b"\x02" + TOPIC_ID + b"\x02" + partition + b"\0\0"


def played(
    answers: list[bytes], scenario: Callable[[WireCluster, MetadataBroker], Awaitable[None]]
) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S):
            broker = await Cluster().broker(1)
            broker.fetched = answers
            wire = WireCluster("P", {"bootstrap.servers": f"127.0.0.1:{broker.port}"})
            await wire.start()
            try:
                await scenario(wire, broker)
            finally:
                await wire.close()
                broker.stop()

    asyncio.run(run())


async def fetched(wire: WireCluster) -> Fetched:
    wanted = [FetchFrom(TOPIC_ID, 0, 0, 1)]
    return await wire.fetch(1, wanted, max_wait_ms=0, max_bytes=1, read_committed=True)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (head(UNKNOWN_SERVER_ERROR) + NOTHING, "whole fetch with error -1"),
        (head() + b"\x02" + TOPIC_ID, "unreadable answer"),
    ],
    ids=["an error of the whole answer", "an answer that ends too early"],
)
def test_a_fetch_that_fails_as_a_whole_is_trouble_of_every_partition(
    answer: bytes, why: str
) -> None:
    """A failing authorizer, say: polled again at once, it would look like a source at rest."""

    async def scenario(wire: WireCluster, broker: MetadataBroker) -> None:
        trouble: list[tuple[PartitionCopy, int, SrmError | None]] = []
        loop = SourceLoop(
            wire.fetch_session(1, read_committed=True),
            "node 1",
            lambda copy: None,
            lambda *of: trouble.append(of),
            Quota(None),
            read_committed=True,
            linger_s=0.0,
        )
        ids = "A" * 21 + "g", "B" * 21 + "g"
        copies = [
            PartitionCopy(AssignedPartition("T", n, ids[0], "P.T", ids[1]), Start(0, 0))
            for n in range(2)
        ]
        for copy in copies:
            copy.is_troubled = True
            loop.add(copy, 1)
        running = asyncio.ensure_future(loop.run())
        await until(lambda: len(trouble) >= len(copies))
        polls = broker.fetches
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

        assert polls == 1
        assert [(copy, code) for copy, code, _ in trouble] == [
            (copy, codes.NO_ANSWER) for copy in copies
        ]
        assert all(why in str(error) for *_, error in trouble)
        assert all(copy.is_troubled for copy in copies)
        assert loop.known_s == float("-inf")

    played([answer], scenario)


def test_a_single_fetch_that_fails_as_a_whole_names_the_error() -> None:
    async def scenario(wire: WireCluster, broker: MetadataBroker) -> None:
        del broker
        with pytest.raises(UnavailableError, match=r"node 1 of P answered a whole fetch .* -1"):
            await fetched(wire)

    played([head(UNKNOWN_SERVER_ERROR) + NOTHING], scenario)


def test_a_single_fetch_that_a_quota_empties_is_repeated_until_it_is_served() -> None:
    """The broker takes the next request of the connection only after the pause (KIP-219)."""

    async def scenario(wire: WireCluster, broker: MetadataBroker) -> None:
        found = await fetched(wire)

        assert [part.high_watermark for part in found.partitions] == [5]
        assert broker.fetches == 3

    paused = head(throttle_ms=1) + NOTHING
    played([paused, paused, one_partition()], scenario)


def test_an_answer_without_the_partition_and_without_a_reason_is_an_error() -> None:
    async def scenario(wire: WireCluster, broker: MetadataBroker) -> None:
        del broker
        with pytest.raises(UnavailableError, match="without the partition"):
            await fetched(wire)

    played([head() + NOTHING], scenario)
