"""Brokers of the test that say who their cluster is, or nothing at all."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Any

from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.coordination import FindCoordinatorResponse_v1
from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.protocol.transaction import InitProducerIdResponse_v0

API_VERSIONS, METADATA, FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID = 18, 3, 1, 10, 22


class Cluster:
    """What every broker of a cluster knows.

    ``leader`` leads partition 0 of every topic, ``coordinator`` is that of every transaction.
    """

    def __init__(self, cluster_id: str = "one") -> None:
        self.cluster_id = cluster_id
        self.brokers: dict[int, MetadataBroker] = {}
        self.leader = 1
        self.coordinator = 1

    async def broker(self, node: int, *, port: int = 0) -> MetadataBroker:
        """Start a broker, or another in the place of an older one."""
        broker = self.brokers[node] = MetadataBroker(self)
        await broker.start(port)
        return broker

    def metadata(self, topics: list[str]) -> Any:
        known = [(node, "127.0.0.1", b.port, None) for node, b in self.brokers.items()]
        partition = (0, 0, self.leader, [1], [1], [])
        found = [(0, topic, False, [partition]) for topic in topics]
        return MetadataResponse_v5(0, known, self.cluster_id, 1, found)


class MetadataBroker:
    """One broker; ``silent`` ones take everything and answer nothing.

    ``fetched`` are the bodies of answers to fetches, the last one for all that follow.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.silent = False
        self.accepted = 0
        self.claimed = 0
        self.asked: list[list[str]] = []
        self.fetched: list[bytes] = []
        self.fetches = 0
        self.versions_error = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                if not self.silent:
                    answer = request[4:8] + self._answer(request)
                    writer.write(struct.pack(">i", len(answer)) + answer)
        self._writers.discard(writer)
        writer.close()

    def _answer(self, request: bytes) -> bytes:
        key, _, _, name = struct.unpack_from(">hhih", request)
        body = request[10 + name :]
        if key == API_VERSIONS:
            keys = (API_VERSIONS, METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID)
            known = [] if self.versions_error else [(key, 0, 5) for key in keys]
            return bytes(ApiVersionResponse_v0(self.versions_error, known).encode())
        if key == FETCH:
            self.fetches += 1
            return self.fetched.pop(0) if len(self.fetched) > 1 else self.fetched[0]
        if key == FIND_COORDINATOR:
            node = self.cluster.coordinator
            port = self.cluster.brokers.get(node, self).port
            return bytes(FindCoordinatorResponse_v1(0, 0, "", node, "127.0.0.1", port).encode())
        if key == INIT_PRODUCER_ID:
            self.claimed += 1
            return bytes(InitProducerIdResponse_v0(0, 0, 7, 0).encode())
        topics = _names(body)
        self.asked.append(topics)
        return bytes(self.cluster.metadata(topics).encode())


def _names(body: bytes) -> list[str]:
    (count,) = struct.unpack_from(">i", body)
    names, at = [], 4
    for _ in range(count):
        (length,) = struct.unpack_from(">h", body, at)
        names.append(body[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return names
