"""What a group's pages say that a planned move would wait for."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.test_series import window

from srm.service.app import create_app
from srm.service.pages import groups

NOW_S = 1_800_000_000


@pytest.mark.parametrize("path", ["groups", "groups/audit"])
def test_how_long_copying_takes_is_by_its_best_pace_of_late_and_not_by_what_arrives_now(
    world: CopiedTopic, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Three are to be copied; one a minute came of late, and 180 a minute were copied before."""
    monkeypatch.setattr(groups, "now_ms", lambda: NOW_S * 1000)
    views = still_views(look_at(world.forward))
    earlier = window(NOW_S - 600, "Topic", 180)
    views._watches["B"].add(earlier, window(NOW_S - 60, "Topic", 1))  # type: ignore[attr-defined]

    page = TestClient(create_app(views)).get(f"/ui/flows/P/B/{path}").text

    assert "at most about 1.0 s" in page
