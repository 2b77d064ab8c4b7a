"""The offsets that one group has committed on both clusters of a flow, asked for whoever looks.

A look at a flow asks for no group: with a thousand of them it would be a request each, every few
seconds. One group is asked for when its page or route is, on both clusters at once, and the answer
serves for a moment, so that a page that asks for itself again does not ask the clusters each time.
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
from srm.service.access.concurrency_limit import ConcurrencyLimit
from srm.service.views.flow_rows import group_detail
from srm.service.views.request_params import FlowDep, ViewsDep
from srm.service.views.snapshots import Committed, GroupCommits
from srm.wiring import kafka_cluster

_PATIENCE_S: Final = 3.0
"""A cluster that has not answered by then is not waited for: what the look knows is shown."""
_CALL_S: Final = 2 * _PATIENCE_S
"""What a cluster answers after all serves whoever comes next."""
_SERVES_S: Final = 10.0
"""An answer serves for so long, and a cluster that is silent is asked again after that."""
_SILENT_SHARE: Final = 0.1
"""Share of the patience that is left for a cluster that was silent before: it may be back."""

Group = Annotated[str, Path(description="Name of a consumer group.", examples=["billing"])]
Ask = Callable[[Config, Flow, str, str], Committed]
"""Asks one end of a flow, by its alias, for what a group has committed there."""
_Place = tuple[Flow, str, str]
"""A flow, the alias of one of its ends, and a group."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def ask_cluster(config: Config, flow: Flow, alias: str, group: str) -> Committed:
    """Ask one end of a flow, on Kafka."""
    clients = config.cluster_clients(alias, flow)
    try:
        with kafka_cluster(alias, clients, _CALL_S) as cluster:
            return Committed(cluster.committed_offsets(group))
    except SrmError as error:
        return Committed(error=str(error))


@dataclass(eq=False)
class _Asked:
    """A question that whoever comes waits for together; it is forgotten once it has served."""

    task: asyncio.Task[Committed]
    began_s: float
    patience_s: float
    serves_until_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Silence:
    """A cluster that has kept somebody waiting in vain, until it answers."""

    since_s: float
    ask_again_s: float


class CommittedOffsets:
    """Answers where groups have committed; of each cluster a few are asked at the same time.

    Args:
        config: the configuration.
        ask: asks a cluster, and may take its time; :func:`ask_cluster` where it is not given.
        patience_s: seconds that anybody waits.
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
        """Ask both clusters, or the target alone where it is known why the source says nothing."""
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
        except SrmError as error:  # too many ask
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
            return self._not_answered(alias)  # others have waited in vain meanwhile
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
    """Ask for the group of a request, if a checkpoint of the flow names it."""
    look, view = views.last_look(flow)
    if group_detail(look, group) is None:
        return GroupCommits()
    asked: CommittedOffsets = request.app.state.committed
    return await asked.of(flow, group, view.status.source_error)


CommitsDep = Annotated[GroupCommits, Depends(commits_of)]
