"""One client's connections to the brokers of a simulated cluster, with all their faults.

Brokers serve one request of a connection after the other, as real ones do. When a connection
breaks, its waiting callers know nothing of the requests under way; a broker may still serve those
that it has received.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from srm.errors import UnavailableError
from srm_lab.testing.simulation.cluster import SimulatedCluster
from srm_lab.testing.simulation.loop import SimulatedLoop, resolve


@dataclass(slots=True)
class Network:
    """Network of one client; the scenario changes it while it runs.

    ``loses``: probability that a connection breaks at a request. ``spikes``: that one takes long.
    """

    least_s: float = 0.0002
    most_s: float = 0.002
    loses: float = 0.0
    spikes: float = 0.0
    cut_off: bool = False

    def delay_s(self, loop: SimulatedLoop) -> float:
        """Return how long one message takes."""
        if self.spikes and loop.rng.random() < self.spikes:
            return loop.rng.uniform(0.05, 2.0)
        return loop.rng.uniform(self.least_s, self.most_s)


Serve = Callable[[], Awaitable[Any]]


class SimulatedConnection:
    """Requests to one broker, in order."""

    def __init__(self, cluster: SimulatedCluster, node: int, network: Network) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._node = node
        self._network = network
        self._requests: deque[tuple[float, Serve, Future[Any]]] = deque()
        self._serving = False
        self._arrived_s = 0.0
        self._answered_s = 0.0
        self.closed = False

    def request(self, serve: Serve) -> Future[Any]:
        """Send a request."""
        loop, network = self._loop, self._network
        answer: Future[Any] = loop.create_future()
        self._arrived_s = max(self._arrived_s, loop.time() + network.delay_s(loop))
        self._requests.append((self._arrived_s, serve, answer))
        if not self._serving:
            self._serving = True
            loop.world_task(self._serve())
        return answer

    def close(self, why: str) -> None:
        """Break: requests under way get no answer."""
        if self.closed:
            return
        self.closed = True
        error = UnavailableError(f"{self._cluster.alias} node {self._node}: {why}")
        for _, _, answer in self._requests:
            if not answer.done():
                answer.set_exception(error)
        # What has arrived may still be served, up to some request: later ones are gone.
        received = [r for r in self._requests if r[0] <= self._loop.time()]
        served = self._loop.rng.randint(0, len(received))
        self._requests = deque(received[:served])

    def _break_off(self, answer: Future[Any], why: str) -> None:
        if not answer.done():
            answer.set_exception(UnavailableError(f"{self._cluster.alias}: {why}"))
        self.close(why)

    async def _serve(self) -> None:
        loop = self._loop
        while self._requests:
            arrives, serve, answer = self._requests[0]
            if arrives > loop.time():
                await asyncio.sleep(arrives - loop.time())
            if not await self._cluster.until_it_works(self._node):
                self.close("connection refused")
                self._requests.clear()
                break
            if not self._requests or self._requests[0][2] is not answer:
                continue
            chance = loop.rng.random() if self._network.loses else 1.0
            if self._network.cut_off or chance < self._network.loses / 2:
                self._requests.popleft()
                self._break_off(answer, "the request was lost")
                continue
            result = await serve()
            if self._requests and self._requests[0][2] is answer:
                self._requests.popleft()
            if self._network.cut_off or chance < self._network.loses:
                self._break_off(answer, "the answer was lost")
                continue
            if not answer.done():
                # Strictly later: answers of a connection keep their order.
                when = max(self._answered_s + 1e-7, loop.time() + self._network.delay_s(loop))
                self._answered_s = when
                loop.world_later(when - loop.time(), resolve, answer, result)
        self._serving = False
