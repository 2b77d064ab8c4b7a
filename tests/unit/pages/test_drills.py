"""What people see of drills."""

from __future__ import annotations

from srm.domain.moves.disaster import Drill, DrillGroup, Forecast, TopicForecast
from srm.domain.names.topics import Flow
from srm.pages.moves import as_text
from srm.pages.reports import drill_line, drill_view, history_view

FLOW = Flow("P", "B")
LOST = TopicForecast("Payments", 1, 312, 312, 0.4, 100)


def drill(drill_id: str, *groups: DrillGroup, **changes) -> Drill:
    settings = {
        "state": "done",
        "forecast": Forecast(0, (LOST,), ()),
        "steps": {"plan": 1.25, "read": 3.0},
        **changes,
    }
    return Drill(drill_id, "P->B", time_ms=0, host="h", pid=1, groups=groups, **settings)


GOOD = DrillGroup("audit", 2, 2, 2)
BAD = DrillGroup("billing", 2, 1, 2, ("Payments-1: differ in value",))


def test_one_line_says_what_was_proven_and_what_it_would_have_cost() -> None:
    assert drill_line(drill("d1", GOOD)) == (
        "drill d1 of P->B: everything proven, 1 of 1 group proven; 312 records (0.4 s) lost if "
        "the source had died then, 4.2 s to carry out"
    )


def test_what_refuses_a_move_is_no_missing_proof() -> None:
    line = drill_line(drill("d1", GOOD, problems=("group audit is held by move m1",)))
    assert line.startswith("drill d1 of P->B: PROBLEMS, 1 of 1 group proven; ")


def test_a_result_shows_groups_steps_warnings_and_problems() -> None:
    text = as_text(drill_view(drill("d1", GOOD, BAD, warnings=("clients on C follow",))))

    assert "NOT proven" in text
    assert "plan 1.25 s, read 3.00 s" in text
    assert "warning: clients on C follow" in text
    assert "problem: group billing: Payments-1: differ in value" in text


def test_the_history_shows_rpo_rto_and_proof_over_time() -> None:
    killed = drill("d2", state="interrupted", forecast=None, steps={})

    rows = as_text(
        history_view([drill("d1", GOOD), killed, drill("d3", GOOD, BAD)], FLOW)
    ).splitlines()

    assert [" ".join(row.split()) for row in rows[1:]] == [
        "1970-01-01 00:00 P->B 1 of 1 312 records (0.4 s) 4.2 s everything proven d1",
        "1970-01-01 00:00 P->B - - - interrupted d2",
        "1970-01-01 00:00 P->B 1 of 2 312 records (0.4 s) 4.2 s NOT proven d3",
    ]
    assert as_text(history_view([], FLOW)) == (
        "No drill was run yet: srm failover drill --source P --target B"
    )


def test_a_group_is_fine_only_where_each_partition_was_proven_and_read() -> None:
    assert drill("d", GOOD, warnings=("clients on C follow",)).ok
    assert not drill("d", DrillGroup("audit", 2, 2, 1)).ok
    assert not drill("d", GOOD, problems=("held by another move",)).ok
    assert not drill("d", GOOD, state="interrupted").ok
