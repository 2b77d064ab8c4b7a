"""Under which names the service answers: a page elsewhere may point its own at this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from srm.config.model import AccessSettings, RemoteSettings, ServiceSettings
from srm.errors import ConfigError
from srm.service.access.logins import is_loopback
from srm.service.app import allowed_hosts, create_app, server_config
from srm.service.views.views import Views

ALL = "0.0.0.0"  # noqa: S104 -- nothing listens
OWN = ("localhost", "127.0.0.1", "[::1]")


def settings(host: str = "127.0.0.1", *names: str, **access: Any) -> ServiceSettings:
    return ServiceSettings(host=host, access=AccessSettings(allowed_hosts=names, **access))


def status(views: Views, service: ServiceSettings, host: str, path: str = "/v2/flows") -> int:
    app = create_app(views, hosts=allowed_hosts(service))
    return TestClient(app, base_url=f"http://{host}").get(path).status_code


@pytest.mark.parametrize("path", ["/v2/flows", "/health", "/ui", "/static/icon.svg"])
@pytest.mark.parametrize("insecure", [False, True])
def test_on_this_machine_alone_a_service_without_users_answers_to_its_own_names_only(
    views: Views, path: str, *, insecure: bool
) -> None:
    service = settings(insecure=insecure)

    for host in ("localhost:6670", "127.0.0.1", "[::1]:6670", "LOCALHOST"):
        assert status(views, service, host, path) == 200
    for host in ("evil.example", "localhost.evil.example:6670", "127.0.0.1.evil.example"):
        assert status(views, service, host, path) == 403


def test_who_is_refused_reads_in_one_line_which_key_would_let_him_in(views: Views) -> None:
    app = create_app(views, hosts=allowed_hosts(settings()))

    told = TestClient(app, base_url="http://srm.example.org:81").get("/v2/flows?limit=1")

    assert told.headers["Content-Type"] == "application/problem+json"
    assert (told.json()["status"], told.json()["instance"]) == (403, "/v2/flows")
    assert told.json()["detail"] == (
        "host srm.example.org:81 is not allowed; add it to service.allowed.hosts"
    )


@pytest.mark.parametrize(
    ("service", "hosts"),
    [
        (settings(ALL, insecure=True), ("*",)),
        (settings("10.0.0.7", auth="basic"), ("*",)),
        (settings(auth="basic"), ("*",)),
        (settings("127.0.0.1", "*"), ("*", *OWN)),
        (settings("127.0.0.9"), (*OWN, "127.0.0.9")),
        (settings("::1"), OWN),
        (settings(ALL, "srm.example.org", insecure=True), ("srm.example.org", *OWN, ALL)),
        (
            replace(settings(), remote=RemoteSettings(advertise=True, host="p.example.org")),
            (*OWN, "p.example.org"),
        ),
        (
            replace(
                settings("10.0.0.7", "srm", auth="mtls"), remote=RemoteSettings(advertise=True)
            ),
            ("srm", *OWN, "10.0.0.7"),
        ),
    ],
)
def test_elsewhere_any_name_will_do_until_some_are_named_next_to_its_own(
    service: ServiceSettings, hosts: tuple[str, ...]
) -> None:
    assert allowed_hosts(service) == hosts


def test_named_ones_are_answered_and_those_below_a_domain(views: Views) -> None:
    service = settings(ALL, "srm.example.org", "*.acme.example", insecure=True)

    for host in ("srm.example.org:6670", "SRM.example.org", "p.acme.example", "localhost"):
        assert status(views, service, host) == 200
    for host in ("example.org", "acme.example", "evilacme.example", "www.srm.example.org"):
        assert status(views, service, host) == 403


@pytest.mark.parametrize("name", ["srm:6670", "http://srm", "s*m", "*srm", "*.", "::1"])
def test_what_is_no_name_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match=r"service\.allowed\.hosts: "):
        allowed_hosts(settings(ALL, name, insecure=True))


def test_the_program_guards_what_it_serves_by_where_it_listens(views: Views) -> None:
    """Where it listens may be an option of the command."""
    app = server_config(views.config).app
    told = TestClient(app, base_url="http://evil.example").get("/health")  # type: ignore[arg-type]
    insecure = replace(views.config.service, access=AccessSettings(insecure=True))
    of_all = server_config(replace(views.config, service=insecure), host=ALL).app
    open_to_all = TestClient(of_all, base_url="http://srm.example.org")  # type: ignore[arg-type]

    assert told.status_code == 403
    assert open_to_all.get("/static/icon.svg").status_code == 200


def test_loopback_is_told_from_other_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, (ALL, "::", "10.0.0.1", "srm", "localhost.evil", "")))
