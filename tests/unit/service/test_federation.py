"""One service answers for all: what it does not watch it asks others, and says who is missing."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.certificates import Authority
from tests.service_views import config_of, look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic

from srm.config.secrets import Secret
from srm.config.service import AccessSettings, RemoteSettings, ServiceSettings
from srm.domain.topics import Flow
from srm.errors import ConfigError
from srm.service.announcements import Announcement
from srm.service.app import create_app
from srm.service.federation import Federation
from srm.service.joining import Joining, join
from srm.service.looks import FlowLook
from srm.service.remote import Remote
from srm.service.views import Views
from srm.testing.flows import flow_config

FLOWS = tuple(Flow(*pair) for pair in ("PB", "PC", "BP", "CP"))
LIMIT = timedelta(seconds=0.5)
Answering = Callable[[httpx.Request], Awaitable[httpx.Response]]


def announced(
    host: str, *targets: str, protocol: Any = "http", root_path: str = ""
) -> Announcement:
    return Announcement(protocol, host, 6670, root_path, targets, "1", f"id-{host}", 1)


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

    by_target: dict[str, tuple[Announcement, ...]] = field(default_factory=dict)

    def watchers(self, target: str) -> tuple[Announcement, ...]:
        return self.by_target.get(target, ())

    def watched(self) -> tuple[str, ...]:
        return tuple(self.by_target)

    def error(self, _target: str) -> str:
        return ""


@dataclass
class Site:
    """A gateway that watches P; others watch B and C."""

    looks: dict[str, FlowLook]
    network: Network = field(default_factory=Network)
    known: Announced = field(default_factory=Announced)
    service: ServiceSettings = field(
        default_factory=lambda: ServiceSettings(
            remote=RemoteSettings(enabled=True, hosts=("srm-?",), timeout=LIMIT)
        )
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
        remote = Remote(self.service, self.network)
        federation = Federation(views.watched, ("B", "C", "P"), self.known, remote)
        app = create_app(views, joining=Joining(None, remote, federation))
        return TestClient(app, raise_server_exceptions=False)


@pytest.fixture
def site(world: CopiedTopic) -> Site:
    look = look_at(world.forward)
    looks = {
        f"{flow.source}{flow.target}": replace(look, flow=flow, config=flow_config(flow))
        for flow in FLOWS
    }
    made = Site(looks)
    made.serve("srm-b", "PB")
    made.serve("srm-c", "PC")
    made.known.by_target = {"B": (announced("srm-b", "B"),), "C": (announced("srm-c", "C"),)}
    return made


@pytest.fixture
def gateway(site: Site) -> Iterator[TestClient]:
    with site.gateway() as client:
        yield client


def site_rows(site: Site) -> list[dict[str, Any]]:
    with TestClient(create_app(site.views("PB"))) as there:
        rows: list[dict[str, Any]] = there.get("/v2/flows").json()["items"]
    return rows


def flows(client: TestClient, query: str = "") -> list[str]:
    return [row["flow"] for row in client.get(f"/v2/flows{query}").json()["items"]]


def test_a_flow_is_told_as_by_the_service_that_watches_it(site: Site, gateway: TestClient) -> None:
    there = TestClient(create_app(site.views("PB")))

    for path in ("", "/topics", "/topics?search=t&limit=1", "/groups/audit", "/forecast"):
        here = gateway.get(f"/v2/flows/P/B{path}")
        assert here.json() == there.get(f"/v2/flows/P/B{path}").json()
        assert here.headers["Content-Type"] == "application/json"
    assert site.network.asked("srm-b")[0] == "/internal/v2/flows/P/B"
    assert not site.network.asked("srm-c")


def test_what_has_not_changed_is_not_sent_again_from_elsewhere(gateway: TestClient) -> None:
    first = gateway.get("/v2/flows/P/B/topics")

    again = gateway.get("/v2/flows/P/B/topics", headers={"If-None-Match": first.headers["ETag"]})

    assert (again.status_code, again.content) == (304, b"")


def test_lists_are_of_all_services_in_one_order(gateway: TestClient) -> None:
    told = gateway.get("/v2/flows").json()

    assert [row["flow"] for row in told["items"]] == ["B->P", "C->P", "P->B", "P->C"]
    assert (told["total"], told["missing"]) == (4, {})
    assert flows(gateway, "?offset=1&limit=2") == ["C->P", "P->B"]
    assert gateway.get("/v2/flows?limit=1").json()["total"] == 4
    copies = gateway.get("/v2/remote-topics?search=topic").json()
    assert [row["target"] for row in copies["items"]] == ["P", "P", "B", "C"]
    assert gateway.get("/remote-topics?target=C").json()["total"] == 1


def test_two_services_of_one_target_are_one_in_lists(site: Site) -> None:
    site.serve("srm-d", "PB", "PC")
    both = announced("srm-d", "B", "C")
    site.known.by_target = {"B": (both,), "C": (both,), "P": (announced("srm-e", "P"),)}

    with site.gateway() as gateway:
        told = gateway.get("/v2/flows").json()

    assert [row["flow"] for row in told["items"]] == ["B->P", "C->P", "P->B", "P->C"]
    assert (told["total"], told["missing"]) == (4, {})


def test_one_that_hangs_is_missing_and_named_and_holds_up_nobody_twice(
    site: Site, gateway: TestClient
) -> None:
    site.network.hosts["srm-b"] = hang

    told = gateway.get("/v2/flows").json()
    site.network.requests.clear()
    again = gateway.get("/v2/flows").json()

    assert [row["flow"] for row in told["items"]] == ["B->P", "C->P", "P->C"]
    assert told["missing"] == {"B": "http://srm-b:6670: no answer within 0.5 s"}
    assert not site.network.asked("srm-b")
    assert "asked again in" in again["missing"]["B"]
    one = gateway.get("/v2/flows/P/B")
    assert (one.status_code, one.headers["Content-Type"]) == (503, "application/problem+json")


def test_one_that_died_is_replaced_by_another_of_the_same_target(site: Site) -> None:
    site.network.hosts["srm-b"] = refuse
    site.serve("srm-x", "PB")
    site.known.by_target["B"] = (announced("srm-b", "B"), announced("srm-x", "B"))

    with site.gateway() as gateway:
        assert gateway.get("/v2/flows/P/B").status_code == 200
        assert flows(gateway) == ["B->P", "C->P", "P->B", "P->C"]


def test_one_that_no_longer_watches_the_target_is_passed_over(site: Site) -> None:
    site.serve("srm-x", "PC")
    site.known.by_target["B"] = (announced("srm-x", "B"), announced("srm-b", "B"))

    with site.gateway() as gateway:
        assert gateway.get("/v2/flows/P/B").status_code == 200


def test_a_target_that_nobody_watches_is_missing_by_name(site: Site, gateway: TestClient) -> None:
    del site.known.by_target["C"]

    told = gateway.get("/v2/flows").json()

    assert told["missing"].keys() == {"C"}
    assert "no service that watches C is announced" in told["missing"]["C"]
    assert gateway.get("/v2/flows/P/C").status_code == 503
    assert gateway.get("/v2/flows/P/Z").status_code == 404


def test_what_another_service_asks_goes_no_further(site: Site, gateway: TestClient) -> None:
    told = gateway.get("/internal/v2/flows/P/B")

    assert (told.status_code, told.json()["title"]) == (404, "ElsewhereError")
    here = gateway.get("/internal/v2/flows").json()
    assert [row["flow"] for row in here["items"]] == ["B->P", "C->P"]
    narrowed = gateway.get("/internal/v2/flows", headers={"X-SRM-Target": "B"})
    assert narrowed.status_code == 404
    assert not site.network.requests


def test_an_error_of_the_other_service_is_passed_on_as_of_this_one(gateway: TestClient) -> None:
    told = gateway.get("/v2/flows/P/B/topics/Nothing")

    assert (told.status_code, told.json()["instance"]) == (404, "/v2/flows/P/B/topics/Nothing")
    assert "not copied by P->B" in told.json()["detail"]


def test_an_unknown_move_is_unknown_only_once_all_have_answered(
    site: Site, gateway: TestClient
) -> None:
    assert gateway.get("/v2/moves/m-1").status_code == 404

    site.network.hosts["srm-c"] = refuse

    told = gateway.get("/v2/moves/m-1")
    assert told.status_code == 503
    assert "C: http://srm-c:6670: connection refused" in told.json()["detail"]


def test_a_cluster_is_told_with_the_flows_that_others_watch(
    site: Site, gateway: TestClient
) -> None:
    own = gateway.get("/v2/cluster-info/P").json()
    other = gateway.get("/v2/cluster-info/id-of-B").json()

    assert (own["incoming"], own["outgoing"]) == (["B->P", "C->P"], ["P->B", "P->C"])
    assert (other["alias"], other["incoming"], other["outgoing"]) == ("B", ["P->B"], ["B->P"])
    assert gateway.get("/v2/cluster-info/nothing").status_code == 404

    site.network.hosts["srm-c"] = refuse
    assert gateway.get("/v2/cluster-info/P").json()["missing"].keys() == {"C"}


def test_version_1_names_who_is_missing_in_a_header(site: Site, gateway: TestClient) -> None:
    site.network.hosts["srm-c"] = refuse

    told = gateway.get("/cluster-metrics/P/byte-rate")

    assert [series["target"] for series in told.json()] == ["B"]
    assert told.headers["SRM-Missing"] == "C"
    series = gateway.get("/topic-metrics/P.Topic/byte-rate").json()[-1]
    assert series["target"] == "B"
    copy = gateway.get("/v2/topic-metrics/B/P.Topic/byte-rate").json()
    assert (copy["source"], copy["target"], copy["topic"]) == ("P", "B", "Topic")


def test_actions_are_not_passed_on(site: Site, gateway: TestClient) -> None:
    gateway.post("/v2/flows/P/B/refresh", json={})

    assert not site.network.requests


def test_a_service_behind_a_path_is_asked_there_and_asks_from_there(site: Site) -> None:
    site.serve("srm-b", "PB", root_path="/b")
    site.known.by_target["B"] = (announced("srm-b", "B", root_path="/b"),)
    site.service = replace(site.service, root_path="/a")

    with site.gateway() as gateway:
        assert gateway.get("/v2/flows/P/B").status_code == 200
        assert gateway.get("/a/v2/flows/P/B").status_code == 200
    assert site.network.asked("srm-b") == ["/b/internal/v2/flows/P/B"] * 2


class TestTrust:
    """Whoever writes an announcement gets neither credentials nor a way into the network."""

    def ask(self, site: Site, **headers: str) -> httpx.Response:
        with site.gateway() as gateway:
            return gateway.get("/v2/flows/P/B", headers=headers)

    def test_a_host_that_is_not_named_is_not_asked(self, site: Site) -> None:
        site.known.by_target["B"] = (announced("169.254.169.254", "B"),)

        told = self.ask(site)

        assert told.status_code == 503
        assert "none of service.remote.hosts" in told.json()["detail"]
        assert not site.network.requests

    def test_without_named_hosts_only_certificates_count(self, site: Site) -> None:
        site.service = replace(site.service, remote=replace(site.service.remote, hosts=()))

        with pytest.raises(ConfigError, match=r"service\.remote\.hosts"):
            Remote(site.service)

    def test_with_authorities_nobody_is_asked_without_tls_named_or_not(
        self, site: Site, tmp_path: Path
    ) -> None:
        (tmp_path / "ca.pem").write_text(Authority().own.pem)
        remote = replace(site.service.remote, ca_location=tmp_path / "ca.pem", username="gate")
        for hosts in (remote.hosts, ()):
            site.service = replace(site.service, remote=replace(remote, hosts=hosts))

            told = self.ask(site)

            assert told.status_code == 503
            assert "shows no certificate" in told.json()["detail"]
        assert not site.network.requests

    def test_the_services_own_credentials_are_sent(self, site: Site) -> None:
        remote = replace(site.service.remote, username="gate", password=Secret("s3cret"))
        site.service = replace(site.service, remote=remote)

        assert self.ask(site, Authorization="Bearer mine").status_code == 200

        [request] = site.network.requests
        assert request.headers["Authorization"] == "Basic Z2F0ZTpzM2NyZXQ="

    @pytest.mark.parametrize(("auth", "passed"), [("bearer", "Bearer mine"), ("basic", None)])
    def test_a_callers_token_is_passed_on_a_password_never(
        self, site: Site, auth: Any, passed: str | None
    ) -> None:
        site.service = replace(site.service, access=AccessSettings(auth=auth))

        self.ask(site, Authorization="Bearer mine", Cookie="session=1")

        [request] = site.network.requests
        assert request.headers.get("Authorization") == passed
        assert "Cookie" not in request.headers

    @pytest.mark.parametrize(
        ("response", "why"),
        [
            (httpx.Response(302, headers={"Location": "http://srm-c:6670/"}), "answers 302"),
            (httpx.Response(200, html="<script>"), "text/html"),
            (httpx.Response(200), "with nothing"),
            (httpx.Response(401, json={}), "lets nobody in"),
            (httpx.Response(500, json={"detail": "broken"}), "broken"),
            (httpx.Response(200, json={"items": 5}), "another form"),
        ],
    )
    def test_what_is_no_answer_of_a_service_is_no_answer(
        self, site: Site, response: httpx.Response, why: str
    ) -> None:
        async def answer(_: httpx.Request) -> httpx.Response:
            return response

        site.network.hosts["srm-b"] = answer

        with site.gateway() as gateway:
            told = gateway.get("/v2/flows").json()

        assert why in told["missing"]["B"]
        assert len(told["items"]) == 3
        assert site.network.asked("srm-c") == ["/internal/v2/flows"]

    def test_who_may_not_ask_there_keeps_nobody_else_from_it(self, site: Site) -> None:
        """Tokens are passed on: what one of them may not see, another one may."""
        site.service = replace(site.service, access=AccessSettings(auth="bearer"))
        there = site.network.hosts["srm-b"]

        async def answer(request: httpx.Request) -> httpx.Response:
            if request.headers.get("Authorization") != "Bearer ann":
                return httpx.Response(403, json={})
            return await there(request)

        site.network.hosts["srm-b"] = answer

        with site.gateway() as gateway:
            codes = [
                gateway.get("/v2/flows/P/B", headers={"Authorization": f"Bearer {who}"}).status_code
                for who in ("bob", "ann")
            ]

        assert codes == [503, 200]

    def test_a_compressed_answer_is_not_opened(self, site: Site) -> None:
        async def answer(_: httpx.Request) -> httpx.Response:
            return httpx.Response(
                200,
                headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
                stream=httpx.ByteStream(gzip.compress(b" " * (1 << 20))),
            )

        site.network.hosts["srm-b"] = answer

        assert "content encoding" in self.ask(site).text
        [request] = site.network.requests
        assert request.headers["Accept-Encoding"] == "identity"

    def test_a_list_that_claims_to_go_on_for_ever_is_not_read_row_by_row(self, site: Site) -> None:
        with site.gateway() as gateway:
            [row] = site_rows(site)
            page = {"items": [row], "total": 10**9, "offset": 0, "missing": {}}

            async def answer(_: httpx.Request) -> httpx.Response:
                return httpx.Response(200, json=page)

            site.network.hosts["srm-b"] = answer
            assert "P->B" in flows(gateway, "?limit=100")

        assert len(site.network.asked("srm-b")) == 1

    def test_a_problem_that_nobody_can_read_is_told_by_its_status(self, site: Site) -> None:
        async def answer(_: httpx.Request) -> httpx.Response:
            return httpx.Response(
                500,
                headers={"Content-Type": "application/problem+json"},
                content=b"[" * 200_000,
            )

        site.network.hosts["srm-b"] = answer

        assert "500" in self.ask(site).json()["detail"]

    def test_an_answer_without_end_is_cut_off(self, site: Site) -> None:
        class Endless(httpx.AsyncByteStream):
            async def __aiter__(self) -> Any:
                while True:
                    yield b" " * (1 << 22)

        async def answer(_: httpx.Request) -> httpx.Response:
            return httpx.Response(
                200, headers={"Content-Type": "application/json"}, stream=Endless()
            )

        site.network.hosts["srm-b"] = answer

        assert "more than 64 MiB" in self.ask(site).text


def test_settings_join_a_service_as_far_as_they_say(world: CopiedTopic) -> None:
    def joined(**remote: Any) -> Joining:
        service = ServiceSettings(remote=RemoteSettings(hosts=("srm-*",), **remote))
        config = replace(config_of(*FLOWS), service=service)
        return join(config, ("P",), lambda _: nullcontext(world.p))

    assert joined() == Joining()
    assert joined(advertise=True).federation is None
    federation = joined(enabled=True).federation
    assert federation is not None
    assert federation.targets == ("B", "C")
