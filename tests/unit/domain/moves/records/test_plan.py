from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.domain.moves.report.reporting import FORECAST

from srm.cli.console import document
from srm.domain.moves.disaster import Outcome, PartitionOutcome, TopicForecast
from srm.domain.moves.plan import GroupPlan, MovePlan, PartitionMove
from srm.domain.moves.progress import GroupResume, MoveProgress
from srm.domain.moves.report import MoveReport, build_report
from srm.domain.moves.request import MoveRequest, read, run_move_id
from srm.domain.text.amount import warning
from srm.errors import UsageError

FIELDS = {"operation": "failover", "source": "P", "target": "B"}
ROW = PartitionMove("Payments", 0, "P.Payments", "forward", "translated", 7, 3, 5, 2)
PLAN = MovePlan(
    "m1",
    1_000,
    MoveRequest(**FIELDS),
    ("Payments",),
    (GroupPlan("audit", ("app@h",), (ROW,)), GroupPlan("batch", (), ())),
    (warning("wait", "slow"),),
    {"P->B": {"topics": "Payments"}},
)


def test_the_json_of_a_plan_has_findings_with_ids_and_their_texts():
    value = json.loads(PLAN.value())

    assert json.loads(document(PLAN)).keys() == value.keys(), "that of --json"
    assert value["findings"] == [{"text": "slow", "action": "", "id": "wait", "blocks": False}]
    assert (value["blocking"], value["warnings"]) == ([], ["slow"])


def test_a_form_becomes_a_request():
    request = read(MoveRequest, {**FIELDS, "topics": ["Payments"], "wait_seconds": 5})

    assert request.topics == ("Payments",)
    assert request.wait_seconds == 5
    assert str(request.flow) == "P->B"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grops": ["g"]}, "no setting 'grops': known are operation, source"),
        ({"operation": "drill"}, "'operation' cannot be used"),
        (
            {"redirect": "pigeon"},
            "used: redirector 'pigeon' is unknown: there are routing, webhook",
        ),
        ({"redirect": ["webhook", "routing"]}, "routing must be first"),
        ({"redirect": "manual, manual"}, "named twice"),
        ({"target": "P"}, "same cluster on both sides"),
        ({"wait_seconds": -1}, "--timeout. of the move is negative"),
        ({"residue_seconds": -1}, "residue_seconds of the move is negative"),
        ({"topics": ["a", "a"]}, "empty or repeated"),
        ({"groups": [""]}, "empty or repeated"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(change, message):
    with pytest.raises(UsageError, match=message):
        read(MoveRequest, {**FIELDS, **change})


def test_a_missing_cluster_is_named():
    with pytest.raises(UsageError, match="'target'"):
        read(MoveRequest, {"operation": "failback", "source": "P"})


def test_plan_progress_and_report_survive_their_encoding():
    progress = MoveProgress("m1", intended={"audit": {"P.Payments-0": 5}}, rpo_records=0).at(
        "going", 9, resumed={"audit": GroupResume(11, None, {"P.Payments-0": 5})}
    )
    report = build_report(PLAN, progress)

    assert MovePlan.decode(PLAN.value()) == PLAN
    assert MoveProgress.decode(progress.value()) == progress
    assert MoveReport.decode(report.value()) == report


def moved(**changes):
    progress = MoveProgress("m1", lag_at_hold={"audit": 50}, members_at_hold={"audit": 2})
    for step, time in (("holding", 10_000), ("held", 10_200), ("applied", 12_000)):
        progress = progress.at(step, time)
    resumed = {"audit": GroupResume(14_500, 15_000, processed_ms=14_700)}
    return progress.at("going", 12_900, **{"rpo_records": 0, "resumed": resumed, **changes}).at(
        "gone", 13_000
    )


def test_the_report_counts_service_time_from_the_hold_to_the_last_group():
    report = build_report(PLAN, moved())

    assert report.ok
    assert (report.rto_seconds, report.assigned_seconds) == (4.7, 4.5)
    assert report.groups["audit"].rto_seconds == 4.7
    assert report.groups["audit"].rto_end == "processed"
    assert report.groups["audit"].assigned_seconds == 4.5
    assert report.groups["audit"].first_commit_seconds == 5.0
    assert report.groups["audit"].lag_at_hold == 50
    assert report.groups["batch"].rto_seconds is None
    assert report.rto_steps == {"hold": 0.2, "wait and apply": 1.8, "go": 1.0, "resume": 1.7}
    assert report.residue_until_ms == 313_000


def test_where_nobody_had_members_nobody_was_assigned_anything():
    report = build_report(PLAN, moved(members_at_hold={}, resumed={}))

    assert (report.ok, report.rto_seconds, report.assigned_seconds) == (True, 3.0, None)
    assert report.notes == ("no group had members at the hold: the RTO is the time until go",)


def test_an_rto_without_clients_that_an_unplanned_move_sees_says_where_it_ends():
    """It does not look at the source, so only clients that follow routes are known to it."""
    plan = replace(PLAN, request=replace(PLAN.request, mode="unplanned"))
    report = build_report(plan, moved(members_at_hold={}, forecast=FORECAST))

    assert report.rto_seconds == 3.0
    assert report.notes[-2].startswith(
        "no group had clients that follow routes at the hold: the RTO"
    )
    assert report.notes[-1].startswith("1 group (batch) without members on B yet: start there")


def test_service_time_is_counted_by_the_clock_that_stamped_the_hold():
    """Whoever ran the steps has a clock that is an hour late."""
    hour = 3_600_000
    seen = GroupResume(hour + 14_500, processed_ms=hour + 14_600)
    stamps = {"hold_stamp_ms": hour + 10_100, "gone_stamp_ms": hour + 13_100}
    report = build_report(PLAN, moved(resumed={"audit": seen}, **stamps))

    assert (report.rto_seconds, report.assigned_seconds) == (4.5, 4.4)
    assert report.rto_steps["resume"] == 1.5


@pytest.mark.parametrize(
    ("seen", "seconds", "end"),
    [
        (GroupResume(14_500, first_commit_ms=15_000), 5.0, "committed"),
        (GroupResume(14_500, first_commit_ms=15_000, processed_ms=14_600), 4.6, "processed"),
        (GroupResume(14_500, idle=True), 4.5, "assigned"),
        (GroupResume(14_500, processed_ms=90_000, idle=True), 4.5, "assigned"),
        (GroupResume(14_500), None, None),
    ],
)
def test_a_group_is_without_service_until_it_works_or_has_nothing_to_work_on(seen, seconds, end):
    report = build_report(PLAN, moved(resumed={"audit": seen}))

    group = report.groups["audit"]
    assert (group.rto_seconds, group.rto_end, report.rto_seconds) == (seconds, end, seconds)
    assert report.ok
    noted = "\n".join(report.notes)
    assert ("had nothing to process on B" in noted) == (end == "assigned")
    assert ("its RTO is not known" in noted) == (end is None)


def test_a_group_that_nobody_stopped_does_not_count_when_it_comes_later():
    resumed = {
        "audit": GroupResume(14_500, processed_ms=14_700),
        "batch": GroupResume(99_000, processed_ms=99_000),
    }
    report = build_report(PLAN, moved(resumed=resumed))

    assert report.rto_seconds == 4.7
    assert report.groups["batch"].rto_seconds == 89.0


def test_what_members_could_not_commit_is_read_again():
    lost = {"one": {"Payments-0": 3}, "two": {"Payments-0": 1, "Payments-1": 2}}
    seen = GroupResume(14_500, 15_000, re_read=4, uncommitted=lost)
    report = build_report(PLAN, moved(resumed={"audit": seen}))

    assert report.groups["audit"].re_read == 10
    assert report.groups["audit"].uncommitted == {"Payments-0": 4, "Payments-1": 2}
    [problem] = report.problems
    assert problem.startswith("group audit read 10 records again, of which it had processed and")
    assert problem.endswith("could not commit 4 of Payments-0, 2 of Payments-1")


def test_a_report_of_an_earlier_version_can_still_be_read():
    fields = json.loads(build_report(PLAN, moved()).value())
    for name in ("assigned_seconds", "residue_until_ms", "residue_over", "notes"):
        del fields[name]
    for group in fields["groups"].values():
        del group["assigned_seconds"], group["rto_end"], group["uncommitted"]

    assert MoveReport.decode(json.dumps(fields).encode()).residue_until_ms is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rpo_records": 3}, "3 records missing on B at go"),
        ({"resumed": {"audit": GroupResume(1, skipped=2)}}, "audit skipped 2"),
        ({"resumed": {"audit": GroupResume(1, re_read=2)}}, "audit read 2 records again"),
        ({"skipped": {"audit": 1}}, "audit skipped 1"),
        ({"resumed": {}}, "audit has not resumed"),
        ({"residue": {"Payments": 4}}, "Payments got 4 records on P after go"),
    ],
)
def test_what_went_wrong_makes_the_report_not_ok(changes, problem):
    report = build_report(PLAN, moved(**changes))

    assert not report.ok
    assert any(problem in line for line in report.problems), report.problems


@pytest.mark.parametrize(
    ("re_read", "skipped", "is_ok"), [(30, 2, True), (20, 0, True), (31, 2, False), (30, 3, False)]
)
def test_what_was_accepted_makes_no_problem(re_read: int, skipped: int, is_ok: bool) -> None:
    request = replace(PLAN.request, overwrite=True, accept_skips=True)
    [first, *others] = PLAN.groups
    rows = (
        replace(first.positions[0], state="conflict", re_read=30, skipped=0),
        replace(first.positions[0], state="translated", re_read=0, skipped=2),
    )
    plan = replace(PLAN, request=request, groups=(replace(first, positions=rows), *others))
    costs = {"re_read": {first.group: re_read}, "skipped": {first.group: skipped}}

    report = build_report(plan, moved(**costs))

    assert report.ok is is_ok
    assert report.result.verdict == ("clean" if is_ok else "not clean")
    line = f"group {first.group} read {re_read} records again"
    assert (f"{line}, as accepted" if is_ok else line) in (*report.problems, *report.notes)


@pytest.mark.parametrize("accepted", ["overwrite", "accept_skips"])
def test_the_accepted_cost_alone_makes_no_problem(accepted: str) -> None:
    [first, *others] = PLAN.groups
    row = replace(first.positions[0], state="conflict", re_read=30, skipped=0)
    request = replace(PLAN.request, **{accepted: True})
    plan = replace(PLAN, request=request, groups=(replace(first, positions=(row,)), *others))

    report = build_report(plan, moved(re_read={first.group: 30}))

    assert report.ok is (accepted == "overwrite")


def test_a_move_that_was_released_says_that_nobody_moved():
    report = build_report(PLAN, MoveProgress("m1").at("holding", 1).at("released", 2))

    assert not report.ok
    assert report.problems == ("clients were not moved: the move is at step released",)
    assert report.rto_seconds is None


def test_a_step_keeps_the_time_it_was_first_completed():
    progress = MoveProgress("m1").at("held", 1).at("held", 9)

    assert progress.times_ms == {"held": 1}
    assert progress.revision == 2


FOUND = PartitionOutcome("Payments", 0, 90, 544, 454)
GONE = replace(FOUND, partition=1, records=0, gone=7)
FEW = replace(FOUND, records=9)


@pytest.mark.parametrize(
    ("outcome", "rpo"),
    [
        (None, (None, 312, 330)),
        (Outcome("m1", "P->B", "same", 1, "ann", (FOUND,)), (454, 454, 454)),
        (Outcome("m1", "P->B", "same", 1, "ann"), (0, 0, 0)),
        (Outcome("m1", "P->B", "shorter", 1, "ann", (FEW,)), (None, 312, 330)),
        (Outcome("m1", "P->B", "rebuilt", 1, "ann"), (None, 312, 330)),
        (Outcome("m1", "P->B", "same", 1, "ann", unread=("Payments-1: no",)), (None, 0, 330)),
        (Outcome("m1", "P->B", "same", 1, "ann", (FOUND, GONE)), (None, 454, 461)),
        (Outcome("m1", "P->B", "same", 1, "ann", (replace(FOUND, late=450),)), (None, 312, 330)),
        (Outcome("m1", "P->B", "same", 1, "ann", (replace(FEW, late=9),)), (9, 9, 9)),
        (Outcome("m1", "P->B", "same", 1, "ann", (replace(FOUND, late=1),)), (453, 453, 453)),
    ],
)
def test_what_an_unplanned_move_lost_is_a_range_until_all_of_it_was_found(outcome, rpo):
    """Clocks of producers, or one that was off, lower the bound of the log not at all: 312."""
    plan = replace(PLAN, request=replace(PLAN.request, mode="unplanned"))
    progress = MoveProgress("m1", forecast=FORECAST).at("gone", 9)

    report = build_report(plan, progress, outcome)

    assert (report.rpo_records, report.rpo_at_least, report.rpo_at_most) == rpo
    assert (report.rpo_seconds == 0.0) == (report.rpo_records == 0)


QUIET = replace(FORECAST, topics=(TopicForecast("Payments", 3, 0, 0, 0.0, 25_000),))


@pytest.mark.parametrize(
    "outcome", [None, Outcome("m1", "P->B", "same", 1, "ann", unread=("Payments-1: no",))]
)
def test_a_source_that_was_quiet_at_its_last_answer_bounds_no_loss(outcome):
    """The report said 'RPO 0 records' 25 s after the last answer: 43 were found on P."""
    plan = replace(PLAN, request=replace(PLAN.request, mode="unplanned"))

    report = build_report(plan, MoveProgress("m1", forecast=QUIET).at("gone", 9), outcome)

    assert (report.rpo_records, report.rpo_at_least, report.rpo_at_most) == (None, 0, None)


def test_a_move_of_some_topics_has_lost_nothing_of_those_that_another_move_led_away():
    """Two unplanned moves have left P, one topic each; the return is settled once for both."""
    plan = replace(PLAN, request=replace(PLAN.request, mode="unplanned", topics=("Payments",)))
    progress = MoveProgress("m1", forecast=FORECAST).at("gone", 9)
    found = FOUND, replace(FOUND, topic="Refunds", records=9_000, first_ms=1, last_ms=9_000)

    report = build_report(plan, progress, Outcome("m1", "P->B", "same", 1, "ann", found))

    assert (report.rpo_records, report.rpo_at_most, report.rpo_seconds) == (454, 454, None)


def test_the_seconds_lost_are_those_of_the_records_found_not_of_the_forecast():
    found = replace(FOUND, first_ms=22_571), replace(FOUND, partition=1, last_ms=26_751)
    progress = MoveProgress("m1", forecast=FORECAST).at("gone", 9)
    plan = replace(PLAN, request=replace(PLAN.request, mode="unplanned"))

    report = build_report(plan, progress, Outcome("m1", "P->B", "same", 1, "ann", found))

    assert (report.rpo_records, report.rpo_seconds) == (908, 4.18)


def test_the_id_of_a_move_is_that_of_its_run_alone_and_the_same_each_time():
    run = "manual__2026-01-02T03:04:05.678+00:00"
    first = run_move_id("failover", ["P", "B"], run)

    assert first.startswith("failover-manual__2026-01-02T03-04-05.678-00-00-")
    assert first == run_move_id("failover", ["P", "B"], run)
    others = [
        run_move_id("failover", ["P", "C"], run),
        run_move_id("failover", ["P", "B"], "a b"),
        run_move_id("failover", ["P", "B"], "a-b"),
    ]
    assert len({first, *others}) == 4
