from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.move.plan import GroupPlan, MovePlan, fingerprint
from srm.domain.move.positions import PartitionMove
from srm.domain.move.progress import GroupResume, MoveProgress, Observation
from srm.domain.move.report import MoveReport, build_report
from srm.domain.move.request import MoveRequest
from srm.errors import UsageError

FIELDS = {"operation": "failover", "source": "P", "target": "B"}
ROW = PartitionMove("Payments", 0, "P.Payments", "forward", "translated", 7, 3, 5, 2)
PLAN = MovePlan(
    "m1",
    1_000,
    MoveRequest(**FIELDS),
    ("Payments",),
    (GroupPlan("audit", ("app@h",), (ROW,)), GroupPlan("batch", (), ())),
    (),
    ("slow",),
    "abc",
)


def test_a_form_becomes_a_request():
    request = MoveRequest.parse({**FIELDS, "topics": ["Payments"], "wait_seconds": 5})

    assert request.topics == ("Payments",)
    assert request.wait_seconds == 5
    assert str(request.flow) == "P->B"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grops": ["g"]}, "no setting 'grops': known are operation, source"),
        ({"operation": "drill"}, "'operation' cannot be used"),
        ({"redirect": "webhook"}, "'redirect' cannot be used"),
        ({"target": "P"}, "same cluster on both sides"),
        ({"wait_seconds": -1}, "--timeout. of the move is negative"),
        ({"topics": ["a", "a"]}, "empty or repeated"),
        ({"groups": [""]}, "empty or repeated"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(change, message):
    with pytest.raises(UsageError, match=message):
        MoveRequest.parse({**FIELDS, **change})


def test_a_missing_cluster_is_named():
    with pytest.raises(UsageError, match="'target'"):
        MoveRequest.parse({"operation": "failback", "source": "P"})


def test_plan_progress_and_report_survive_their_encoding():
    progress = MoveProgress("m1", intended={"audit": {"P.Payments-0": 5}}, rpo_records=0).at(
        "going", 9, resumed={"audit": GroupResume(11, None, {"P.Payments-0": 5})}
    )
    report = build_report(PLAN, progress)

    assert MovePlan.decode(PLAN.value()) == PLAN
    observation = Observation("m1", 1, removed=("audit/i1",)).next(
        ("h", 2), 0, {"Payments-0": 3}, 4, ["Payments"]
    )
    assert Observation.decode(observation.value()) == observation
    assert MoveProgress.decode(progress.value()) == progress
    assert MoveReport.decode(report.value()) == report


def moved(**changes):
    progress = MoveProgress("m1", lag_at_hold={"audit": 50}, members_at_hold={"audit": 2})
    for step, time in (("holding", 10_000), ("held", 10_200), ("applied", 12_000)):
        progress = progress.at(step, time)
    resumed = {"audit": GroupResume(14_500, 15_000)}
    return progress.at("going", 12_900, **{"rpo_records": 0, "resumed": resumed, **changes}).at(
        "gone", 13_000
    )


def test_the_report_counts_service_time_from_the_hold_to_the_last_group():
    report = build_report(PLAN, moved())

    assert report.ok
    assert report.rto_seconds == 4.5
    assert report.groups["audit"].rto_seconds == 4.5
    assert report.groups["audit"].first_commit_seconds == 5.0
    assert report.groups["audit"].lag_at_hold == 50
    assert report.groups["batch"].rto_seconds is None
    assert report.rto_steps == {"hold": 0.2, "wait and apply": 1.8, "go": 1.0, "resume": 1.5}


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


def test_a_move_that_was_released_says_that_nobody_moved():
    report = build_report(PLAN, MoveProgress("m1").at("holding", 1).at("released", 2))

    assert not report.ok
    assert report.problems == ("clients were not moved: the move is at step released",)
    assert report.rto_seconds is None


def test_a_step_keeps_the_time_it_was_first_completed():
    progress = MoveProgress("m1").at("held", 1).at("held", 9)

    assert progress.times_ms == {"held": 1}
    assert progress.revision == 2


@given(st.text(max_size=5), st.text(max_size=5))
def test_a_fingerprint_changes_with_the_settings(one, other):
    def of(name):
        return fingerprint(MoveRequest("failover", "P", "B", groups=(f"g{name}",)))

    assert (of(one) == of(other)) == (one == other)
