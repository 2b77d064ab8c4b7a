"""Metrics windows as they end: the thread of a driver that follows its flow's raw metrics.

Nothing is kept between two runs. A thread that begins, or begins again, reads the raw records of
the look-back, computes all windows and writes those not stored so already; then only those
that new records belong to. Two drivers write equal windows. It begins again where the wall clock
was set: while that was ahead, it has forgotten what is needed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from srm.domain.names import internal_topics
from srm.engine.control.compacted import ensure_compacted
from srm.engine.metrics.metrics import KeptWindows, WindowSpec, store
from srm.engine.ports import FlowContext
from srm.errors import SrmError

logger = logging.getLogger(__name__)

RETRY_S: Final = 5.0
_LATE_MS: Final = 2_000
"""Slots write a little later than once in an interval: a window waits, or it is written twice."""
_CATCH_UP_S: Final = 1.0
_COMPARISONS: Final = 2
"""Full comparisons of stored windows in each look-back: lost ones return, unused ones go."""


class RawLog(Protocol):
    """Raw records from a time on; see :class:`srm.kafka.tables.topic_tail.KafkaTopicTail`."""

    @property
    def caught_up(self) -> bool:
        """True once all records present at the first look were returned."""
        ...

    @property
    def rewound(self) -> bool:
        """True if records were returned again."""
        ...

    def poll(self, timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        """Return new keys and values, waiting so long for the first."""
        ...


OpenLog = Callable[[int], AbstractContextManager[RawLog]]
"""Opens the raw records from a timestamp (epoch ms) on."""


def keep_windows(
    context: FlowContext,
    open_log: OpenLog,
    stop: threading.Event,
    spec: WindowSpec | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Write windows until ``stop``, within a slide's beginning; log failures once and wait."""
    if not context.config.metrics_windows_continuous:
        return
    flow, chosen = context.config.flow, spec or WindowSpec()
    failing = False
    while not stop.is_set():
        keeper = _Keeper(context, chosen, clock)
        try:
            with open_log(keeper.since_ms) as log:
                keeper.catch_up(log, stop)
                while not log.rewound:
                    failing = False
                    if stop.wait(keeper.until_next_slide_s()):
                        return
                    if keeper.clock_was_set:
                        break
                    keeper.slide(log)
        except Exception as error:  # or there would be none until a restart
            if not failing:
                told = "%s: no metrics windows for now: %s"
                known = isinstance(error, SrmError)
                logger.warning(told, flow, error, exc_info=None if known else error)
            failing = True
            stop.wait(RETRY_S)


class _Keeper:
    def __init__(self, context: FlowContext, spec: WindowSpec, clock: Callable[[], float]) -> None:
        self._context = context
        self._spec = spec
        self._clock = clock
        self._windows = KeptWindows(context.config, spec)
        self._compare_at = 0.0
        self._has_topic = False
        self._began_ms = self._wall_ms()
        self.since_ms = self._windows.bounds(self._now_ms()).first_start_ms

    @property
    def clock_was_set(self) -> bool:
        """True if the wall clock and the monotonic clock have advanced differently."""
        return abs(self._wall_ms() - self._began_ms) > self._spec.slide_ms

    def catch_up(self, log: RawLog, stop: threading.Event) -> None:
        """Read the look-back and make what is stored equal to it."""
        while not log.caught_up and not stop.is_set():
            self._add(log, _CATCH_UP_S)
        if not stop.is_set():
            self._compare()

    def until_next_slide_s(self) -> float:
        """Return for how long nothing can be due."""
        last_end_ms = self._windows.bounds(self._now_ms()).last_end_ms
        return (self._spec.slide_ms - last_end_ms % self._spec.slide_ms) / 1000

    def slide(self, log: RawLog) -> None:
        """Take in what came, and write the windows that are complete and new or changed."""
        while self._add(log, 0.0):
            pass
        found = self._windows.take(self._now_ms())
        if self._clock() >= self._compare_at:
            self._compare()
        elif found:
            self._ensure_topic()
            table = self._context.target.compacted_topic(internal_topics.METRICS_WINDOWS)
            table.write({window.key(): window.value() for window in found})

    def _wall_ms(self) -> float:
        """Return what the wall clock said when the monotonic one began."""
        return self._context.now_ms() - self._clock() * 1000

    def _now_ms(self) -> int:
        return self._context.now_ms() - _LATE_MS

    def _add(self, log: RawLog, timeout_s: float) -> bool:
        found = log.poll(timeout_s)
        self._windows.add((value for _, value in found if value), self._now_ms())
        return bool(found)

    def _compare(self) -> None:
        now_ms = self._now_ms()
        self._windows.take(now_ms)
        found = self._windows.all(self._windows.bounds(now_ms))
        if found:
            self._ensure_topic()
        flow, keeping = self._context.config.flow, self._spec.keeping(now_ms)
        written, expired = store(self._context.target, flow, found, keeping)
        self._compare_at = self._clock() + self._spec.look_back_ms / _COMPARISONS / 1000
        logger.debug("%s: %d windows written, %d removed", flow, written, expired)

    def _ensure_topic(self) -> None:
        if self._has_topic:
            return
        config = self._context.config
        ensure_compacted(
            self._context.target,
            internal_topics.METRICS_WINDOWS,
            replication_factor=config.internal_replication_factor,
        )
        self._has_topic = True
