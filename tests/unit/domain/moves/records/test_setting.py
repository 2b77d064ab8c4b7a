"""The settings of a move: declared once, checked in one place, the same on every surface."""

from __future__ import annotations

import math

import pytest

from srm.domain.moves.request import (
    FORM,
    SECTIONS,
    SETTINGS,
    MoveRequest,
    MoveSetting,
    RunSettings,
    read,
)
from srm.errors import UsageError

MOVE = {"operation": "failover", "source": "P", "target": "B"}
LIMITS = [setting for setting in FORM.values() if setting.kind == "seconds"]


def parse(name: str, value: object) -> object:
    if name in {setting.name for setting in SETTINGS}:
        return getattr(read(MoveRequest, {**MOVE, name: value}), name)
    return getattr(read(RunSettings, {name: value}), name)


@pytest.mark.parametrize("setting", LIMITS, ids=lambda each: each.name)
def test_a_number_of_seconds_is_taken_up_to_its_bounds_and_refused_beyond(
    setting: MoveSetting,
) -> None:
    lowest, highest = setting.bounds
    assert lowest <= setting.default <= highest
    assert [parse(setting.name, value) for value in (lowest, highest)] == [lowest, highest]

    for value in (lowest - 1, highest + 1, math.nan, math.inf):
        with pytest.raises(UsageError, match=f"give {lowest:g} to {highest:g} seconds"):
            parse(setting.name, value)


@pytest.mark.parametrize("setting", FORM.values(), ids=lambda each: each.name)
def test_each_setting_has_a_title_a_help_a_section_and_a_default_that_is_taken(
    setting: MoveSetting,
) -> None:
    assert setting.title
    assert setting.help.endswith(".")
    assert setting.section in SECTIONS
    if setting.name not in {"source", "target"}:
        assert parse(setting.name, setting.default) == setting.default


def test_choices_are_the_values_of_the_type_and_a_meaning_follows_its_value() -> None:
    assert dict(FORM["fence"].choices) == {
        "": "as configured",
        "none": "none",
        "acl": "acl: deny writes on the source from the hold on",
    }
    assert list(FORM["mode"].choices) == ["planned", "unplanned"]
    assert list(FORM["redirect"].choices) == ["routing", "webhook", "command", "manual"]
    names = {setting.name for setting in SETTINGS if setting.kind == "names"}
    assert names == {"topics", "groups", "exclude_groups"}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
@pytest.mark.parametrize("none", [None, ""])
def test_null_and_an_empty_text_mean_what_an_absent_key_means(
    setting: MoveSetting, none: str | None
) -> None:
    if setting.name not in MOVE:
        assert read(MoveRequest, {**MOVE, setting.name: none}) == read(MoveRequest, MOVE)


def test_a_run_refuses_what_is_none_of_its_settings() -> None:
    with pytest.raises(UsageError, match="'dry_run' cannot be used"):
        read(RunSettings, {"dry_run": "perhaps"})
