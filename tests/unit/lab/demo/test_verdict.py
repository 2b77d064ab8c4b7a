"""The report that a demo's findings amount to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srm.domain.names.topics import Flow
from srm.domain.verification.verification import PartitionVerification, VerificationSummary
from srm_lab.demo.record import PaymentEntry
from srm_lab.demo.report import DemoReport, draw, write_report
from srm_lab.demo.scenario import GROUPS, Move
from srm_lab.demo.verdict import DemoFindings, judge, pause_before

WRITTEN = [PaymentEntry(n * 100, "P", "Payments", 0, n - 1, f"shop-{n:08d}") for n in range(1, 31)]


def processed(*, again: int = 0, missing: int = 0) -> list[PaymentEntry]:
    parts = (("P", 0, 10), ("B", 10 - again, 20), ("P", 20 + missing, 30))
    entries = [(cluster, entry) for cluster, a, b in parts for entry in WRITTEN[a:b]]
    return [
        replace(entry, cluster=cluster, time_ms=5_000 + 10 * n)
        for n, (cluster, entry) in enumerate(entries)
    ]


def move(operation: str, source: str, target: str, **changes: Any) -> Move:
    group = {"lag_at_hold": 20, "rto_seconds": 3.5}
    report: Mapping[str, Any] = {
        "move_id": f"{operation}-1",
        "operation": operation,
        "source": source,
        "target": target,
        "rpo_records": 0,
        "rto_seconds": 4.0,
        "rto_steps": {"hold": 1.0, "go": 3.0},
        "created_ms": 5_000,
        "problems": [],
        "groups": dict.fromkeys(GROUPS, group),
        **changes,
    }
    return Move("run", 12.0, report)


def copies(outcome: Any = "equal") -> dict[str, VerificationSummary]:
    partition = PartitionVerification("Payments", 0, "P.Payments", outcome, 1, target_records=30)
    flows = [Flow("P", "B"), Flow("B", "P")]
    return {str(flow): VerificationSummary(flow, (partition,)) for flow in flows}


def findings(**changes: Any) -> DemoFindings:
    whole = DemoFindings(
        acknowledged=WRITTEN,
        processed={group: processed() for group in GROUPS},
        says=dict.fromkeys(GROUPS, "fine"),
        moves=[move("failover", "P", "B"), move("failback", "B", "P")],
        copies=copies(),
        windows={"P->B": 3, "B->P": 3},
        needed_lag=20,
    )
    return replace(whole, **changes)


def judged(**changes: Any) -> DemoReport:
    return judge(findings(**changes), 100.0, {"all": 100.0}, {"srm": "1"})


def test_a_clean_demo_is_ok_and_has_the_keys_of_its_contract() -> None:
    report = json.loads(judged().json())

    assert report["ok"] is True
    assert report["produced"] == 30
    assert report["groups"]["ledger"]["processed"] == 30
    assert report["groups"]["ledger"]["skipped"] == report["groups"]["ledger"]["re_read"] == 0
    first = report["moves"][0]
    assert (first["operation"], first["source"], first["target"]) == ("failover", "P", "B")
    assert (first["rpo_records"], first["rto_seconds"]) == (0, 4.0)
    assert first["groups"]["fraud"]["lag_at_hold"] == 20
    assert first["groups"]["fraud"]["skipped"] == first["groups"]["fraud"]["re_read"] == 0


def test_re_reads_are_reported_at_their_move_and_are_not_ok() -> None:
    entries = {group: processed() for group in GROUPS} | {"fraud": processed(again=2)}
    report = judged(processed=entries)

    assert not report.ok
    assert report.groups["fraud"].re_read == 2
    assert [m.groups["fraud"].re_read for m in report.moves] == [2, 0]
    assert [m.groups["ledger"].re_read for m in report.moves] == [0, 0]


def test_skips_are_reported_at_their_move_and_are_not_ok() -> None:
    entries = {group: processed() for group in GROUPS} | {"ledger": processed(missing=3)}
    report = judged(processed=entries)

    assert not report.ok
    assert report.groups["ledger"].skipped == 3
    assert [m.groups["ledger"].skipped for m in report.moves] == [0, 3]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"needed_lag": 21}, "21 are wanted"),
        ({"copies": copies("different")}, "copies are not equal"),
        ({"copies": copies("unverified")}, "copies are not equal"),
        ({"copies": {}}, "not compared"),
        ({"windows": {"P->B": 0}}, "no metrics window"),
        ({"acknowledged": WRITTEN[:5] + WRITTEN[6:]}, "not acknowledged"),
        ({"acknowledged": WRITTEN[:-1]}, "no producer knows"),
        ({"moves": [move("failover", "P", "B", rpo_records=4)]}, "RPO is 4"),
        ({"moves": [move("failover", "P", "B", problems=["a producer stayed"])]}, "stayed"),
        ({"processed": dict.fromkeys(GROUPS, processed()[:20])}, "not P then B then P"),
    ],
)
def test_anything_that_is_not_as_promised_is_a_problem(
    changes: dict[str, Any], problem: str
) -> None:
    report = judged(**changes)

    assert not report.ok
    assert any(problem in one for one in report.problems), report.problems


def test_the_pause_is_between_the_last_payment_on_one_side_and_the_first_on_the_other() -> None:
    entries = [replace(WRITTEN[0], time_ms=1_000), replace(WRITTEN[1], cluster="B", time_ms=3_500)]

    assert pause_before(entries, 1) == 2.5
    assert pause_before(entries, 2) is None


@pytest.mark.parametrize("missing", [0, 3])
def test_report_files_are_written_whatever_the_outcome(tmp_path: Path, missing: int) -> None:
    entries = dict.fromkeys(GROUPS, processed(missing=missing))
    report = judged(processed=entries)
    timeline = draw(WRITTEN, entries, [("failover P->B", 5_100, 1.0)])

    write_report(tmp_path, report, timeline)

    assert json.loads((tmp_path / "report.json").read_bytes())["ok"] is (missing == 0)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == len(GROUPS)
    assert ("ledger skipped 3 payments" in page) is bool(missing)


def test_a_demo_without_any_record_can_still_be_drawn() -> None:
    timeline = draw([], {"ledger": []}, [])

    assert timeline.tracks[0].stretches == ()
