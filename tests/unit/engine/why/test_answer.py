"""The value of an answer: JSON for programs, and names that may have been meant."""

from __future__ import annotations

import json

from srm.domain.names.topics import Flow
from srm.domain.text.documents import adapter, encode
from srm.engine.why import Why
from srm.engine.why.answer import Question, action_of, first_wrong, near, not_known

GOOD = Question("a", "good?").yes()
WAITS = Question("b", "done?").unknown("in a moment", "wait")
BAD = Question("c", "well?").no("broken", "mend it")


def test_what_is_wrong_is_done_before_what_is_not_known() -> None:
    assert action_of((GOOD, WAITS, BAD)) == "mend it"
    assert action_of((GOOD, WAITS)) == "wait"
    assert action_of((GOOD,)) == ""


def test_the_first_of_each_kind_is_found() -> None:
    assert first_wrong((GOOD, WAITS, BAD)) == BAD
    assert not_known((GOOD, WAITS, BAD)) == f"not known: {WAITS.answer}"
    assert (first_wrong((GOOD,)), not_known((GOOD,))) == (None, "not known")


def test_an_answer_survives_json() -> None:
    why = Why(Flow("P", "B"), "topic", "T", True, None, "not known", (GOOD, WAITS, BAD), "mend it")

    document = encode(why)

    assert adapter(Why).validate_json(document) == why
    assert [step["ok"] for step in json.loads(document)["steps"]] == [True, None, False]


def test_names_that_may_be_meant_are_alike_whatever_their_case() -> None:
    names = ["Payments", "payment", "orders", "Pay"]

    assert near("PAYMENTS", names)[:2] == ("Payments", "payment")
    assert near("Payments", ["Payments"]) == ()
    assert near("zzz", names) == ()
