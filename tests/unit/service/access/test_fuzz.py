"""Whatever is sent to the service is answered as its schema says, and never with an error of ours.

Schemathesis makes the requests from the schema: what it allows, and what it does not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.engine.status.test_loss_forecast import running

from srm.domain.names import internal_topics
from srm.engine.groups.checkpoints import emit
from srm.engine.why import explain as why
from srm.service.access.access import User
from srm.service.app import create_app
from srm.service.routes.actions import Actions
from srm.service.routes.flows import Explaining

EXAMPLES: Final = 8
KNOWN: Final = {
    "source": ["P", "B"],
    "target": ["B", "P", "C"],
    "cluster": ["P", "B"],
    "kafka_cluster_id": ["B", "id-of-B"],
    "topic": ["Topic", "P.Topic", "gone"],
    "upstream_topic": ["Topic"],
    "downstream_topic": ["P.Topic"],
    "group": ["audit"],
    "name": ["Topic", "P.Topic", "audit"],
}
"""Names that lead to something; anything else ends at the first door."""
CONFORMING: Final = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
]
USUAL = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def app() -> FastAPI:
    world = CopiedTopic()
    world.write(*(b"%d" % number for number in range(10)))
    world.copy()
    world.commit("audit", 8)
    running(world)
    emit(world.forward)
    world.b.add_topic(internal_topics.replication("P"), 2)
    views = still_views(look_at(world.forward))
    clusters = {"P": world.p, "B": world.b}
    acting = Actions(views.config, lambda alias: nullcontext(clusters[alias]))

    def access() -> User:
        return User("fuzz", frozenset({"reader", "operator"}))

    made = create_app(views, access, acting)
    made.state.explaining = Explaining(
        views.config, lambda _config, _flow, name, kinds: why(world.forward, name, kinds)
    )
    return made


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """Let paths have names that are known."""
    found = copy.deepcopy(document)
    for operations in found["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" and "enum" not in parameter["schema"]:
                    names = KNOWN.get(parameter["name"], ["nobody"])
                    parameter["schema"] = {"type": "string", "enum": names}
    return found


def operations(app: FastAPI, document: dict[str, Any]) -> Iterator[Any]:
    schema = schemathesis.openapi.from_dict(document)
    schema.app = app
    for found in schema.get_all_operations():
        yield found.ok()


def ask(app: FastAPI, document: dict[str, Any], mode: GenerationMode, checks: list[Any]) -> int:
    """Ask every operation of a document a few times; return how often."""
    asked = 0
    for operation in operations(app, document):

        @USUAL
        @given(case=operation.as_strategy(generation_mode=mode))
        def conforms(case: Case) -> None:
            nonlocal asked
            asked += 1
            case.validate_response(case.call(), checks=checks)

        conforms()
    assert asked >= len(document["paths"])
    return asked


@pytest.fixture(scope="module")
def document(app: FastAPI) -> dict[str, Any]:
    found: dict[str, Any] = TestClient(app).get("/openapi.json").json()
    return found


def checks(*more: str) -> list[Any]:
    load_all_checks()
    return CHECKS.get_by_names([*CONFORMING, *more])


def test_any_names_are_answered_as_the_schema_says(app: FastAPI, document: dict[str, Any]) -> None:
    ask(app, document, GenerationMode.POSITIVE, checks())


def test_known_names_are_answered_as_the_schema_says(
    app: FastAPI, document: dict[str, Any]
) -> None:
    ask(app, narrowed(document), GenerationMode.POSITIVE, checks())


def test_what_the_schema_does_not_allow_is_refused(app: FastAPI, document: dict[str, Any]) -> None:
    known = narrowed(document)
    # Of names that nobody knows version 1 tells an empty list.
    known["paths"] = {path: value for path, value in known["paths"].items() if "/v2/" in path}

    ask(app, known, GenerationMode.NEGATIVE, checks("negative_data_rejection"))
