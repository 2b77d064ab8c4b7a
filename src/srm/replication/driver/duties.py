"""Duties of the driver in charge besides the copy: checkpoints, offsets of groups, topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from srm import telemetry
from srm.engine.control import topic_sync
from srm.engine.control.recorded_copies import settings_now
from srm.engine.ports import FlowContext
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.jobs import Backoff

IDLE_S: Final = 1.0
"""Pause of a duty that is switched off, or of a driver that is not in charge."""


def keep(driver: FlowDriver, what: str, step: Callable[[], float], stop: threading.Event) -> None:
    """Repeat a step until ``stop`` while the driver is in charge, after the seconds it returns."""
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


def keep_topics(
    driver: FlowDriver, current: Callable[[], FlowContext], stop: threading.Event
) -> None:
    """Keep remote topics and their ACLs like their sources, at the shorter of both intervals."""

    def step() -> float:
        context = current()
        settings = settings_now(context.config, context.source, context.target)
        context = replace(context, config=settings)
        with telemetry.span("topics.sync", flow=str(context.config.flow)) as span:
            span.result(topic_sync.sync(context))
        config = context.config
        every = min(config.sync_topic_configs_interval, config.sync_topic_acls_interval)
        return every.total_seconds()

    keep(driver, "topic sync", step, stop)
