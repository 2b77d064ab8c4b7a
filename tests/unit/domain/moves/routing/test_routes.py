from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.acknowledgements import acks_of

from srm.domain.moves.announcements import Ack
from srm.domain.moves.routing import (
    ERA,
    KnownRoutes,
    Route,
    decode_route,
    home_route,
    merge_tables,
    next_generation,
)
from srm.domain.moves.whereabouts import Whereabouts
from srm.engine.cluster_ports import Stamped
from srm.engine.moves.history import ClientsHistory, RoutingHistory
from srm.errors import IntegrityError

routes = st.builds(
    Route,
    st.integers(1, 4),
    st.sampled_from(["P", "B"]),
    st.sampled_from(["go", "hold"]),
    st.sampled_from(["m1", "m2"]),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([0, 60_000]),
    st.integers(0, 2),
)
maybe = st.none() | routes


def history(values):
    """Return a routing topic with routes of one group, and a record of another kind."""
    records = {b"group:g": values, b"clock": [b"{}"]}
    return RoutingHistory(
        "P", {key: [Stamped(value, 0) for value in some] for key, some in records.items()}
    )


def merge(*read, home="P"):
    """Return what a client follows that has read these routes in this order."""
    known = KnownRoutes(home)
    for route in read:
        known.add("group:g", route)
        known.of("group:g")
    return known.of("group:g")


@given(routes, routes, routes)
def test_all_clients_merge_to_the_same_route_whatever_they_read_first(a, b, c):
    assert len({merge(*read) for read in permutations((a, b, c))}) == 1
    assert merge(a, a) == a


LED = [
    Route(1, "B", "go", "m1", decided=True, homes=("P",), left="P"),
    Route(2, "B", "hold", "m2", homes=("B",)),
    Route(3, "C", "go", "m3", decided=True, homes=("B",), left="B"),
    Route(4, "D", "go", "m4", decided=True, homes=("D",)),
]


@pytest.mark.parametrize(("home", "cluster"), [("P", "C"), ("B", "C"), ("C", "C"), ("D", "D")])
def test_a_route_leads_clients_of_its_homes_and_those_that_came_to_one(home, cluster):
    """In whatever order they read: of the second move P's log has nothing."""
    assert {merge(*read, home=home).cluster for read in permutations(LED)} == {cluster}


def test_clients_at_home_that_a_move_from_there_leaves_out_stay():
    """They work elsewhere by a route that is not known here, as the move knew."""
    led_on = Route(2, "A", "go", "m2", decided=True, homes=("C",), left="D")
    came = Route(1, "D", "go", "m1", decided=True, homes=("C",), left="C")

    assert merge(led_on, home="D").cluster == "D"
    assert merge(led_on, home="C").cluster == "A"
    assert merge(came, replace(led_on, homes=("D",)), home="C").cluster == "A"


def test_a_record_keeps_a_lower_one_for_clients_that_it_does_not_lead():
    """Their way on is in a record of another cluster: here they came to its source."""
    known = Route(1, "A", "go", "m1", decided=True, homes=("C",), left="C")
    held = Route(3, "A", "hold", "m3", homes=("B",)).after(known)

    assert (held.homes, held.others) == (("B",), (known,))
    away = Route(2, "D", "go", "m2", decided=True, homes=("A", "C"), left="A")
    assert merge(held, away, home="C").cluster == merge(away, held, home="C").cluster == "D"
    assert merge(held, home="C") == held


ends = st.tuples(st.sampled_from("ABCD"), st.sampled_from("ABCD"), st.booleans())


@given(st.lists(ends, max_size=6), st.randoms())
def test_the_last_record_of_a_topic_leads_every_client_to_where_moves_have_led_it(moves, random):
    """So compaction changes no client's place; nor does the order in which it reads."""
    places, last, written = dict(zip("ABCD", "ABCD", strict=True)), None, []
    for number, (source, target, goes) in enumerate(moves, 1):
        where = Whereabouts([{"group:g": last} if last else {}])
        homes = where.homes_on("group:g", source)
        if source == target or not homes:
            continue  # no plan
        hold = Route(number, source, "hold", f"m{number}", homes=homes)
        end = replace(hold, state="go")
        if goes:
            end = replace(end, cluster=target, decided=True, left=source)
        for route in (hold, end):
            last = route.after(last)
            written.append(last)
        moved = {home for home, at in places.items() if at == source and goes}
        places |= dict.fromkeys(moved, target)
    random.shuffle(written)

    for home, place in places.items() if last else ():
        assert merge(last, home=home).cluster == merge(*written, home=home).cluster == place


def home_routes(number: int, cluster: str, *homes: str) -> dict[str, Route]:
    route = Route(number, cluster, "go", f"m{number}", decided=True)
    return {
        f"home:{home}": replace(route, homes=(home,), left="" if home == cluster else home)
        for home in homes
    }


def followed(*tables: dict[str, Route], home: str = "P") -> set[str]:
    """Return where a group is led: its clients, whatever they read first, and the engine's view."""
    found = set[str]()
    for some in permutations(tables):
        known = KnownRoutes(home)
        for subject, route in [one for table in some for one in table.items()]:
            known.add(subject, route)
            known.of("group:g")
        found |= {known.of("group:g").cluster, *Whereabouts(some).clusters("group:g", home)}
    return found


AWAY = {"group:g": Route(1, "B", "go", "m1", decided=True, homes=("P",))}


def test_a_group_that_an_unplanned_move_did_not_know_leaves_the_lost_cluster():
    assert followed(AWAY, home_routes(ERA, "P", "B", "P")) == {"P"}
    assert followed(AWAY, home_routes(ERA, "C", "B", "C")) == {"C"}
    held = {"group:g": Route(2, "B", "hold", "m2", homes=("B", "P"))}
    assert followed(AWAY, held, home_routes(ERA, "P", "B", "P")) == {"P"}


def test_a_move_back_of_everything_leaves_a_group_that_it_did_not_know_where_it_is():
    """A planned one: no gate has checked the group."""
    assert followed(AWAY, home_routes(2, "P", "P")) == {"B"}


def test_a_group_that_left_a_cluster_later_is_not_led_back_there():
    back = {"group:g": Route(ERA + 1, "P", "go", "m3", decided=True, homes=("B", "P"))}

    assert followed(AWAY, home_routes(ERA, "B", "B", "P"), back) == {"P"}


def test_what_no_client_can_follow_any_more_is_forgotten():
    known = KnownRoutes("P")
    for number in range(1, 100):
        known.add("group:g", Route(number, "PB"[number % 2], "go", "m", homes=("P",)))
        known.of("group:g")

    assert len(known._all["group:g"]) == 1


@given(routes, routes)
def test_the_higher_generation_wins(a, b):
    winner = merge(a, b)

    assert winner.generation == max(a.generation, b.generation)


def test_within_an_attempt_a_hold_is_followed_by_released_and_gone_is_the_highest():
    hold = Route(3, "P", "hold", "m1", beat=9)
    released, gone = Route(3, "P", "go", "m1"), Route(3, "B", "go", "m1", decided=True)

    assert merge(hold, released) == released
    assert merge(released, gone) == gone
    assert merge(hold, gone) == gone


def test_a_renewed_hold_is_the_later_one_whatever_its_time_says():
    first = Route(3, "P", "hold", "m1", 900, lease_ms=60_000, beat=1)
    renewed = Route(3, "P", "hold", "m1", 100, lease_ms=60_000, beat=2)

    assert merge(first, renewed) == renewed


@given(st.lists(maybe, max_size=4), st.integers(0, 6), routes)
def test_a_new_attempt_overrides_everything_before_it(known, attempt, new):
    after = replace(new, generation=next_generation(known, attempt))

    assert after.generation > attempt
    assert merge(*(one for one in known if one is not None), after) == after


@given(st.permutations([(1, "hold", 1), (1, "hold", 2), (1, "go", 0), (2, "hold", 1)]))
def test_the_highest_rank_in_the_log_counts_not_the_last_record(log):
    """A process that stalls between reading and writing writes late what it computed long ago."""
    values = [Route(g, "P", state, "m1", beat=beat).value() for g, state, beat in log]

    assert history(values).routes == {"group:g": Route(2, "P", "hold", "m1", beat=1)}


def test_a_damaged_record_is_reported_and_stops_nobody(caplog):
    found = history([Route(1, "P", "hold").value(), b"?"])
    said = ClientsHistory("P", {b"group:g:c": [Stamped(b"?", 0)]})

    assert found.routes == {"group:g": Route(1, "P", "hold")}
    assert said.acks == ()
    assert [line.split()[4] for line in caplog.messages] == ["record", "group:g:c"]


def test_a_hold_that_has_lapsed_counts_as_go_where_the_clients_were():
    lapsed = Route(3, "P", "hold", "m1", 7, lease_ms=60_000, beat=2).expire()

    assert (lapsed.cluster, lapsed.state, lapsed.decided) == ("P", "go", False)


def test_a_record_of_an_earlier_version_holds_without_a_limit():
    value = b'{"generation":2,"cluster":"P","state":"hold","move_id":"m","time_ms":1}'

    route = decode_route(b"group:g", value)
    assert (route.lease_ms, route.beat, route.decided) == (0, 0, False)


def test_without_a_record_clients_use_their_home_cluster():
    assert home_route("P") == Route(0, "P", "go")
    assert merge() == home_route("P")
    assert merge(Route(1, "P", "hold")).state == "hold"


@given(st.dictionaries(st.sampled_from(["group:a", "topic:b"]), routes))
def test_a_cluster_that_was_away_cannot_send_clients_back(table):
    newer = {k: Route(r.generation + 1, "B", "go", "m3") for k, r in table.items()}

    assert merge_tables([table, newer]) == newer
    assert merge_tables([newer, table]) == newer


@given(routes)
def test_a_route_survives_its_encoding(route):
    assert history([route.value()]).routes == {"group:g": route}


def test_an_acknowledgement_survives_its_encoding():
    ack = Ack("group:g", "client-1", 4, "resumed", "B", 12, {"P.T-0": 7})

    assert acks_of({ack.key(): ack.value()}) == (ack,)


def test_an_acknowledgement_of_an_older_client_is_read():
    value = (
        b'{"subject": "group:g", "client": "c", "generation": 4, "state": "resumed", '
        b'"cluster": "B", "time_ms": 12, "positions": {"P.T-0": 7}}'
    )

    [ack] = acks_of({b"group:g:c": value})

    assert (ack.host, ack.uncommitted, ack.ages_ms, ack.home) == ("", {}, {}, "")
    assert ack.positions == {"P.T-0": 7}


@pytest.mark.parametrize("value", [b"", b"{}", b'{"generation": 1, "cluster": "P", "state": "x"}'])
def test_a_damaged_route_is_an_integrity_error_that_names_the_subject(value):
    with pytest.raises(IntegrityError, match="group:g"):
        decode_route(b"group:g", value)


def test_a_key_that_is_no_text_is_damage_like_any_other() -> None:
    """Clients pass over damaged records: anything else would end the thread that reads them."""
    with pytest.raises(IntegrityError, match="has no readable key"):
        decode_route(b"group:\xff", Route(1, "P", "go").value())


@pytest.mark.parametrize(
    ("route", "given_up"),
    [
        (Route(ERA, "P", "hold"), {"P"}),
        (Route(2 * ERA, "P", "hold"), {"P"}),
        (Route(ERA, "B", "go", decided=True), {"P"}),
        (Route(ERA, "P", "go"), set()),  # released
        (Route(ERA, "P", "hold").expire(), set()),
        (Route(ERA + 1, "P", "hold"), set()),
        (Route(ERA - 1, "B", "go", decided=True), set()),
        (home_route("P"), set()),
    ],
)
def test_the_route_of_an_unplanned_move_gives_up_the_cluster_that_is_left(route, given_up):
    assert {cluster for cluster in ("P", "B") if route.gives_up(cluster)} == given_up


@given(routes, st.integers(0, 3))
def test_what_is_given_up_is_never_where_a_route_sends_clients(route, era):
    route = replace(route, generation=era * ERA)
    assert route.state == "hold" or not route.gives_up(route.cluster)


def test_the_routes_of_one_beat_are_decoded_once() -> None:
    value = Route(3, "P", "hold", "m1", lease_ms=60_000, beat=2, homes=("P",)).value()

    first = decode_route(b"group:one", value)

    assert decode_route(b"group:two", value) is first
    with pytest.raises(IntegrityError, match="record group:two is damaged: "):
        decode_route(b"group:two", value[:-1])
