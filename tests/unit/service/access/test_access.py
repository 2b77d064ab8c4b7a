"""Nothing is seen without being let in, nothing is done without the role for it."""

from __future__ import annotations

import logging
from functools import lru_cache

import pytest
from fastapi import HTTPException
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.requests import Request
from starlette.routing import Mount

from srm.config.model import AccessSettings, ServiceSettings
from srm.errors import ConfigError
from srm.service.access.access import Authenticator, Role, User, roles
from srm.service.access.logins import access_of, common_name
from srm.service.app import create_app
from srm.service.routes.actions import Actions
from srm.service.views.views import Views

PUBLIC = {"/health"}
ALL = "0.0.0.0"  # noqa: S104 -- nothing listens


@lru_cache  # of one user the routes are built once
def known(name: str, *given: Role) -> Authenticator:
    return lambda: User(name, frozenset(given))


def opened(views: Views, acting: Actions, access: Authenticator) -> TestClient:
    return TestClient(create_app(views, access, acting), raise_server_exceptions=False)


def stranger() -> User:
    raise HTTPException(401, "who are you?", {"WWW-Authenticate": "Basic"})


def _is_page(path: str) -> bool:
    return path.removeprefix("/internal").startswith("/ui") or path in {"/", "/internal/"}


def test_a_stranger_sees_health_and_static_files_and_nothing_else(
    views: Views, acting: Actions
) -> None:
    app = create_app(views, stranger, acting)
    client = TestClient(app, raise_server_exceptions=False)
    asked = set()

    for route in app.routes:
        if isinstance(route, Mount):
            assert route.path == "/static"
            continue
        assert isinstance(route, APIRoute), route
        for prefix in ("", "/internal"):
            path = prefix + route.path.replace("{metric}", "byte-rate").replace("{list}", "topics")
            for method in route.methods:
                answered = client.request(method, path.replace("{", "").replace("}", ""))
                if route.path in PUBLIC:
                    assert answered.status_code == 200
                elif prefix and method != "GET":
                    assert answered.status_code == 404
                else:
                    assert answered.status_code == 401, path
                    assert answered.headers["WWW-Authenticate"] == "Basic"
                    kind = "text/html" if _is_page(path) else "application/problem+json"
                    assert answered.headers["Content-Type"].startswith(kind)
                    asked.add(path)
    assert {"/docs", "/metrics", "/openapi.json", "/v2/flows", "/internal/v2/flows"} <= asked
    assert client.get("/static/icon.svg").status_code == 200


def test_a_reader_sees_everything_and_does_nothing(views: Views, acting: Actions) -> None:
    client = opened(views, acting, known("rita", "reader"))

    assert client.get("/v2/flows").status_code == 200
    refused = client.post("/v2/flows/P/B/refresh", json={})
    assert refused.status_code == 403
    assert "service.operators" in refused.json()["detail"]


def test_somebody_without_any_role_is_told_so(views: Views, acting: Actions) -> None:
    refused = opened(views, acting, known("nora")).get("/v2/flows")

    assert (refused.status_code, refused.json()["detail"][:7]) == (403, "nora la")


def test_it_is_asked_who_somebody_is_before_anything_is_read_of_the_request(
    views: Views, acting: Actions
) -> None:
    client = opened(views, acting, stranger)

    answered = client.post("/v2/flows/P/B/lists/topics", content=b"{" * 100_000)

    assert answered.status_code == 401


def test_without_operators_nobody_may_act_and_without_readers_all_that_are_known_see() -> None:
    assert roles(AccessSettings(), {"alice"}) == {"reader"}
    assert roles(AccessSettings(operators=("ops",)), {"alice", "ops"}) == {"reader", "operator"}
    assert roles(AccessSettings(readers=("team",)), {"alice"}) == set()
    assert roles(AccessSettings(readers=("team",), operators=("ops",)), {"ops"}) == {
        "reader",
        "operator",
    }


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://testserver"}, 200),
        ({"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://behind.a.proxy", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://testserver", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_a_page_of_somebody_else_does_not_act_with_a_users_rights(
    views: Views, acting: Actions, headers: dict[str, str], status: int
) -> None:
    client = opened(views, acting, known("olga", "reader", "operator"))

    assert client.post("/v2/flows/P/B/refresh", json={}, headers=headers).status_code == status


def test_a_form_does_not_act(views: Views, acting: Actions) -> None:
    client = opened(views, acting, known("olga", "reader", "operator"))

    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        sent = client.post(
            "/v2/flows/P/B/replicator",
            content=b'{"action": "stop"}',
            headers={"Content-Type": kind},
        )
        assert sent.status_code == 415


class TestNone:
    """``service.auth = none``: for a service that only this machine reaches."""

    def test_an_address_that_others_reach_has_to_be_confirmed(self) -> None:
        with pytest.raises(ConfigError, match=r"service\.host = 0\.0\.0\.0 .* service\.insecure"):
            access_of(ServiceSettings(), ALL)

        access_of(ServiceSettings(access=AccessSettings(insecure=True)), ALL)
        access_of(ServiceSettings(), "127.0.0.1")

    def test_everybody_reads_and_acts_only_where_anonymous_is_an_operator(
        self, views: Views, acting: Actions
    ) -> None:
        for operators, status in ((), 403), (("anonymous",), 200):
            settings = ServiceSettings(access=AccessSettings(operators=operators))
            app = create_app(views, access_of(settings, "localhost"), acting)
            client = TestClient(app, base_url="http://localhost")
            assert client.post("/v2/flows/P/B/refresh", json={}).status_code == status


def test_settings_that_lack_something_are_refused_with_what_it_is() -> None:
    for kind, missing in (
        ("basic", "service.users.location"),
        ("bearer", "service.oidc.issuer"),
        ("mtls", "service.ssl.ca.location"),
    ):
        settings = ServiceSettings(access=AccessSettings(auth=kind))  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=missing):
            access_of(settings, ALL)


def test_a_certificates_user_is_its_last_common_name() -> None:
    subject = ((("organizationName", "srm"),), (("commonName", "ca"),), (("commonName", "ann"),))

    assert common_name({"subject": subject}) == "ann"
    assert common_name({}) == ""


def test_what_somebody_was_refused_is_told_to_the_log_in_one_line(
    views: Views, acting: Actions, caplog: pytest.LogCaptureFixture
) -> None:
    client = opened(views, acting, known("eve\nroot did it", "reader"))

    with caplog.at_level(logging.WARNING, "srm.service.audit"):
        client.post("/v2/flows/P/B/replicator", json={"action": "stop"})

    [record] = caplog.records
    assert record.getMessage() == (
        "POST /v2/flows/P/B/replicator by eve\\nroot did it from testclient refused: "
        "role operator is missing"
    )


@pytest.mark.parametrize(
    ("role", "refused"), [("reader", "role operator is missing"), ("operator", "page of http://e")]
)
def test_a_path_cannot_write_lines_of_its_own_into_the_log(
    views: Views, acting: Actions, caplog: pytest.LogCaptureFixture, role: Role, refused: str
) -> None:
    client = opened(views, acting, known("eve", role))
    path = "/v2/flows/P/B%1b[2JFAKE%e2%80%a8line%c2%85X/replicator"

    with caplog.at_level(logging.WARNING, "srm.service.audit"):
        client.post(path, json={"action": "stop"}, headers={"Origin": "http://e"})

    [record] = caplog.records
    assert record.getMessage().isprintable()
    assert "/v2/flows/P/B\\x1b[2JFAKE\\u2028line\\x85X/replicator" in record.getMessage()
    assert record.getMessage().endswith(refused)


def test_an_access_may_ask_for_what_fastapi_gives_it(views: Views, acting: Actions) -> None:
    async def identify(request: Request) -> User:
        return User(request.headers["X-User"], frozenset({"reader", "operator"}))

    client = opened(views, acting, identify)

    headers = {"X-User": "amy"}
    done = client.post(
        "/v2/flows/P/B/lists/topics", json={"add": ["a"], "dry_run": True}, headers=headers
    )
    assert done.json()["by"] == "amy"
