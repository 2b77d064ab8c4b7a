"""Produce requests and futures: tests wait for answers where the product is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.wire.connection import settle
from srm.replication.buffers import BufferPool, PooledBuffer
from srm.replication.ports import ProduceAnswer, ProduceRequest, Wire

Answered = Callable[[ProduceAnswer | UnavailableError], None]


def buffer_of(data: bytes) -> PooledBuffer:
    """Return an answer's bytes as a connection hands them over."""
    buffer = BufferPool().take(len(data))
    buffer.data[: len(data)] = data
    return buffer


def as_it_is(body: PooledBuffer) -> PooledBuffer:
    """Decode nothing."""
    return body


def produced(
    wire: Wire, node: int, *requests: Sequence[tuple[TopicPartition, memoryview]]
) -> list[asyncio.Future[ProduceAnswer]]:
    """Send requests; return a future for each."""
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[ProduceAnswer]] = [loop.create_future() for _ in requests]

    wire.produce(
        node,
        [
            ProduceRequest(batches, partial(settle, future))
            for batches, future in zip(requests, answers, strict=True)
        ],
    )
    return answers


def telling(answered: Answered) -> asyncio.Future[ProduceAnswer]:
    """Return a future by which the test answers."""

    def tell(answer: asyncio.Future[ProduceAnswer]) -> None:
        error = answer.exception()
        answered(error if isinstance(error, UnavailableError) else answer.result())

    future: asyncio.Future[ProduceAnswer] = asyncio.get_running_loop().create_future()
    future.add_done_callback(tell)
    return future
