"""Reports as people see them: a list, Markdown, a page, files."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.unit.domain.moves.report.reporting import (
    DISASTER,
    GROUP,
    OUTCOME,
    PARTITION,
    REPORT,
    losing,
    signing_key,
)

from srm.domain.moves.disaster import GroupOutcome
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.report import result_of
from srm.domain.moves.revisions import KeptReport, Signed
from srm.errors import UsageError
from srm.pages import files
from srm.pages.files import export_report, signature_file
from srm.pages.html import SHOWN_PARTITIONS, report_page
from srm.pages.moves import (
    as_text,
    costs,
    outcome_lines,
    report_line,
    report_view,
)
from srm.pages.reports import (
    list_row,
    list_view,
    report_markdown,
    signature_text,
)

KEY = signing_key()
KEPT = KeptReport.made(REPORT, KEY)


class Outline(HTMLParser):
    """What a screen reader, or the network, would find in a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.headings: list[str] = []
        self.open: list[str] = []
        self.unscoped = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.loaded += [str(named[name]) for name in ("src", "href") if name in named]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)
        if tag == "th" and "scope" not in named:
            self.unscoped += 1
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_loads_nothing_and_can_be_read_aloud() -> None:
    found = Outline(report_page(KEPT))

    assert found.open == []
    assert found.loaded == []
    assert found.headings[0] == "h1"
    assert set(found.headings[1:]) == {"h2"}
    assert found.unscoped == 0, "each heading of a table says what it is of"


def test_the_page_shows_everything_that_the_report_says() -> None:
    page = report_page(KEPT)

    for said in (
        "group billing read 2 records again",
        "planned 0",
        "P.Payments-0",
        "ada@ops",
        "records <b>312</b>",
        "redirected by",
        "b-1",
        "HTTP 200",
        "routing, webhook; other writers fenced by acl",
        "accept_skips",
        "warning of the plan: replication lags",
        "id-of-p",
        "ab" * 32,
        KEPT.signed.sha256,
        KEY.public.key_id,
        "after go, watched until 2023-11-14 22:18:20 UTC",
    ):
        assert said in page, said


def test_a_disaster_shows_forecast_and_outcome_side_by_side() -> None:
    page = report_page(KeptReport.made(DISASTER, None))
    waits = report_page(KeptReport.made(replace(DISASTER, outcome=None), None))

    for said in ("return: <b>same</b>", "<b>315</b>", "<td>merge</td>", ">312<", ">330<"):
        assert said in page, said
    assert "Payments-2 is not copied: full" in page
    assert "other writers fenced by acl, if P answered" in page
    assert "no outcome yet" in waits
    assert "Forecast and outcome" not in report_page(KEPT)
    [shown] = [line for line in as_text(report_view(DISASTER)).splitlines() if "merge" in line]
    assert shown.split() == ["Payments", "312", "330", "315", "merge"]
    text = report_markdown(DISASTER)
    assert r"| Payments | 312 | 330 | 315 | merge |" in text
    assert r"| billing | 40 | 2 to 355 | 3 |" in text
    shown = as_text(report_view(DISASTER))
    assert "forecast: 312 records not copied, at most 330" in shown
    assert "outcome: P still had 315 records that had not been copied" in shown
    assert "groups had read of the residue: billing 3;" in shown
    assert "outcome" not in as_text(report_view(REPORT))


def test_a_residue_that_no_look_has_counted_is_not_called_none() -> None:
    """A source that is abandoned, or does not answer, may have taken any number of records."""
    unseen = replace(DISASTER, residue={}, residue_seen_ms=None)

    assert report_line(unseen).endswith("read again 2 to 355")
    assert "| residue | - |" in report_markdown(unseen)
    assert "<b>\u2013</b>\n    <span>residue" in report_page(KeptReport.made(unseen, None))
    assert report_line(replace(unseen, residue_seen_ms=1)).endswith("residue 0")


def test_an_outcome_without_topics_that_a_later_move_led_to_is_a_lower_bound() -> None:
    """P still had 3 records of them, and the line said that it had none."""
    assert DISASTER.outcome is not None
    found = replace(DISASTER.outcome, partitions=(), unread=("Payments: its residue",))

    lines = as_text(report_view(replace(DISASTER, outcome=found))).splitlines()

    assert any("outcome: P still had at least 0 records that had not" in one for one in lines)
    assert any("not in the outcome: Payments: its residue" in one for one in lines)


def test_a_move_that_skipped_records_is_not_called_clean() -> None:
    lost = replace(losing(DISASTER, 0, 0), ok=True, problems=(), outcome=None)
    group = replace(lost.groups["billing"], re_read=0, skipped=2)

    assert result_of(replace(lost, groups={"till": group})).verdict == "as forecast"


def test_what_several_groups_had_read_of_the_same_records_is_not_summed() -> None:
    assert DISASTER.outcome is not None
    most = GroupOutcome({"Payments-0": 300}, {})
    found = replace(DISASTER.outcome, groups={"a": most, "b": most})

    [line] = [one for one in outcome_lines(replace(DISASTER, outcome=found)) if "had read" in one]

    assert "not been copied; groups had read of the residue: a 300, b 300; P" in line


def test_a_move_that_lost_what_was_forecast_is_not_called_clean() -> None:
    lost = replace(DISASTER, ok=True, problems=())

    assert result_of(lost).verdict == "as forecast"
    none = losing(lost, 0, 0)
    assert result_of(none).verdict == "as forecast", "by what was found later"
    assert result_of(replace(none, outcome=None)).verdict == "as forecast", "read again"
    assert result_of(replace(none, outcome=None, groups={})).verdict == "clean"
    assert result_of(replace(losing(none, 0, 9), outcome=None, groups={})).verdict == "as forecast"
    assert (
        result_of(replace(losing(none, 0, None), outcome=None, groups={})).verdict == "as forecast"
    )
    assert lost.forecast is not None
    few = replace(lost.forecast, topics=(replace(lost.forecast.topics[0], at_most=314),))
    assert result_of(replace(lost, forecast=few)).verdict == "more lost than forecast"
    assert result_of(DISASTER).verdict == "not clean"
    assert "failover P->B: as forecast; RPO 315 to 330 records, outage 6.7 s, RTO" in report_line(
        lost
    )
    assert ">as forecast</span>" in report_page(KeptReport.made(lost, None))


def test_what_nobody_has_counted_is_not_said_to_be_nothing() -> None:
    report = replace(DISASTER, outcome=None)
    text = as_text(report_view(report), width=300)
    page = report_page(KeptReport.made(report, None))

    assert "skipped 0, read again 2 to 40" in text
    assert "2 to 40" in text.split("working after")[1], "in the row of the group, too"
    assert "| read again | 2 to 40 | records |" in report_markdown(report)
    assert "<b>2 to 40</b>" in page
    assert str(result_of(REPORT).read_again) == "2", "a planned move has counted"
    assert DISASTER.forecast is not None
    blind = replace(DISASTER, forecast=replace(DISASTER.forecast, groups=(), unseen=("billing",)))
    assert str(result_of(blind).read_again) == "2 or more"
    assert "0 read again, unknown for billing;" in blind.forecast.line("P")


def test_a_residue_that_was_merged_may_be_read_again_too() -> None:
    """A group had read it on P, committed or not: 20 again, where the forecast had at most 16."""
    kept = replace(DISASTER, outcome=replace(OUTCOME, choices={"Payments": "keep"}))

    assert (str(result_of(DISASTER).read_again), str(result_of(kept).read_again)) == (
        "2 to 355",
        "2 to 40",
    )


def test_forecast_and_outcome_are_joined_by_topic_and_group_whichever_names_them() -> None:
    found = costs(replace(DISASTER, forecast=None))
    said = costs(replace(DISASTER, outcome=None))

    assert costs(REPORT) is None
    assert found is not None
    assert (found.topics[0].not_copied, found.topics[0].residue) == (None, 315)
    assert (found.topics[0].only_copied, found.topics[0].gone) == (5, 2)
    assert found.groups[0].read_of_residue == 3
    assert said is not None
    assert (said.topics[0].at_most, said.topics[0].residue) == (330, None)
    assert [line.split()[0] for line in said.unknown] == ["Payments-2", "group", "open"]


def test_a_page_of_very_many_partitions_shows_those_that_did_not_go_as_planned() -> None:
    right = replace(PARTITION, planned=992)
    many = tuple(replace(right, partition=number) for number in range(SHOWN_PARTITIONS))
    group = replace(GROUP, partitions=(*many, replace(PARTITION, partition=4711, applied=991)))
    kept = KeptReport.made(replace(REPORT, groups={"billing": group}), KEY)

    page = report_page(kept)

    assert "P.Payments-4711" in page
    assert "P.Payments-12<" not in page
    assert "3,000 more went as planned" in page
    assert kept.signed.document.count(b"\n") == 0, "so many are kept on one line"
    assert KeptReport.decode(kept.signed.value()) == kept
    unsigned = KeptReport.made(kept.report, None)
    assert KeptReport.decode(unsigned.signed.value()) == unsigned


def test_steps_stand_in_their_order_also_where_they_took_no_time() -> None:
    progress = MoveProgress("m").at("holding", 5).at("held", 5).at("applied", 9)
    page = report_page(KeptReport.made(replace(REPORT, times_ms=progress.times_ms), None))

    rows = re.findall(r'<tr><th scope="row">(\w+)</th><td>1970', page)
    assert rows == ["holding", "held", "applied"]


def test_names_from_clusters_are_no_html_in_the_page() -> None:
    hostile = "<script>alert(1)</script>"
    report = replace(REPORT, groups={hostile: GROUP}, topics=(hostile,), problems=(hostile,))

    assert "<script" not in report_page(KeptReport.made(report, None))


def test_a_page_of_a_move_that_held_nobody_has_no_timeline() -> None:
    report = replace(REPORT, rto_steps={}, groups={}, approvals=(), followers=())

    page = report_page(KeptReport.made(report, None))

    assert ">Timeline<" not in page
    assert "<b>not signed</b>" in page


def test_the_list_has_a_line_for_each_report() -> None:
    other = replace(REPORT, move_id="failback-2", ok=True, problems=(), rto_seconds=None)
    text = as_text(list_view([KEPT, KeptReport.made(other, None)]), width=200)

    first, second = text.splitlines()[1:]
    assert " ".join(first.split()) == (
        "2023-11-14 22:13:20 UTC failover-1 failover planned P -> B billing 0 records - 4.2 s 2 "
        "not clean 2, signed"
    )
    assert second.endswith("2, not signed")
    assert "clean" in second
    row = list_row(KEPT)
    assert (row["move_id"], row["key_id"], row["sha256"]) == (
        "failover-1",
        KEY.public.key_id,
        KEPT.signed.sha256,
    )


def test_a_move_that_moved_nobody_is_neither_clean_nor_a_number_of_problems() -> None:
    released = replace(REPORT, step="released", times_ms={"holding": 1, "released": 2})

    assert result_of(released).verdict == "not moved"
    assert result_of(replace(losing(REPORT, 3, 3), rpo_seconds=0.4)).verdict == "not clean"


def test_markdown_has_the_numbers_and_takes_no_name_for_markup() -> None:
    odd = replace(REPORT, groups={"a|b*c": GROUP}, notes=("see [x](y)",))
    text = report_markdown(odd, signature_text(KEPT))

    assert text.startswith("## Failover P → B: **not clean**\n")
    assert r"| a\|b\*c | 1 | 50 | 0 | 2 (planned 0) | 4.0 s | 4.2 s | processed |" in text
    assert r"- Note: see \[x\](y)" in text
    assert "Approved by ada@ops (typed failover, 2023-11-14 22:13:20 UTC): records 312" in text
    assert f"signed with key {KEY.public.key_id[:16]}, sha256 {KEPT.signed.sha256}" in text


def test_an_export_has_json_signature_and_page_and_is_not_written_twice(tmp_path: Path) -> None:
    files = export_report(KEPT, "page", tmp_path / "new" / "folder")

    assert [file.name for file in files] == [
        "failover-1.r2.html",
        "failover-1.r2.json",
        "failover-1.r2.json.sig",
    ]
    assert files[1].read_bytes() == KEPT.signed.document
    assert signature_file(files[1]) == files[2]
    assert export_report(KEPT, "page", tmp_path / "new" / "folder") == ()
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 3, "nothing half written is left"


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_an_export_that_dies_leaves_no_json_without_its_signature_and_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    written = []
    write = files.write_atomically

    def dying(file: Path, content: bytes) -> None:
        written.append(file)
        if len(written) == dies_at:
            raise KeyboardInterrupt
        write(file, content)

    monkeypatch.setattr(files, "write_atomically", dying)
    with pytest.raises(KeyboardInterrupt):
        export_report(KEPT, "page", tmp_path)
    json = tmp_path / "failover-1.r2.json"
    assert signature_file(json).exists() or not json.exists()

    monkeypatch.setattr(files, "write_atomically", write)
    export_report(KEPT, "page", tmp_path)
    Signed.beside(json.read_bytes(), signature_file(json).read_bytes()).check(KEY.public)


def test_an_id_of_a_move_stays_in_the_folder_whatever_it_holds(tmp_path: Path) -> None:
    odd = KeptReport.made(replace(REPORT, move_id="../../etc/x"), None)

    assert [file.parent for file in export_report(odd, "", tmp_path)] == [tmp_path, tmp_path]


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"report .*failover-1\.r2\.\S+: "):
        export_report(KEPT, "", tmp_path / "file" / "below")
