"""Blocking connection to one broker with the two most frequent requests of the bench.

A client library would cost as much as some figures: 64 log ends fifty times a second, or a gigabyte
of prepared batches. The layouts are ListOffsetsRequest.json version 2 and ProduceRequest.json
version 8 of Apache Kafka. The only broker of a cluster leads all partitions.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from bench.errors import BenchError

_PRODUCE: Final = (0, 8)
_LIST_OFFSETS: Final = (2, 2)
_LATEST: Final = -1
_UNKNOWN_TOPIC: Final = 3
_STILL_COMING: Final = frozenset({_UNKNOWN_TOPIC, 5, 6})  # topic, leader, leadership
_TIMEOUT_S: Final = 60.0
_IN_FLIGHT: Final = 8
_READY_S: Final = 60.0


class BrokerSocket:
    """Sends requests and reads their answers, in order."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._reader.close()
        self._socket.close()

    def send(self, api: tuple[int, int], parts: Sequence[bytes]) -> None:
        """Send one request; its answer is the next one not yet read."""
        header = struct.pack(">hhih", *api, 0, 5) + b"bench"
        size = len(header) + sum(map(len, parts))
        self._socket.sendall(b"".join((struct.pack(">i", size), header, *parts)))

    def receive(self) -> bytes:
        """Read the body of the next answer."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]

    def _exactly(self, count: int) -> bytes:
        data = self._reader.read(count)
        if len(data) < count:
            raise BenchError("a broker closed the bench's connection")
        return data

    def log_ends(self, partitions: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """Return the log end of each partition of the topics; 0 if the topic does not exist yet."""
        parts = [struct.pack(">ibi", -1, 0, len(partitions))]
        for topic, count in partitions.items():
            parts.append(_text(topic) + struct.pack(">i", count))
            parts.extend(struct.pack(">iq", number, _LATEST) for number in range(count))
        self.send(_LIST_OFFSETS, parts)
        return _read_log_ends(self.receive())

    def copied(self, topic: str, partitions: int) -> int:
        """Return the sum of a topic's log ends."""
        return sum(self.log_ends({topic: partitions}).values())

    def fill(self, topic: str, requests: Iterable[Mapping[int, bytes]]) -> None:
        """Append requests: each mapping is one, with a batch for each of its partitions.

        Raises:
            BenchError: the broker refuses one.
        """
        left = iter(requests)
        for request in left:
            self._first(topic, request)
            break
        self.append((topic, request) for request in left)

    def append(self, requests: Iterable[tuple[str, Mapping[int, bytes]]]) -> None:
        """Append to topics that hold records: each mapping is one request for a topic.

        Raises:
            BenchError: the broker refuses one.
        """
        waiting: deque[str] = deque()
        for topic, request in requests:
            self.send(_PRODUCE, _produce_parts(topic, request))
            waiting.append(topic)
            if len(waiting) >= _IN_FLIGHT:
                self._check(waiting.popleft())
        for topic in waiting:
            self._check(topic)

    def _first(self, topic: str, request: Mapping[int, bytes]) -> None:
        """Send the first request until the new topic's partitions have leaders."""
        left = dict(request)
        deadline = time.monotonic() + _READY_S
        while left:
            self.send(_PRODUCE, _produce_parts(topic, left))
            errors = _read_produced(self.receive())
            left = {n: batch for n, batch in left.items() if errors[n] in _STILL_COMING}
            refused = {n: e for n, e in errors.items() if e and e not in _STILL_COMING}
            if refused or time.monotonic() > deadline:
                raise BenchError(f"{topic} cannot be filled: error codes {refused or errors}")
            if left:
                time.sleep(0.02)

    def _check(self, topic: str) -> None:
        errors = {n: error for n, error in _read_produced(self.receive()).items() if error}
        if errors:
            raise BenchError(f"{topic} cannot be filled: error codes {errors}")


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _produce_parts(topic: str, batches: Mapping[int, bytes]) -> list[bytes]:
    parts = [struct.pack(">hhii", -1, 1, int(_TIMEOUT_S * 1000), 1), _text(topic)]
    parts.append(struct.pack(">i", len(batches)))
    for number, batch in batches.items():
        parts += [struct.pack(">ii", number, len(batch)), batch]
    return parts


def _read_text(body: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", body, at)
    if length < 0:
        return "", at + 2
    return body[at + 2 : at + 2 + length].decode(), at + 2 + length


def _read_log_ends(body: bytes) -> dict[tuple[str, int], int]:
    ends = {}
    (topics,) = struct.unpack_from(">i", body, 4)
    at = 8
    for _ in range(topics):
        topic, at = _read_text(body, at)
        (count,) = struct.unpack_from(">i", body, at)
        at += 4
        for number, error, _, offset in struct.iter_unpack(">ihqq", body[at : at + 22 * count]):
            ends[topic, number] = offset if error == 0 else 0
        at += 22 * count
    return ends


def _read_produced(body: bytes) -> dict[int, int]:
    """Return the error code of each partition of the one topic.

    The answer names a new topic twice where the broker does not know all of its partitions yet.
    """
    (topics,), at = struct.unpack_from(">i", body), 4
    errors = {}
    for _ in range(topics):
        _, at = _read_text(body, at)
        (count,) = struct.unpack_from(">i", body, at)
        at += 4
        for _ in range(count):
            number, error = struct.unpack_from(">ih", body, at)
            errors[number] = error
            (notes,) = struct.unpack_from(">i", body, at + 30)
            at += 34
            for _ in range(notes):
                _, at = _read_text(body, at + 4)
            _, at = _read_text(body, at)
    return errors
