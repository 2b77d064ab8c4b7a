"""Names and passwords: slow to guess, quick for who came in before, never locked out by others."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from tests.seconds import Seconds
from typer.testing import CliRunner

from srm.cli.main import service as program
from srm.config.model import AccessSettings
from srm.errors import ConfigError, UsageError
from srm.service.access import passwords
from srm.service.access.passwords import _KIB as COST
from srm.service.access.passwords import (
    Passwords,
    UsersFile,
    hash_password,
    line,
    matches,
    parse_users,
)
from srm.service.app import create_app
from srm.service.routes.actions import Actions
from srm.service.views.views import Views

PASSWORD = "paßwort: with colon"


@pytest.fixture(scope="module", autouse=True)
def cheap() -> Iterator[None]:
    """A password is hashed in a thousandth of the time; each line of the file says in which."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_KIB", 64)
        yield


@pytest.fixture(scope="module")
def alice() -> str:
    return line("alice", PASSWORD, ("ops",)) + "\n"


@pytest.fixture
def users(tmp_path: Path, alice: str) -> Path:
    path = tmp_path / "users"
    path.write_text(f"# who may come in\n\n{alice}", "utf-8")
    return path


@pytest.mark.parametrize(
    ("mode", "told"), [(0o600, 0), (0o640, 0), (0o660, 0), (0o644, 1), (0o604, 1), (0o602, 1)]
)
def test_a_file_that_everybody_may_read_or_change_is_warned_of_once_with_what_to_do(
    users: Path, caplog: pytest.LogCaptureFixture, mode: int, told: int
) -> None:
    users.chmod(mode)

    found = UsersFile(users)
    found.users()

    what = "all users of this machine may read or change it"
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warned == [f"service.users.location: {what}: chmod 600 {users}"] * told


@pytest.fixture
def ticks() -> Seconds:
    return Seconds()


@pytest.fixture
def client(views: Views, acting: Actions, users: Path, ticks: Seconds) -> TestClient:
    access = Passwords(AccessSettings(operators=("ops",)), UsersFile(users), ticks).identify
    return TestClient(create_app(views, access, acting), raise_server_exceptions=False)


def come_in(client: TestClient, password: str = PASSWORD, name: str = "alice") -> httpx.Response:
    return client.get("/v2/flows", auth=(name.encode(), password.encode()))


def test_the_right_password_comes_in_and_groups_give_roles(client: TestClient) -> None:
    assert come_in(client).status_code == 200
    auth = ("alice", PASSWORD.encode())
    assert client.post("/v2/flows/P/B/refresh", json={}, auth=auth).status_code == 200


def test_no_name_is_answered_with_a_challenge(client: TestClient) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": "Basic"},
        {"Authorization": "Basic %%%"},
        {"Authorization": "Basic YWxpY2U="},
        {"Authorization": "Basic /////w=="},
    ):
        refused = client.get("/v2/flows", headers=headers)
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"].startswith("Basic realm=")


def test_a_wrong_password_and_an_unknown_name_are_told_alike(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        wrong, unknown = come_in(client, "guess-1"), come_in(client, "guess-1", "bob")

    assert (
        (wrong.status_code, wrong.text) == (unknown.status_code, unknown.text) == (401, wrong.text)
    )
    assert "guess-1" not in caplog.text
    assert "login of 'alice' from testclient refused" in caplog.text


def test_guessing_has_to_wait_longer_each_time(client: TestClient, ticks: Seconds) -> None:
    waits = []
    for _ in range(8):
        assert come_in(client, "guess").status_code == 401
        too_soon = come_in(client)
        assert too_soon.status_code == 429
        waits.append(int(too_soon.headers["Retry-After"]))
        ticks.now += waits[-1]

    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (1, 31)
    assert come_in(client).status_code == 200


async def together(client: TestClient, passwords: list[str], name: str = "alice") -> list[int]:
    """Send all at the same time; return the statuses, sorted."""
    transport = httpx.ASGITransport(client.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as asking:
        auths = [(name.encode(), password.encode()) for password in passwords]
        answers = await asyncio.gather(*(asking.get("/v2/flows", auth=auth) for auth in auths))
    return sorted(answer.status_code for answer in answers)


def test_guesses_at_the_same_time_have_to_wait_for_each_other(client: TestClient) -> None:
    guesses = [f"guess {number}" for number in range(8)]

    assert asyncio.run(together(client, guesses)) == [401, *[429] * 7]


def test_a_browser_that_asks_for_many_things_at_once_comes_in_with_all(client: TestClient) -> None:
    assert asyncio.run(together(client, [PASSWORD] * 8)) == [200] * 8


def test_a_name_that_is_longer_than_any_is_refused_and_not_remembered(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    name = "a" * 100_000
    assert [come_in(client, "guess", name).status_code for _ in range(2)] == [401, 401]
    assert len(caplog.text) < 1000


def test_who_came_in_before_is_not_locked_out_by_somebody_elses_guesses(client: TestClient) -> None:
    assert come_in(client).status_code == 200

    assert come_in(client, "guess").status_code == 401
    assert come_in(client, "guess").status_code == 429

    assert come_in(client).status_code == 200


def elsewhere(client: TestClient) -> TestClient:
    """A client of the same service that asks from another address."""
    return TestClient(client.app, raise_server_exceptions=False, client=("10.6.6.6", 50000))


def test_who_guesses_elsewhere_has_to_wait_even_with_the_password_of_somebody_who_is_in(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert come_in(client).status_code == 200
    stranger = elsewhere(client)
    assert come_in(stranger, "guess").status_code == 401

    with caplog.at_level(logging.INFO, "srm.service.audit"):
        guesses = [come_in(stranger, password).status_code for password in ("guess 2", PASSWORD)]

    assert guesses == [429, 429]
    told = "login of 'alice' from 10.6.6.6 refused: wait after wrong passwords"
    assert [record.getMessage() for record in caplog.records[-2:]] == [told] * 2
    assert come_in(client).status_code == 200


def test_a_password_that_is_known_from_one_address_is_hashed_slowly_at_another(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []

    def counted(own: str, password: str) -> bool:
        hashed.append(password)
        return matches(own, password)

    monkeypatch.setattr(passwords, "matches", counted)
    for one in (client, client, elsewhere(client), elsewhere(client)):
        assert come_in(one).status_code == 200

    assert hashed == [PASSWORD] * 2


def test_guesses_during_a_wait_make_the_next_one_longer_and_not_this_one(
    client: TestClient, ticks: Seconds
) -> None:
    for _ in range(6):
        come_in(client, "guess")

    assert come_in(client).headers["Retry-After"] == "1"
    ticks.now += 1
    assert come_in(client, "guess").status_code == 401
    assert come_in(client).headers["Retry-After"] == "31"


def test_many_guesses_from_where_a_user_came_in_make_him_wait_with_them(
    client: TestClient, ticks: Seconds
) -> None:
    """Else who shares his address, as behind a proxy, could guess as fast as he is answered."""
    assert come_in(client).status_code == 200
    for number in range(9):
        come_in(client, f"guess {number}")
    assert come_in(client).status_code == 200

    come_in(client, "guess")

    assert come_in(client).status_code == 429
    ticks.now += 1
    assert [come_in(client).status_code for _ in range(2)] == [200, 200]


def test_many_guesses_from_one_address_are_one_ahead_of_who_comes_from_elsewhere(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, begun = threading.Event(), threading.Event()
    hashed = []

    def gated(_: str, password: str) -> bool:
        hashed.append(password)
        begun.set()
        assert opened.wait(60)
        return password == PASSWORD

    monkeypatch.setattr(passwords, "matches", gated)

    assert asyncio.run(beside_a_flood(client, begun, opened)) == (200, [401] * 17 + [429] * 13)
    assert hashed.index(PASSWORD) <= 2


async def beside_a_flood(
    client: TestClient, begun: threading.Event, opened: threading.Event
) -> tuple[int, list[int]]:
    """Come in while thirty names are guessed at from elsewhere; return the statuses of both."""

    def asking(host: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(client.app, client=(host, 50000))
        return httpx.AsyncClient(transport=transport, base_url="http://testserver")

    async with asking("10.6.6.6") as flood, asking("10.0.0.1") as own:

        def guess(number: int) -> asyncio.Task[httpx.Response]:
            return asyncio.create_task(flood.get("/v2/flows", auth=(f"name{number}", "guess")))

        guesses = [guess(0)]
        assert await asyncio.to_thread(begun.wait, 60)
        auth = (b"alice", PASSWORD.encode())
        coming_in = asyncio.create_task(own.get("/v2/flows", auth=auth))
        guesses += [guess(number) for number in range(1, 30)]
        answered = asyncio.as_completed(guesses)
        refused = [await next(answered) for _ in range(13)]
        assert [each.headers["Retry-After"] for each in refused] == ["1"] * 13
        opened.set()
        statuses = sorted([answer.status_code for answer in await asyncio.gather(*guesses)])
        return (await coming_in).status_code, statuses


def test_guesses_at_one_name_hold_up_no_other(client: TestClient) -> None:
    come_in(client, "guess", "bob")

    assert come_in(client).status_code == 200


def test_a_changed_file_counts_at_once(client: TestClient, users: Path) -> None:
    assert come_in(client).status_code == 200

    users.write_text(line("alice", "new"), "utf-8")

    assert come_in(client).status_code == 401
    assert come_in(client, "new").status_code == 429


def test_a_file_that_is_gone_lets_nobody_in(client: TestClient, users: Path) -> None:
    users.unlink()

    refused = come_in(client)

    assert refused.status_code == 503
    assert str(users) not in refused.text


def test_each_hash_has_a_salt_of_its_own_and_knows_its_password_only() -> None:
    one, other = hash_password("a"), hash_password("a")

    assert one != other
    assert matches(one, "a")
    assert not matches(one, "b")


@given(st.text(st.characters(exclude_characters="\r\n"), min_size=8, max_size=60))
def test_damaged_lines_are_refused_by_number_and_never_shown(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_users(f"# users\nalice:{text}", "users")

    assert re.fullmatch(
        "users:2: invalid hash; write the line with 'srm-service password'", str(refused.value)
    )


def test_a_guess_costs_46_mib_and_one_that_would_stop_the_service_is_refused(alice: str) -> None:
    assert COST == 46 * 1024
    with pytest.raises(ConfigError, match="users:1"):
        parse_users(alice.replace("m=64", "m=9999999"), "users")


@pytest.mark.parametrize("name", ["", "a:b", " a", "a\nb", "#a"])
def test_names_that_cannot_stand_in_the_file_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a valid user name"):
        line(name, "x")


def test_the_program_writes_lines_that_the_service_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("open sesame\n"))
    done = CliRunner().invoke(program, ["password", "ali", "--group", "ops"], input="open sesame\n")

    [entry] = parse_users(done.output, "output").values()
    assert matches(entry.hashed, "open sesame")
    assert entry.groups == {"ops"}
    assert "sesame" not in done.output


def test_an_empty_password_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        line("alice", "")
