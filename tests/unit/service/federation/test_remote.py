"""Whoever writes an announcement gets neither credentials nor a way into the network."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.certificates import Authority
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.federation.sites import (
    Site,
    announced,
    flows,
    site_rows,
    three_services,
)

from srm.config.model import AccessSettings
from srm.config.values import Secret
from srm.errors import ConfigError, UnavailableError, UsageError
from srm.service.federation.peers import Remote, is_named


@pytest.fixture
def site(world: CopiedTopic) -> Site:
    return three_services(world)


@pytest.mark.parametrize(
    ("pattern", "named", "others"),
    [
        ("srm-*", "SRM-1", "srm-1.evil.example"),
        ("srm-*.example.org", "srm-1.example.org", "srm-1.evil.example.org"),
        ("*.example.org", "srm.example.org", "a.srm.example.org"),
        ("10.0.0.*", "10.0.0.5", "10.0.0.5.evil.example"),
        ("10.0.0.*", "10.0.0.255", "10.0.0.evil"),
        ("srm.*", "srm.1", "srm.evil"),
        ("srm-?", "srm-b", "srm-b.c"),
        ("*", "srm", "evil.example"),
        ("srm.example.org", "srm.example.org", "srm.example.org."),
    ],
)
def test_a_pattern_names_hosts_of_one_domain_alone(pattern: str, named: str, others: str) -> None:
    assert is_named(named, pattern)
    assert not is_named(others, pattern)


class TestTrust:
    """Whoever writes an announcement gets neither credentials nor a way into the network."""

    def ask(self, site: Site, **headers: str) -> httpx.Response:
        with site.gateway() as gateway:
            return gateway.get("/v2/flows/P/B", headers=headers)

    def test_a_host_that_is_not_named_is_not_asked(self, site: Site) -> None:
        site.known.by_target["B"] = (announced("169.254.169.254", "B"),)

        told = self.ask(site)

        assert told.status_code == 503
        assert "not in service.remote.hosts" in told.json()["detail"]
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
            assert "has no certificate" in told.json()["detail"]
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
            (httpx.Response(401, json={}), "refuses these credentials"),
            (httpx.Response(500, json={"detail": "broken"}), "broken"),
            (httpx.Response(200, json={"items": 5}), "unknown format"),
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

    @pytest.mark.parametrize("etag", ["→", '"→"', '"a', '"a"\t', '"' + "x" * 9000 + '"'])
    def test_a_tag_that_is_none_is_not_passed_on(self, site: Site, etag: str) -> None:
        there = site.network.hosts["srm-b"]

        async def answer(request: httpx.Request) -> httpx.Response:
            response = await there(request)
            response.headers = httpx.Headers(
                [(b"Content-Type", b"application/json"), (b"ETag", etag.encode())]
            )
            return response

        site.network.hosts["srm-b"] = answer
        told = self.ask(site)

        assert (told.status_code, told.json()["flow"]) == (200, "P->B")
        assert "ETag" not in told.headers

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

    def test_who_did_not_answer_is_forgotten_when_it_may_be_asked_again(self, site: Site) -> None:
        """Whoever announces new addresses without end would fill the memory with them."""
        now = 0.0

        def away(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("away", request=request)

        remote = Remote(site.service, httpx.MockTransport(away), lambda: now)

        async def ask(port: int) -> None:
            service = replace(announced("srm-b", "B"), port=port)
            with pytest.raises(UnavailableError, match="away"):
                await remote.get(service, "B", "/v2/flows", {})

        for port in range(1, 100):
            now = port * 6.0
            asyncio.run(ask(port))

        assert len(remote._resting) == 2

    @pytest.mark.parametrize(
        "path",
        [
            "/v2/flows/P/B/groups/..%2F..%2F..%2F..%2F..%2F..%2F..%2Fapi/v2/connections",
            "/v2/flows/P/B/topics/%2e%2e/partitions",
            "/v2/flows/P/B/groups/a%2F.%2Fb",
            "/v2/flows/P/B/groups/%2e%2e",
            "/topic-metrics/%2e%2e/byte-rate",
        ],
    )
    def test_no_name_leads_out_of_what_services_ask_each_other(self, site: Site, path: str) -> None:
        """The service's credentials would go to any other application on that host."""
        with site.gateway() as gateway:
            told = gateway.get(path)

        assert told.status_code == 400
        assert "from another service: " in told.json()["detail"]
        assert not site.network.requests

    def test_a_name_may_have_dots_and_signs_of_paths_in_it(self, site: Site) -> None:
        with site.gateway() as gateway:
            for name in ("..a", "a%25..", "a%3F%23", "a%5C..", "a%2Fb"):
                assert gateway.get(f"/v2/flows/P/B/groups/{name}").status_code == 404

        asked = [request.url.raw_path for request in site.network.requests]
        assert asked[0] == b"/internal/v2/flows/P/B/groups/..a"
        assert all(path.startswith(b"/internal/v2/flows/P/B/groups/") for path in asked)
        assert len(asked) == 5

    @pytest.mark.parametrize("path", ["/../v2/flows", "x/v2/flows", "/v2/./flows", "/v2/%2E%2e/a"])
    def test_whoever_asks_for_a_path_it_stays_under_internal(self, site: Site, path: str) -> None:
        remote = Remote(site.service, site.network)

        with pytest.raises(UsageError, match="from another service: "):
            asyncio.run(remote.get(announced("srm-b", "B", root_path="/b"), "B", path, {}))

        assert not site.network.requests
