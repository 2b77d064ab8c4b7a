"""Pages about moves: the running one, what past ones cost, and the form of the next."""

from __future__ import annotations

from dataclasses import replace
from re import findall
from urllib.parse import quote

from fastapi.testclient import TestClient
from tests.service_site import (
    B_P,
    MOVING,
    P_B,
    PAST,
    moving,
    past_moves,
    site,
    well,
)
from tests.service_views import config_of, still_views
from tests.unit.domain.moves.report.reporting import losing
from tests.unit.service.pages.reading import Outline, words

from srm.clock import now_ms
from srm.domain.moves.progress import Carrier, MoveProgress, run_again
from srm.domain.moves.request import FORM
from srm.domain.moves.revisions import KeptReport
from srm.domain.text.amount import problem, warning
from srm.service.app import create_app
from srm.service.pages.moves import likely
from srm.service.views.flow_rows import FlowLook, MoveLook
from srm_lab.testing.flows import flow_config


def test_a_move_says_how_far_it_is_and_a_past_one_what_it_cost(client: TestClient) -> None:
    live = client.get(f"/ui/moves/{MOVING}").text
    moving = words(live)
    past = words(client.get(f"/ui/moves/{PAST}").text)

    assert "Hold +21 s" in moving
    assert "Wait now" in moving
    assert f"srm failover release {MOVING} --source P --target B" in Outline(live).copied
    assert "Lost (RPO) 312 records" in past
    assert "Without service (RTO) 18 s" in past
    assert "group billing read 940 records again" in past
    report = client.get(f"/ui/moves/{PAST}/report")
    assert report.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert client.get(f"/ui/moves/{MOVING}/report").status_code == 404


def test_a_run_of_airflow_leads_to_its_move_or_its_flow(client: TestClient) -> None:
    run = quote("manual__2026-11-23T03:00:00+00:00", safe="")

    move = client.get(f"/ui/runs/srm_failover.P.B/{run}", follow_redirects=False)
    flow = client.get(f"/ui/runs/srm_checkpoints/{run}?task=P_to_B", follow_redirects=False)
    neither = client.get(f"/ui/runs/srm_metrics_aggregation/{run}", follow_redirects=False)

    assert move.headers["Location"] == f"/ui/moves/{MOVING}"
    assert flow.headers["Location"] == "/ui/flows/P/B"
    assert neither.headers["Location"] == "/ui"


def test_the_form_of_a_move_is_filled_in(client: TestClient) -> None:
    page = client.get("/ui/moves/new?flow=P->B&group=billing&topic=orders").text

    assert 'value="billing" checked' in page
    assert 'value="orders" checked' in page
    assert 'name="dry_run" checked' in page
    assert 'data-dag="srm_failover.B.P"' in page, "the pair, in the order of the file"
    assert 'value="failback" checked' in page, "from the second cluster to the first"


def test_the_form_of_a_move_has_a_field_for_every_setting_with_its_bounds(
    client: TestClient,
) -> None:
    page = client.get("/ui/moves/new?flow=P->B&group=billing").text

    for setting in FORM.values():
        assert f'name="{setting.name}"' in page
        if setting.kind == "seconds":
            lowest, highest = setting.bounds
            assert f'min="{lowest}" max="{highest}" value="{setting.default:g}"' in page
    assert '<option value="acl">acl: deny writes' in page
    assert "&#34;option&#34;: &#34;--quiet-seconds&#34;" in page, "what the script makes of it"


def test_of_a_group_to_be_moved_the_topics_that_it_reads_are_ticked_and_named(
    client: TestClient,
) -> None:
    page = client.get("/ui/moves/new?flow=P->B&group=billing").text

    assert 'name="topics" value="orders" checked' in page
    assert 'name="topics" value="payments">' in page, "fraud reads it, billing does not"
    command = "srm failover plan --source P --target B --operation failback"
    assert f"{command} --topic orders --group billing" in Outline(page).copied


def test_a_move_is_planned_from_where_groups_work_now() -> None:
    looks = [FlowLook(flow, flow_config(flow)) for flow in (B_P, P_B)]
    config = replace(config_of(B_P, P_B), clusters=("P", "B"))
    never = likely(still_views(*looks, config=config))
    moved = likely(site())

    assert never is not None
    assert never.flow == P_B, "the first as the file has the clusters"
    assert moved is not None
    assert moved.flow == P_B


def test_the_last_move_is_the_last_that_has_a_report_though_nobody_had_an_rto() -> None:
    views = site(is_moving=False)
    [watch] = [one for one in views._watches.values() if one.alias == "B"]
    [newest] = [
        move
        for move in watch.look.moves
        if move.plan.move_id.startswith("failback-manual__2026-10-15")
    ]
    assert newest.report is not None
    report = replace(losing(newest.report.report, 77, 77), rto_seconds=None)
    idle = replace(newest, report=KeptReport.made(report, None))
    watch.look = replace(watch.look, moves=(idle,))  # type: ignore[misc]

    told = words(TestClient(create_app(views)).get("/ui").text)

    assert "Lost (RPO) 77 Without service (RTO)" in told


def test_the_last_move_is_the_last_that_ended_though_it_was_given_up_and_says_why() -> None:
    """An older one, that was clean, stood there."""
    views = site(is_moving=False)

    told = words(TestClient(create_app(views)).get("/ui").text)
    last = told[told.index("Last move") :]
    assert last.index("released") < last.index("replication of payments-3 is stopped")
    assert "Held for 45 s" in last


def test_a_move_that_waits_says_what_for_and_one_that_was_given_up_why(client: TestClient) -> None:
    listed = words(client.get("/ui/moves").text)
    page = words(client.get("/ui/moves/failover-manual__2026-11-20T08-12-00-00-00-d080e7").text)

    assert "until all is copied and translated replication of payments from P is 1,204" in listed
    assert "is 1,204 records behind carried by process 17 on host-7, last heartbeat" in listed
    assert "replication of payments-3 is stopped: records 987 to 1955 are gone" in listed
    assert "released" in page
    assert "Clients that follow routes were held for 45 s, then sent back to P" in page
    assert "replication of payments-3 is stopped: records 987 to 1955 are gone" in page


def test_a_move_without_a_process_is_not_shown_as_running() -> None:
    views = site()
    [watch] = [one for one in views._watches.values() if one.alias == "B"]
    look = moving(now_ms())
    warned = replace(look.plan, findings=(warning("x", "of the plan"),))
    gone = replace(look.progress, step="gone")
    died = Carrier("process 17 on host-7", now_ms() - 300_000, alive=False)
    sent = replace(look, plan=warned, progress=gone, carrier=died)
    watch.look = replace(watch.look, moves=(sent,))  # type: ignore[misc]
    client = TestClient(create_app(views))

    page = words(client.get(f"/ui/moves/{MOVING}").text)
    assert "no process carries it: process 17 on host-7, last heartbeat 5 min ago" in page
    assert "P → B no process carries it planned, started" in page
    again = run_again(look.plan.request.flow, look.plan.move_id)
    assert f"To continue it: {again}" in page
    assert "Verify" in page
    assert "of the plan" not in page
    assert "no process carries it" in words(client.get("/ui").text)


def test_the_api_says_what_a_move_waits_for_and_why_one_was_given_up(client: TestClient) -> None:
    rows = {row["move_id"]: row for row in client.get("/v2/moves").json()["items"]}
    given_up = rows["failover-manual__2026-11-20T08-12-00-00-00-d080e7"]

    assert rows[MOVING]["carrier"] == {
        "name": "process 17 on host-7",
        "heartbeat_ms": rows[MOVING]["created_ms"] + 50_000,
        "alive": True,
        "waits": ["replication of payments from P is 1,204 records behind"],
    }
    assert given_up["problems"] == [
        "replication of payments-3 is stopped: records 987 to 1955 are gone"
    ]
    assert (given_up["rto_seconds"], given_up["ended"], given_up["carrier"]) == (45, True, None)


def test_a_move_that_its_plan_keeps_from_beginning_says_so_everywhere() -> None:
    """It was "planned only", as one that waits for nothing but its start."""
    [given_up] = [look for look in past_moves(now_ms()) if look.progress.step == "released"]
    plan = replace(
        given_up.plan,
        findings=(problem("in-use", "group billing is active on B"), problem("x", "another")),
    )
    blocked = MoveLook(plan, MoveProgress(plan.move_id))
    client = TestClient(create_app(still_views(well(now_ms()), moves={"P": [blocked]})))

    [row] = client.get("/v2/moves").json()["items"]
    assert (row["problems"], row["ended"]) == (list(plan.blocking), False)
    assert client.get("/v2/moves?which=running").json()["total"] == 0
    assert client.get("/v2/moves?which=ended").json()["total"] == 0
    assert "blocked group billing is active on B" in words(client.get("/ui/moves").text)
    page = words(client.get(f"/ui/moves/{plan.move_id}").text)
    assert "blocked planned, started" in page
    assert "Hold not reached clients finish and leave" in page
    assert "planned only" not in page
    lately = words(client.get("/ui").text)
    assert f"planned ({plan.move_id}), blocked: group billing is active on B" in lately


def test_the_longest_move_is_told_as_it_was(client: TestClient) -> None:
    """The end of the axis stood there, which is rounded."""
    assert "RTO, the longest 45 s" in words(client.get("/ui/moves").text)


def test_a_move_stands_among_what_happened_under_the_flow_that_it_follows() -> None:
    moves = [event for event in site().events(P_B) if event.kind == "move"]

    assert {event.flow for event in moves} == {"P->B", "B->P"}
    assert all(f" {event.flow} of " in event.text for event in moves)


def test_a_drill_that_could_not_prove_everything_has_no_tick(client: TestClient) -> None:
    page = client.get("/ui").text
    red = page[: page.index("drill-2 done: 1 of 2 groups proven")]

    assert "icon-ok" not in red[red.rindex("<li") :]


def test_a_drill_shows_its_problems_and_warnings(client: TestClient) -> None:
    page = words(client.get("/ui/moves").text)

    assert "group fraud: orders-0: offset 120,000 is not copied" in page
    assert "all proven no way back" in page


def test_one_is_singular() -> None:
    [given_up] = [look for look in past_moves(now_ms()) if look.progress.step == "released"]
    holding = MoveProgress(given_up.plan.move_id, step="holding", times_ms={"holding": now_ms()})
    under_way = replace(given_up, progress=holding)
    client = TestClient(create_app(still_views(well(now_ms()), moves={"B": [under_way]})))

    assert ", 1 group, started" in words(client.get("/ui").text)
    assert "1 group, " in words(client.get("/ui/moves").text)


def test_the_last_move_and_what_happened_lately_say_the_same_time(client: TestClient) -> None:
    page = client.get("/ui").text
    card = page[page.index('id="last"') :]
    lately = client.get("/ui/flows/P/B").text
    lately = lately[lately.index('id="events"') :]

    [ended] = findall("ended (<time [^>]*>)", card)
    assert ended in lately


def test_what_moves_cost_and_how_long_each_step_took_stands_in_the_pictures(
    client: TestClient,
) -> None:
    moves, past = client.get("/ui/moves").text, words(client.get(f"/ui/moves/{PAST}").text)

    cost = words(moves)
    cost = cost[cost.index("Cost of moves") : cost.index("Past moves")]
    assert all(f" {seconds} s" in cost for seconds in ("4.2", "18", "4.4"))
    assert "go 0.9 s" in past, "its bar has no room for its name"
