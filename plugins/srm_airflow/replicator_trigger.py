"""Trigger of the replicator: watches its heartbeats in Kafka without holding a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from srm.clock import now_ms
from srm.config.loader import load_config
from srm.domain.names.topics import Flow
from srm.engine.flows import driver_requests, supervision
from srm.engine.flows.supervision import StateTopics, Watch
from srm.errors import SrmError
from srm.spark.replication.supervisor import LOOK_EVERY_S, Application, progress, requester
from srm_airflow.rest import AirflowRest
from srm_airflow.settings import dag_id


def flows_state(config_path: str, flows: Sequence[str]) -> AbstractContextManager[StateTopics]:
    """Open the state topics of flows, with clients of their own."""
    from srm.wiring import open_state_topics  # noqa: PLC0415 - brings the Kafka clients

    return open_state_topics(load_config(config_path), [Flow.parse(flow) for flow in flows])


class ReplicatorTrigger(BaseTrigger):
    """Wakes its task up when the application has ended in good order, or sends no heartbeats.

    Args:
        config_path: srm's properties file, readable by the triggerer.
        flows: replication flows as ``A->B``.
        application: the started or found application, as a dictionary.
        look_every_s: seconds between two looks.
    """

    def __init__(
        self,
        *,
        config_path: str,
        flows: Sequence[str],
        application: Mapping[str, Any],
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        super().__init__()
        self.config_path = config_path
        self.flows = list(flows)
        self.application = dict(application)
        self.look_every_s = look_every_s
        self._rest: AirflowRest | None = None
        self._shown = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class and arguments, with which another triggerer continues."""
        names = ("config_path", "flows", "application", "look_every_s")
        kwargs = {name: getattr(self, name) for name in names}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the heartbeats until the application has ended or is lost."""
        stack = ExitStack()
        try:
            yield await self._outcome(stack)
        finally:
            await asyncio.to_thread(stack.close)

    async def on_kill(self) -> None:
        """Request the application to end: its task was cleared or marked. Airflow 3.3 calls it."""
        await asyncio.to_thread(self._request_end)

    async def _outcome(self, stack: ExitStack) -> TriggerEvent:
        application, watch = Application(**self.application), None
        while True:
            try:
                if watch is None:
                    opened = flows_state(self.config_path, self.flows)
                    topics = await asyncio.to_thread(stack.enter_context, opened)
                    watch = Watch.over(topics, time.monotonic(), application.driver)
                found = await asyncio.to_thread(supervision.look, topics)
            except SrmError as error:
                if not error.retriable:
                    return TriggerEvent({"state": "failed", "message": str(error)})
                self.log.warning("%s", error)
            else:
                now = time.monotonic()
                watch = watch.after(found, now)
                verdict = watch.verdict(now)
                await asyncio.to_thread(self._show, progress(verdict, application, watch))
                if verdict in {"ended", "lost"}:
                    return TriggerEvent({"state": verdict, "application": self.application})
            await asyncio.sleep(self.look_every_s)

    def _show(self, shown: Mapping[str, Any]) -> None:
        if shown["state"] != self._shown:
            self._shown = shown["state"]
            self.log.info("The replicator is %s", self._shown)
        ti = self.task_instance
        if ti is not None:
            self._rest = self._rest or AirflowRest(ti.dag_id, ti.run_id)
            self._rest.set_progress(ti.task_id, ti.map_index, shown)

    def _request_end(self) -> None:
        try:
            with flows_state(self.config_path, self.flows) as topics:
                by = requester(dag_id("replication"))
                driver_requests.request_end(topics, "restart", by, now_ms())
        except SrmError as error:
            self.log.warning("The request to end the replicator was not written: %s", error)
