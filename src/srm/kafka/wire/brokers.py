"""Brokers of one cluster: addresses, connections, requests that may be sent again, and refusals.

If no known broker answers, the bootstrap servers are resolved and queried again (KIP-899).
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from srm.errors import SrmError, UnavailableError
from srm.kafka.wire.connection import Connection
from srm.kafka.wire.errors import error_name
from srm.kafka.wire.frames import FETCH, FetchResponse, fetch_request
from srm.kafka.wire.login import SecurityAccess
from srm.kafka.wire.messages import Message, Request
from srm.kafka.wire.requests import API_VERSIONS, Answer, metadata_request
from srm.kafka.wire.security import read_security
from srm.replication.buffers import BufferPool
from srm.replication.ports import FetchFrom

TIMEOUT_S: Final = 10.0
Address = tuple[str, int]
QUESTIONS: Final = "questions"
"""Purpose of the connections that :meth:`Brokers.query` uses."""
POLLS: Final = "poll"
"""Purpose of the connections whose answers are kept as long as their owner, and no longer."""
_NEXT_BROKER_S: Final = 1.0
"""Wait for one broker before another one is queried as well."""
_REFUSAL_S: Final = 5.0
_LATE: Final = "no answer in time"


def addresses(properties: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the bootstrap servers; librdkafka lets them name their protocol: ``SSL://host:port``."""
    servers = properties["bootstrap.servers"].split(",")
    return [_address(server.rpartition("//")[2].strip()) for server in servers]


def _address(server: str) -> tuple[str, int]:
    """Split ``host``, ``host:port``, ``[IPv6]``, ``[IPv6]:port`` or a bare IPv6 address."""
    if server.startswith("["):
        host, _, rest = server[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = server.partition(":") if server.count(":") == 1 else (server, "", "")
    return host, int(port or 9092)


async def refusal(
    servers: list[tuple[str, int]], access: SecurityAccess, timeout_s: float = TIMEOUT_S
) -> SrmError | None:
    """Return why none of the servers can be used, permanent reasons first; None when one can."""
    attempts = [asyncio.create_task(_use(*server, access, timeout_s)) for server in servers]
    failures: list[SrmError] = []
    try:
        for attempt in asyncio.as_completed(attempts):
            try:
                await attempt
            except SrmError as error:
                failures.append(error)
            else:
                return None
    finally:
        for one in attempts:
            one.cancel()
    return min(failures, key=lambda error: error.retriable)


async def _use(host: str, port: int, access: SecurityAccess, timeout_s: float) -> None:
    connection = await Connection.open(host, port, BufferPool(), access, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await connection.query(metadata_request([]))
    except TimeoutError as error:
        raise UnavailableError(f"{connection.where}: no answer within {timeout_s:g} s") from error
    except UnavailableError as error:
        raise UnavailableError(str(error), "if this persists, check security.protocol") from error
    finally:
        connection.close()
    if not answer["brokers"]:
        raise UnavailableError(f"{connection.where}: it knows no broker yet")


def refusals_of(
    clusters: Sequence[tuple[str, Mapping[str, str]]], timeout_s: float = TIMEOUT_S
) -> list[SrmError | None]:
    """Do the same for librdkafka's properties of clusters, at the same time; blocks."""
    done: Future[list[SrmError | None]] = Future()

    async def one(alias: str, properties: Mapping[str, str]) -> SrmError | None:
        access = SecurityAccess(read_security(alias, properties))
        found = await refusal(addresses(properties), access, timeout_s)
        if found is None or not found.retriable:
            return found
        key = f"{alias}.bootstrap.servers"
        what = f"{found.what} ({key} = {properties['bootstrap.servers']})"
        return UnavailableError(what, found.action or f"start its brokers, or correct {key}")

    async def look() -> None:
        try:
            done.set_result(await asyncio.gather(*(one(*each) for each in clusters)))
        except BaseException as error:  # noqa: BLE001 -- the caller's thread raises it
            done.set_exception(error)

    # The caller's thread may have an event loop, and Ctrl-C interrupts it while it waits.
    threading.Thread(target=lambda: asyncio.run(look()), name="srm-probe", daemon=True).start()
    return done.result()


class Brokers:
    """Connections to the brokers of one cluster, opened when needed; for one event loop.

    A broker has one connection for each purpose, because it takes the requests of a connection one
    by one: what makes it wait holds up what was sent behind. ``coordinators`` is where callers
    keep the nodes that coordinate groups.
    """

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self.alias = alias
        self.servers = addresses(properties)
        self.access = SecurityAccess(read_security(alias, properties))
        self.coordinators: dict[str, int] = {}
        self._polled = BufferPool()
        self._fresh = BufferPool(kept=0)
        self._open: dict[tuple[Address, str], Connection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[Connection]] = {}
        self._refusals: dict[Address, tuple[float, SrmError]] = {}
        self._queries: set[asyncio.Task[Any]] = set()
        self._nodes: dict[int, Address] = {}
        self.cluster_id: str | None = None
        self.replaced_by = ""
        """Id of another cluster that now has a bootstrap address: all known data is outdated."""

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted(self._nodes))

    # ----- queries

    async def look(
        self, topics: Collection[str] | None = (), *, rights: bool = False
    ) -> dict[str, Any]:
        """Look up the brokers, and topics with their leaders, None: all; creates no topic."""
        known = list(self._nodes.values())
        random.shuffle(known)
        # One that answered before is likely to do so again, and at once.
        known.sort(key=lambda address: self._live(address, QUESTIONS) is None)

        def unfit(address: Address, answer: Answer) -> str:
            if not answer["brokers"]:
                return "it knows no broker yet"
            if self.cluster_id in (None, answer["cluster_id"]):
                return ""
            if address in self.servers:
                self.replaced_by = str(answer["cluster_id"])
            return f"its address now belongs to another cluster, {answer['cluster_id']}"

        request = metadata_request(topics, rights=rights)
        answer = await self._query_one_of([*known, *self.servers], request, unfit)
        self._nodes = {found["node"]: (found["host"], found["port"]) for found in answer["brokers"]}
        self.cluster_id = answer["cluster_id"]
        return answer

    async def query(self, node: int, request: Request, purpose: str = QUESTIONS) -> dict[str, Any]:
        """Send a request to a broker; error codes within the answer are the caller's."""
        return await self._query(self._address(node), request, purpose)

    async def fetch(self, node: int, wanted: FetchFrom, *, read_committed: bool) -> FetchResponse:
        """Fetch from one partition, without waiting for records; a batch at least (KIP-74).

        A broker that holds srm up by a quota answers of no partition.
        """
        body = fetch_request([wanted], 0, wanted.max_bytes, read_committed=read_committed)
        connection = await self.connection(node, QUESTIONS)
        try:
            return await connection.request(FETCH, [body])
        except asyncio.CancelledError:
            connection.close(_LATE)  # as a query
            raise

    async def query_any(self, request: Request) -> dict[str, Any]:
        """Do the same with whichever broker answers first."""
        known = random.sample(list(self._nodes.values()), len(self._nodes))
        return await self._query_one_of(known, request, lambda _address, _answer: "")

    async def serves(self, node: int, message: Message) -> bool:
        return (await self.connection(node, QUESTIONS)).serves(message)

    async def newest(self, node: int, api_key: int) -> int:
        """Return the newest version of a request that a broker supports, -1 for none."""
        connection = await self.connection(node, QUESTIONS)
        return connection.versions.get(api_key, (0, -1))[1]

    async def _query_one_of(
        self, addresses: list[Address], request: Request, unfit: Callable[[Address, Answer], str]
    ) -> dict[str, Any]:
        """Query the brokers until one, not ``unfit``, answers; do not wait for silent ones."""
        failure: SrmError | None = None
        left = list(dict.fromkeys(addresses))
        queried: dict[asyncio.Task[Any], Address] = {}
        while left or queried:
            if left:
                address = left.pop(0)
                queried[self._begin_query(address, request)] = address
            limit_s, first = _NEXT_BROKER_S if left else None, asyncio.FIRST_COMPLETED
            done, _ = await asyncio.wait(queried, timeout=limit_s, return_when=first)
            for task in done:
                address = queried.pop(task)
                error = task.exception()
                if error is None:
                    reason = unfit(address, task.result())
                    if not reason:
                        return task.result()
                    error = UnavailableError(f"{self._label(address)}: {reason}")
                if not isinstance(error, SrmError):
                    raise error
                if failure is None or failure.retriable:
                    failure = error
        raise failure or UnavailableError(f"cluster {self.alias} has no broker at the moment")

    def _begin_query(self, address: Address, request: Request) -> asyncio.Task[Any]:
        """Query in a task that ends by itself, by the connection's deadline at the latest."""
        task = asyncio.get_running_loop().create_task(self._query(address, request, QUESTIONS))
        self._queries.add(task)
        task.add_done_callback(self._queries.discard)
        task.add_done_callback(_take_exception)  # another broker may have answered
        return task

    async def _query(self, address: Address, request: Request, purpose: str) -> dict[str, Any]:
        connection = await self._connection(address, purpose)
        message = request.message
        if not connection.serves(message):
            raise SrmError(
                f"{self._label(address)} does not support version {message.version} of request "
                f"{message.api_key}; srm needs Kafka 3.1 or later"
            )
        try:
            return await connection.query(request)
        except asyncio.CancelledError:
            # Answers arrive in order: an abandoned one would delay the next one.
            connection.close(_LATE)
            raise

    # ----- connections

    async def connection(self, node: int, purpose: str) -> Connection:
        """Return the open connection to a broker for a purpose; open it if need be."""
        return await self._connection(self._address(node), purpose)

    def open_connection(self, node: int, purpose: str) -> Connection | None:
        address = self._nodes.get(node)
        return None if address is None else self._live(address, purpose)

    def close(self) -> None:
        for task in (*self._opening.values(), *self._queries):
            task.cancel()
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def _label(self, address: Address) -> str:
        return f"cluster {self.alias}, broker {address[0]}:{address[1]}"

    def _address(self, node: int) -> Address:
        address = self._nodes.get(node)
        if address is None:
            raise UnavailableError(f"cluster {self.alias} does not know node {node} at the moment")
        return address

    def _live(self, address: Address, purpose: str) -> Connection | None:
        connection = self._open.get((address, purpose))
        return None if connection is None or connection.is_closed else connection

    async def _connection(self, address: Address, purpose: str) -> Connection:
        """Return an open connection; who comes while it is being opened waits for the same one."""
        connection = self._live(address, purpose)
        if connection is not None:
            return connection
        key = address, purpose
        opening = self._opening.get(key)
        if opening is None:
            until, error = self._refusals.get(address, (0.0, None))
            if error is not None and asyncio.get_running_loop().time() < until:
                raise error  # again, instead of a query by each of many partitions
            opening = asyncio.get_running_loop().create_task(self._connect(address, purpose))
            self._opening[key] = opening
            opening.add_done_callback(lambda _: self._opening.pop(key))
            opening.add_done_callback(_take_exception)  # those who waited may be gone
        return await asyncio.shield(opening)

    async def _connect(self, address: Address, purpose: str) -> Connection:
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
                known = await connection.query(API_VERSIONS())
        except TimeoutError as error:
            connection.close(_LATE)
            raise UnavailableError(
                f"{self._label(address)}: no answer within {timeout_s:g} s"
            ) from error
        except BaseException:
            connection.close()
            raise
        if code := known["error_code"]:
            connection.close(f"no versions: error {code}")
            raise UnavailableError(
                f"{self._label(address)} answered the request for its versions with error "
                f"{code} ({error_name(code)})"
            )
        connection.versions = {
            one["api_key"]: (one["lowest"], one["highest"]) for one in known["versions"]
        }
        self._open = {k: one for k, one in self._open.items() if not one.is_closed}
        self._open[address, purpose] = connection
        return connection


def _take_exception(task: asyncio.Task[Any]) -> None:
    """Count an exception that no caller waits for as retrieved."""
    if not task.cancelled():
        task.exception()
