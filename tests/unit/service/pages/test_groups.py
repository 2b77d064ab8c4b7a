"""What a group's pages say that a planned move would wait for."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.engine.status.test_loss_forecast import running
from tests.unit.service.pages.reading import Outline
from tests.unit.service.views.test_series import window

from srm.engine.groups.checkpoints import emit
from srm.engine.status.observing import flow_status
from srm.service.app import create_app
from srm.service.pages import flows
from srm.service.views.flow_rows import group_lag

NOW_S = 1_800_000_000


@pytest.fixture
def empty() -> CopiedTopic:
    """A flow with a topic, and no group that reads it."""
    made = CopiedTopic()
    made.write(b"0")
    made.copy()
    running(made)
    return made


@pytest.mark.parametrize("path", ["groups", "groups/audit"])
def test_how_long_copying_takes_is_by_its_best_pace_of_late_and_not_by_what_arrives_now(
    world: CopiedTopic, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Three are to be copied; one a minute came of late, and 180 a minute were copied before."""
    monkeypatch.setattr(flows, "now_ms", lambda: NOW_S * 1000)
    views = still_views(look_at(world.forward))
    earlier = window(NOW_S - 600, "Topic", 180)
    views._watches["B"].add(earlier, window(NOW_S - 60, "Topic", 1))  # type: ignore[attr-defined]

    page = TestClient(create_app(views)).get(f"/ui/flows/P/B/{path}").text

    assert "at most about 1.0 s" in page


def test_the_list_shows_the_lag_of_each_group_and_none_of_a_silent_source(
    world: CopiedTopic,
) -> None:
    """Its commit is 8 of 13 records, of which 10 are copied."""

    def cells() -> list[str]:
        client = TestClient(create_app(still_views(look_at(world.forward))))
        text = client.get("/ui/flows/P/B/groups").text
        return [
            Outline(part.partition("</td>")[0]).words for part in text.split('label="Lag">')[1:]
        ]

    answered = cells()
    assert group_lag(look_at(world.forward), "without-commits", None) is None
    world.p.fail()
    silent = cells()

    assert (answered, silent) == (["5"], ["\N{EN DASH}"])


def test_status_list_and_page_count_the_same_lag_also_of_records_that_have_expired(
    world: CopiedTopic,
) -> None:
    world.p.trim("Topic", 0, 10)
    look = look_at(world.forward)

    [group] = [one for one in flow_status(world.forward).groups if one.group == "audit"]
    with TestClient(create_app(still_views(look))) as client:
        page = Outline(client.get("/ui/flows/P/B/groups/audit").text).words
        json = client.get("/v2/flows/P/B/groups/audit").json()

    assert (group.lag, group_lag(look, "audit", None), json["lag"]) == (5, 5, 5)
    assert "Lag on P 5 " in page


def without_groups(world: CopiedTopic) -> Outline:
    views = still_views(look_at(world.forward))
    return Outline(TestClient(create_app(views)).get("/ui/flows/P/B/groups").text)


def test_a_flow_without_groups_has_the_command_that_selects_some(empty: CopiedTopic) -> None:
    empty.settings = {"groups": ()}
    emit(empty.forward)

    page = without_groups(empty)

    assert "No group is selected." in page.words
    assert page.copied == ["srm-control groups --source P --target B --add 'GROUP'"]


def test_where_checkpoints_are_switched_off_the_key_is_named(empty: CopiedTopic) -> None:
    empty.settings = {"emit_checkpoints_enabled": False}

    assert "To do: set P->B.emit.checkpoints.enabled=true" in without_groups(empty).words


def test_groups_that_are_selected_are_not_to_be_selected_once_more(empty: CopiedTopic) -> None:
    """All groups were selected, and the page said to select all."""
    before = without_groups(empty)
    emit(empty.forward)
    after = without_groups(empty)

    assert "No checkpoints of this flow were emitted yet" in before.words
    assert before.copied == ["srm checkpoints emit --flow 'P->B'"]
    told = "No selected group has committed offsets on a selected topic, as of the last emission"
    assert told in after.words
    assert after.copied == []
