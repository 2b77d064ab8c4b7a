from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.move.routes import (
    Ack,
    Route,
    acks_of,
    decode_route,
    home_route,
    merge,
    merge_tables,
    routes_of,
    successor,
)
from srm.errors import IntegrityError

routes = st.builds(
    Route,
    st.integers(1, 4),
    st.sampled_from(["P", "B"]),
    st.sampled_from(["go", "hold"]),
    st.sampled_from(["m1", "m2"]),
    st.integers(0, 2),
)
maybe = st.none() | routes


@given(maybe, maybe, maybe)
def test_all_clients_merge_to_the_same_route_whatever_they_read_first(a, b, c):
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a


@given(routes, routes)
def test_the_higher_generation_wins(a, b):
    winner = merge(a, b)

    assert winner.generation == max(a.generation, b.generation)


def test_where_two_moves_raced_to_one_generation_clients_hold():
    go, hold = Route(3, "B", "go", "m2"), Route(3, "P", "hold", "m1")

    assert merge(go, hold) == hold


@given(st.lists(maybe, max_size=4), st.sampled_from(["go", "hold"]))
def test_a_successor_overrides_everything_before_it(known, state):
    after = successor(known, "B", state, "m9", 7)

    assert reduce(merge, known, after) == after


def test_without_a_record_clients_use_their_home_cluster():
    assert home_route("P") == Route(0, "P", "go")
    assert merge(home_route("P"), Route(1, "P", "hold")).state == "hold"


@given(st.dictionaries(st.sampled_from(["group:a", "topic:b"]), routes))
def test_a_cluster_that_was_away_cannot_send_clients_back(table):
    newer = {k: Route(r.generation + 1, "B", "go", "m3") for k, r in table.items()}

    assert merge_tables([table, newer]) == newer
    assert merge_tables([newer, table]) == newer


@given(routes)
def test_a_route_survives_its_encoding(route):
    records = {b"group:g": route.value(), b"ack:group:g:c": b"{}"}

    assert routes_of(records) == {"group:g": route}


def test_an_acknowledgement_survives_its_encoding():
    ack = Ack("group:g", "client-1", 4, "resumed", "B", 12, {"P.T-0": 7})

    assert acks_of({ack.key(): ack.value(), b"group:g": b"{}"}) == (ack,)


def test_an_acknowledgement_of_an_older_client_is_read():
    value = (
        b'{"subject": "group:g", "client": "c", "generation": 4, "state": "resumed", '
        b'"cluster": "B", "time_ms": 12, "positions": {"P.T-0": 7}}'
    )

    [ack] = acks_of({b"ack:group:g:c": value})

    assert (ack.kind, ack.host, ack.uncommitted, ack.ages_ms) == ("", "", {}, {})
    assert ack.positions == {"P.T-0": 7}


@pytest.mark.parametrize("value", [b"", b"{}", b'{"generation": 1, "cluster": "P", "state": "x"}'])
def test_a_damaged_route_is_an_integrity_error_that_names_the_subject(value):
    with pytest.raises(IntegrityError, match="group:g"):
        decode_route(b"group:g", value)
