"""docs/service.md names every key of access, every action and every kind of user."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi.testclient import TestClient

from srm.cli.commands import SERVICE
from srm.config.keys import SERVICE_KEYS

PAGE = Path("docs/service.md").read_text("utf-8")
_IN_CONFIGURATION_ALONE = re.compile(
    r"service\.(oidc\.(ca|user)|remote\.ssl\.key|advertised\.(protocol|port|root|topic))"
)


def test_every_key_is_explained_or_an_obvious_companion_of_one() -> None:
    for key in SERVICE_KEYS:
        if "." not in key.attribute:
            continue  # not about access
        assert (
            f"{key.name}`" in PAGE
            or f"{key.name} =" in PAGE
            or (_IN_CONFIGURATION_ALONE.match(key.name))
        ), key.name


def test_every_action_and_command_is_listed(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    actions = [path for path, operations in paths.items() if "post" in operations]

    assert len(actions) == 3
    assert not [path for path in actions if f"`{path}`" not in PAGE]
    for command in SERVICE:
        assert f"srm-service {command}" in PAGE
