"""docs/service.md tells of every route, and of none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi.testclient import TestClient

_DOCS = Path(__file__).parents[3] / "docs"


def test_every_route_is_documented_and_no_other(client: TestClient) -> None:
    served = set(client.get("/openapi.json").json()["paths"])
    text = "\n".join((_DOCS / page).read_text() for page in ("service.md", "monitoring.md"))
    told = {path.removesuffix(":path") for path in re.findall(r"`(/[\w./{}-]+)`", text)}

    assert served - told == set()
    ours = {path for path in told if path.startswith("/v2")}
    assert {path for path in ours if not any(at.startswith(path) for at in served)} == set()
