"""What comes first, and since when it is so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from tests.service_site import MOVING, degraded, paused, well, without_replicator
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.pages.reading import words
from tests.unit.service.views.test_series import window

from srm.domain.metrics import Statistics, WindowMetric
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Stamped
from srm.engine.flows.supervision import DriverStatus
from srm.service.app import create_app
from srm.service.pages.overview import (
    Headline,
    behind,
    headline,
    rank,
    since_ms,
)
from srm.service.pages.rendering import move_ids, run_pattern
from srm.service.views.documents import FlowSummary, State
from srm.service.views.flow_rows import summary
from srm.service.views.series import Measured, Series

AT = 1_800_000_000_000
MIN = 60_000


def flow(state: State, lag: int = 0, name: str = "P->B") -> FlowSummary:
    return FlowSummary(name, "P", "B", state, (), 0, 0, 1, 1, 0, lag)


def test_who_is_stopped_comes_first_and_of_equals_who_lags_more() -> None:
    flows = flow("RUNNING"), flow("OFF"), flow("DEGRADED", 3), flow("STOPPED"), flow("DEGRADED", 9)
    found = sorted(flows, key=rank)

    assert [(one.state, one.lag) for one in found] == [
        ("STOPPED", 0),
        ("DEGRADED", 9),
        ("DEGRADED", 3),
        ("RUNNING", 0),
        ("OFF", 0),
    ]


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ((), "No flow is configured"),
        (("RUNNING",), "The flow is running"),
        (("RUNNING", "RUNNING"), "Both flows are running"),
        (("RUNNING",) * 3, "All 3 flows are running"),
        (("RUNNING", "STOPPED"), "P → B is stopped"),
        (("UNKNOWN",), "P → B is not known yet"),
        (("STOPPED", "DEGRADED", "OFF"), "2 of 3 flows need attention"),
        (("RUNNING", "PAUSED"), "1 running, 1 paused, idle or off"),
        (("PAUSED", "OFF"), "2 flows, none is running"),
    ],
)
def test_the_headline_is_one_sentence(states: tuple[State, ...], says: str) -> None:
    assert headline([flow(state) for state in states]).text == says


def test_a_flow_that_runs_and_is_behind_is_no_good_news() -> None:
    flows = [flow("RUNNING"), flow("RUNNING", name="B->P"), flow("RUNNING", name="P->C")]

    assert headline(flows, {"B->P"}) == Headline("DEGRADED", "B → P is behind")
    assert headline(flows, {"B->P", "P->C"}).text == "2 of 3 flows are behind"
    assert headline([flow("STOPPED"), *flows], {"B->P"}).text == "P → B is stopped"


def test_what_was_seen_before_a_look_failed_is_not_told_as_what_is() -> None:
    gone = replace(well(AT), error="cluster P: timed out")

    told = summary(gone)

    assert (told.state, [reason.text for reason in told.reasons]) == (
        "UNKNOWN",
        ["latest look failed: cluster P: timed out"],
    )
    assert told.forecast is None, "it speaks of now"
    assert headline([told]) == Headline("UNKNOWN", "B → P is unknown: latest look failed")
    assert since_ms(gone) == gone.looked_ms
    assert summary(well(AT)).forecast is not None


def test_since_when_is_that_of_what_is_wrong() -> None:
    assert since_ms(degraded(AT)) == AT - 20 * MIN
    assert since_ms(without_replicator(AT)) == AT - 6 * MIN
    assert since_ms(paused(AT)) == AT - 51 * MIN
    assert since_ms(well(AT)) is None


def test_of_a_source_that_is_away_it_is_when_it_last_answered() -> None:
    look = degraded(AT)
    assert look.view is not None
    gone = replace(look.view, status=replace(look.view.status, source_error="no answer"))

    assert since_ms(replace(look, view=gone)) == look.view.status.heard_ms


def lagging(*lags: float, records: int = 600) -> list[Measured]:
    """Windows of a minute with these lags, ten records a second."""
    series = Series()
    series.begin()
    for number, lag in enumerate(lags):
        made: WindowMetric = replace(
            window(number * 60, ""),
            records=records,
            replication_records_lag=Statistics(0, lag, lag, 1),
        )
        series.take(made.key(), Stamped(made.value(), 0))
    series.end()
    return series.between(Flow("P", "B"), "", 0, 10**15)


def test_a_flow_is_behind_since_its_lag_was_last_small() -> None:
    found = behind(5_000, lagging(3, 3_000, 10, 500, 1_000, 5_000))

    assert found is not None
    assert found.since_ms == 4 * MIN
    assert found.seconds == 500


@pytest.mark.parametrize("before", [0, 5_000])
def test_a_topic_that_had_nothing_to_copy_for_a_while_is_behind_only_since_then(
    before: float,
) -> None:
    """A partition that lags is measured: without windows, there was no lag."""
    idle = lagging(before, *[before] * 22, 4_000, 5_000)

    found = behind(5_000, [idle[0], *idle[-2:]])

    assert found is not None
    assert (found.since_ms, found.is_longer) == (23 * MIN, False)


def test_a_flow_that_was_behind_in_all_that_is_kept_is_so_since_then_at_least() -> None:
    found = behind(5_000, lagging(4_000, 5_000))

    assert found is not None
    assert (found.since_ms, found.is_longer) == (0, True)


@pytest.mark.parametrize("lag", [0, 9, 99])
def test_what_its_traffic_fills_in_seconds_is_not_behind(lag: int) -> None:
    assert behind(lag, lagging(9, 9)) is None


def test_what_a_look_finds_between_two_reports_is_not_behind() -> None:
    assert behind(5_000, lagging(5_000, 9)) is None


def test_a_burst_after_a_quiet_time_is_measured_by_itself() -> None:
    quiet, burst = lagging(*[0] * 20, records=60), lagging(3_000, records=60_000)

    assert behind(5_000, [*quiet, *burst]) is None
    assert behind(50_000, [*quiet, *lagging(30_000, records=60_000)]) is not None


def test_without_traffic_nothing_can_be_said() -> None:
    assert behind(5_000, []) is None
    assert behind(5_000, lagging(5_000, records=0)) is None


def test_a_run_and_its_move_are_found_from_each_other() -> None:
    run = "manual__2026-11-23T03:00:00+00:00"

    failover, failback = move_ids("srm_failover.P.B", run)

    assert failover == MOVING
    assert failback.startswith("failback-")
    assert run_pattern(failover) == "manual__2026_11_23T03_00_00_00_00%"


def test_a_summary_of_each_state_of_the_site() -> None:
    found = [summary(look).state for look in (degraded(AT), well(AT), paused(AT))]

    assert found == ["DEGRADED", "RUNNING", "PAUSED"]


def test_a_partition_that_is_being_claimed_is_no_trouble_however_long_ago_that_began() -> None:
    look = degraded(AT)
    assert look.view is not None
    before = since_ms(look)
    first, second, *others = look.view.partitions["orders"]
    claimed = replace(second, state="claiming", since_ms=AT - 900 * MIN)
    partitions = {**look.view.partitions, "orders": (first, claimed, *others)}
    look = replace(look, view=replace(look.view, partitions=partitions))

    assert since_ms(look) == before

    views = still_views(look)
    client = TestClient(create_app(views))
    page = words(client.get("/ui/flows/P/B/topics/orders?state=good").text)
    assert "Claiming" in page


def test_a_flow_whose_target_is_away_is_not_told_to_run() -> None:
    """What was seen before, all well, was the headline for as long as the target was down."""
    look = replace(well(AT), error="cluster B: timed out")
    found = summary(look)

    assert headline([found, flow("RUNNING")]).text == "B → P is unknown: latest look failed"
    assert since_ms(look) == look.looked_ms


def test_that_a_replicator_began_is_no_warning(world: CopiedTopic) -> None:
    look = look_at(world.forward)
    assert look.view is not None
    driver = DriverStatus("d", "local-1", "host-7", 42, 0, age_ms=500, alive=True, started_ms=7)
    look = replace(look, view=replace(look.view, status=replace(look.view.status, driver=driver)))

    page = TestClient(create_app(still_views(look))).get("/ui/flows/P/B").text

    [event] = [part for part in page.split("<li ")[1:] if "host-7 started" in part]
    assert "icon-event" in event
    assert "icon-warn" not in event
