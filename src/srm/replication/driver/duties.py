"""Duties of the driver in charge besides the copy: checkpoints, offsets of groups, topics.

They call the same functions as the commands and the tasks of Airflow. A failure is reported once
while it stays the same, and tried again; it stops no other work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from srm import telemetry
from srm.engine import emission
from srm.engine.control import control_lists, topic_sync
from srm.engine.groups import group_sync
from srm.engine.ports import FlowContext
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.jobs import Backoff

logger = logging.getLogger(__name__)

IDLE_S: Final = 1.0
"""Pause of a duty that is switched off, or of a driver that is not in charge."""


def keep(driver: FlowDriver, what: str, step: Callable[[], float], stop: threading.Event) -> None:
    """Repeat a step until ``stop`` while the driver is in charge.

    Args:
        driver: of the flow; it reports failures.
        what: the duty, for messages.
        step: does what is due, and returns the seconds until something may be due again.
        stop: ends it.
    """
    backoff, troubles = Backoff(), driver.progress.duty_troubles
    while not stop.is_set():
        tried, wait_s = time.monotonic(), IDLE_S
        if driver.is_in_charge:
            try:
                wait_s = step()
                troubles.end(what)
                backoff = Backoff()
            except Exception as error:  # noqa: BLE001 -- it is reported, and tried again
                troubles.report(what, error)
                wait_s = backoff.after(time.monotonic() - tried)
        stop.wait(max(0.0, wait_s))


def with_lists(context: FlowContext) -> FlowContext:
    """Return a flow with the lists of srm-control as they are now.

    Raises:
        SrmError: the target does not answer.
    """
    lists = control_lists.load(context.target, context.config.flow)
    return replace(context, config=control_lists.effective(context.config, lists))


def keep_topics(driver: FlowDriver, context: FlowContext, stop: threading.Event) -> None:
    """Keep remote topics and their ACLs like their sources, at the shorter of both intervals."""
    config = context.config
    every = min(config.sync_topic_configs_interval, config.sync_topic_acls_interval)

    def step() -> float:
        with telemetry.span("topics.sync", flow=str(context.config.flow)) as span:
            span.result(topic_sync.sync(with_lists(context)))
        return every.total_seconds()

    keep(driver, "topic sync", step, stop)


class GroupDuty:
    """Checkpoints and group offset sync of one flow, at their intervals.

    Args:
        driver: of the flow; ``duties`` name which of the two are its own.
        context: the flow by its settings, with clients of its own.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        driver: FlowDriver,
        context: FlowContext,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._context = context
        self._clock = clock
        self._emit_at = self._sync_at = float("-inf")
        self._unread: Mapping[str, str] = {}

    def keep(self, stop: threading.Event) -> None:
        """Do both until ``stop``."""
        keep(self._driver, "checkpoints and group offsets", self.step, stop)

    def step(self) -> float:
        """Do what is due; return the seconds until something is due again."""
        context = with_lists(self._context)
        config, duties, now = context.config, self._driver.duties, self._clock()
        emits = config.emit_checkpoints_enabled and "checkpoints" in duties
        syncs = config.sync_group_offsets_enabled and "group-offsets" in duties
        every_s = config.emit_checkpoints_interval.total_seconds()
        sync_s = config.sync_group_offsets_interval
        if emits and now >= self._emit_at:
            with telemetry.span("checkpoints.emit", flow=str(config.flow)) as span:
                span.result(emitted := emission.emit(context))
            self._warn(emitted.errors)
            self._emit_at = now + every_s
            self._sync_at = now if sync_s is None else self._sync_at
        if syncs and now >= self._sync_at:
            with telemetry.span("groups.sync", flow=str(config.flow)) as span:
                span.result(synced := group_sync.sync(context))
            self._warn(synced.errors)
            self._sync_at = now + (every_s if sync_s is None else sync_s.total_seconds())
        due = [at for at, on in ((self._emit_at, emits), (self._sync_at, syncs)) if on]
        return min(due, default=now + IDLE_S) - self._clock()

    def _warn(self, unread: Mapping[str, str]) -> None:
        for group, reason in unread.items():
            if self._unread.get(group) != reason:
                logger.warning("%s: group %s: %s", self._context.config.flow, group, reason)
        self._unread = unread
