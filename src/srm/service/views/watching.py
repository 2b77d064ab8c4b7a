"""Threads that look at target clusters periodically, and committed offsets fetched on demand.

A look at a flow fetches no commits: a thousand groups would need a thousand requests every few
seconds. The page or route of a group queries both clusters at once; the answer is cached briefly.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from anyio.to_thread import run_sync

from srm.clock import now_ms
from srm.config.model import Config, FlowConfig
from srm.domain.flow_state.replication_records import STATE_PARTITIONS
from srm.domain.moves.progress import ENDED
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.domain.text.amount import duration
from srm.engine.cluster_ports import Cluster, away_cluster
from srm.engine.control.recorded_copies import settings_now
from srm.engine.drill import read_drills
from srm.engine.map_reader import KafkaMapReader
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import MoveRecords
from srm.engine.ports import FlowContext
from srm.engine.status.observing import observe
from srm.errors import GivenUpError, SrmError, UnavailableError
from srm.kafka.cluster import KafkaCluster
from srm.service.access.access import ConcurrencyLimit
from srm.service.views.documents import Event
from srm.service.views.flow_rows import (
    Committed,
    FlowLook,
    GroupCommits,
    MoveLook,
    TargetLook,
    summary,
)
from srm.service.views.series import Series
from srm.wiring import flow_context

_SOURCE_S: Final = 5.0
_SOURCE_AGAIN_S: Final = 30.0
_SHARE: Final = 0.1
"""Maximum share of a core for looks; costlier looks get longer pauses."""
_TARGET_S: Final = 10.0
_AGAIN_S: Final = 5.0
_SLOW_S: Final = 8.0
"""A longer look most likely waits for a broker that hangs; then its flows show an error."""
_logger = logging.getLogger(__name__)
MOST: Final = 50
"""Number of remembered changes per flow, and of healed topics per flow."""


class RepeatedTask(ABC):
    """A thread that repeats a task until it is ended, also after an error."""

    def __init__(self, name: str) -> None:
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._repeat, name=name, daemon=True)

    def start(self) -> None:
        with self._lock:
            if self.thread.ident is None:
                self.thread.start()

    def end(self) -> None:
        self._closed.set()

    def _repeat(self) -> None:
        while not self._closed.is_set():
            try:
                self._run()
            except Exception as error:  # noqa: BLE001 -- the thread must survive
                self._fail(error)
                self._closed.wait(_AGAIN_S)

    @abstractmethod
    def _run(self) -> None: ...

    @abstractmethod
    def _fail(self, error: Exception) -> None: ...


class TargetWatch(RepeatedTask):
    """Watches one cluster and the ``flows`` into it."""

    def __init__(self, config: Config, alias: str, flows: tuple[Flow, ...]) -> None:
        super().__init__(f"srm-watch-{alias}")
        self.alias = alias
        self.series = Series()
        self._config = config
        self._flows = flows
        self._period_s = config.service.refresh.total_seconds()
        self._look = TargetLook(alias, flows={f: FlowLook(f, config.flow(f)) for f in flows})
        self._late: tuple[TargetLook, TargetLook] | None = None
        self._looking: tuple[Mapping[Flow, FlowLook], float] | None = None
        self._wake = threading.Event()

    def end(self) -> None:
        super().end()
        self._wake.set()

    @property
    def look(self) -> TargetLook:
        """Latest look; while the next one takes too long, it has that as the error of each flow."""
        look, looking = self._look, self._looking
        if looking is None or time.monotonic() - looking[1] < _SLOW_S:
            return look
        if self._late is None or self._late[0] is not look:
            self._late = look, _late(look, looking[0])
        return self._late[1]

    def refresh(self) -> None:
        self._wake.set()

    def _fail(self, error: Exception) -> None:
        text = _error_text(f"watching {self.alias}", error, self._look.error)
        self._look, self._looking = replace(self._look, error=text), None

    def _run(self) -> None:
        with ExitStack() as stack:
            clients = self._config.cluster_clients(self.alias)
            target = stack.enter_context(KafkaCluster(self.alias, clients, _TARGET_S, follow=True))
            target.follow(internal_topics.METRICS_WINDOWS, self.series)
            for topic in (internal_topics.MOVES, internal_topics.ROUTING, internal_topics.LEDGER):
                target.compacted_topic(topic)  # all are read in parallel
            flows = [_Flow(self._config, flow, target, stack) for flow in self._flows]
            while not self._closed.is_set():
                began, spent = time.monotonic(), time.thread_time()
                self._look = self._looks(target, flows)
                self._looking = None
                spent = time.thread_time() - spent
                pause_s = max(self._period_s - (time.monotonic() - began), spent / _SHARE - spent)
                self._wake.wait(max(0.0, pause_s))
                self._wake.clear()

    def _looks(self, target: KafkaCluster, flows: list[_Flow]) -> TargetLook:
        looked_ms, former = now_ms(), self._look.flows
        for flow in flows:
            self._looking = former, time.monotonic()
            # Published at once: with a hanging cluster each flow takes long.
            before, found = self._look.flows[flow.flow], flow.next_look(self.series)
            look = {flow.flow: with_change(before, found, now_ms())}
            self._look = replace(self._look, flows={**self._look.flows, **look})
        every = replace(self._look, looked_ms=looked_ms, error="")
        silent = [one.silence for one in flows if one.silence is not None]
        if silent and len(silent) == len(flows):  # tables in memory would not notice it
            return replace(every, error=str(silent[0]))
        try:
            tables = MoveRecords.read(target)
            known = every.cluster_id or target.cluster_id()
            moves, drills = _moves(tables), read_drills(target)
            return replace(every, cluster_id=known, moves=moves, drills=drills)
        except Exception as error:  # noqa: BLE001 -- reported in the look, and logged
            text = _error_text(f"looking at {self.alias}", error, self._look.error)
            return replace(every, error=text)


def _late(look: TargetLook, former: Mapping[Flow, FlowLook]) -> TargetLook:
    flows = dict(look.flows)
    for flow, found in look.flows.items():
        if found is former[flow] and not found.error:
            silent = f"{flow.source} or {flow.target} hangs or does not answer"
            flows[flow] = replace(found, error=f"a look takes more than {_SLOW_S:g} s: {silent}")
    return replace(look, flows=flows)


class _Flow:
    """One flow, with the connections kept open between looks."""

    def __init__(self, config: Config, flow: Flow, target: KafkaCluster, stack: ExitStack) -> None:
        self.flow = flow
        self._config = config
        self._target = target
        clients = config.cluster_clients(flow.source, flow)
        self._source = stack.enter_context(KafkaCluster(flow.source, clients, _SOURCE_S))
        self._away_until = 0.0
        self._away_error = GivenUpError()
        self._maps = KafkaMapReader(target, self._source, flow)
        self._away_maps = KafkaMapReader(target, away_cluster(flow.source), flow)
        self._last = FlowLook(flow, config.flow(flow))
        self.silence: UnavailableError | None = None
        target.compacted_topic(internal_topics.control(flow.source))
        target.compacted_topic(config.flow(flow).checkpoints_topic)
        for partition in range(STATE_PARTITIONS):
            target.compacted_topic(internal_topics.replication(flow.source), partition)

    def next_look(self, series: Series) -> FlowLook:
        try:
            self._last, self.silence = self._look(), None
        except Exception as error:  # noqa: BLE001 -- as for the target
            text = _error_text(f"looking at {self.flow}", error, self._last.error)
            self._last = replace(self._last, error=text)
            self.silence = error if isinstance(error, UnavailableError) else None
        self._last = replace(self._last, measured=series.latest(self.flow))
        return self._last

    def _look(self) -> FlowLook:
        looked_ms = now_ms()
        context = self._context(self._config.flow(self.flow))
        config = settings_now(context.config, context.source, self._target)
        view = observe(replace(context, config=config))
        if view.status.source_error and not self._is_away():
            self._away_until = time.monotonic() + _SOURCE_AGAIN_S
            self._away_error = GivenUpError(view.status.source_error)
        return FlowLook(self.flow, config, view, looked_ms)

    def _context(self, config: FlowConfig) -> FlowContext:
        """Return the flow's context; a source that did not answer is skipped for a while."""
        away = self._is_away()
        source: Cluster = away_cluster(self.flow.source, self._away_error) if away else self._source
        clients = self._config.cluster_clients(self.flow.target, self.flow)
        context = flow_context(config, source, self._target, clients)
        return replace(
            context,
            maps=self._away_maps if away else self._maps,
            opposite=self._config.flow_configs.get(self.flow.reverse),
        )

    def _is_away(self) -> bool:
        return time.monotonic() < self._away_until


def _error_text(doing: str, error: Exception, before: str) -> str:
    """Return why a look failed; log an unexpected error, once per series of the same error."""
    if isinstance(error, SrmError):
        return str(error)
    text = f"{doing} failed ({type(error).__name__}): see the log of the service"
    if text != before:
        _logger.error("%s failed", doing, exc_info=error)
    return text


def _moves(tables: MoveRecords) -> tuple[MoveLook, ...]:
    """Return the moves; a report counts once the move has ended, while it is current."""
    found, store = [], MoveStore([tables])
    for plan, progress in (store.view(line.move_id) for line in store.lines()):
        kept = store.report(plan.move_id)
        is_current = kept and progress.step in ENDED and kept.report.times_ms == progress.times_ms
        report = kept if is_current else None
        found.append(MoveLook(plan, progress, report, store.carrier(plan.move_id, now_ms())))
    return tuple(found)


def watched_flows(config: Config) -> dict[str, tuple[Flow, ...]]:
    """Return the watched flows by target, enabled or once enabled."""
    aliases = config.service.targets or tuple(sorted({flow.target for flow in config.flows}))
    return {
        alias: tuple(flow for flow in config.flows if flow.target == alias) for alias in aliases
    }


def with_change(before: FlowLook, now: FlowLook, now_ms: int) -> FlowLook:
    """Return the new look with the changes known so far and those since the look before; pure."""
    healed = (*before.healed, *_find_healed(before, now, now_ms))[-MOST:]
    known = replace(now, changes=before.changes, healed=healed)
    former, found = summary(before).state, summary(now)
    if found.state == former or (before.view is None and not before.error):
        return known  # before the first look the state is unknown
    text: str = found.state
    if found.reasons:
        text += f": {found.reasons[0].text}"
    if before.changes:
        text += f" (was {former} for {duration((now_ms - before.changes[-1].time_ms) / 1000)})"
    change = Event(now_ms, "state", str(now.flow), "", None, text)
    return replace(known, changes=(*before.changes, change)[-MOST:])


def _find_healed(before: FlowLook, now: FlowLook, now_ms: int) -> Iterator[Event]:
    if before.view is None or now.view is None:
        return
    stopped = {one.topic: one.reason for one in before.view.status.topics if one.state == "stopped"}
    for topic in now.view.status.topics:
        if topic.topic in stopped and topic.state != "stopped":
            partitions = before.view.partitions.get(topic.topic, ())
            since = [one.since_ms for one in partitions if one.state == "stopped" and one.since_ms]
            lasted = f" for {duration((now_ms - min(since)) / 1000)}" if since else ""
            text = f"no longer stopped (was{lasted}: {stopped[topic.topic] or 'stopped'})"
            yield Event(now_ms, "state", str(now.flow), topic.topic, None, text)


LEAVE_S: Final = 3.0
"""Time for an orderly end. A daemon thread that waits for a cluster ends with the process."""


def end_all(ending: Collection[RepeatedTask], limit_s: float = LEAVE_S) -> None:
    """Signal all to end, and wait for all of them together at most ``limit_s``."""
    for one in ending:
        one.end()
    until = time.monotonic() + limit_s
    for one in ending:
        if one.thread.is_alive():
            one.thread.join(max(0.0, until - time.monotonic()))


_PATIENCE_S: Final = 3.0
"""Longest wait for a cluster; without its answer the page shows what the look knows."""
_CALL_S: Final = 2 * _PATIENCE_S
"""A late answer within this time is cached for the next request."""
_SERVES_S: Final = 10.0
"""Lifetime of a cached answer, and pause before a silent cluster is queried again."""
_SILENT_SHARE: Final = 0.1
"""Share of the patience for another query of a cluster that was silent: it may be back."""

ReadCommits = Callable[[Config, Flow, str, str], Committed]
"""Fetches the committed offsets of a group from one end of a flow, named by its alias."""
_Place = tuple[Flow, str, str]
"""A flow, the alias of one of its ends, and a group."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def query_cluster(config: Config, flow: Flow, alias: str, group: str) -> Committed:
    clients = config.cluster_clients(alias, flow)
    try:
        with KafkaCluster(alias, clients, _CALL_S) as cluster:
            return Committed(cluster.committed_offsets(group))
    except SrmError as error:
        return Committed(error=str(error))


@dataclass(eq=False)
class _SharedQuery:
    """A query that all concurrent requests share; it is dropped when its answer expires."""

    task: asyncio.Task[Committed]
    began_s: float
    patience_s: float
    serves_until_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Silence:
    since_s: float
    retry_s: float


class CommittedOffsets:
    """Returns the committed offsets of groups; a request waits ``patience_s`` at most."""

    def __init__(
        self, config: Config, query: ReadCommits | None = None, patience_s: float = _PATIENCE_S
    ) -> None:
        self._config = config
        self._query_cluster = query or query_cluster
        self._patience_s = patience_s
        self._turns: defaultdict[str, ConcurrencyLimit] = defaultdict(ConcurrencyLimit)
        self._queries: dict[_Place, _SharedQuery] = {}
        self._silent: dict[str, _Silence] = {}

    async def of(self, flow: Flow, group: str, source_error: str = "") -> GroupCommits:
        """Query both clusters, or only the target if ``source_error`` is known for the source."""
        source, target = await asyncio.gather(
            self._side((flow, flow.source, group), source_error),
            self._side((flow, flow.target, group)),
        )
        return GroupCommits(source, target)

    async def _side(self, place: _Place, error: str = "") -> Committed:
        now_s = _now_s()
        self._forget(now_s)
        if error:
            return Committed(error=error)
        alias = place[1]
        shared = self._queries.get(place)
        if shared is None:
            patience_s = self._patience_s
            silence = self._silent.get(alias)
            if silence is not None:
                if now_s < silence.retry_s:
                    return self._not_answered(alias)
                patience_s *= _SILENT_SHARE
                self._silent[alias] = replace(silence, retry_s=now_s + _SERVES_S)
            task = asyncio.create_task(self._query(place, now_s))
            shared = self._queries[place] = _SharedQuery(task, now_s, patience_s)
        left_s = max(0.0, shared.began_s + shared.patience_s - now_s)
        done, _ = await asyncio.wait({shared.task}, timeout=left_s)
        if done:
            return shared.task.result()
        ended_s = _now_s()
        self._silent.setdefault(alias, _Silence(ended_s, ended_s + _SERVES_S))
        return self._not_answered(alias)

    async def _query(self, place: _Place, began_s: float) -> Committed:
        flow, alias, group = place
        serves_until_s = 0.0
        try:
            async with self._turns[alias].turn():
                silence = self._silent.get(alias)
                if silence is not None and silence.since_s > began_s:
                    found = self._not_answered(alias)  # a request timed out in the meantime
                else:
                    arguments = self._config, flow, alias, group
                    found = await run_sync(self._query_cluster, *arguments, abandon_on_cancel=True)
                    if not found.error:
                        self._silent.pop(alias, None)
        except SrmError as error:  # too many requests
            found = Committed(error=str(error))
        else:
            serves_until_s = _now_s() + _SERVES_S
        finally:
            self._queries[place].serves_until_s = serves_until_s
        return found

    def _not_answered(self, alias: str) -> Committed:
        return Committed(error=f"cluster {alias} has not answered within {self._patience_s:g} s")

    def _forget(self, now_s: float) -> None:
        self._queries = {
            place: shared
            for place, shared in self._queries.items()
            if shared.serves_until_s is None or shared.serves_until_s > now_s
        }
