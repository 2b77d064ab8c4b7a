"""From the text of a value to its type."""

from __future__ import annotations

import pytest

from srm.config.keys import find_key
from srm.config.values import parse_value
from srm.errors import ConfigError

BUDGET, SCHEDULE = find_key("checkpoints.proof.budget"), find_key("drill.schedule")


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("200", 200)])
def test_a_number_may_be_nothing(text: str, value: int) -> None:
    assert BUDGET is not None
    assert parse_value(BUDGET, text) == value


@pytest.mark.parametrize("text", ["-1", "many", "1.5"])
def test_a_number_is_whole_and_not_negative(text: str) -> None:
    assert BUDGET is not None
    with pytest.raises(ConfigError, match="whole number from 0"):
        parse_value(BUDGET, text)


@pytest.mark.parametrize(
    "text", ["0 6 * * 1", "*/5  0-6 1,15 * MON-FRI", "@daily", "59 23 L 12 5#2", "00 06 ? jan 7"]
)
def test_a_cron_expression_is_taken_as_it_stands(text: str) -> None:
    assert SCHEDULE is not None
    assert parse_value(SCHEDULE, text) == " ".join(text.split())


@pytest.mark.parametrize(
    "text",
    [
        "daily",
        "0 6 * *",
        "0 6 * * 1 2026",
        "at six; rm -rf",
        "60 6 * * *",
        "0 24 * * *",
        "0 6 32 * *",
        "0 6 * 13 *",
        "0 6 * * 8",
        "*/0 6 * * *",
        "1,,2 6 * * *",
        "a b c d e",
        "? 6 * * *",
    ],
)
def test_what_is_no_cron_expression_is_said_so_with_an_example(text: str) -> None:
    assert SCHEDULE is not None
    with pytest.raises(ConfigError, match=r"is not a cron expression.*0 6 \* \* 1"):
        parse_value(SCHEDULE, text)
