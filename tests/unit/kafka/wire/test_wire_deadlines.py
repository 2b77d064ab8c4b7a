"""A broker that is silent is given up; one that is slow, or has nothing to say, is not."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.loops import happens, pass_time, run_still, settle
from tests.unit.kafka.wire.test_wire_connection import (
    AUTHENTICATE,
    ECHO,
    HANDSHAKE,
    Broker,
    connected,
)
from tests.wires import as_it_is

from srm.errors import UnavailableError
from srm.kafka.wire.connection import Api, Connection
from srm.kafka.wire.login import SecurityAccess
from srm.kafka.wire.security import Sasl, Security, read_security
from srm.replication.buffers import BufferPool, PooledBuffer
from srm.replication.ports import ProduceAnswer

TIMEOUT_S = 30.0
BIG = 64 << 20
"""More than the sockets between two processes hold."""


class Peer:
    """A broker that reads, and answers, as much as the test says."""

    def __init__(self) -> None:
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self.connection: Connection
        self.came = asyncio.Event()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.came.set()

    def send(self, *parts: bytes) -> asyncio.Future[PooledBuffer]:
        return self.connection.request(Api(0, 0, False, as_it_is), parts)

    async def read(self) -> bytes:
        """Read a request, its correlation id first."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return (await self.reader.readexactly(size))[4:]

    async def say(self, data: bytes) -> None:
        """Write, and wait until the connection has seen it."""
        await pass_time(0.001)  # the connection notes when it heard something
        before = self.connection._alive_at
        self.writer.write(data)
        while self.connection._alive_at == before:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)


def played(scenario: Callable[[Peer], Awaitable[Any]], security: Security | None = None) -> Any:
    async def run() -> Any:
        peer = Peer()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # grows no more
        listener.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(peer.accept, sock=listener)
        port = server.sockets[0].getsockname()[1]
        access = SecurityAccess(security or Security("P", request_timeout_s=TIMEOUT_S))
        peer.connection = await Connection.open("127.0.0.1", port, BufferPool(), access)
        try:
            await peer.came.wait()
            return await scenario(peer)
        finally:
            peer.connection.close()
            peer.writer.close()
            server.close()

    return run_still(run())


@pytest.mark.parametrize("size", [60, BIG], ids=["small", "more than the sockets hold"])
def test_a_silent_broker_is_given_up_with_all_that_waits_for_it(size: int) -> None:
    async def scenario(peer: Peer) -> None:
        sent = [peer.send(bytes(size)), peer.send(b"behind it")]
        await settle()
        await pass_time(TIMEOUT_S - 5)
        assert not peer.connection.is_closed
        await pass_time(10)

        assert peer.connection.is_closed
        for answer in sent:
            with pytest.raises(UnavailableError, match="no answer and no other data for"):
                await answer

    played(scenario)


def test_each_answer_is_due_when_it_is_its_turn() -> None:
    """A broker takes the requests of a connection one by one, so the last of many comes late."""

    async def scenario(peer: Peer) -> None:
        sent = [peer.send(b"%d" % number) for number in range(4)]
        for answer in sent:
            request = await peer.read()
            await pass_time(TIMEOUT_S - 5)
            await peer.say(struct.pack(">i", 4) + request[:4])
            await answer
        assert not peer.connection.is_closed

    played(scenario)


def test_a_broker_whose_answer_takes_its_time_is_alive() -> None:
    async def scenario(peer: Peer) -> None:
        answer = peer.send(b"x")
        data = (await peer.read())[:4] + bytes(10)
        data = struct.pack(">i", len(data)) + data
        for at in range(len(data)):
            await pass_time(TIMEOUT_S - 5)
            peer.writer.write(data[at : at + 1])
        assert bytes((await answer).data[4:14]) == bytes(10)

    played(scenario)


def test_a_broker_that_takes_a_request_slowly_is_alive() -> None:
    async def scenario(peer: Peer) -> None:
        body = bytes(BIG)
        answer = peer.send(body)
        (size,) = struct.unpack(">i", await peer.reader.readexactly(4))
        came = b""
        while len(came) < size:
            await pass_time(TIMEOUT_S - 5)
            # More than the sockets hold, so the connection has sent something meanwhile.
            came += await peer.reader.readexactly(min(16 << 20, size - len(came)))
        assert hashlib.sha256(came[13:]).digest() == hashlib.sha256(body).digest()
        await peer.say(struct.pack(">i", 4) + came[4:8])
        await answer

    played(scenario)


def test_a_broker_that_may_wait_before_it_answers_is_given_that_time_too() -> None:
    async def scenario(peer: Peer) -> None:
        poll = peer.connection.request(Api(0, 0, False, as_it_is), [b"x"], wait_s=100.0)
        await settle()
        await pass_time(TIMEOUT_S + 95)
        assert not peer.connection.is_closed
        await pass_time(10)
        assert peer.connection.is_closed
        assert isinstance(poll.exception(), UnavailableError)

    played(scenario)


@pytest.mark.parametrize("sent_before", [True, False])
def test_a_broker_whose_quota_pauses_a_connection_is_given_that_time_too(
    *, sent_before: bool
) -> None:
    """It reads nothing more from the connection until the pause is over (KIP-219)."""
    pause_s = 100

    async def scenario(peer: Peer) -> None:
        def decode(body: PooledBuffer) -> ProduceAnswer:
            del body
            return ProduceAnswer({}, throttle_time_ms=pause_s * 1000)

        first = peer.connection.request(Api(0, 0, False, decode), [b"x"])
        if sent_before:
            peer.send(b"y")
        await peer.say(struct.pack(">i", 4) + (await peer.read())[:4])
        await first
        if not sent_before:
            peer.send(b"y")
        await settle()
        await pass_time(pause_s + TIMEOUT_S - 5)
        assert not peer.connection.is_closed
        await pass_time(10)
        assert peer.connection.is_closed

    played(scenario)


def test_a_login_whose_answers_each_come_in_time_is_waited_for() -> None:
    """Also where what was sent before it, or a pause of the broker, holds it up."""
    step_s = TIMEOUT_S - 5

    async def run() -> None:
        paces = itertools.cycle([step_s, 0.0])
        broker = Broker(lifetime_ms=1000)
        security = Security("P", sasl=Sasl("PLAIN", "srm", "secret"), request_timeout_s=TIMEOUT_S)
        async with connected(broker, security) as connection:
            broker.pace = lambda: next(paces)
            await pass_time(1.0)  # the session is over
            answer = connection.request(Api(ECHO, 0, False, as_it_is), [b"x"])
            for number, key in enumerate((HANDSHAKE, AUTHENTICATE, ECHO), start=3):
                await happens(lambda n=number: len(broker.keys) == n, f"request {number}")
                assert broker.keys[-1] == key
                await pass_time(step_s)
            await happens(answer.done, "the answer")
            await answer

    run_still(run())


def test_a_short_deadline_is_not_kept_waiting_by_a_long_one() -> None:
    async def scenario(peer: Peer) -> None:
        poll = peer.connection.request(Api(0, 0, False, as_it_is), [b"x"], wait_s=1000.0)
        await peer.say(struct.pack(">i", 4) + (await peer.read())[:4])
        await poll
        peer.send(b"y")
        await settle()
        await pass_time(TIMEOUT_S + 1)
        assert peer.connection.is_closed

    played(scenario)


def test_a_connection_on_which_nothing_is_due_stays_open() -> None:
    async def scenario(peer: Peer) -> None:
        answer = peer.send(b"x")
        await peer.say(struct.pack(">i", 4) + (await peer.read())[:4])
        await answer
        await pass_time(100 * TIMEOUT_S)
        assert not peer.connection.is_closed
        late = peer.send(b"y")
        await peer.say(struct.pack(">i", 4) + (await peer.read())[:4])
        await late

    played(scenario)


def test_the_kernel_asks_idle_brokers_and_gives_up_dead_ones() -> None:
    async def scenario(peer: Peer) -> None:
        sock = peer.connection._sock
        assert isinstance(sock, socket.socket)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = {
            name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
            if hasattr(socket, name)
        }
        idle_s = options["TCP_KEEPIDLE"] + options["TCP_KEEPINTVL"] * options["TCP_KEEPCNT"]
        assert idle_s <= TIMEOUT_S

    played(scenario)


def test_request_timeout_ms_is_the_deadline() -> None:
    """The loader calls it by librdkafka's name."""
    security = read_security("P", {"socket.timeout.ms": "1500"})

    assert security.request_timeout_s == 1.5
    assert security.connect_timeout_s == 1.5
    assert read_security("P", {}).request_timeout_s == 30.0
