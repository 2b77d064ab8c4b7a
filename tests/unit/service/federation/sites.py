"""Services that watch one target each, over a network that tests break as they like."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.service_views import config_of, look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.waiting import DEADLINE_S

from srm.config.model import RemoteSettings, ServiceSettings
from srm.domain.names.topics import Flow
from srm.service.app import create_app
from srm.service.federation.federation import Federation, Joining
from srm.service.federation.peers import Remote, ServiceAnnouncement
from srm.service.views.flow_rows import FlowLook
from srm.service.views.views import Views
from srm_lab.testing.flows import flow_config

FLOWS = tuple(Flow(*pair) for pair in ("PB", "PC", "BP", "CP"))
PATIENT = timedelta(seconds=DEADLINE_S)
"""Where nobody hangs; on a busy machine an answer may take seconds."""
Answering = Callable[[httpx.Request], Awaitable[httpx.Response]]


def announced(
    host: str, *targets: str, protocol: Any = "http", root_path: str = ""
) -> ServiceAnnouncement:
    return ServiceAnnouncement(protocol, host, 6670, root_path, targets, "1", f"id-{host}", 1)


@dataclass
class Network(httpx.AsyncBaseTransport):
    """Carries requests to applications, or whatever stands for one, by host; keeps them all."""

    hosts: dict[str, Answering] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return await self.hosts[request.url.host](request)

    def serve(self, host: str, app: FastAPI) -> None:
        self.hosts[host] = httpx.ASGITransport(app).handle_async_request

    def asked(self, host: str) -> list[str]:
        return [str(r.url.path) for r in self.requests if r.url.host == host]


async def hang(_: httpx.Request) -> httpx.Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused", request=request)


@dataclass
class Announced:
    """Who watches what, as tests say it."""

    by_target: dict[str, tuple[ServiceAnnouncement, ...]] = field(default_factory=dict)

    def watchers(self, target: str) -> tuple[ServiceAnnouncement, ...]:
        return self.by_target.get(target, ())

    def watched_targets(self) -> tuple[str, ...]:
        return tuple(self.by_target)

    def error(self, _target: str) -> str:
        return ""


@dataclass
class Site:
    """A gateway that watches P; others watch B and C, and have ``limit`` for an answer.

    ``patience`` is what the gateway counts on instead, for lists in several parts and for the turn
    of the next service of a target.
    """

    looks: dict[str, FlowLook]
    limit: timedelta = PATIENT
    patience: timedelta | None = None
    network: Network = field(default_factory=Network)
    known: Announced = field(default_factory=Announced)
    service: ServiceSettings = field(init=False)

    def __post_init__(self) -> None:
        self.service = ServiceSettings(
            remote=RemoteSettings(enabled=True, hosts=("srm-?",), timeout=self.limit)
        )

    def views(self, *flows: str) -> Views:
        config = replace(config_of(*FLOWS), service=self.service)
        return still_views(*(self.looks[flow] for flow in flows), config=config)

    def serve(self, host: str, *flows: str, root_path: str = "") -> None:
        views = self.views(*flows)
        views.config = replace(views.config, service=ServiceSettings(root_path=root_path))
        self.network.serve(host, create_app(views, joining=Joining()))

    def gateway(self, *flows: str) -> TestClient:
        views = self.views(*(flows or ("BP", "CP")))
        remote = Remote(self.service, self.network, clock=lambda: 0.0)
        limit_s = (self.patience or self.limit).total_seconds()
        federation = Federation(views.watched_targets, ("B", "C", "P"), self.known, remote, limit_s)
        app = create_app(views, joining=Joining(None, remote, federation))
        return TestClient(app, raise_server_exceptions=False)


def three_services(world: CopiedTopic, limit: timedelta = PATIENT) -> Site:
    """Return a site where each of P, B and C has a service of its own."""
    look = look_at(world.forward)
    looks = {
        f"{flow.source}{flow.target}": replace(look, flow=flow, config=flow_config(flow))
        for flow in FLOWS
    }
    made = Site(looks, limit)
    made.serve("srm-b", "PB")
    made.serve("srm-c", "PC")
    made.known.by_target = {"B": (announced("srm-b", "B"),), "C": (announced("srm-c", "C"),)}
    return made


def site_rows(site: Site) -> list[dict[str, Any]]:
    with TestClient(create_app(site.views("PB"), joining=Joining())) as there:
        rows: list[dict[str, Any]] = there.get("/v2/flows").json()["items"]
    return rows


def flows(client: TestClient, query: str = "") -> list[str]:
    return [row["flow"] for row in client.get(f"/v2/flows{query}").json()["items"]]
