"""One connection against a broker of the test: bytes, order, TLS and logins."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.certificates import Authority
from tests.waiting import until
from tests.wires import as_it_is

from srm.errors import AuthorizationError, ConfigError, UnavailableError
from srm.kafka.wire.connection import Api, Connection, settle
from srm.kafka.wire.login import SecurityAccess
from srm.kafka.wire.messages import BYTES, CLASSIC, Fixed, Message, Structure
from srm.kafka.wire.requests import API_VERSIONS
from srm.kafka.wire.security import Sasl, Security, Tls
from srm.replication.buffers import BufferPool, PooledBuffer

HANDSHAKE, AUTHENTICATE, ECHO = 17, 36, 0
LOOK = Message(3, 0, Structure({"asked": BYTES}), Structure({"sum": Fixed("32s")}), CLASSIC)
BIG = 3_000_000


@dataclass
class Broker:
    """Answers each request in its turn: logins, and everything else with the sum of its bytes."""

    password: str = "secret"
    lifetime_ms: int = 0
    answer_bytes: int = 0
    piece_bytes: int = 1 << 30
    pace: Callable[[], float] = lambda: 0.0
    keys: list[int] = field(default_factory=list)
    first_bytes: bytes = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.first_bytes:
            writer.write(self.first_bytes)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                key, _, correlation_id = struct.unpack_from(">hhi", request)
                self.keys.append(key)
                answer = struct.pack(">i", correlation_id) + self._answer(key, request[13:])
                answer = struct.pack(">i", len(answer)) + answer
                await asyncio.sleep(self.pace())
                for at in range(0, len(answer), self.piece_bytes):
                    writer.write(answer[at : at + self.piece_bytes])
                    await writer.drain()
                    await asyncio.sleep(self.pace())
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()

    def _answer(self, key: int, body: bytes) -> bytes:
        if key == HANDSHAKE:
            return struct.pack(">hih", 0, 1, 5) + b"PLAIN"
        if key == AUTHENTICATE:
            if body[4:].split(b"\0")[2].decode() != self.password:
                return struct.pack(">hhiq", 58, -1, 0, 0)
            return struct.pack(">hhiq", 0, -1, 0, self.lifetime_ms)
        return hashlib.sha256(body).digest() + bytes(self.answer_bytes)


@asynccontextmanager
async def connected(
    broker: Broker, security: Security, certificate: ssl.SSLContext | None = None
) -> AsyncIterator[Connection]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=certificate)
    port = server.sockets[0].getsockname()[1]
    try:
        access = SecurityAccess(security)
        connection = await Connection.open("127.0.0.1", port, BufferPool(), access)
        connection.versions = {ECHO: (0, 0)}
        try:
            yield connection
        finally:
            connection.close()
    finally:
        server.close()


def login(password: str = "secret") -> Security:  # noqa: S107 - the test broker's
    return Security("P", sasl=Sasl("PLAIN", "srm", password))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Security, ssl.SSLContext]:
    authority = Authority()
    broker = authority.broker("127.0.0.1")
    file = Path(tmp_path_factory.mktemp("tls"), "broker.pem")
    file.write_text(broker.pem + broker.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return Security("P", tls=Tls(ca_pem=authority.own.pem)), context


def echo(connection: Connection, parts: list[bytes]) -> asyncio.Future[PooledBuffer]:
    return connection.request(Api(ECHO, 0, False, as_it_is), parts)


def told(connection: Connection, least: int) -> asyncio.Future[PooledBuffer]:
    """Send a request whose answer is known to have some bytes at least."""
    future: asyncio.Future[PooledBuffer] = asyncio.get_running_loop().create_future()

    connection.send(Api(ECHO, 0, False, as_it_is), [b"x"], partial(settle, future), least)
    return future


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return two ends, the second one non-blocking."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    ours.setblocking(False)
    return theirs, ours


def digest(body: PooledBuffer) -> bytes:
    return bytes(body.data[4:36])


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
def test_pipelined_requests_of_any_size_arrive_whole_and_are_answered_in_order(
    encrypted: tuple[Security, ssl.SSLContext], *, is_encrypted: bool
) -> None:
    """Sends more than sockets hold, in small and large parts, while large answers come back."""
    requests = [
        [os.urandom(size) for size in sizes]
        for sizes in (
            [60],
            [60, BIG],
            [20, 3_000, 70, 40_000, 1],
            [BIG, 10, BIG],
            [1] * 700,
            [16_384],
            [0],
            [7, 0, 7],
        )
    ] * 2

    async def run() -> list[bytes]:
        security, context = encrypted if is_encrypted else (Security("P"), None)
        async with connected(Broker(answer_bytes=BIG), security, context) as connection:
            answers = await asyncio.gather(*[echo(connection, parts) for parts in requests])
            return [digest(body) for body in answers]

    assert asyncio.run(run()) == [hashlib.sha256(b"".join(r)).digest() for r in requests]


@given(
    st.lists(
        st.one_of(st.integers(0, 9), st.integers(16_370, 16_390), st.just(50_000)), max_size=6
    ),
    st.lists(st.one_of(st.integers(1, 9), st.integers(10, 20_000)), min_size=1, max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_answers_are_the_same_however_their_bytes_are_cut(
    sizes: list[int], pieces: list[int]
) -> None:
    """Several in one piece, one in many, and pieces that end within a length."""
    bodies = [struct.pack(">i", number + 1) + os.urandom(n) for number, n in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)

    async def run() -> list[bytes]:
        theirs, ours = socket.socketpair()
        ours.setblocking(False)
        connection = Connection(ours, "here", BufferPool(), SecurityAccess(Security("P")))
        answers = [told(connection, len(body)) for body in bodies]
        at = 0
        for size in itertools.cycle([*pieces, 5000]):
            if at >= len(stream):
                break
            theirs.sendall(stream[at : at + size])
            at += size
            await asyncio.sleep(0)
        await until(lambda: all(answer.done() for answer in answers))
        connection.close()
        theirs.close()
        return [bytes(a.result().data[: len(b)]) for a, b in zip(answers, bodies, strict=True)]

    assert asyncio.run(run()) == bodies


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Who looked for what has come, each time."""
    looked: list[Connection] = []
    receive = Connection._receive

    def counted(connection: Connection) -> None:
        looked.append(connection)
        receive(connection)

    monkeypatch.setattr(Connection, "_receive", counted)
    return looked


def test_an_answer_that_comes_in_pieces_is_an_event_per_half_megabyte(
    events: list[Connection],
) -> None:
    pieces = 64
    broker = Broker(answer_bytes=pieces << 16, piece_bytes=1 << 16, pace=lambda: 0.001)

    async def run() -> bytes:
        async with connected(broker, Security("P")) as connection:
            return digest(await echo(connection, [b"1"]))

    assert asyncio.run(run()) == hashlib.sha256(b"1").digest()
    assert len(events) < pieces // 4


def test_many_small_answers_are_few_events(events: list[Connection]) -> None:
    """As long as the broker has several to give; none of them waits for one that is late."""
    requests = 64

    async def run() -> int:
        theirs, ours = tcp_pair()
        connection = Connection(ours, "here", BufferPool(), SecurityAccess(Security("P")))
        answers = [told(connection, 36) for _ in range(requests)]
        for number in range(1, requests):
            theirs.sendall(struct.pack(">ii", 36, number) + bytes(32))
            await asyncio.sleep(0)
        seen = len(events)
        await until(lambda: all(answer.done() for answer in answers[:-1]))
        is_due = not answers[-1].done()
        connection.close()
        theirs.close()
        await asyncio.wait(answers)
        assert answers[-1].exception() is not None
        return seen if is_due else requests

    assert asyncio.run(run()) < requests // 4


def test_an_answer_does_not_wait_for_a_later_one_that_is_slow() -> None:
    """Nor where it comes only after nothing was found at first."""

    async def run() -> int:
        theirs, ours = tcp_pair()
        connection = Connection(ours, "here", BufferPool(), SecurityAccess(Security("P")))
        answers = [told(connection, 36) for _ in range(8)]
        await asyncio.sleep(0.05)  # several looks find nothing
        theirs.sendall(struct.pack(">ii", 36, 1) + bytes(32))
        await until(lambda: any(answer.done() for answer in answers))
        found = sum(answer.done() for answer in answers)
        connection.close()
        theirs.close()
        await asyncio.wait(answers)
        assert answers[-1].exception() is not None
        return found

    assert asyncio.run(run()) == 1


@pytest.mark.parametrize(
    "stream",
    [struct.pack(">i", -1), struct.pack(">i", 3), struct.pack(">ii", 6, 1) + b"??"],
    ids=["negative", "too short", "undecodable"],
)
def test_an_answer_that_is_none_ends_the_connection(stream: bytes) -> None:
    """Nothing behind it can be read, and whoever waits is told."""

    def decode(body: PooledBuffer) -> int:
        return int(struct.unpack_from(">q", body.data)[0])

    async def run() -> tuple[BaseException | None, bool]:
        theirs, ours = tcp_pair()
        connection = Connection(ours, "here", BufferPool(), SecurityAccess(Security("P")))
        answer = connection.request(Api(ECHO, 0, False, decode), [b"x"])
        theirs.sendall(stream)
        await until(answer.done)
        theirs.close()
        return answer.exception(), connection.is_closed

    error, closed = asyncio.run(run())

    assert isinstance(error, UnavailableError)
    assert "answer" in str(error)
    assert closed


def test_an_answer_that_cannot_be_decoded_is_an_error_of_the_connection() -> None:
    async def run() -> None:
        theirs, ours = tcp_pair()
        connection = Connection(ours, "here", BufferPool(), SecurityAccess(Security("P")))
        theirs.sendall(struct.pack(">iih", 6, 1, 0))  # no list of versions after the error code
        with pytest.raises(UnavailableError, match="here: unreadable answer"):
            await connection.query(API_VERSIONS())
        theirs.close()
        assert connection.is_closed

    asyncio.run(run())


@pytest.mark.parametrize("error", [IndexError("1"), ValueError("2"), KeyError("3")])
def test_whatever_a_decoder_fails_with_who_waits_is_told(error: Exception) -> None:
    def decode(_body: PooledBuffer) -> int:
        raise error

    async def run() -> None:
        theirs, ours = tcp_pair()
        connection = Connection(ours, "here", BufferPool(), SecurityAccess(Security("P")))
        answer = connection.request(Api(ECHO, 0, False, decode), [b"x"])
        theirs.sendall(struct.pack(">ii", 6, 1) + b"??")
        async with asyncio.timeout(5):
            with pytest.raises(UnavailableError, match="here: unreadable answer"):
                await answer
        theirs.close()
        assert connection.is_closed

    asyncio.run(run())


def test_who_fails_at_an_answer_does_not_keep_others_from_theirs() -> None:
    async def run() -> int:
        theirs, ours = tcp_pair()
        connection = Connection(ours, "here", BufferPool(), SecurityAccess(Security("P")))
        seen: list[object] = []

        def fail(answer: object) -> None:
            seen.append(answer)
            raise RuntimeError

        connection.send(Api(ECHO, 0, False, as_it_is), [b"x"], fail, 36)
        last = told(connection, 36)
        theirs.sendall(b"".join(struct.pack(">ii", 36, n) + bytes(32) for n in (1, 2)))
        await until(last.done)
        connection.close()
        theirs.close()
        return len(seen)

    assert asyncio.run(run()) == 1


def test_requests_that_come_during_a_login_follow_it_in_their_order() -> None:
    """A broker that is in the middle of a login takes nothing else, and sessions here are short."""
    broker = Broker(lifetime_ms=20)
    broker.pace = lambda: 0.0 if broker.keys[-1] == ECHO else 0.005

    async def run() -> list[bytes]:
        sent: list[asyncio.Future[PooledBuffer]] = []
        async with connected(broker, login()) as connection:
            while broker.keys.count(HANDSHAKE) < 4:
                sent.append(echo(connection, [b"%d" % len(sent)]))
                await asyncio.sleep(0.001)  # the pace of the load
            return [digest(await answer) for answer in sent]

    answers = asyncio.run(run())

    assert answers == [hashlib.sha256(b"%d" % n).digest() for n in range(len(answers))]
    logins = [at for at, key in enumerate(broker.keys) if key == HANDSHAKE]
    assert all(broker.keys[at + 1] == AUTHENTICATE for at in logins)


def test_requests_of_the_control_plane_log_in_again_in_time_and_in_their_order() -> None:
    """A broker closes the connection at a request after the session's end (KIP-368)."""
    broker = Broker(lifetime_ms=20)

    async def run() -> list[bytes]:
        async with connected(broker, login()) as connection:
            answers = []
            while broker.keys.count(HANDSHAKE) < 4:
                sent = echo(connection, [b"%d" % len(answers)])
                await connection.query(LOOK(b"x" * 20))
                assert sent.done(), "sent before"
                answers.append(digest(await sent))
                await asyncio.sleep(0.001)  # the pace of the load
            return answers

    answers = asyncio.run(run())

    assert answers == [hashlib.sha256(b"%d" % n).digest() for n in range(len(answers))]
    logins = [at for at, key in enumerate(broker.keys) if key == HANDSHAKE]
    assert all(broker.keys[at + 1] == AUTHENTICATE for at in logins)


def test_a_request_of_the_control_plane_says_why_a_later_login_is_refused() -> None:
    broker = Broker(lifetime_ms=1)

    async def run() -> None:
        async with connected(broker, login()) as connection:
            broker.password = "another by now"
            await asyncio.sleep(0.01)  # the session ends
            with pytest.raises(AuthorizationError, match=r"check sasl\.username"):
                await connection.query(LOOK(b"x"))

    asyncio.run(run())


def test_a_login_that_is_refused_later_ends_the_connection_and_all_that_waits() -> None:
    broker = Broker(lifetime_ms=1)

    async def run() -> tuple[list[BaseException | None], bool]:
        async with connected(broker, login()) as connection:
            broker.password = "another by now"
            await asyncio.sleep(0.01)  # the session ends
            held = [echo(connection, [b"1"]), echo(connection, [b"2"])]
            await asyncio.wait(held)
            return [answer.exception() for answer in held], connection.is_closed

    errors, closed = asyncio.run(run())

    assert closed
    assert all(isinstance(error, UnavailableError) for error in errors)
    assert all("check sasl.username" in str(error) for error in errors)


def test_a_refused_login_opens_nothing() -> None:
    async def run() -> None:
        async with connected(Broker(), login("guessed")):
            pass

    with pytest.raises(AuthorizationError, match=r"^cluster P, broker .*: login refused"):
        asyncio.run(run())


def test_a_tls_alert_is_no_answer_of_352_megabytes() -> None:
    async def run() -> None:
        async with connected(Broker(first_bytes=b"\x15\x03\x03\x00\x02\x02\x50"), login()):
            pass

    with pytest.raises(ConfigError, match=r"the listener requires TLS; check security\.protocol"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("first_bytes", "text"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "HTTP"), (b"\x7f\xff\xff\xff", r"\\x7f\\xff\\xff\\xff")],
)
def test_a_listener_of_another_protocol_is_refused_without_memory_for_its_answer(
    first_bytes: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, take = list[int](), BufferPool.take
    monkeypatch.setattr(BufferPool, "take", lambda pool, size: sizes.append(size) or take(pool, 99))

    async def run() -> None:
        async with connected(Broker(first_bytes=first_bytes), login()):
            pass

    wanted = rf"^cluster P, broker .*:\d+ answers {text}, not Kafka; check bootstrap\.servers$"
    with pytest.raises(ConfigError, match=wanted):
        asyncio.run(run())
    assert sizes == []


def test_an_unknown_authority_is_refused(encrypted: tuple[Security, ssl.SSLContext]) -> None:
    stranger = Security("P", tls=Tls(ca_pem=Authority("other").own.pem))

    async def run() -> None:
        async with connected(Broker(), stranger, encrypted[1]):
            pass

    with pytest.raises(ConfigError, match=r"check ssl\.ca\.location"):
        asyncio.run(run())
