"""Finding out why a cluster cannot be used: the client libraries only log it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from srm.errors import SrmError, UnavailableError
from srm.kafka.wire.auth.security import read_security
from srm.kafka.wire.auth.security_access import SecurityAccess
from srm.kafka.wire.connection import Connection
from srm.kafka.wire.log_messages import metadata_request
from srm.replication.buffers import BufferPool

TIMEOUT_S: Final = 10.0
_DEFAULT_PORT: Final = 9092


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
    return host, int(port or _DEFAULT_PORT)


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
        raise UnavailableError(str(error), "if that stays so, check security.protocol") from error
    finally:
        connection.close()
    if not answer["brokers"]:
        raise UnavailableError(f"{connection.where}: it knows of no broker yet")


def refusal_of(
    alias: str, properties: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> SrmError | None:
    """Do the same for librdkafka's properties; blocks."""
    [found] = refusals_of([(alias, properties)], timeout_s)
    return found


def refusals_of(
    clusters: Sequence[tuple[str, Mapping[str, str]]], timeout_s: float = TIMEOUT_S
) -> list[SrmError | None]:
    """Do the same for several clusters, at the same time."""
    looks = [
        (addresses(properties), SecurityAccess(read_security(alias, properties)))
        for alias, properties in clusters
    ]
    done: Future[list[SrmError | None]] = Future()

    async def look() -> None:
        try:
            done.set_result(await asyncio.gather(*(refusal(*one, timeout_s) for one in looks)))
        except BaseException as error:  # noqa: BLE001 -- the caller's thread raises it
            done.set_exception(error)

    # The caller's thread may have an event loop, and Ctrl-C interrupts it while it waits.
    threading.Thread(target=lambda: asyncio.run(look()), name="srm-probe", daemon=True).start()
    return done.result()
