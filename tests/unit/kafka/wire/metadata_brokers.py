"""Brokers of the test that say who their cluster is, or nothing at all."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

from srm.kafka.wire.messages import FLEXIBLE, Cursor, Message
from srm.kafka.wire.requests import (
    API_VERSIONS,
    EPOCH_ENDS,
    FIND_COORDINATORS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
)
from srm.replication.ports import Leader

FETCH = 1
MESSAGES = {
    m.api_key: m
    for m in (
        *(API_VERSIONS, METADATA, FIND_COORDINATORS, INIT_PRODUCER_ID),
        *(LIST_OFFSETS, EPOCH_ENDS),
    )
}
NO_ID = bytes(16)
NO_RIGHTS = -(1 << 31)
"""Rights on a topic in an answer without them, or on a topic that srm may not describe."""
FENCED, UNKNOWN = 74, 75
"""FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH."""
LOG_END = 5


class Cluster:
    """What every broker of a cluster knows.

    ``leader`` leads every partition, in ``epoch``; ``coordinator`` is that of every transaction.
    ``errors`` are the codes of all topics, for who names none; others are fine, and ``operations``
    the bits of the rights on them.
    """

    def __init__(self, cluster_id: str = "one") -> None:
        self.cluster_id = cluster_id
        self.brokers: dict[int, MetadataBroker] = {}
        self.leader = 1
        self.epoch = 0
        self.topic_id = NO_ID
        self.partitions = 1
        self.coordinator = 1
        self.errors: dict[str, int] = {}
        self.operations = NO_RIGHTS

    async def broker(self, node: int, *, port: int = 0) -> MetadataBroker:
        """Start a broker, or another in the place of an older one."""
        broker = self.brokers[node] = MetadataBroker(self)
        await broker.start(port)
        return broker

    def metadata(self, topics: list[str], leader: Leader, *, rights: bool) -> bytes:
        known = [(node, "127.0.0.1", b.port, None) for node, b in self.brokers.items()]
        partitions = [(0, n, *leader, [1], [1], []) for n in range(self.partitions)]
        found = []
        for topic in topics:
            error = self.errors.get(topic, 0)
            operations = self.operations if rights and not error else NO_RIGHTS
            found.append((error, topic, self.topic_id, False, partitions, operations))
        return answer(METADATA, 0, known, self.cluster_id, 1, found, 0)


class MetadataBroker:
    """One broker; ``silent`` ones take everything and answer nothing.

    ``fetched`` are the bodies of answers to fetches, the last one for all that follow. ``believes``
    is the leader of every partition in its view, where it has not heard of a newer one; ``queries``
    counts the partitions in each request about logs.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.silent = False
        self.accepted = 0
        self.claimed = self.claim_ms = 0
        self.asked: list[list[str]] = []
        self.fetched: list[bytes] = []
        self.fetches = 0
        self.versions_error = 0
        self.believes: Leader | None = None
        self.queries: list[int] = []
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
        if key == FETCH:
            self.fetches += 1
            return self.fetched.pop(0) if len(self.fetched) > 1 else self.fetched[0]
        message = MESSAGES[key]
        if message is API_VERSIONS:
            known = [] if self.versions_error else [(key, 0, 10) for key in MESSAGES]
            return answer(message, self.versions_error, known)
        data = Cursor(request[10 + name :])
        message.form.skip_tags(data)
        asked = message.request.decode(data, message.form)
        if message is FIND_COORDINATORS:
            node = self.cluster.coordinator
            port = self.cluster.brokers.get(node, self).port
            found = [(name, node, "127.0.0.1", port, 0, "") for name in asked["keys"]]
            return answer(message, 0, found)
        if message is INIT_PRODUCER_ID:
            self.claimed += 1
            self.claim_ms = asked["transaction_timeout_ms"]
            return answer(message, 0, 0, 7, 0)
        known = self.believes or Leader(self.cluster.leader, self.cluster.epoch)
        if message is METADATA:
            named = asked["topics"]
            all_names = [*self.cluster.errors] if named is None else [one["topic"] for one in named]
            self.asked.append(all_names)
            return self.cluster.metadata(self.asked[-1], known, rights=asked["topic_operations"])
        self.queries.append(sum(len(topic["partitions"]) for topic in asked["topics"]))

        def look_up(query: dict[str, int]) -> tuple[int, ...]:
            named = query["current_leader_epoch"]
            error = FENCED if named < known.epoch else UNKNOWN
            if named in {-1, known.epoch}:
                error = 0
            if message is EPOCH_ENDS:
                return error, query["partition"], query["leader_epoch"], LOG_END
            return query["partition"], error, -1, LOG_END, known.epoch

        found = [(t["topic"], [look_up(p) for p in t["partitions"]]) for t in asked["topics"]]
        return answer(message, 0, found)


def answer(message: Message, *values: object) -> bytes:
    """Encode an answer with the end of its header."""
    tags = b"\x00" if message.form is FLEXIBLE else b""
    return tags + message.response.encode(values, message.form)
