"""Consumer and producer for asyncio; as in confluent-kafka, a call runs in a thread pool."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka.aio import AIOConsumer, AIOProducer
from confluent_kafka.aio._common import ReentryContext, wrap_common_callbacks, wrap_conf_callback
from confluent_kafka.aio.producer._buffer_timeout_manager import BufferTimeoutManager
from confluent_kafka.aio.producer._kafka_batch_executor import ProducerBatchExecutor
from confluent_kafka.aio.producer._producer_batch_processor import ProducerBatchManager

from srm.client.consumer import FailoverConsumer, check_count
from srm.client.producer import FailoverProducer
from srm.client.settings import float_of

log = logging.getLogger(__name__)

_WORKERS: Final = 4


class FailoverAIOConsumer(AIOConsumer):
    """``confluent_kafka.aio.AIOConsumer`` for a group that moves.

    Callbacks are coroutine functions. Calls run one after the other; a call from within a callback
    runs at once. A cancelled ``poll`` or ``consume`` loses nothing: what it read, the next one
    returns. Another cancelled call runs to its end before the next one begins.

    Args:
        conf: properties, as for ``AIOConsumer``.
        executor: as for ``AIOConsumer``, with at least two threads; its own by default.
        arguments: those of :class:`FailoverConsumer`.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        *,
        executor: concurrent.futures.Executor | None = None,
        **arguments: Any,
    ) -> None:
        # Replaces AIOConsumer.__init__, which creates a plain consumer.
        self._closed = False
        self._owns_executor = executor is None
        self.executor = executor or concurrent.futures.ThreadPoolExecutor(_WORKERS)
        self._turn = asyncio.Lock()
        self._closing: asyncio.Future[Any] | None = None
        loop, wrapped = asyncio.get_running_loop(), dict(conf)
        wrap_common_callbacks(loop, wrapped)
        wrap_conf_callback(loop, wrapped, "on_commit")
        self._consumer = FailoverConsumer(wrapped, **arguments)

    async def _call(
        self,
        blocking_task: Callable[..., Any],
        *args: Any,
        finish: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a call in its turn; ``finish`` gets its result here, unless the caller is gone."""
        end = finish or (lambda result: result)
        if ReentryContext.current_lock() is not None:  # from within a callback of a call
            return end(await super()._call(blocking_task, *args, **kwargs))
        await self._turn.acquire()
        running = asyncio.ensure_future(super()._call(blocking_task, *args, **kwargs))
        try:
            result = end(await asyncio.shield(running))
        except asyncio.CancelledError:  # its thread still runs, and keeps the turn
            self._consumer._interrupted = True  # noqa: SLF001 -- one consumer in two classes
            running.add_done_callback(self._end_turn)
            raise
        except BaseException:
            self._end_turn()
            raise
        self._end_turn()
        return result

    def _end_turn(self, running: asyncio.Future[Any] | None = None) -> None:
        if running is not None and not running.cancelled() and (error := running.exception()):
            log.warning("a cancelled call failed: %s", error)
        self._consumer._interrupted = self._closing is not None  # noqa: SLF001
        self._turn.release()

    async def poll(self, timeout: float = -1) -> Any:  # noqa: ASYNC109 -- confluent-kafka's
        """As confluent-kafka's; what a cancelled read has read comes first."""
        found = await self._read(1, timeout)
        return found[0] if found else None

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> Any:  # noqa: ASYNC109
        """As confluent-kafka's; what a cancelled read has read comes first."""
        check_count(num_messages)
        return await self._read(num_messages, timeout)

    async def _read(self, count: int, wait_s: float) -> Any:
        """Wait in a thread, then take the messages here, where no cancellation can lose them."""
        consumer = self._consumer
        return await self._call(consumer._read, count, float_of(wait_s), finish=consumer._take)  # noqa: SLF001

    async def close(self) -> Any:
        """As confluent-kafka's; a running ``poll`` or ``consume`` returns early."""
        if self._closing is None:
            self._consumer._interrupted = True  # noqa: SLF001
            self._closing = asyncio.ensure_future(super().close())
        await asyncio.shield(self._closing)

    @property
    def cluster(self) -> str | None:
        """Alias of the cluster it reads from, None while it is held or not started."""
        return self._consumer.cluster

    async def done(self, message: Any) -> None:
        """Mark a message, and all before it in its partition, as processed."""
        await self._call(self._consumer.done, message)

    async def follow(self) -> None:
        """Leave now if the group is held; messages in hand do not count as processed."""
        await self._call(self._consumer.follow)


class FailoverAIOProducer(AIOProducer):
    """``confluent_kafka.aio.AIOProducer`` for topics that move.

    A call that waits for the end of a hold blocks a thread of the pool, not the event loop. A task
    that reads and writes calls :meth:`FailoverAIOConsumer.follow` before it begins a transaction.
    While the task waits, nothing else makes its consumer leave a held group.

    Args:
        conf: properties, as for ``AIOProducer``.
        executor: as for ``AIOProducer``; its own by default.
        batch_size: records per batch.
        buffer_timeout: seconds after which a smaller batch is sent.
        arguments: those of :class:`FailoverProducer`.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        *,
        executor: concurrent.futures.Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
        **arguments: Any,
    ) -> None:
        # Replaces AIOProducer.__init__, which creates a plain producer.
        self.executor = executor or concurrent.futures.ThreadPoolExecutor(_WORKERS)
        self._loop = asyncio.get_running_loop()
        wrapped = dict(conf)
        wrap_common_callbacks(self._loop, wrapped)
        self._producer = FailoverProducer(wrapped, **arguments)
        self._batch_size = batch_size
        self._is_closed = False
        self._kafka_executor = ProducerBatchExecutor(self._producer, self.executor)
        self._batch_processor = ProducerBatchManager(self._kafka_executor)
        self._buffer_timeout_manager = BufferTimeoutManager(
            self._batch_processor, self._kafka_executor, buffer_timeout
        )
        if buffer_timeout > 0:
            self._buffer_timeout_manager.start_timeout_monitoring()

    def cluster(self, topic: str) -> str | None:
        """Return the alias of the cluster the topic is written to, None while it is held."""
        return self._producer.cluster(topic)

    def count_unwritten(self, topic: str) -> int:
        """Return how many records wait; as :meth:`FailoverProducer.count_unwritten`."""
        return self._producer.count_unwritten(topic)

    async def close(self) -> None:
        """Deliver buffered records, then close the producer and its threads."""
        if self._is_closed:
            return
        try:
            await self.flush()
        finally:
            self._is_closed = True
            self._buffer_timeout_manager.stop_timeout_monitoring()
            try:
                await self._call(self._producer.close)
            finally:
                await asyncio.to_thread(self.executor.shutdown)
