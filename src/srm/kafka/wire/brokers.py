"""Brokers of one cluster: addresses, connections and requests.

Data plane and control plane share this: TLS, logins and their renewal, deadlines and the messages
of refusals. Every request here may be sent again.

If none of the known brokers answers, the bootstrap servers are resolved and queried again
(KIP-899): brokers may have been replaced.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import ApiVersionRequest_v0
from aiokafka.protocol.api import Request
from aiokafka.protocol.metadata import MetadataRequest_v5

from srm.errors import SrmError, UnavailableError
from srm.kafka.wire.auth.security import read_security
from srm.kafka.wire.auth.security_access import SecurityAccess
from srm.kafka.wire.auth.security_probe import addresses
from srm.kafka.wire.connection import Connection
from srm.replication.buffers import BufferPool

Address = tuple[str, int]

QUESTIONS: Final = "questions"
"""Purpose of the connections that :meth:`Brokers.ask` uses."""
POLLS: Final = "poll"
"""Purpose of the connections whose answers are kept as long as their owner, and no longer."""
_NEXT_BROKER_S: Final = 1.0
"""Wait for one broker before another one is queried as well."""
_REFUSAL_S: Final = 5.0
_Versions = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Link:
    """A connection, with the versions of requests that its broker serves."""

    connection: Connection
    versions: _Versions


class Brokers:
    """Connections to the brokers of one cluster, opened when needed; for one event loop.

    A broker has one connection for each purpose, because it takes the requests of a connection one
    by one: what makes it wait holds up what was sent behind. ``coordinators`` is where callers
    keep the nodes that coordinate groups.

    Args:
        alias: of the cluster, for messages.
        properties: librdkafka's, ``bootstrap.servers`` included.

    Raises:
        ConfigError: the properties contradict each other, or a file cannot be read.
    """

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self.alias = alias
        self.servers = addresses(properties)
        self.access = SecurityAccess(read_security(alias, properties))
        self.coordinators: dict[str, int] = {}
        self._polled = BufferPool()
        self._fresh = BufferPool(kept=0)
        self._links: dict[tuple[Address, str], _Link] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[_Link]] = {}
        self._refusals: dict[Address, tuple[float, SrmError]] = {}
        self._asking: set[asyncio.Task[Any]] = set()
        self._nodes: dict[int, Address] = {}
        self._cluster_id: str | None = None
        self.replaced_by = ""
        """Id of another cluster that now has a bootstrap address: all known data is outdated."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The brokers of the last :meth:`look`."""
        return tuple(sorted(self._nodes))

    # ----- questions

    async def look(self, topics: Collection[str] = ()) -> dict[str, Any]:
        """Ask for the brokers, and for topics with their leaders, which are not created by that.

        Raises:
            UnavailableError: no broker answers.
            AuthorizationError: they refuse srm's credentials.
            ConfigError: they are not what the security settings expect.
        """
        request = MetadataRequest_v5(sorted(topics), False)  # noqa: FBT003 - aiokafka's arguments
        known = list(self._nodes.values())
        random.shuffle(known)
        # One that answered before is likely to do so again, and at once.
        known.sort(key=lambda address: self._open_link(address, QUESTIONS) is None)

        def unfit(address: Address, answer: Any) -> str:
            if not answer.brokers:
                return "it knows of no broker yet"
            if self._cluster_id in (None, answer.cluster_id):
                return ""
            if address in self.servers:
                self.replaced_by = str(answer.cluster_id)
            return f"its address now belongs to another cluster, {answer.cluster_id}"

        answer = await self._ask_one_of([*known, *self.servers], request, unfit)
        self._nodes = {node: (host, port) for node, host, port, _ in answer.brokers}
        self._cluster_id = answer.cluster_id
        found: dict[str, Any] = answer.to_object()
        return found

    async def ask(self, node: int, request: Any) -> dict[str, Any]:
        """Send a request to a broker; return its answer by field names.

        Raises:
            SrmError: as :meth:`look`; error codes within the answer are the caller's.
        """
        answer = await self._ask(self._address(node), request)
        fields: dict[str, Any] = answer.to_object()
        return fields

    async def call(self, node: int, request: Any, purpose: str = QUESTIONS) -> Any:
        """Send a request, aiokafka's in the newest version that both sides know; return the answer.

        Raises:
            SrmError: as :meth:`ask`.
        """
        return await self._ask(self._address(node), request, purpose)

    async def call_any(self, request: Any) -> Any:
        """Do the same with whichever broker answers first."""
        known = random.sample(list(self._nodes.values()), len(self._nodes))
        return await self._ask_one_of(known, request, lambda _address, _answer: "")

    async def serves(self, node: int, request: Any) -> bool:
        """Return whether a broker supports this version of a request."""
        link = await self._link(self._address(node), QUESTIONS)
        low, high = link.versions.get(request.API_KEY, (0, -1))
        return bool(low <= request.API_VERSION <= high)

    async def _ask_one_of(
        self,
        addresses: Sequence[Address],
        request: Any,
        unfit: Callable[[Address, Any], str],
    ) -> Any:
        """Ask one broker after the other until one answers; do not wait for a silent one.

        ``unfit`` says what is wrong with an answer, if anything is.
        """
        failure: SrmError | None = None
        left = list(dict.fromkeys(addresses))
        asked: dict[asyncio.Task[Any], Address] = {}
        while left or asked:
            if left:
                address = left.pop(0)
                asked[self._begin_asking(address, request)] = address
            done, _ = await asyncio.wait(
                asked,
                timeout=_NEXT_BROKER_S if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                address = asked.pop(task)
                error = task.exception()
                if error is None:
                    reason = unfit(address, task.result())
                    if not reason:
                        return task.result()
                    error = UnavailableError(f"{self._where(address)}: {reason}")
                if not isinstance(error, SrmError):
                    raise error
                if failure is None or failure.retriable:
                    failure = error
        raise failure or UnavailableError(f"cluster {self.alias} has no broker at the moment")

    def _begin_asking(self, address: Address, request: Any) -> asyncio.Task[Any]:
        """Ask in a task that ends by itself, by the connection's deadline at the latest."""
        task = asyncio.get_running_loop().create_task(self._ask(address, request))
        self._asking.add(task)
        task.add_done_callback(self._on_answer)
        return task

    def _on_answer(self, task: asyncio.Task[Any]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.exception()  # another broker may have answered

    async def _ask(self, address: Address, request: Any, purpose: str = QUESTIONS) -> Any:
        link = await self._link(address, purpose)
        if isinstance(request, Request):
            try:
                request = request.prepare(dict(link.versions))
            except (KafkaError, NotImplementedError) as error:
                raise SrmError(f"{self._where(address)}: {error}") from error
        try:
            return await link.connection.ask(request)
        except asyncio.CancelledError:
            # Answers arrive in order: an abandoned one would delay the next one.
            link.connection.close("no answer in time")
            raise

    # ----- connections

    async def connection(self, node: int, purpose: str) -> Connection:
        """Return the open connection to a broker for a purpose; open it if need be.

        Raises:
            SrmError: as :meth:`look`.
        """
        return (await self._link(self._address(node), purpose)).connection

    def open_connection(self, node: int, purpose: str) -> Connection | None:
        """Return the connection if it is open."""
        address = self._nodes.get(node)
        link = None if address is None else self._open_link(address, purpose)
        return None if link is None else link.connection

    def close(self) -> None:
        """Close every connection."""
        for task in (*self._opening.values(), *self._asking):
            task.cancel()
        for link in self._links.values():
            link.connection.close()
        self._links.clear()

    def _where(self, address: Address) -> str:
        return f"cluster {self.alias}, broker {address[0]}:{address[1]}"

    def _address(self, node: int) -> Address:
        address = self._nodes.get(node)
        if address is None:
            raise UnavailableError(f"cluster {self.alias} does not know node {node} at the moment")
        return address

    def _open_link(self, address: Address, purpose: str) -> _Link | None:
        link = self._links.get((address, purpose))
        return None if link is None or link.connection.is_closed else link

    async def _link(self, address: Address, purpose: str) -> _Link:
        """Return an open connection; who comes while it is being opened waits for the same one."""
        link = self._open_link(address, purpose)
        if link is not None:
            return link
        key = address, purpose
        opening = self._opening.get(key)
        if opening is None:
            self._raise_refusal(address)
            opening = asyncio.get_running_loop().create_task(self._connect_link(address, purpose))
            self._opening[key] = opening
            opening.add_done_callback(lambda task: self._open_ended(key, task))
        return await asyncio.shield(opening)

    def _open_ended(self, key: tuple[Address, str], task: asyncio.Task[_Link]) -> None:
        del self._opening[key]
        if not task.cancelled():
            task.exception()  # those who waited may be gone

    async def _connect_link(self, address: Address, purpose: str) -> _Link:
        pool = self._polled if purpose == POLLS else self._fresh
        try:
            connection = await Connection.open(*address, pool, self.access)
        except SrmError as error:
            if not error.retriable:
                until = asyncio.get_running_loop().time() + _REFUSAL_S
                self._refusals[address] = until, error
            raise
        timeout_s = self.access.security.connect_timeout_s
        try:
            # Also where no version matters: a frozen broker accepts connections, but nothing else.
            async with asyncio.timeout(timeout_s):
                known = await connection.ask(ApiVersionRequest_v0())
        except TimeoutError as error:
            connection.close("no answer in time")
            raise UnavailableError(
                f"{self._where(address)}: no answer within {timeout_s:g} s"
            ) from error
        except BaseException:
            connection.close()
            raise
        if known.error_code:
            connection.close(f"no versions: error {known.error_code}")
            raise UnavailableError(
                f"{self._where(address)} answered the request for its versions with error "
                f"{known.error_code} ({for_code(known.error_code).__name__})"
            )
        link = _Link(connection, {key: (low, high) for key, low, high in known.api_versions})
        self._links = {k: one for k, one in self._links.items() if not one.connection.is_closed}
        self._links[address, purpose] = link
        return link

    def _raise_refusal(self, address: Address) -> None:
        """Do not ask again at once who has just refused: many partitions would do so together."""
        until, error = self._refusals.get(address, (0.0, None))
        if error is not None and asyncio.get_running_loop().time() < until:
            raise error
