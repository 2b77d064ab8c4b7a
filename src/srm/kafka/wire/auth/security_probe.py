"""Finding out why a cluster cannot be used: the client libraries only log it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
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
    """Return why none of the servers can be used, None when one can.

    Each is given ``timeout_s`` seconds. What another attempt cannot cure comes first.
    """
    failures: list[SrmError] = []
    for host, port in servers:
        try:
            await _use(host, port, access, timeout_s)
        except SrmError as error:
            failures.append(error)
        else:
            return None
    return min(failures, key=lambda error: error.retriable)


async def _use(host: str, port: int, access: SecurityAccess, timeout_s: float) -> None:
    connection = await Connection.open(host, port, BufferPool(), access, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await connection.ask(metadata_request([]))
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
    """Do the same for librdkafka's properties; blocks.

    Raises:
        ConfigError: the properties contradict each other, or a file cannot be read.
    """
    access = SecurityAccess(read_security(alias, properties))
    with ThreadPoolExecutor(max_workers=1) as thread:  # the caller's may have an event loop
        look = refusal(addresses(properties), access, timeout_s)
        return thread.submit(asyncio.run, look).result()
