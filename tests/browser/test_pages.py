"""The pages in a browser: readable by everybody, live, and silent in the console."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect
from tests.browser.conftest import NARROW, WIDE, OpenPage
from tests.service_site import EVIL, MOVING, P_B, PAST
from tests.service_views import StillWatch
from tests.waiting import eventually

from srm.clock import now_ms
from srm.service.views.flow_rows import FlowLook
from srm.service.views.views import Views

pytestmark = [pytest.mark.browser]

PAGES: Final = {
    "overview": "/ui",
    "flow": "/ui/flows/P/B?range=1h",
    "topic": "/ui/flows/P/B/topics/orders?range=2h",
    "groups": "/ui/flows/P/B/groups",
    "group": "/ui/flows/P/B/groups/billing",
    "script": f"/ui/flows/P/B/groups/{quote(EVIL, safe='')}",
    "moves": "/ui/moves",
    "moving": f"/ui/moves/{MOVING}",
    "move": f"/ui/moves/{PAST}",
    "plan": "/ui/moves/new?flow=P->B&group=billing",
    "why": "/ui/why?kind=group&name=billing&flow=P->B",
}
_SERIOUS: Final = {"serious", "critical"}


def settled(page: Page, address: str, path: str) -> None:
    """Go to a page and wait until its charts are drawn and its questions answered."""
    page.goto(f"{address}{path}")
    for chart in page.locator("[data-plot]").all():
        expect(chart).to_have_attribute("data-drawn", "yes")
    if page.locator("[data-why]").count():
        expect(page.locator("[data-why]")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_screen(
    open_page: OpenPage, address: str, scheme: str, width: int
) -> None:
    page, axe = open_page(scheme, width), Axe()
    found = []
    for name, path in PAGES.items():
        settled(page, address, path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        for violation in axe.run(page).response["violations"]:
            if violation["impact"] in _SERIOUS:
                where = violation["nodes"][0]
                found.append((name, violation["id"], where["target"], where["failureSummary"]))
        if folder := os.environ.get("SRM_SCREENSHOTS"):
            take_picture(page, Path(folder) / f"{name}-{scheme}-{width}.png")

    assert found == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_name_as_long_as_kafka_allows_is_no_wider_than_the_screen(
    open_page: OpenPage, address: str, width: int
) -> None:
    page = open_page(width=width)
    settled(page, address, f"/ui/why?kind=group&name={'x' * 249}")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def take_picture(page: Page, path: Path) -> None:
    """Keep what is seen of a page without scrolling, with few colours: docs show it."""
    from PIL import Image  # noqa: PLC0415 -- only where pictures are wanted

    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, animations="disabled")
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(240, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


@pytest.fixture
def restored(views: Views) -> Iterator[StillWatch]:
    """What the service knows of B, put back after the test."""
    watch: StillWatch = views._watches["B"]  # type: ignore[assignment]
    before = watch.look
    yield watch
    watch.look = before


def lag(look: FlowLook, records: int) -> FlowLook:
    assert look.view is not None
    status = look.view.status
    topics = tuple(
        replace(topic, remaining=records) if topic.topic == "orders" else topic
        for topic in status.topics
    )
    view = replace(look.view, status=replace(status, topics=topics, remaining=records))
    return replace(look, view=view, looked_ms=now_ms())


def test_the_page_moves_by_itself_and_leaves_what_somebody_does_alone(
    open_page: OpenPage, address: str, restored: StillWatch
) -> None:
    page = open_page()
    settled(page, address, "/ui/flows/P/B?sort=lag")
    page.evaluate("window.sameDocument = true")
    page.locator("summary").first.click()
    search = page.get_by_role("searchbox")
    search.press_sequentially("ord")
    expect(page.locator("#topics tbody tr")).to_have_count(1)

    look = lag(restored.look.flows[P_B], 77_777)
    restored.look = replace(restored.look, flows={**restored.look.flows, P_B: look})

    expect(page.locator('#topic-orders [data-label="Lag"]')).to_contain_text("77.8k")
    expect(search).to_be_focused()
    expect(search).to_have_value("ord")
    assert page.locator("details").first.evaluate("one => one.open")
    assert page.evaluate("window.sameDocument")
    assert "search=ord" in page.url
    page.go_back()
    page.go_forward()
    expect(page.locator("#topics tbody tr")).to_have_count(1)


def test_a_move_goes_on_before_ones_eyes(
    open_page: OpenPage, address: str, restored: StillWatch
) -> None:
    page = open_page()
    settled(page, address, f"/ui/moves/{MOVING}")
    now = page.locator("[aria-current=step]")
    expect(now).to_contain_text("Wait")

    def with_step(move: object) -> object:
        progress = move.progress  # type: ignore[attr-defined]
        if progress.move_id != MOVING:
            return move
        times = {**progress.times_ms, "held": now_ms(), "applied": now_ms()}
        return replace(move, progress=replace(progress, step="applied", times_ms=times))  # type: ignore[type-var]

    moves = tuple(with_step(move) for move in restored.look.moves)
    restored.look = replace(restored.look, moves=moves)  # type: ignore[arg-type]

    expect(now).to_contain_text("Go")


def test_the_charts_are_drawn_told_as_tables_and_change_with_what_is_asked(
    open_page: OpenPage, address: str
) -> None:
    page = open_page()
    settled(page, address, "/ui/flows/P/B")
    chart = page.locator("#chart-byte-rate")
    expect(chart.locator("canvas")).to_be_visible()
    before = chart.locator(".chart-now").text_content()

    page.get_by_role("link", name="Max", exact=True).click()

    expect(chart.locator(".chart-now")).not_to_have_text(before or "")
    page.get_by_role("link", name="2 h", exact=True).click()
    expect(page.locator("#charts")).to_have_attribute("data-span", "7200000")
    assert "stat=max" in page.url
    assert "range=2h" in page.url
    expect(chart.locator("canvas")).to_be_visible()

    def is_told() -> bool:
        for x in (490, 500):  # a chart that is drawn anew forgets the mouse until it moves
            chart.hover(position={"x": x, "y": 90})
        return "in total" in (chart.locator(".chart-tip").text_content() or "")

    eventually(is_told, "what is under the mouse")
    chart.locator("summary").click()
    expect(chart.get_by_role("row").last).to_be_visible()
    # Of 119 minutes 12 are missing, and those that are over since the site was made.
    assert 70 < chart.get_by_role("row").count() <= 108
    settled(page, address, "/ui/flows/B/P")
    expect(page.locator("#chart-checkpoint-latency-ms [data-plot]")).to_have_class("plot is-empty")


def test_everything_can_be_reached_with_the_keyboard(open_page: OpenPage, address: str) -> None:
    page = open_page()
    settled(page, address, "/ui")

    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to content")
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("P → C")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_attribute("data-copy", "srm replicate --flow 'P->C'")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_title("P → B · SRM")


def test_the_chain_of_why_is_told_with_what_to_do(open_page: OpenPage, address: str) -> None:
    page = open_page()
    settled(page, address, "/ui/why")
    page.get_by_role("radio", name="Group").check(force=True)
    page.get_by_role("searchbox").fill("billing")
    page.get_by_role("button", name="Explain", exact=True).click()

    expect(page.locator(".why-verdict")).to_have_text("translated; can move, after a wait")
    expect(page.locator(".chain li")).to_have_count(7)
    expect(page.locator(".why-head .todo")).to_contain_text("run it under srm follow")
    assert page.locator(".chain .no").count() == 1


def test_a_name_that_is_no_topic_is_offered_as_the_group_that_it_is(
    browser: Browser, address: str
) -> None:
    page = browser.new_page()  # whose console may tell of the answer that is an error
    page.route(
        "**/v2/why/topic/**",
        lambda route: route.fulfill(status=404, body='{"detail": "no topic \'audit\' on P or B"}'),
    )
    settled(page, address, "/ui/why?name=audit&flow=P->B")

    expect(page.locator("[data-why]")).to_contain_text("no topic 'audit' on P or B. Did you mean")
    page.get_by_role("link", name="group audit").click()
    expect(page.locator(".why-verdict")).to_have_text("translated; can move, after a wait")
    page.close()


def test_where_no_answer_comes_it_says_so_and_how_to_ask_otherwise(
    open_page: OpenPage, address: str
) -> None:
    page = open_page()
    broken = '{"detail": "cluster B: timed out"}'
    # The browser itself writes of an answer that is an error; one that is not one holds no list.
    page.route("**/v2/why/**", lambda route: route.fulfill(status=200, body=broken))
    settled(page, address, "/ui/why?name=orders&flow=P->B")

    expect(page.locator("[data-why]")).to_contain_text("srm why orders --kind topic --flow 'P->B'")


def test_the_documentation_of_the_api_is_shown_under_its_policy(
    open_page: OpenPage, address: str
) -> None:
    page = open_page()

    page.goto(f"{address}/docs")

    expect(page.locator("#operations-tag-flows")).to_be_visible()
    page.locator("#operations-flows-flows_v2_flows_get").click()
    expect(page.get_by_role("button", name="Try it out")).to_be_visible()


def test_that_the_service_does_not_answer_is_plain_and_so_is_its_return(
    open_page: OpenPage, address: str
) -> None:
    page = open_page()
    page.clock.install()
    settled(page, address, "/ui")
    is_down = True

    def answer(route: Route) -> None:
        # Not aborted: that the browser would write to the console.
        if is_down:
            route.fulfill(status=200, body="proxy: nobody is there", content_type="text/plain")
        else:
            route.fallback()

    page.route("**/ui", answer)
    page.clock.run_for(20_000)
    expect(page.locator("#lost")).to_contain_text("The SRM service does not answer")
    expect(page.locator("#live")).to_have_attribute("data-state", "lost")
    expect(page.locator("h1")).to_be_visible()

    is_down = False
    page.clock.run_for(40_000)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    expect(page.locator("#lost")).to_be_hidden()


def test_who_is_signed_out_sees_nothing_any_more(open_page: OpenPage, address: str) -> None:
    page = open_page()
    page.clock.install()
    settled(page, address, "/ui")
    signed_out = {"Location": f"{address}/health"}
    page.route("**/ui", lambda route: route.fulfill(status=302, headers=signed_out))

    page.clock.run_for(6_000)

    expect(page.locator("#lost")).to_contain_text("sign in again")
    expect(page.locator("#main")).to_be_empty()


AIRFLOW: Final = """<!doctype html><html lang="en" class="dark"><title>Airflow</title>
<base href="/">
<iframe style="width:1200px;height:700px" src="{}"
 sandbox="allow-scripts allow-same-origin allow-forms allow-downloads"></iframe>"""


DARK: Final = "rgb(14, 19, 26)"


def in_airflow(page: Page, address: str, path: str) -> None:
    """Show a page as Airflow shows it: framed, of the same origin, in a sandbox."""
    page.route(
        "**/plugin/srm",
        lambda route: route.fulfill(body=AIRFLOW.format(path), content_type="text/html"),
    )
    page.route(
        f"{address}/dags/**",
        lambda route: route.fulfill(body="<title>a DAG</title>", content_type="text/html"),
    )
    page.goto(f"{address}/plugin/srm")


def test_inside_airflow_it_looks_as_airflow_does_and_links_leave_the_frame(
    open_page: OpenPage, address: str
) -> None:
    page = open_page("light")
    in_airflow(page, address, f"/ui/moves/{MOVING}")
    frame = page.frame_locator("iframe")

    expect(frame.locator("html")).to_have_attribute("data-theme", "dark")
    expect(frame.locator("body")).to_have_css("background-color", DARK)
    page.evaluate("document.documentElement.className = 'light'")
    expect(frame.locator("html")).to_have_attribute("data-theme", "light")
    expect(frame.locator("body")).not_to_have_css("background-color", DARK)
    frame.get_by_role("link", name="Run in Airflow").click()

    page.wait_for_url("**/dags/srm_failover.B.P/runs?run_id_pattern=**")


def test_the_form_of_a_move_starts_the_dag_as_whoever_is_signed_in(
    open_page: OpenPage, address: str
) -> None:
    page = open_page()
    asked = []

    def run(route: Route) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(status=200, json={"dag_run_id": "manual__1"})

    page.route("**/api/v2/dags/srm_failover.B.P/dagRuns", run)
    in_airflow(page, address, "/ui/moves/new?flow=P->B&group=billing")
    frame = page.frame_locator("iframe")
    expect(frame.locator("#new-move-conf")).to_contain_text('"groups": [')
    frame.get_by_role("button", name="Start the dry run").click()

    page.wait_for_url("**/dags/srm_failover.B.P/runs/manual__1")
    conf = {"operation": "failback", "mode": "planned", "source": "P", "target": "B"}
    assert asked == [
        {
            "conf": {**conf, "topics": ["orders"], "groups": ["billing"], "dry_run": True},
            "logical_date": None,
        }
    ]


def test_without_scripts_everything_can_still_be_read(open_page: OpenPage, address: str) -> None:
    page = open_page(script=False)
    page.goto(f"{address}/ui/flows/P/B")

    expect(page.locator("#topics tbody tr")).to_have_count(4)
    expect(page.locator("#chart-byte-rate .spark")).to_be_visible()
    page.get_by_role("searchbox").fill("pay")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#topics tbody tr")).to_have_count(1)
