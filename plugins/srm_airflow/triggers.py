"""Triggers that hold no worker: one looks at a move's gate, one at a replicator's heartbeats."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Final

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from srm.config.loader import load_config
from srm.domain.moves.gate import SyncStatus
from srm.domain.names.topics import Flow
from srm.domain.text.amount import reasons_text
from srm.engine.flows import supervision
from srm.engine.flows.supervision import StateTopics, Watch
from srm.engine.moves import steps
from srm.engine.moves.context import MoveContext
from srm.engine.moves.holding import renew_now
from srm.engine.moves.store import MoveStore
from srm.errors import SrmError
from srm.pages.moves import progress_line, progress_summary
from srm.spark.supervisor import LOOK_EVERY_S, Application, progress, request_end, requester
from srm_airflow.alerts import FIELDS, Patience, notify
from srm_airflow.engine_calls import opened_move
from srm_airflow.rest import AirflowRest
from srm_airflow.settings import dag_id

PUBLISH_EVERY_S: Final = 1.0
REPEAT_LINE_S: Final = 10.0


class MoveWaitTrigger(BaseTrigger):
    """Ends its task successfully when a move is ready; wakes it up to fail otherwise.

    ``config_path``: srm's properties file, readable by the triggerer. ``deadline``: epoch seconds
    at which waiting ends, whatever the clusters say. ``operation``, ``mode``: for the notifier.
    """

    def __init__(
        self,
        *,
        config_path: str,
        move_id: str,
        source: str,
        target: str,
        deadline: float,
        poll_s: float = 1.0,
        operation: str = "",
        mode: str = "",
    ) -> None:
        super().__init__()
        self.config_path = config_path
        self.move_id = move_id
        self.source = source
        self.target = target
        self.deadline = deadline
        self.poll_s = poll_s
        self.operation = operation
        self.mode = mode
        self._patience: Patience | None = None
        self._line = ""
        self._logged = float("-inf")
        self._rest: AirflowRest | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._published = float("-inf")
        self._requests = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("config_path", "move_id", "source", "target", "deadline", "poll_s")
        return _class_and_arguments(self, *names, "operation", "mode")

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the gate until the move is ready, cannot become so, or time is up."""
        watch = MoveWatch(self.config_path, self.move_id, self.source, self.target, shared=True)
        try:
            yield await self._outcome(watch)
        finally:
            await asyncio.to_thread(watch.close)

    async def _outcome(self, watch: MoveWatch) -> TriggerEvent:
        status: SyncStatus | None = None
        while True:
            trouble = ""
            try:
                # The triggerer's loop is shared by all triggers: clients block in threads only.
                status = await asyncio.to_thread(watch.poll)
            except SrmError as error:
                if not error.retriable:
                    return TriggerEvent({"state": "failed", "message": str(error)})
                trouble = str(error)
                self._say(trouble)
            else:
                self._say(progress_line(status))
                self._publish(status)
                await asyncio.to_thread(self._alert, status)
                if status.ready:
                    return TaskSuccessEvent(xcoms={"return_value": progress_summary(status)})
            if time.time() >= self.deadline or (status is not None and status.timed_out):
                waits = progress_summary(status)["blocking"] if status else []
                waits = [*filter(None, [trouble]), *waits]
                return TriggerEvent({"state": "timeout", "waits": waits})
            await asyncio.sleep(self.poll_s)

    def _alert(self, status: SyncStatus) -> None:
        """Notify when the wait lasts too long, with what it waits for."""
        waited = status.elapsed_seconds
        move = {name: getattr(self, name) for name in FIELDS}
        self._patience = self._patience or Patience(move, self.config_path)
        if not status.ready and self._patience.is_over(waited):
            notify("waiting", progress_line(status), move, {}, self.config_path)

    def _say(self, line: str) -> None:
        """Log what changed at once, the same line again only from time to time."""
        now = time.monotonic()
        if line != self._line or now - self._logged > REPEAT_LINE_S:
            self._line, self._logged = line, now
            self.log.info("%s", line)

    def _publish(self, status: SyncStatus) -> None:
        """Write progress to the task's state store, without blocking the wait.

        A trigger has no state store of its own. XCom from a trigger is unsuitable, too: the first
        one makes the triggerer build a whole API server, in which time no trigger can fire.
        """
        ti = self.task_instance
        busy = self._publishing is not None and not self._publishing.done()
        now = time.monotonic()
        if ti is None or busy or now - self._published < PUBLISH_EVERY_S:
            return
        self._published = now
        self._rest = self._rest or AirflowRest(ti.dag_id, ti.run_id)
        if self._rest.works:
            requests, before = reasons_text(status.asks), self._requests
            self._requests = requests
            note = f"please {requests}" if requests and requests != before else ""
            self._publishing = asyncio.create_task(
                asyncio.to_thread(
                    _keep_progress,
                    self._rest,
                    (ti.task_id, ti.map_index),
                    progress_summary(status),
                    note,
                )
            )


def _class_and_arguments(trigger: BaseTrigger, *names: str) -> tuple[str, dict[str, Any]]:
    kind = type(trigger)
    arguments = {name: getattr(trigger, name) for name in names}
    return f"{kind.__module__}.{kind.__qualname__}", arguments


def _keep_progress(
    rest: AirflowRest, task: tuple[str, int], progress: Mapping[str, Any], note: str
) -> None:
    """Keep the progress; ask people for what they have to do where they look first."""
    rest.set_progress(*task, progress)
    if note:
        rest.set_note(note)


class MoveWatch:
    """Looks at one move; opened by the first look, so the constructor does no I/O.

    A look may still be under way in its thread when the trigger is cancelled: closing waits for it.
    ``shared``: other moves that wait in this process use the same clients.
    """

    def __init__(
        self, config_path: str, move_id: str, source: str, target: str, *, shared: bool = False
    ) -> None:
        self._where = (source, target, config_path)
        self._shared = shared
        self._move_id = move_id
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._context: MoveContext | None = None

    def poll(self) -> SyncStatus:
        """Look once, in bounded time."""
        with self._lock:
            if self._context is None:
                self._context = self._stack.enter_context(
                    opened_move(*self._where, shared=self._shared)
                )
            with steps.offer_way_out(self._context, self._move_id):
                status = steps.wait_status(self._context, self._move_id)
                if status.ready:  # the next task starts within a whole lease
                    plan, _ = MoveStore.read(self._context).load(self._move_id)
                    renew_now(self._context, plan)
                return status

    def close(self) -> None:
        with self._lock:
            self._context = None
            self._stack.close()


def flows_state(config_path: str, flows: Sequence[str]) -> AbstractContextManager[StateTopics]:
    """Open the state topics of flows, with clients of their own."""
    from srm.wiring import open_state_topics  # noqa: PLC0415 - brings the Kafka clients

    return open_state_topics(load_config(config_path), [Flow.parse(flow) for flow in flows])


class ReplicatorTrigger(BaseTrigger):
    """Wakes its task up when the application has ended in good order, or sends no heartbeats.

    ``config_path``: srm's properties file, readable by the triggerer. ``flows``: replication flows
    as ``A->B``. ``application``: the started or found application, as a dictionary.
    ``look_every_s``: seconds between two looks.
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
        return _class_and_arguments(self, "config_path", "flows", "application", "look_every_s")

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the heartbeats until the application has ended or is lost."""
        stack = ExitStack()
        try:
            yield await self._outcome(stack)
        finally:
            await asyncio.to_thread(stack.close)

    async def on_kill(self) -> None:
        """Request the application to end: its task was cleared or marked. Airflow 3.3 calls it."""
        opened = partial(flows_state, self.config_path, self.flows)
        await asyncio.to_thread(request_end, opened, requester(dag_id("replication")))

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
