"""The numbers of a move that goes against the flow: its groups read copies."""

from __future__ import annotations

import pytest
from tests.integration.blackbox.stage import Stage
from tests.integration.blackbox.test_report_numbers import (
    EARLY,
    LATER,
    await_end,
    carried_out,
    read,
    write,
)

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def test_records_that_home_has_dropped_are_skipped_as_often_as_the_report_says(
    stage: Stage,
) -> None:
    write(stage, "early", EARLY)
    read(stage, stage.b, "far", EARLY)
    write(stage, "later", LATER)
    reader = stage.reader("far", store=True)
    stage.trim(stage.p, stage.topic)

    report = carried_out(stage, reader, stage.b, "--accept-skips", "accept_skips")
    await_end(stage, reader)

    counted, reported = stage.count(reader), report["groups"][reader.group]
    assert counted.lost > 0
    assert (reported["skipped"], reported["re_read"]) == (counted.lost, counted.twice), counted
    assert reported["lag_at_hold"] == LATER
    assert report["rpo_records"] == 0
