"""Committed offsets of one group on both clusters of a flow, fetched on demand and cached.

A look at a flow fetches none: a thousand groups would need a thousand requests every few seconds.
The page or route of a group queries both clusters at once, and the answer is cached briefly.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import Depends, Path, Request

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.errors import SrmError
from srm.service.access.access import ConcurrencyLimit
from srm.service.views.flow_rows import group_detail
from srm.service.views.responses import FlowDep, ViewsDep
from srm.service.views.snapshots import Committed, GroupCommits
from srm.wiring import kafka_cluster

_PATIENCE_S: Final = 3.0
"""Longest wait for a cluster; without its answer the page shows what the look knows."""
_CALL_S: Final = 2 * _PATIENCE_S
"""A late answer within this time is cached for the next request."""
_SERVES_S: Final = 10.0
"""Lifetime of a cached answer, and pause before a silent cluster is queried again."""
_SILENT_SHARE: Final = 0.1
"""Share of the patience for another query of a cluster that was silent: it may be back."""

Group = Annotated[str, Path(description="Name of a consumer group.", examples=["billing"])]
Ask = Callable[[Config, Flow, str, str], Committed]
"""Fetches the committed offsets of a group from one end of a flow, named by its alias."""
_Place = tuple[Flow, str, str]
"""A flow, the alias of one of its ends, and a group."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def ask_cluster(config: Config, flow: Flow, alias: str, group: str) -> Committed:
    """Fetch the committed offsets of a group from one end of a flow, a Kafka cluster."""
    clients = config.cluster_clients(alias, flow)
    try:
        with kafka_cluster(alias, clients, _CALL_S) as cluster:
            return Committed(cluster.committed_offsets(group))
    except SrmError as error:
        return Committed(error=str(error))


@dataclass(eq=False)
class _Asked:
    """A query that all concurrent requests share; it is dropped when its answer expires."""

    task: asyncio.Task[Committed]
    began_s: float
    patience_s: float
    serves_until_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Silence:
    since_s: float
    ask_again_s: float


class CommittedOffsets:
    """Returns the committed offsets of groups; a few queries per cluster run at the same time.

    ``ask`` queries a cluster and may block; a request waits ``patience_s`` at most.
    """

    def __init__(
        self, config: Config, ask: Ask | None = None, patience_s: float = _PATIENCE_S
    ) -> None:
        self._config = config
        self._ask_cluster = ask or ask_cluster
        self._patience_s = patience_s
        self._turns: defaultdict[str, ConcurrencyLimit] = defaultdict(ConcurrencyLimit)
        self._asked: dict[_Place, _Asked] = {}
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
        asked = self._asked.get(place)
        if asked is None:
            patience_s = self._patience_s
            silence = self._silent.get(alias)
            if silence is not None:
                if now_s < silence.ask_again_s:
                    return self._not_answered(alias)
                patience_s *= _SILENT_SHARE
                self._silent[alias] = replace(silence, ask_again_s=now_s + _SERVES_S)
            task = asyncio.create_task(self._ask(place, now_s))
            asked = self._asked[place] = _Asked(task, now_s, patience_s)
        left_s = max(0.0, asked.began_s + asked.patience_s - now_s)
        done, _ = await asyncio.wait({asked.task}, timeout=left_s)
        if done:
            return asked.task.result()
        ended_s = _now_s()
        self._silent.setdefault(alias, _Silence(ended_s, ended_s + _SERVES_S))
        return self._not_answered(alias)

    async def _ask(self, place: _Place, began_s: float) -> Committed:
        serves_until_s = 0.0
        try:
            async with self._turns[place[1]].turn():
                found = await self._ask_in_turn(place, began_s)
        except SrmError as error:  # too many requests
            found = Committed(error=str(error))
        else:
            serves_until_s = _now_s() + _SERVES_S
        finally:
            self._asked[place].serves_until_s = serves_until_s
        return found

    async def _ask_in_turn(self, place: _Place, began_s: float) -> Committed:
        flow, alias, group = place
        silence = self._silent.get(alias)
        if silence is not None and silence.since_s > began_s:
            return self._not_answered(alias)  # another request timed out in the meantime
        ask = partial(self._ask_cluster, self._config, flow, alias, group)
        found = await run_sync(ask, abandon_on_cancel=True)
        if not found.error:
            self._silent.pop(alias, None)
        return found

    def _not_answered(self, alias: str) -> Committed:
        return Committed(error=f"cluster {alias} has not answered within {self._patience_s:g} s")

    def _forget(self, now_s: float) -> None:
        self._asked = {
            place: asked
            for place, asked in self._asked.items()
            if asked.serves_until_s is None or asked.serves_until_s > now_s
        }


async def commits_of(
    request: Request, views: ViewsDep, flow: FlowDep, group: Group
) -> GroupCommits:
    """Fetch the offsets of the group in a request, if a checkpoint of the flow names it."""
    look, view = views.last_look(flow)
    if group_detail(look, group) is None:
        return GroupCommits()
    asked: CommittedOffsets = request.app.state.committed
    return await asked.of(flow, group, view.status.source_error)


CommitsDep = Annotated[GroupCommits, Depends(commits_of)]
