"""A name with several addresses is reached at any of them that works."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from tests.waiting import DEADLINE_S

from srm.errors import UnavailableError
from srm.kafka.wire.connection import Connection
from srm.kafka.wire.login import SecurityAccess
from srm.kafka.wire.security import Security
from srm.replication.buffers import BufferPool

DEAD, SILENT, ALIVE = "127.0.0.2", "127.0.0.3", "127.0.0.1"


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody serves at one address, a full listener at another, and a free one."""
    with ExitStack() as open_sockets:
        alive = open_sockets.enter_context(socket.create_server((ALIVE, 0)))
        port = alive.getsockname()[1]
        silent = open_sockets.enter_context(socket.create_server((SILENT, port), backlog=0))
        assert silent
        for _ in range(3):  # what a full queue of connections swallows is not refused
            filling = open_sockets.enter_context(closing(socket.socket()))
            filling.setblocking(False)
            filling.connect_ex((SILENT, port))
        yield port


def connected(
    port: int, monkeypatch: pytest.MonkeyPatch, *names: str, limit_s: float = DEADLINE_S
) -> str:
    """Connect to a name with these addresses; return the one that was reached."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, port)) for name in names]

    async def run() -> str:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(*_: object, **__: object) -> list[object]:
            return list(found)

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        access = SecurityAccess(Security("P", connect_timeout_s=limit_s))
        connection = await Connection.open("broker.example.org", port, BufferPool(), access)
        try:
            assert isinstance(connection._sock, socket.socket)
            return str(connection._sock.getpeername()[0])
        finally:
            connection.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    "names", [[ALIVE], [DEAD, ALIVE], [SILENT, ALIVE], [DEAD, SILENT, DEAD, ALIVE, SILENT]]
)
def test_a_dead_or_silent_address_is_skipped(
    port: int, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    assert connected(port, monkeypatch, *names) == ALIVE


def test_a_name_without_a_working_address_says_why(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnavailableError, match=r"broker\.example\.org:\d+: connection refused"):
        connected(port, monkeypatch, DEAD, DEAD)
    with pytest.raises(UnavailableError, match=r"no answer within 0\.1 s"):
        connected(port, monkeypatch, DEAD, SILENT, limit_s=0.1)
