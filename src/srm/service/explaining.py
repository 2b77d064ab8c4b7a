"""Asks why, on both clusters of a flow, for whoever waits for it: a browser, a program."""

from __future__ import annotations

from collections.abc import Callable, Collection

import anyio
from anyio.to_thread import run_sync

from srm.config.model import Config
from srm.domain.topics import Flow
from srm.engine.why import Kind, Why, ask, not_found
from srm.errors import SrmError
from srm.service.turns import AT_ONCE, Turns
from srm.wiring import open_flow

_SOURCE_S = 5.0
"""Seconds that a source has to answer: after that the target is asked alone."""

Asking = Callable[[Config, Flow, str, Collection[Kind]], tuple[Why, ...]]


def ask_clusters(config: Config, flow: Flow, name: str, kinds: Collection[Kind]) -> tuple[Why, ...]:
    """Ask one flow.

    Raises:
        SrmError: its target does not answer.
    """
    with open_flow(config, flow, source_patience_s=_SOURCE_S) as context:
        return ask(context, name, kinds)


class Explaining:
    """Answers why, a few at the same time.

    Args:
        config: the configuration.
        asking: asks one flow; by default on its clusters.
    """

    def __init__(self, config: Config, asking: Asking = ask_clusters) -> None:
        self._config = config
        self._asking = asking
        self._turns = Turns()
        self._limit = anyio.CapacityLimiter(AT_ONCE)

    async def why(
        self, flows: Collection[Flow], kinds: Collection[Kind], name: str
    ) -> tuple[Why, ...]:
        """Ask some flows; what no flow knows is left out of the answer.

        Raises:
            NotFoundError: none of them knows the name; with names that may be meant.
            SrmError: no target answers, or too many others ask.
        """
        async with self._turns.turn():
            return await self._why(flows, kinds, name)

    async def _why(
        self, flows: Collection[Flow], kinds: Collection[Kind], name: str
    ) -> tuple[Why, ...]:
        found: list[tuple[Why, ...] | SrmError] = []

        async def one(flow: Flow) -> None:
            try:
                answers = await run_sync(
                    self._asking, self._config, flow, name, kinds, limiter=self._limit
                )
            except SrmError as error:
                found.append(error)
            else:
                found.append(answers)

        async with anyio.create_task_group() as group:
            for flow in flows:
                group.start_soon(one, flow)
        errors = [each for each in found if isinstance(each, SrmError)]
        asked = [why for each in found if not isinstance(each, SrmError) for why in each]
        known = sorted((why for why in asked if why.known), key=lambda why: (why.flow, why.kind))
        if not known:
            raise errors[0] if errors else not_found(name, asked)
        return tuple(known)
