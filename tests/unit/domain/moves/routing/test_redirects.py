"""Lists of redirectors, what is still to be called, and what a late call undoes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.moves.gate import requests_at_go, requests_at_hold
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.request import MoveRequest, read
from srm.domain.moves.routing import (
    KINDS,
    Call,
    call_key,
    in_order,
    missing_confirmations,
    order_number,
    to_call,
)
from srm.errors import UsageError
from srm_lab.docs.configuration import order_schema

SCHEMA = Path(__file__).parents[5] / "docs" / "redirect.schema.json"
DONE, FAILED = Call("done", 1, "thanks"), Call("failed", 1, "hook answered 500")
REQUEST = MoveRequest("failover", "P", "B", ("Payments",), ("audit",))
steps = st.sampled_from(("hold", "release", "go"))


def test_routing_is_the_first_whether_it_is_named_or_not():
    assert in_order(["webhook", "manual"]) == ("routing", "webhook", "manual")
    assert in_order(["routing", "command"]) == ("routing", "command")
    assert in_order([]) == ()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["pigeon"], "redirector 'pigeon' is unknown: there are routing, webhook, command, manual"),
        (["manual", "manual"], "named twice"),
        (["webhook", "routing"], "routing must be first.*: routing, webhook"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(names, message):
    with pytest.raises(UsageError, match=message):
        in_order(names)


def test_a_request_of_an_earlier_version_named_one_redirector():
    known = read(MoveRequest, {"operation": "failover", "source": "P", "target": "B"})
    older = read(
        MoveRequest, {"operation": "failover", "source": "P", "target": "B", "redirect": "routing"}
    )

    assert known.redirect == ()
    assert older.redirect == ("routing",)


@given(st.integers(1, 2**48), steps, st.integers(1, 2**48), steps)
def test_orders_grow_with_attempt_and_step(attempt, step, other_attempt, other_step):
    ranks = {"hold": 0, "release": 1, "go": 2}
    one, other = order_number(attempt, step), order_number(other_attempt, other_step)

    assert (one < other) == ((attempt, ranks[step]) < (other_attempt, ranks[other_step]))


def test_only_who_has_not_confirmed_is_called_in_order_and_never_routing():
    calls = {call_key(3, "go", "command"): DONE, call_key(3, "go", "manual"): FAILED}

    assert [*to_call(KINDS, calls, 3, "go").items()] == [("webhook", None), ("manual", FAILED)]
    assert [*to_call(KINDS, calls, 4, "go")] == ["webhook", "command", "manual"]
    assert list(missing_confirmations(KINDS, calls, 3, "go")) == [
        "redirector webhook has not confirmed go: it was not called yet",
        "redirector manual has not confirmed go: hook answered 500",
    ]


@pytest.mark.parametrize(
    ("step", "told"),
    [("planned", None), ("going", "hold"), ("released", "release"), ("reported", "go")],
)
def test_each_step_of_a_move_has_one_thing_that_clients_were_told_last(step, told):
    assert MoveProgress("m1", step=step, attempt=3).order_in_force == told


def test_a_move_that_was_released_before_its_first_hold_has_told_clients_nothing():
    assert MoveProgress("m1", step="released").order_in_force is None


def test_people_are_told_whom_to_stop_where_and_what_to_prepare():
    asks = list(
        requests_at_hold(
            REQUEST, "b1:9092", {"audit": ("app-1@10.0.0.3",)}, {"Payments": 2, "Refunds": 0}
        )
    )

    later = "prepare bootstrap.servers=b1:9092 (cluster B), do not start there yet"
    assert asks == [
        f"stop client app-1 of group audit on host 10.0.0.3, which reads P; {later}",
        f"stop 2 producers of topic Payments on P; {later}",
        f"stop all producers of topic Refunds on P; {later}",
    ]


def test_the_page_shows_what_people_read():
    page = " ".join((SCHEMA.parent / "redirect.md").read_text("utf-8").split())
    members = {"audit": ("audit-1@10.0.0.3",)}

    asks = [
        *list(requests_at_hold(REQUEST, "b1:9092", members, {}))[:1],
        *list(requests_at_go(REQUEST, "b1:9092", members, {}))[:1],
    ]
    assert len(asks) == 2
    assert [ask for ask in asks if f"please: {ask}" not in page] == []


def test_people_are_told_whom_to_start_with_which_address():
    asks = list(requests_at_go(REQUEST, "b1:9092", {"audit": ("app-1@10.0.0.3",)}, {"Payments": 1}))

    assert asks == [
        "start group audit (app-1@10.0.0.3) with bootstrap.servers=b1:9092 (cluster B)",
        (
            "producers wrote 1 record of topic Payments to P after go: start them with "
            "bootstrap.servers=b1:9092 (cluster B)"
        ),
    ]


def test_the_documented_schema_is_that_of_the_orders():
    fresh = json.dumps(order_schema(), indent=2) + "\n"

    assert SCHEMA.read_text() == fresh, "python -m srm_lab.docs.configuration writes it again"
