"""What operators do reaches the clusters as the programs' own commands would, with their name."""

from __future__ import annotations

import logging

import pytest
from fastapi.testclient import TestClient
from tests.service_views import StillWatch
from tests.unit.engine.copying_records import CopiedTopic

from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    REQUEST_KEY,
    DriverHeartbeat,
    DriverRequest,
)
from srm.domain.names import internal_topics
from srm.service.access.access import User
from srm.service.app import create_app
from srm.service.routes.actions import Actions
from srm.service.views.views import Views

REPLICATOR = "/v2/flows/P/B/replicator"
TOPICS = "/v2/flows/P/B/lists/topics"


def olga() -> User:
    return User("olga", frozenset({"reader", "operator"}))


@pytest.fixture
def operator(views: Views, acting: Actions) -> TestClient:
    return TestClient(create_app(views, olga, acting), raise_server_exceptions=False)


def test_a_restart_is_asked_for_in_the_users_name(
    operator: TestClient, world: CopiedTopic, caplog: pytest.LogCaptureFixture
) -> None:
    beat = DriverHeartbeat("d1", "app-1", "host", 4711, time_ms=world.clock())
    world.b.add_topic(internal_topics.replication("P"), 2)
    state = world.b.compacted_topic(internal_topics.replication("P"))
    state.write({DRIVER_KEY: beat.value()})

    with caplog.at_level(logging.INFO, "srm.service.audit"):
        told = operator.post(REPLICATOR, json={"action": "restart"}).json()

    rows = state.read()
    request = DriverRequest.decode(rows[REQUEST_KEY])
    assert (request.action, request.by) == ("restart", "olga")
    assert (told["flow"], told["action"], told["by"]) == ("P->B", "restart", "olga")
    assert (told["outcome"], told["application"]) == ("asked", "app-1")
    [record] = caplog.records
    assert record.getMessage().startswith("restart of the replicator of P->B by olga from ")


def test_a_change_of_a_list_says_what_it_did(operator: TestClient, client: TestClient) -> None:
    first = operator.post(TOPICS, json={"add": ["Orders", "Pay.*"], "add_deny": ["Pay-x"]}).json()
    again = operator.post(TOPICS, json={"add": ["Orders"], "remove": ["Pay.*", "gone"]}).json()

    assert first["added"] == ["Orders", "Pay.*", "Pay-x"]
    assert (again["already"], again["removed"], again["absent"]) == (
        ["Orders"],
        ["Pay.*"],
        ["gone"],
    )
    assert client.get(TOPICS).json() == {
        "flow": "P->B",
        "list": "topics",
        "allow": ["Orders"],
        "deny": ["Pay-x"],
    }


def test_a_dry_run_says_what_would_be_and_writes_nothing(
    operator: TestClient, client: TestClient, world: CopiedTopic
) -> None:
    told = operator.post(TOPICS, json={"add": ["Orders"], "dry_run": True}).json()

    assert (told["added"], told["lists"]["allow"], told["dry_run"]) == (
        ["Orders"],
        ["Orders"],
        True,
    )
    assert client.get(TOPICS).json()["allow"] == []
    assert internal_topics.control("P") not in world.b.topics()


def test_a_dry_run_foretells_what_the_change_does(operator: TestClient) -> None:
    operator.post(TOPICS, json={"add": ["a", "b"], "add_deny": ["c"]})
    change = {"add": ["d", "a"], "remove": ["b", "z"], "add_deny": ["e"], "remove_deny": ["c"]}

    foretold = operator.post(TOPICS, json={**change, "dry_run": True}).json()
    done = operator.post(TOPICS, json=change).json()

    assert {**foretold, "dry_run": False} == done


def test_a_refresh_makes_the_target_be_looked_at_now(operator: TestClient, views: Views) -> None:
    told = operator.post("/v2/flows/P/B/refresh", json={})

    watch: StillWatch = views._watches["B"]  # type: ignore[assignment]
    assert (told.status_code, watch.refreshed) == (200, 1)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        (REPLICATOR, {"action": "explode"}, 422, "action: Input should be 'stop' or 'restart'"),
        (REPLICATOR, {}, 422, "action: Field required"),
        (REPLICATOR, {"action": "stop", "force": True}, 422, "force: "),
        (REPLICATOR, [], 422, "object"),
        ("/v2/flows/P/P/replicator", {"action": "stop"}, 400, "P"),
        ("/v2/flows/P/Z/replicator", {"action": "stop"}, 400, "Z"),
        (TOPICS, {"add": ["(", "x"]}, 400, "nothing was changed"),
        (TOPICS, {"add": ["x"], "remove": ["x"]}, 400, "both added and removed"),
        (TOPICS, {"add": ["a,b"]}, 422, "add.0"),
        (TOPICS, {"add": ["x\ny"]}, 422, "add.0"),
        ("/v2/flows/P/B/lists/colours", {}, 422, "list"),
    ],
)
def test_what_cannot_be_understood_changes_nothing_and_says_why(
    operator: TestClient, world: CopiedTopic, path: str, body: object, status: int, text: str
) -> None:
    before = world.b.compacted_topic(internal_topics.replication("P")).read()

    refused = operator.post(path, json=body)

    assert (refused.status_code, refused.headers["Content-Type"]) == (
        status,
        "application/problem+json",
    )
    assert text in refused.json()["detail"]
    assert world.b.compacted_topic(internal_topics.replication("P")).read() == before


def test_more_than_a_request_needs_is_not_read(operator: TestClient) -> None:
    assert operator.post(TOPICS, json={"add": ["x" * 70_000]}).status_code == 413


def test_a_target_that_does_not_answer_is_told_as_503(
    operator: TestClient, world: CopiedTopic, caplog: pytest.LogCaptureFixture
) -> None:
    world.b.fail()

    told = operator.post(REPLICATOR, json={"action": "stop"})

    assert (told.status_code, told.headers["Retry-After"]) == (503, "5")
    assert any(
        "by olga" in each.getMessage() and "failed" in each.getMessage() for each in caplog.records
    )
