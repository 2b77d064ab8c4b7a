"""One service answers for all: what it does not watch it asks others, and says who is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.service_views import config_of
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.federation.sites import (
    FLOWS,
    PATIENT,
    Site,
    announced,
    flows,
    hang,
    refuse,
    three_services,
)
from tests.waiting import eventually

from srm.config.model import RemoteSettings, ServiceSettings
from srm.service.app import create_app
from srm.service.federation.federation import Joining, join


@pytest.fixture
def site(world: CopiedTopic) -> Site:
    return three_services(world)


@pytest.fixture
def gateway(site: Site) -> Iterator[TestClient]:
    with site.gateway() as client:
        yield client


def test_a_flow_is_told_as_by_the_service_that_watches_it(site: Site, gateway: TestClient) -> None:
    there = TestClient(create_app(site.views("PB")))

    for path in ("", "/topics", "/topics?search=t&limit=1", "/groups/audit", "/forecast"):
        here = gateway.get(f"/v2/flows/P/B{path}")
        assert here.json() == there.get(f"/v2/flows/P/B{path}").json()
        assert here.headers["Content-Type"] == "application/json"
    assert site.network.asked("srm-b")[0] == "/internal/v2/flows/P/B"
    assert not site.network.asked("srm-c")


def test_what_has_not_changed_is_not_sent_again_from_elsewhere(gateway: TestClient) -> None:
    first = gateway.get("/v2/flows/P/B/topics")

    again = gateway.get("/v2/flows/P/B/topics", headers={"If-None-Match": first.headers["ETag"]})

    assert (again.status_code, again.content) == (304, b"")


def test_lists_are_of_all_services_in_one_order(gateway: TestClient) -> None:
    told = gateway.get("/v2/flows").json()

    assert [row["flow"] for row in told["items"]] == ["B->P", "C->P", "P->B", "P->C"]
    assert (told["total"], told["missing"]) == (4, {})
    assert flows(gateway, "?offset=1&limit=2") == ["C->P", "P->B"]
    assert gateway.get("/v2/flows?limit=1").json()["total"] == 4
    copies = gateway.get("/v2/remote-topics?search=topic").json()
    assert [row["target"] for row in copies["items"]] == ["P", "P", "B", "C"]
    assert gateway.get("/remote-topics?target=C").json()["total"] == 1


def test_two_services_of_one_target_are_one_in_lists(site: Site) -> None:
    site.serve("srm-d", "PB", "PC")
    both = announced("srm-d", "B", "C")
    site.known.by_target = {"B": (both,), "C": (both,), "P": (announced("srm-e", "P"),)}

    with site.gateway() as gateway:
        told = gateway.get("/v2/flows").json()

    assert [row["flow"] for row in told["items"]] == ["B->P", "C->P", "P->B", "P->C"]
    assert (told["total"], told["missing"]) == (4, {})


def test_one_that_hangs_is_missing_and_named_and_holds_up_nobody_twice(world: CopiedTopic) -> None:
    site = three_services(world, timedelta(seconds=0.1))
    site.patience = PATIENT
    site.network.hosts["srm-b"] = hang

    with site.gateway("BP", "CP", "PC") as gateway:  # it asks B's service alone
        told = gateway.get("/v2/flows").json()
        site.network.requests.clear()
        again = gateway.get("/v2/flows").json()
        one = gateway.get("/v2/flows/P/B")

    assert [row["flow"] for row in told["items"]] == ["B->P", "C->P", "P->C"]
    assert told["missing"] == {"B": "http://srm-b:6670: no answer within 0.1 s"}
    assert not site.network.asked("srm-b")
    assert "next request in" in again["missing"]["B"]
    assert (one.status_code, one.headers["Content-Type"]) == (503, "application/problem+json")


def test_one_that_died_is_replaced_by_another_of_the_same_target(site: Site) -> None:
    site.network.hosts["srm-b"] = refuse
    site.serve("srm-x", "PB")
    site.known.by_target["B"] = (announced("srm-b", "B"), announced("srm-x", "B"))

    with site.gateway() as gateway:
        assert gateway.get("/v2/flows/P/B").status_code == 200
        assert flows(gateway) == ["B->P", "C->P", "P->B", "P->C"]


def test_one_that_hangs_does_not_use_up_the_time_of_the_others_of_its_target(site: Site) -> None:
    """However many of them hang: the one that answers is asked within the limit of one answer."""
    hosts = ("srm-x", "srm-y")
    site.patience = timedelta(seconds=0.6)
    for host in hosts:
        site.network.hosts[host] = hang
    site.known.by_target["B"] = tuple(announced(host, "B") for host in (*hosts, "srm-b"))

    def only_the_one_that_answered_is_asked() -> bool:
        site.network.requests.clear()
        found = gateway.get("/v2/flows/P/B").status_code
        return found == 200 and not any(map(site.network.asked, hosts))

    with site.gateway() as gateway:
        assert gateway.get("/v2/flows/P/B").status_code == 200
        assert [host for host in hosts if site.network.asked(host)] == [*hosts]
        eventually(only_the_one_that_answered_is_asked, "who answers within a third of the limit")


def test_one_that_no_longer_watches_the_target_is_skipped(site: Site) -> None:
    site.serve("srm-x", "PC")
    site.known.by_target["B"] = (announced("srm-x", "B"), announced("srm-b", "B"))

    with site.gateway() as gateway:
        assert gateway.get("/v2/flows/P/B").status_code == 200


def test_a_target_that_nobody_watches_is_missing_by_name(site: Site, gateway: TestClient) -> None:
    del site.known.by_target["C"]

    told = gateway.get("/v2/flows").json()

    assert told["missing"].keys() == {"C"}
    assert "no service that watches C is announced" in told["missing"]["C"]
    assert gateway.get("/v2/flows/P/C").status_code == 503
    assert gateway.get("/v2/flows/P/Z").status_code == 404


def test_what_another_service_asks_goes_no_further(site: Site, gateway: TestClient) -> None:
    told = gateway.get("/internal/v2/flows/P/B")

    assert (told.status_code, told.json()["title"]) == (404, "Not Found")
    here = gateway.get("/internal/v2/flows").json()
    assert [row["flow"] for row in here["items"]] == ["B->P", "C->P"]
    narrowed = gateway.get("/internal/v2/flows", headers={"X-SRM-Target": "B"})
    assert narrowed.status_code == 404
    assert not site.network.requests


def test_an_error_of_the_other_service_is_passed_on_as_of_this_one(gateway: TestClient) -> None:
    told = gateway.get("/v2/flows/P/B/topics/Nothing")

    assert (told.status_code, told.json()["instance"]) == (404, "/v2/flows/P/B/topics/Nothing")
    assert "not copied by P->B" in told.json()["detail"]


def test_an_unknown_move_is_unknown_only_once_all_have_answered(
    site: Site, gateway: TestClient
) -> None:
    assert gateway.get("/v2/moves/m-1").status_code == 404

    site.network.hosts["srm-c"] = refuse

    told = gateway.get("/v2/moves/m-1")
    assert told.status_code == 503
    assert "C: http://srm-c:6670: connection refused" in told.json()["detail"]


def test_a_cluster_is_told_with_the_flows_that_others_watch(
    site: Site, gateway: TestClient
) -> None:
    own = gateway.get("/v2/cluster-info/P").json()
    other = gateway.get("/v2/cluster-info/id-of-B").json()

    assert (own["incoming"], own["outgoing"]) == (["B->P", "C->P"], ["P->B", "P->C"])
    assert (other["alias"], other["incoming"], other["outgoing"]) == ("B", ["P->B"], ["B->P"])
    assert gateway.get("/v2/cluster-info/nothing").status_code == 404

    site.network.hosts["srm-c"] = refuse
    assert gateway.get("/v2/cluster-info/P").json()["missing"].keys() == {"C"}


def test_version_1_names_who_is_missing_in_a_header(site: Site, gateway: TestClient) -> None:
    site.network.hosts["srm-c"] = refuse

    told = gateway.get("/cluster-metrics/P/byte-rate")

    assert [series["target"] for series in told.json()] == ["B"]
    assert told.headers["SRM-Missing"] == "C"
    series = gateway.get("/topic-metrics/P.Topic/byte-rate").json()[-1]
    assert series["target"] == "B"
    copy = gateway.get("/v2/topic-metrics/B/P.Topic/byte-rate").json()
    assert (copy["source"], copy["target"], copy["topic"]) == ("P", "B", "Topic")


def test_actions_are_not_passed_on(site: Site, gateway: TestClient) -> None:
    gateway.post("/v2/flows/P/B/refresh", json={})

    assert not site.network.requests


def test_a_service_behind_a_path_is_asked_there_and_asks_from_there(site: Site) -> None:
    site.serve("srm-b", "PB", root_path="/b")
    site.known.by_target["B"] = (announced("srm-b", "B", root_path="/b"),)
    site.service = replace(site.service, root_path="/a")

    with site.gateway() as gateway:
        assert gateway.get("/v2/flows/P/B").status_code == 200
        assert gateway.get("/a/v2/flows/P/B").status_code == 200
    assert site.network.asked("srm-b") == ["/b/internal/v2/flows/P/B"] * 2


def test_settings_join_a_service_as_far_as_they_say(world: CopiedTopic) -> None:
    def joined(**remote: Any) -> Joining:
        service = ServiceSettings(remote=RemoteSettings(hosts=("srm-*",), **remote))
        config = replace(config_of(*FLOWS), service=service)
        return join(config, ("P",), lambda _: nullcontext(world.p))

    assert joined() == Joining()
    assert joined(advertise=True).federation is None
    federation = joined(enabled=True).federation
    assert federation is not None
    assert federation.targets == ("B", "C")
