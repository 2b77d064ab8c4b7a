"""Who asks the clusters themselves waits for his turn, and keeps nobody from what is known."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from tests.unit.engine.copying_records import CopiedTopic

from srm.domain.names.topics import Flow
from srm.engine.why import why_topic
from srm.service.access.access import AT_ONCE, WAITING
from srm.service.app import create_app
from srm.service.routes.actions import Actions
from srm.service.routes.flows import Explaining
from srm.service.views.views import Views

LISTS = "/v2/flows/P/B/lists/topics"
WHY = "/v2/why/topic/Topic"


class Gate:
    """A cluster that answers when the test says so; counts who asks it at the same time."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    @contextmanager
    def passed(self) -> Iterator[None]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        assert self.opened.wait(60)
        yield
        with self._lock:
            self._now -= 1


async def many(app: Any, gate: Gate, path: str) -> tuple[list[int], int]:
    """Ask for a path fifty times, and for a page meanwhile; return the statuses of both."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        asked = [asyncio.create_task(client.get(path)) for _ in range(50)]
        try:
            page = await asyncio.wait_for(client.get("/ui"), 30)
            first = asyncio.as_completed(asked)
            refused = [await next(first) for _ in range(len(asked) - ENOUGH)]
        finally:
            gate.opened.set()
        answers = await asyncio.gather(*asked)
    assert [told.headers.get("Retry-After") for told in refused] == ["5"] * len(refused)
    return sorted(answer.status_code for answer in answers), page.status_code


ENOUGH = AT_ONCE + WAITING


def test_readers_of_lists_wait_for_their_turn(world: CopiedTopic, views: Views) -> None:
    gate = Gate()

    @contextmanager
    def opener(_alias: str) -> Iterator[Any]:
        with gate.passed():
            yield world.b

    app = create_app(views, acting=Actions(views.config, opener))

    assert asyncio.run(many(app, gate, LISTS)) == ([200] * ENOUGH + [503] * (50 - ENOUGH), 200)
    assert gate.most == AT_ONCE


def test_who_asks_why_waits_for_his_turn(world: CopiedTopic, views: Views) -> None:
    gate = Gate()

    def asking(_config: Any, _flow: Flow, name: str, _kinds: Any) -> Any:
        with gate.passed():
            return (why_topic(world.forward, name),)

    app = create_app(views)
    app.state.explaining = Explaining(views.config, asking)

    assert asyncio.run(many(app, gate, WHY)) == ([200] * ENOUGH + [503] * (50 - ENOUGH), 200)
    assert gate.most == AT_ONCE
