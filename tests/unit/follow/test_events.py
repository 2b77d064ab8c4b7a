"""Log lines: one for each event, for people or for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime

import pytest

from srm.follow.supervisor import EventFormatter, say


def formatted(caplog: pytest.LogCaptureFixture, *, as_json: bool) -> list[str]:
    return [EventFormatter(as_json=as_json).format(record) for record in caplog.records]


def test_an_event_is_one_line_with_its_time_and_its_level_where_that_matters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "srm.follow")
    say("started", "started\nx", pid=7)
    say("killed", "killed it", logging.WARNING)
    lines = [line.split(" ", 1) for line in formatted(caplog, as_json=False)]

    assert [text for _, text in lines] == ["srm follow: started x", "srm follow: WARNING killed it"]
    assert datetime.fromisoformat(lines[0][0]).tzinfo is not None


def test_as_json_it_has_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "srm.follow")
    say("started", "started x", pid=7, cluster="P")
    logging.getLogger("srm.client.routing").warning("routes of %s", "B")
    first, second = map(json.loads, formatted(caplog, as_json=True))

    assert (first["event"], first["level"], first["pid"], first["cluster"]) == (
        "started",
        "INFO",
        7,
        "P",
    )
    assert (second["event"], second["message"]) == ("log", "routes of B")


def test_a_failure_of_a_thread_is_one_line_as_well() -> None:
    try:
        raise ValueError("odd")  # noqa: TRY301 -- to have a trace
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "died", (), sys.exc_info())

    [line] = EventFormatter(as_json=False).format(record).splitlines()
    assert line.endswith("srm follow: ERROR died (ValueError: odd)")
