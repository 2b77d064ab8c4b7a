"""Clusters for the contract of the Wire port, with hands to play everybody else who uses them."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tests.waiting import DEADLINE_S

from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.errors import UnavailableError
from srm.kafka.wire.cluster import WireCluster
from srm.replication.ports import FetchFrom, Wire

if TYPE_CHECKING:
    from tests.contract.conftest import KafkaSite

Scenario = Callable[[Wire], Awaitable[Any]]


class WireSite(Protocol):
    """A cluster of one broker on which transactions work, and others who use it.

    The hands return when what they did can be seen by everybody; they may be called before, after
    and, as they do not wait for the event loop, in the middle of a scenario.
    """

    def run(self, scenario: Scenario) -> Any:
        """Play a scenario in an event loop with a wire of its own, which ends with it."""
        ...

    def create_topic(self, partitions: int = 1) -> tuple[str, bytes]:
        """Create a topic; return its name, which nobody else uses, and its id."""
        ...

    def trim(self, topic: str, partition: int, start: int) -> None:
        """Delete the records before an offset."""
        ...

    def produce_in(self, name: str, topic: str, partition: int, records: int) -> None:
        """Write records, a batch each, in a transaction that begins here or is open already."""
        ...

    def end_transaction(self, name: str, *, commit: bool) -> None:
        """End it."""
        ...


class KafkaWireSite:
    """A real broker."""

    def __init__(self, site: KafkaSite) -> None:
        self._site = site
        self.trim = site.trim
        self.end_transaction = site.end_transaction

    def produce_in(self, name: str, topic: str, partition: int, records: int) -> None:
        for _ in range(records):
            self._site.produce_in(name, topic, partition, 1)

    def run(self, scenario: Scenario) -> Any:
        return asyncio.run(self._play(scenario))

    async def _play(self, scenario: Scenario) -> Any:
        wire = WireCluster(self._site.cluster.alias, self._site.props)
        await wire.start()
        try:
            return await scenario(wire)
        finally:
            await wire.close()

    def create_topic(self, partitions: int = 1) -> tuple[str, bytes]:
        name = f"t-{uuid.uuid4().hex[:12]}"
        self._site.cluster.create_topics([TopicSpec(name, partitions, 1, {})])
        text = self._site.cluster.topics()[name].topic_id
        topic_id = base64.urlsafe_b64decode(text + "==")
        with ThreadPoolExecutor(max_workers=1) as thread:  # this one may have an event loop
            served = partial(_until_served, name, topic_id, partitions)
            thread.submit(self.run, served).result()
        return name, topic_id


async def _until_served(name: str, topic_id: bytes, partitions: int, wire: Wire) -> None:
    """Wait until the broker has opened the logs of a topic that it has just heard of."""
    wanted = [FetchFrom(topic_id, number, 0, 1) for number in range(partitions)]
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(UnavailableError):
                fetched = await wire.fetch(
                    (await wire.leader(TopicPartition(name, 0))).node,
                    wanted,
                    max_wait_ms=0,
                    max_bytes=1,
                    read_committed=False,
                )
                if not any(part.error for part in fetched.partitions):
                    return
            await asyncio.sleep(0.02)  # between two looks
