"""One slot inside a Spark task: one event loop, one source and one target cluster.

How it ends. Spark does not notify a Python worker that its job was cancelled. It kills the worker
(``spark.python.task.killTimeout`` later), and claims prevent damage. When the application ends,
Spark's worker daemon hangs up on its workers. The slot then stops and writes its last positions,
and the process is gone after ``LINGER_S`` at most. A new assignment, not a restart, changes what a
slot copies.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from srm import logs
from srm.clock import now_ms
from srm.domain.names.record_headers import ClusterIds
from srm.engine.cluster_ports import cluster_ids
from srm.errors import ConflictError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.state.slot_state import KafkaAssignmentFeed, MapStarts
from srm.kafka.state.writers import KafkaStateLog
from srm.kafka.wire.cluster import WireCluster, open_wire
from srm.logs import LogFormat
from srm.replication.claim import ClaimLifetime
from srm.replication.copy.claiming import SlotContext
from srm.replication.copy.fetching import Quota
from srm.replication.copy.slot import Slot, SlotSpec
from srm.replication.report import Reporter

LINGER_S: Final = 2.0

SlotFunction = Callable[[SlotSpec, threading.Event], None]

_LOOK_S: Final = 1.0


def run_slot(spec: SlotSpec, stop: threading.Event) -> None:
    """Copy what the slot is assigned until ``stop``; after an SrmError start it again."""
    asyncio.run(_run(spec, stop))


def _cluster_ids(spec: SlotSpec, target: KafkaCluster) -> ClusterIds:
    with KafkaCluster(spec.flow_config.flow.source, spec.source) as source:
        return cluster_ids(spec.flow_config.records, source, target)


async def _unless_replaced(work: Coroutine[Any, Any, None], wires: Collection[WireCluster]) -> None:
    """Run until the end, or a cluster was replaced (ConflictError): then the slot restarts."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_LOOK_S)
            for wire in wires:
                if wire.replaced_by:
                    raise ConflictError(
                        f"{wire.alias} is another cluster now, {wire.replaced_by}: the slot "
                        "restarts"
                    )
    finally:
        task.cancel()
        await asyncio.wait([task])
    task.result()


async def _run(spec: SlotSpec, stop: threading.Event) -> None:
    config = spec.flow_config
    flow = config.flow
    target_state = KafkaStateLog(flow.target, spec.target.producer)
    syncs = target_state
    if config.offset_syncs_location == "source":
        syncs = KafkaStateLog(flow.source, spec.source.producer)
    async with AsyncExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(flow.target, spec.target))
        for log in {target_state, syncs}:
            stack.callback(log.close)
        # Who copies reads as a consumer and writes as a producer, in the eyes of brokers too. What
        # resume reads on the target it reads as the producer that continues there.
        source, target, commands = [
            await stack.enter_async_context(open_wire(alias, properties))
            for alias, properties in (
                (flow.source, spec.source.consumer),
                (flow.target, spec.target.producer),
                (flow.target, spec.target.consumer),
            )
        ]
        ids = await asyncio.to_thread(_cluster_ids, spec, cluster)
        context = SlotContext(
            config,
            source,
            target,
            Reporter(config, spec.slot, target_state, syncs, now_ms),
            now_ms,
            ClaimLifetime(partial(asyncio.to_thread, cluster.broker_configs)),
            Quota(config.max_bytes_per_second),
            ids,
        )
        feed = KafkaAssignmentFeed(flow, spec.slot, commands)
        slot = Slot(context, feed, MapStarts(flow, cluster), spec.driver)
        await _unless_replaced(slot.run(stop), (source, target))


@dataclass(frozen=True)
class SlotTask:
    """The function that Spark calls in the worker, pickled by reference, until the slot ends."""

    spec: SlotSpec
    log_level: int
    log_format: LogFormat = "text"
    run: SlotFunction = run_slot

    def __call__(self, elements: Iterable[int]) -> None:
        for _ in elements:  # the one that makes Spark start the task
            pass
        logs.prefer(self.log_format)
        process = {"flow": str(self.spec.flow_config.flow), "slot": self.spec.slot}
        logs.set_up(srm=self.log_level, process=process)
        # What it has to say about connections comes back as the error of the call, in our words.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        stop = threading.Event()
        signal.signal(signal.SIGHUP, lambda _number, _frame: _hang_up(stop))
        self.run(self.spec, stop)
        if stop.is_set():
            os._exit(0)  # the socket to Spark is closed: a return would only print a stack trace


def _hang_up(stop: threading.Event) -> None:
    # Spark hangs up twice, and a second call inside stop.set() would wait for its lock for ever.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    timer = threading.Timer(LINGER_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    stop.set()
