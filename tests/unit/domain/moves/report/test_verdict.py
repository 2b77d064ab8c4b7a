"""One result of a move, and the same words and numbers wherever it appears."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.unit.domain.moves.report.reporting import DISASTER, GROUP, REPORT

from srm.domain.moves.disaster import Forecast, GroupForecast, TopicForecast
from srm.domain.moves.report import Bounds, Follower, MoveReport, read_again_by
from srm.domain.moves.revisions import KeptReport, next_revision
from srm.pages.html import report_page
from srm.pages.moves import as_text, report_line, report_view
from srm.pages.reports import list_row, list_view, report_markdown, report_summary

HOLD = 1_700_000_001_000
_FORECAST = Forecast(
    HOLD + 1_000,
    (
        TopicForecast("Payments", 3, 0, 7_744, 0.0, 147_000),
        TopicForecast("Idle", 1, 0, 0, 0.0, 147_400),
    ),
    (GroupForecast("ledger", 3, 164, 0, 3_000), GroupForecast("till", 3, 8_652, 0, 3_000)),
)
_LOST_SOURCE = replace(
    DISASTER,
    ok=True,
    problems=(),
    outcome=None,
    forecast=_FORECAST,
    rpo_records=None,
    rpo_at_least=0,
    rpo_at_most=7_744,
    rpo_seconds=None,
    rto_seconds=5.2,
    hold_stamp_ms=HOLD,
    gone_stamp_ms=HOLD + 4_250,
    times_ms={"holding": HOLD, "gone": HOLD + 4_250},
    groups={
        "ledger": replace(GROUP, re_read=0, rto_seconds=5.2, uncommitted={}),
        "till": replace(GROUP, re_read=864, rto_seconds=171.0, members_at_hold=0, uncommitted={}),
    },
)


def test_each_view_of_a_move_has_the_same_verdict_and_the_same_ranges() -> None:
    result, kept = _LOST_SOURCE.result, KeptReport.made(_LOST_SOURCE, None)

    assert (result.verdict, str(result.lost)) == ("as forecast", "0 to 7,744")
    assert str(result.read_again) == "864 to 8,816"
    again = {name: str(bounds) for name, bounds in read_again_by(_LOST_SOURCE).items()}
    assert again == {"ledger": "0 to 164", "till": "864 to 8,652"}
    texts = (
        as_text(report_view(_LOST_SOURCE), width=300),
        report_page(kept),
        report_markdown(_LOST_SOURCE),
    )
    for text in (*texts, report_line(_LOST_SOURCE), as_text(list_view([kept]), width=300)):
        for shown in ("as forecast", "0 to 7,744", "864 to 8,816", "5 min 17 s"):
            assert shown.replace("5 min 17 s", result.outage_text) in text, (shown, text)
    for text in texts:
        assert "0 to 164" in text
        assert "864 to 8,652" in text
    assert list_row(kept)["result"] == result


def test_the_outage_counts_from_the_last_answer_until_the_last_group_is_back() -> None:
    """The hold came 146 s after that answer, and a group without routes was back 171 s later."""
    result = _LOST_SOURCE.result
    absent = {**_LOST_SOURCE.groups, "rest": replace(GROUP, rto_seconds=None, resumed=False)}

    assert (result.outage_seconds, result.not_back) == (146 + 171, 0)
    assert result.outage_text == "5 min 17 s"
    waits = replace(_LOST_SOURCE, groups=absent).result
    assert (waits.outage_seconds, waits.not_back) == (146 + 171, 1)
    assert waits.outage_text == "5 min 17 s, 1 group not back"
    never = replace(GROUP, rto_seconds=None, resumed=False, members_at_hold=0)
    unused = replace(_LOST_SOURCE, groups={**_LOST_SOURCE.groups, "rest": never}).result
    assert unused.outage_text == "5 min 17 s", "it may never have had a client"
    alive = replace(_FORECAST, made_ms=HOLD + 200_000)
    assert replace(_LOST_SOURCE, forecast=alive).result.outage_seconds == 171
    assert replace(_LOST_SOURCE, forecast=None).result.outage_seconds is None
    assert "5 min 17 s" not in report_line(REPORT)
    assert "outage" not in report_line(REPORT), "of a planned move it is the RTO"
    assert REPORT.result.outage_seconds == REPORT.rto_seconds


def test_an_outage_without_a_measured_client_has_only_a_lower_bound() -> None:
    never = replace(GROUP, rto_seconds=None, resumed=False, members_at_hold=0)
    unused = replace(_LOST_SOURCE, groups={"ledger": never, "till": never})
    result = unused.result

    assert (result.outage_measured, _LOST_SOURCE.result.outage_measured) == (False, True)
    assert result.outage_text == "at least 2 min 30 s, no client measured"
    waits = replace(unused, groups={"ledger": replace(never, members_at_hold=1)}).result
    assert waits.outage_text == "at least 2 min 30 s, 1 group not back"
    assert result.outage_text in report_page(KeptReport.made(unused, None))


def test_the_result_is_part_of_the_stored_document_and_of_the_summary() -> None:
    document = json.loads(_LOST_SOURCE.value())

    assert document["result"]["read_again"] == {"least": 864, "most": 8816}
    assert document["result"]["outage_seconds"] == 317
    assert MoveReport.decode(_LOST_SOURCE.value()) == _LOST_SOURCE
    assert report_summary(_LOST_SOURCE)["result"] == document["result"]


def test_an_undecided_move_has_no_outage_and_is_not_unclean() -> None:
    released = replace(REPORT, step="released", times_ms={"holding": 1, "released": 2})

    assert (released.result.verdict, released.result.outage_seconds) == ("not moved", None)
    assert REPORT.result.lost == Bounds(0, 0)


def _producer(client: str, **unwritten: int) -> Follower:
    reasons = {f"writing to Payments on cluster B: {why}": n for why, n in unwritten.items()}
    known = ("topic:Payments", client, "h", "producer", "routing", "resumed")
    return Follower(*known, unwritten=reasons)


def test_a_move_whose_producers_cannot_write_is_not_as_forecast_until_they_can() -> None:
    cannot = (_producer("shop", refused=12), _producer("till", refused=0), _producer("idle"))
    first = next_revision(None, replace(_LOST_SOURCE, followers=cannot), 1, None)
    line = "2 producers (shop, till) followed and cannot write: writing to Payments on cluster B: "
    problem = f"{line}refused; 12 records waiting"

    assert (first.report.ok, first.report.problems) == (False, (problem,))
    assert first.report.result.verdict == "not clean"
    assert json.loads(first.report.value())["followers"][0]["unwritten"] == cannot[0].unwritten
    page, markdown = report_page(first), report_markdown(first.report)
    assert "cannot write</td>" in page
    for text in (as_text(report_view(first.report), width=300), page, markdown):
        assert problem in text
        assert "as forecast" not in text
    assert "not clean" in as_text(list_view([first]), width=300)

    closed = next_revision(first, replace(_LOST_SOURCE, followers=()), 2, None)
    assert closed.report.problems == (problem,), "a closed client has not written them, either"
    able = (_producer("shop"), _producer("till"))
    later = next_revision(closed, replace(_LOST_SOURCE, followers=able), 3, None)
    assert (later.report.ok, later.report.result.verdict) == (True, "as forecast")
