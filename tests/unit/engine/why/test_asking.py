"""One name for a topic and a group: both are asked for, and who knows neither says what is near."""

from __future__ import annotations

from tests.unit.engine.why.running_flow import RunningFlow

from srm.engine.why import explain, not_found


def test_a_name_that_both_have_is_answered_for_both() -> None:
    flow = RunningFlow()
    flow.commit("Topic", 8)

    answers = explain(flow.context, "Topic")

    assert [(answer.kind, answer.known) for answer in answers] == [("topic", True), ("group", True)]


def test_one_kind_may_be_asked_for_alone() -> None:
    [answer] = explain(RunningFlow().context, "Topic", ("group",))

    assert (answer.kind, answer.known) == ("group", False)


def test_what_nobody_knows_names_where_it_was_looked_for_and_what_may_be_meant() -> None:
    flow = RunningFlow()

    error = not_found("Topik", explain(flow.context, "Topik"))

    assert str(error) == "no topic or group 'Topik' on B or P; did you mean topic Topic of P?"
    assert error.exit_code == 3


def test_a_cluster_that_was_not_seen_is_no_proof_that_there_is_nothing() -> None:
    flow = RunningFlow()
    flow.p.fail()

    error = not_found("Else", explain(flow.context, "Else"))

    assert "P does not answer" in str(error)
