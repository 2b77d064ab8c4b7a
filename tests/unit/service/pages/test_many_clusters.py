"""The overview of any number of clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from fastapi.testclient import TestClient
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic

from srm.domain.names.topics import Flow
from srm.service.app import create_app
from srm.service.views.flow_rows import FlowLook
from srm_lab.testing.flows import flow_config


@pytest.fixture(scope="module")
def look() -> FlowLook:
    world = CopiedTopic()
    world.write(b"1")
    world.copy()
    return look_at(world.forward)


def star(names: list[str]) -> list[tuple[str, str]]:
    return [(name, names[0]) for name in names[1:]]


def ring(names: list[str]) -> list[tuple[str, str]]:
    return list(pairwise([*names, names[0]]))


def mesh(names: list[str]) -> Iterable[tuple[str, str]]:
    return permutations(names, 2)


@pytest.mark.parametrize(
    ("shape", "count"),
    [(shape, count) for shape in (star, ring) for count in (2, 11, 12, 15, 40)] + [(mesh, 12)],
)
def test_the_overview_shows_them_all(
    look: FlowLook, shape: Callable[[list[str]], Iterable[tuple[str, str]]], count: int
) -> None:
    flows = [Flow(*pair) for pair in shape([f"site{n:02}" for n in range(count)])]
    looks = [replace(look, flow=flow, config=flow_config(flow)) for flow in flows]
    client = TestClient(create_app(still_views(*looks)), raise_server_exceptions=False)

    answer = client.get("/ui")

    assert answer.status_code == 200
    assert answer.text.count('class="box') == count
    assert answer.text.count('class="way"') == len(flows)
