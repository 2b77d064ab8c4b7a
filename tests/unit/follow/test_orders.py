"""Several routes make one order."""

from __future__ import annotations

from srm.domain.moves.routing import Route, home_route
from srm.follow.supervisor import Order, order_of


def test_all_on_one_cluster_is_go() -> None:
    routes = {"group:a": Route(3, "B", "go"), "topic:t": Route(9, "B", "go")}
    assert order_of(routes) == Order("B")
    assert order_of({"group:a": home_route("P")}) == Order("P")


def test_one_hold_holds_all() -> None:
    routes = {"group:a": Route(3, "P", "go"), "topic:t": Route(9, "P", "hold")}
    assert order_of(routes) == Order(None, ("topic:t",))


def test_two_clusters_are_none() -> None:
    routes = {"group:a": Route(3, "P", "go"), "topic:t": Route(9, "B", "go")}
    assert order_of(routes) == Order(None, apart=True)
