"""All brokers of one cluster, asked what librdkafka's admin client cannot ask.

The same connections as those that copy: TLS, logins and their renewal, and what keeps srm out in
the same words. Every request here may be sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

from aiokafka.protocol.admin import ApiVersionRequest_v0
from aiokafka.protocol.metadata import MetadataRequest_v5

from srm.errors import SrmError, UnavailableError
from srm.kafka.wire.buffers import BufferPool
from srm.kafka.wire.connection import Connection
from srm.kafka.wire.security import read_security
from srm.kafka.wire.security_access import Access
from srm.kafka.wire.security_probe import addresses

Address = tuple[str, int]

_OPEN_TIMEOUT_S: Final = 5.0


class Brokers:
    """Connections to the brokers of one cluster, opened when needed; for one event loop.

    ``coordinators`` is where callers keep the nodes that coordinate groups.

    Args:
        alias: of the cluster, for messages.
        properties: librdkafka's, ``bootstrap.servers`` included.

    Raises:
        ConfigError: the properties contradict each other, or a file cannot be read.
    """

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self.alias = alias
        self.coordinators: dict[str, int] = {}
        self._servers = addresses(properties)
        self._access = Access(read_security(alias, properties))
        self._pool = BufferPool()
        self._connections: dict[Address, Connection] = {}
        self._versions: dict[Address, dict[int, tuple[int, int]]] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        self._nodes: dict[int, Address] = {}

    @property
    def nodes(self) -> tuple[int, ...]:
        """The brokers of the last :meth:`look`."""
        return tuple(sorted(self._nodes))

    async def look(self, topics: Collection[str] = ()) -> dict[str, Any]:
        """Ask for the brokers, and for topics with their leaders, which are not created by that.

        Raises:
            UnavailableError: no broker answers.
            AuthorizationError: they refuse srm's credentials.
            ConfigError: they are not what the security settings expect.
        """
        failure: SrmError | None = None
        request = MetadataRequest_v5(sorted(topics), False)  # noqa: FBT003 - aiokafka's arguments
        for address in (*self._nodes.values(), *self._servers):
            try:
                answer = await self._ask(address, request)
            except SrmError as error:
                if failure is None or failure.retriable:
                    failure = error
            else:
                if answer.brokers:
                    self._nodes = {node: (host, port) for node, host, port, _ in answer.brokers}
                    found: dict[str, Any] = answer.to_object()
                    return found
        raise failure or UnavailableError(
            f"cluster {self.alias}: its brokers know of no broker yet"
        )

    async def ask(self, node: int, request: Any) -> dict[str, Any]:
        """Send a request to a broker; return its answer by field names.

        Raises:
            SrmError: as :meth:`look`; error codes within the answer are the caller's.
        """
        answer = await self._ask(self._address(node), request)
        fields: dict[str, Any] = answer.to_object()
        return fields

    async def serves(self, node: int, request: Any) -> bool:
        """Whether a broker knows this version of a request."""
        address = self._address(node)
        await self._connection(address)
        low, high = self._versions[address].get(request.API_KEY, (0, -1))
        return bool(low <= request.API_VERSION <= high)

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _address(self, node: int) -> Address:
        address = self._nodes.get(node)
        if address is None:
            raise UnavailableError(f"cluster {self.alias} does not know node {node} at the moment")
        return address

    async def _ask(self, address: Address, request: Any) -> Any:
        connection = await self._connection(address)
        try:
            return await connection.ask(request)
        except asyncio.CancelledError:
            # Answers come in order: what is not waited for would be in the way of the next one.
            connection.close("no answer in time")
            raise

    async def _connection(self, address: Address) -> Connection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or connection.closed:
                host, port = address
                connection = await Connection.open(
                    host, port, self._pool, _OPEN_TIMEOUT_S, self._access
                )
                try:
                    known = await connection.ask(ApiVersionRequest_v0())
                except BaseException:
                    connection.close()
                    raise
                self._versions[address] = {
                    key: (low, high) for key, low, high in known.api_versions
                }
                self._connections[address] = connection
            return connection
