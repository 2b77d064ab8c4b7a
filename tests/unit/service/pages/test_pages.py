"""Pages tell what the service knows, whatever state it is in, and run nothing that names hold."""

from __future__ import annotations

import shlex
from dataclasses import replace
from html import unescape
from re import findall
from shlex import split
from typing import Any
from urllib.parse import quote

import pytest
import typer
from fastapi import HTTPException
from fastapi.testclient import TestClient
from tests.service_site import (
    B_P,
    C_P,
    EVIL,
    MOVING,
    P_B,
    P_C,
    PAST,
    WHY,
    degraded,
    site,
    well,
    windows,
)
from tests.service_views import config_of, still_views
from tests.unit.service.pages.reading import Outline, words
from typer.testing import CliRunner

from srm.cli.main import app
from srm.cli.main import app as srm
from srm.clock import now_ms
from srm.config.model import ServiceSettings
from srm.domain.flow_state.replication_records import Pause
from srm.domain.moves.routing import Route
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Stamped
from srm.engine.moves.history import RoutingHistory, RoutingTables
from srm.engine.status.observing import FlowState
from srm.errors import ConfigError
from srm.service.access.access import User
from srm.service.app import create_app
from srm.service.pages.rendering import Links
from srm.service.views.flow_rows import FlowLook
from srm.service.views.views import Views
from srm_lab.testing.flows import flow_config

PAUSE = Pause("r1", "ada@ops", "C is rebuilt", 1)
PAGES = (
    "/ui",
    "/ui?range=2h&stat=max",
    "/ui/flows/P/B",
    "/ui/flows/P/B?search=pay&sort=byte-rate&order=asc&state=running&range=1h&stat=min",
    "/ui/flows/P/C",
    "/ui/flows/C/P",
    "/ui/flows/P/B/topics/orders",
    "/ui/flows/P/B/groups",
    f"/ui/flows/P/B/groups/{quote(EVIL, safe='')}",
    "/ui/flows/P/B/groups/never-seen",
    "/ui/flows/B/P/groups",
    "/ui/moves",
    f"/ui/moves/{MOVING}",
    f"/ui/moves/{PAST}",
    "/ui/moves/new?flow=P->B&group=billing",
    "/ui/why?kind=group&name=billing&flow=P->B",
    f"/ui/why?name={quote(EVIL)}",
    "/ui/runs/srm_failover.B.P/none",
    "/ui/nothing",
    "/ui/flows/X/Y",
    "/ui/flows/P/B?stat=median",
)


@pytest.mark.parametrize("name", ["orders", "it's; echo $(id) `id`", EVIL])
def test_the_command_to_copy_is_one_that_asks_for_that_name_whatever_it_holds(
    client: TestClient, name: str
) -> None:
    page = client.get("/ui/why", params={"kind": "group", "name": name, "flow": "P->B"}).text

    [command] = [unescape(each) for each in findall('data-copy="([^"]*)"', page)]

    assert split(command) == ["srm", "why", name, "--kind", "group", "--flow", "P->B"]
    called = CliRunner().invoke(srm, [*split(command)[1:], "--config", "/nowhere"])
    assert isinstance(called.exception, ConfigError)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_loads_from_here_alone_and_can_be_read_aloud(
    client: TestClient, path: str
) -> None:
    answer = client.get(path)
    found, policy = Outline(answer.text), answer.headers["Content-Security-Policy"]

    assert policy.startswith("default-src 'self';")
    assert "frame-ancestors 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["Content-Type"].startswith("text/html")
    assert (found.inline_scripts, found.styled, found.unscoped, found.unnamed) == (0, [], 0, 0)
    assert found.headings.count("h1") <= 1
    assert all(address.startswith("/static/") for address in found.loaded)
    assert [one for one in found.ids if found.ids.count(one) > 1] == []
    assert "<script>alert" not in answer.text
    assert "<b>retention" not in answer.text


@pytest.mark.parametrize("path", PAGES)
def test_commands_on_a_page_are_ones_that_there_are(client: TestClient, path: str) -> None:
    for text in Outline(client.get(path).text).copied:
        program, *arguments = shlex.split(text)
        if program == "srm":
            command: Any = typer.main.get_command(app)
            while hasattr(command, "commands"):
                command = command.commands[arguments.pop(0)]
            command.make_context(text, arguments)


@pytest.mark.parametrize("path", [path for path in PAGES if "nothing" not in path][:17])
def test_links_lead_somewhere(client: TestClient, path: str) -> None:
    for link in set(Outline(client.get(path).text).links):
        if link.startswith("/ui"):
            assert client.get(link).status_code == 200, link


def test_the_overview_says_who_is_in_trouble_since_when_and_what_to_do(client: TestClient) -> None:
    told = words(client.get("/ui").text)

    assert "2 of 4 flows need attention" in told
    assert "P → C stopped for 6 min" in told
    assert "srm replicate --flow 'P->C'" in told
    assert "P → B degraded for 20 min" in told
    assert told.index("P → C") < told.index("P → B")
    assert "If P died now: 48,210 records (41 s) lost" in told
    assert (
        "Failover P → B is running: held, waits: replication of payments from P is 1,204 records "
        "behind (as of " in told
    )
    assert "1 of 4 cannot" in told
    assert "Held for 45 s" in told


def test_a_flow_says_which_topic_lags_since_when_and_why(client: TestClient) -> None:
    told = words(client.get("/ui/flows/P/B").text)

    assert told.index("orders P.orders on B") < told.index("payments P.payments on B")
    assert WHY in told
    assert "48.2k for 19 min" in told or "48.2k for 18 min" in told
    assert "the copy is not created yet" in told


def test_a_partition_says_why_it_stopped(client: TestClient) -> None:
    told = words(client.get("/ui/flows/P/B/topics/orders?state=bad").text)

    assert f"0 Stopped for 20 min {WHY}" in told
    assert "lost 11400 source offsets, 120000 to 131399" in told
    assert "120,000 168,160 120,007" in told


@pytest.mark.parametrize("path", ["/ui", "/ui/flows/P/B", "/ui/flows/P/B/topics/orders"])
def test_what_to_do_is_said_once_in_words_where_it_is_no_command(
    client: TestClient, path: str
) -> None:
    page = client.get(path).text

    assert words(page).count("To do: set P->B.data.loss.policy = continue in srm.properties") == 1
    assert words(page).lower().count("data.loss.policy") == 1
    assert not any("data.loss.policy" in text for text in Outline(page).copied)


def test_a_group_says_where_it_would_go_on_and_what_keeps_it(client: TestClient) -> None:
    billing = words(client.get("/ui/flows/P/B/groups/billing").text)
    fraud = words(client.get("/ui/flows/P/B/groups/fraud").text)

    assert "billing can resume on B now" in billing
    assert "orders-0 \N{EN DASH} 88,000 by the checkpoint P.orders-0 88,900" in billing
    assert "Committed on P is not known: nobody is there" in billing
    assert "A planned move would wait for 48,163 records to be copied, at most about" in billing
    assert "fraud cannot resume on B now" in fraud
    assert "P.orders-3 does not exist on B" in fraud


def test_groups_that_could_not_move_come_first_and_can_be_searched(client: TestClient) -> None:
    told = words(client.get("/ui/flows/P/B/groups").text)
    found = words(client.get("/ui/flows/P/B/groups?search=BILL").text)

    assert told.index("fraud") < told.index("billing")
    assert "no checkpoint: auto.offset.reset would decide" in told
    assert "billing Yes" in found
    assert "fraud No" not in found


def test_who_has_the_page_already_gets_none_though_time_goes_on(client: TestClient) -> None:
    first = client.get("/ui/flows/C/P")
    etag = first.headers["ETag"]

    again = client.get("/ui/flows/C/P", headers={"If-None-Match": etag})
    other = client.get("/ui/flows/B/P", headers={"If-None-Match": etag})

    assert (again.status_code, again.content) == (304, b"")
    assert other.status_code == 200


def test_under_a_path_all_addresses_begin_with_it() -> None:
    views = site()
    client = TestClient(create_app(views), root_path="/srm")

    for path in ("/ui", "/ui/flows/P/B", "/ui/moves", f"/ui/moves/{PAST}"):
        page = client.get(f"/srm{path}").text
        found = Outline(page)
        assert all(link.startswith(("/srm/", "#", "/dags/")) for link in found.links)
        assert all(address.startswith("/srm/static/") for address in found.loaded)
    assert (
        'data-chart="/srm/v2/cluster-metrics/P/B/byte-rate"' in client.get("/srm/ui/flows/P/B").text
    )
    start = client.get("/srm/", follow_redirects=False)
    assert start.headers["Location"] == "/srm/ui"


def test_airflow_is_linked_where_it_is_known() -> None:
    views = site()
    service = ServiceSettings(airflow_url="https://airflow.example/")
    views.config = replace(views.config, service=service)
    page = TestClient(create_app(views)).get(f"/ui/moves/{MOVING}").text

    assert (
        "https://airflow.example/dags/srm_failover.B.P/runs?run_id_pattern="
        "manual__2026_11_23T03_00_00_00_00%25"
    ) in page


def _unseen(error: str = "") -> Views:
    return still_views(FlowLook(P_B, flow_config(P_B), error=error))


@pytest.mark.parametrize(
    ("views", "path", "says"),
    [
        (still_views(config=config_of()), "/ui", "No replication flow is configured"),
        (_unseen(), "/ui", "P → B is not known yet"),
        (_unseen("cluster B: timed out"), "/ui", "cluster B: timed out"),
        (_unseen(), "/ui/flows/P/B", "No data yet"),
        (_unseen("cluster B: timed out"), "/ui/flows/P/B/groups", "cluster B: timed out"),
        (_unseen(), "/ui/flows/P/B", "srm metrics aggregate"),
        (_unseen(), "/ui/moves", "No move yet"),
        (_unseen(), "/ui/moves", "srm failover drill --source P --target B"),
        (still_views(config=config_of()), "/ui/moves/new", "No replication flow is configured"),
        (site(), "/ui/flows/C/P", "srm-control topics --source C --target P --add"),
        (site(), "/ui/flows/B/P/groups", "srm checkpoints emit --flow 'B->P'"),
        (site(), "/ui/flows/P/B?search=nothing", "Why is nothing not copied?"),
    ],
)
def test_where_nothing_is_to_be_shown_the_page_says_what_to_do(
    views: Views, path: str, says: str
) -> None:
    assert says in words(TestClient(create_app(views)).get(path).text)


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/ui/flows/P/X", 404, "cluster 'X' is not watched here"),
        ("/ui/flows/P/B/topics/none", 404, "topic 'none' is not copied by P->B"),
        ("/ui/flows/P/B/topics/none", 404, "Why is none not here?"),
        ("/ui/flows/P/B/groups/none", 404, "group 'none' has no checkpoint of P->B"),
        ("/ui/flows/P/B/groups/none", 404, "Why is none not here?"),
        ("/ui/moves/none", 404, "move 'none' is not known"),
        ("/ui/flows/P/B?range=1y", 422, "range"),
    ],
)
def test_errors_are_pages(client: TestClient, path: str, status: int, says: str) -> None:
    answer = client.get(path)

    assert answer.status_code == status
    assert says in words(answer.text)


def test_what_is_not_found_is_asked_for_by_a_link_and_not_by_a_path_for_programs(
    client: TestClient,
) -> None:
    page = Outline(client.get("/ui/flows/P/B/topics/none").text)

    assert "/v2/" not in page.words
    assert "/ui/why?kind=topic&name=none" in page.links
    assert "see /v2/why/topic/none" in client.get("/v2/flows/P/B/topics/none").text


def test_what_was_not_seen_yet_is_said_to_come() -> None:
    answer = TestClient(create_app(_unseen())).get("/ui/flows/P/B/topics/orders")

    assert answer.status_code == 503
    assert "refreshes automatically" in words(answer.text)


@pytest.mark.parametrize("status", [401, 403])
def test_who_is_not_allowed_sees_nothing_and_is_told_how_to_sign_in(status: int) -> None:
    def refuse() -> User:
        raise HTTPException(status, "who are you?", {"WWW-Authenticate": "Basic"})

    client = TestClient(create_app(site(), refuse))

    for path in PAGES[:17]:
        answer = client.get(path)
        assert answer.status_code == status
        assert answer.headers["WWW-Authenticate"] == "Basic"
        assert not any(name in answer.text for name in ("orders", "billing", "P-&gt;B", "P → B"))


def site_with(flow: Flow, **changed: Any) -> Views:
    views = site()
    [watch] = [one for one in views._watches.values() if one.alias == flow.target]
    look = watch.look.flows[flow]
    assert look.view is not None
    view = replace(look.view, status=replace(look.view.status, **changed))
    gone = replace(look, view=view)
    watch.look = replace(watch.look, flows={**watch.look.flows, flow: gone})  # type: ignore[misc]
    return views


def site_without_source(flow: Flow) -> Views:
    return site_with(flow, source_error="cluster P: timed out")


@pytest.mark.parametrize(
    ("changed", "state"), [({"enabled": False}, "Off"), ({"pause": PAUSE}, "Paused")]
)
def test_topics_have_the_state_of_a_flow_that_is_not_copied(
    changed: dict[str, Any], state: str
) -> None:
    page = words(TestClient(create_app(site_with(P_C, **changed))).get("/ui/flows/P/C").text)

    assert f"{state} 1" in page, "the number of topics in that state"


def test_no_topic_is_said_to_be_selected_by_nobody_while_the_source_is_away() -> None:
    page = words(TestClient(create_app(site_without_source(C_P))).get("/ui/flows/C/P").text)

    assert "C does not answer, and P has no copy of a selected topic" in page
    assert "No topic is selected" not in page


def test_a_source_that_is_away_is_told_at_its_box() -> None:
    views = site_without_source(P_C)

    page = TestClient(create_app(views)).get("/ui").text

    assert 'class="box away"' in page
    assert "does not answer" in words(page)


def test_what_a_copy_holds_is_told_in_offsets_with_its_unit(client: TestClient) -> None:
    """Markers of claims are among them: a topic of 60 records had 63."""
    page = words(client.get("/ui/flows/P/B/topics/orders").text)

    assert "Copied and retained 911k offsets" in page


@pytest.mark.parametrize("page", ["/ui/flows/P/C", "/ui/flows/P/C/topics/orders"])
def test_a_lag_of_a_source_that_is_away_says_as_of_when_it_is(page: str) -> None:
    views = site_without_source(P_C)
    now = [one for one in views._watches.values() if one.alias == "C"]
    heard = f'data-ms="{now[0].look.flows[P_C].view.status.heard_ms}"'  # type: ignore[union-attr]
    client = TestClient(create_app(views))

    away, there = client.get(page).text, TestClient(create_app(site())).get(page).text

    assert heard in away.split("<small>records", 1)[1].split("</small>", 1)[0]
    assert "<small>records</small>" in there
    assert client.get("/v2/flows/P/C").json()["lag_at_ms"] is not None


def test_pages_of_a_target_that_is_away_say_how_old_they_are() -> None:
    views = site(is_moving=False)
    [watch] = [one for one in views._watches.values() if one.alias == "B"]
    gone = replace(watch.look.flows[P_B], error="cluster B: timed out")
    watch.look = replace(watch.look, flows={P_B: gone})  # type: ignore[misc]
    client = TestClient(create_app(views))

    assert "P → B unknown for" in words(client.get("/ui").text)
    for path in ("", "/topics/orders", "/groups", "/groups/billing"):
        told = words(client.get(f"/ui/flows/P/B{path}").text)
        assert "The latest look failed; this page shows the state of" in told, path
        assert told.count("cluster B: timed out") == 1, path
        assert told.count("To do: check the brokers of B") == 1, path


def test_a_group_that_has_moved_is_said_to_work_there_and_by_which_flow_it_would_go_on() -> None:
    """It could "go on at B now", was the answer for the application that ran on B."""
    views = site(is_moving=False)
    [watch] = [one for one in views._watches.values() if one.alias == "B"]
    look = watch.look.flows[P_B]
    assert look.view is not None
    assert look.view.outlook is not None
    went = {"group:billing": Route(1, "B", "go"), "group:fraud": Route(2, "P", "go")}
    rows = {subject.encode(): [Stamped(route.value(), 0)] for subject, route in went.items()}
    outlook = replace(look.view.outlook, routing=RoutingTables(RoutingHistory("B", rows)))
    look = replace(look, view=replace(look.view, outlook=outlook))
    watch.look = replace(watch.look, flows={P_B: look})  # type: ignore[misc]
    client = TestClient(create_app(views))

    page = client.get("/ui/flows/P/B/groups/billing").text
    rows = client.get("/v2/flows/P/B/groups").json()["items"]

    assert [row["group"] for row in rows if row["works_there"]] == ["billing"]
    assert "It works on B already: see flow B → P" in words(page)
    assert "can resume on B now" not in words(page)
    assert "would wait for" not in words(page)
    assert "/ui/flows/B/P/groups" in Outline(page).links, "that flow has no checkpoint of it yet"
    assert "billing works on B already see flow B → P" in words(
        client.get("/ui/flows/P/B/groups").text
    )
    assert "of 3 cannot resume on B 1 more works on B already" in words(
        client.get("/ui/flows/P/B/groups").text
    )


def test_nothing_is_green_or_forecast_of_a_target_that_is_away() -> None:
    """All groups could go on there, it said in green, and what P's death would cost "now"."""
    views = site(is_moving=False)
    [watch] = [one for one in views._watches.values() if one.alias == "B"]
    look = replace(watch.look.flows[P_B], error="cluster B: timed out")
    watch.look = replace(watch.look, flows={P_B: look})  # type: ignore[misc]
    client = TestClient(create_app(views))

    overview = words(client.get("/ui").text)
    ready = overview[overview.index("Can groups resume") : overview.index("Last move")]
    assert "P → B 4 of 4 not known" in ready
    reason = "latest look failed: cluster B: timed out"
    assert reason in overview
    assert reason not in ready, "each group would repeat it"
    assert "read again" not in ready
    for path in ("", "/topics/payments", "/groups", "/groups/billing"):
        page = client.get(f"/ui/flows/P/B{path}").text
        told = words(page)
        assert "state-running" not in page, path
        assert "can resume on B now" not in told, path
        assert "would wait for" not in told, path
        assert "If P died now" not in told, path
        assert "2/2" not in told, path
    assert {row["state"] for row in client.get("/v2/flows/P/B/topics").json()["items"]} == {
        "UNKNOWN"
    }
    assert "If P died now" not in client.get("/ui/moves/new?flow=P->B").text


def test_a_group_of_a_source_that_is_away_is_not_told_to_wait_for_nothing() -> None:
    views = site_without_source(P_B)

    told = words(TestClient(create_app(views)).get("/ui/flows/P/B/groups/billing").text)

    assert "P does not answer: a planned move needs it" in told
    assert "would wait for" not in told


def test_all_flows_of_the_site_have_a_page(client: TestClient) -> None:
    for flow in (P_B, B_P, P_C, C_P):
        assert client.get(f"/ui/flows/{flow.source}/{flow.target}").status_code == 200


def test_links_stay_below_the_path_that_a_proxy_shows_the_service_under() -> None:
    links = Links("/ui/tools")

    assert links("why", name="a b") == "/ui/tools/ui/why?name=a+b"
    assert links.api("why", "group", "a/b", flow="P->B") == (
        "/ui/tools/v2/why/group/a%2Fb?flow=P-%3EB"
    )


def late_site() -> Views:
    """Two flows that run, one of which has lagged for the last twenty minutes."""
    now = now_ms()
    status = degraded(now).view.status  # type: ignore[union-attr]
    copying = replace(status, topics=(status.topics[1],))
    view = FlowState(copying)
    views = still_views(FlowLook(P_B, flow_config(P_B), view, now), well(now))
    for alias in ("P", "B"):
        watch: Any = views._watch(alias)
        watch.add(*(one for one in windows(now) if one.target == alias))
    return views


def test_a_flow_that_is_behind_is_drawn_like_the_headline_and_says_what_to_look_at() -> None:
    page = TestClient(create_app(late_site())).get("/ui").text
    drawing = page[page.index("<defs>") : page.index('class="flow-list"')]

    assert "P \N{RIGHTWARDS ARROW} B is behind" in words(page)
    assert 'class="arrow degraded"' in drawing
    assert "url(#tip-degraded)" in drawing
    assert "P \N{RIGHTWARDS ARROW} B · Behind" in drawing
    assert 'class="arrow running"' in drawing, "the other one"
    assert "srm status --flow 'P->B'" in Outline(page).copied


def test_names_of_partitions_can_be_copied_and_found(client: TestClient) -> None:
    for path in ("/ui", "/ui/flows/P/B", "/ui/flows/P/B/groups/billing"):
        assert not {"\N{NON-BREAKING HYPHEN}", "&#8209;"} & set(client.get(path).text.split())
        assert "&#8209;" not in client.get(path).text
