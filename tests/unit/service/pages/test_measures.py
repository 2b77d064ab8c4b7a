"""The figure of now, and those of a time."""

from __future__ import annotations

from dataclasses import replace

from fastapi.testclient import TestClient
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.pages.reading import words
from tests.unit.service.views.test_series import filled, window

from srm.domain.metrics import Statistics
from srm.domain.names.topics import Flow
from srm.service.app import create_app
from srm.service.pages.figures import Measures, Wish, newest, over
from srm.service.views.series import METRICS, Measured, Series

MIN = 60_000
LATENCY = "replication-latency-ms"
LAG = "replication-records-lag"


def windows(*latencies: int) -> tuple[Measured, ...]:
    """One window a minute, each with a latency of so much at least and twice that on average."""
    series: Series = filled(*(window(n * 60, "", size) for n, size in enumerate(latencies)))
    return tuple(series.between(Flow("P", "B"), "", 0, 1_000_000))


def measured(of: tuple[Measured, ...], end_ms: int, stat: str = "avg") -> Measures:
    figures = {metric: over(of, metric) for metric in METRICS}
    wanted = Wish("15m", stat)  # type: ignore[arg-type]
    return Measures(wanted, end_ms - 15 * MIN, end_ms, of, figures)


def test_how_it_is_now_says_the_newest_window_and_the_title_the_whole_time() -> None:
    found = measured(windows(30_000, 20_000, 10), 3 * MIN)

    assert found.latest(LATENCY) == 20.0
    assert found.value(LATENCY) == 2 * (30_000 + 20_000 + 10) / 3
    assert found.title(LATENCY) == "in 15 min: avg 33,340.0, min 10.0, max 90,000.0"
    assert measured(windows(5, 7), 2 * MIN, "max").latest(LATENCY) == 21.0


def test_an_old_window_and_one_without_a_value_say_nothing_of_now() -> None:
    assert measured(windows(10), 8 * MIN).latest(LATENCY) is None
    assert measured((), MIN).latest(LATENCY) is None
    assert measured(windows(10), MIN).latest("checkpoint-latency-ms") is None
    assert newest(None, Wish("15m", "avg")).title(LATENCY) == "not measured in 15 min"


def test_a_rate_and_a_lag_are_shown_of_the_whole_or_of_one_partition() -> None:
    one = replace(
        window(0, ""),
        byte_rate=Statistics(500, 1500, 2000, 2),
        replication_records_lag=Statistics(10, 90, 100, 2),
    )
    other = replace(
        window(60, ""),
        byte_rate=Statistics(1000, 1000, 1000, 1),
        replication_records_lag=Statistics(0, 20, 20, 2),
    )
    both = tuple(filled(one, other).between(Flow("P", "B"), "", 0, 1_000_000))
    whole, worst = measured(both, 2 * MIN), measured(both, 2 * MIN, "max")

    assert (whole.value("byte-rate"), worst.value("byte-rate")) == (1500, 1500)
    assert (whole.latest("byte-rate"), worst.latest("byte-rate")) == (1000, 1000)
    assert (whole.value(LAG), worst.value(LAG)) == (60, 90)
    assert (whole.latest(LAG), worst.latest(LAG)) == (20, 20)
    assert whole.title(LAG) == "in 15 min: avg 60.0, min 0.0, max 90.0 of a partition"


def test_the_heads_of_figures_say_which_they_are(client: TestClient) -> None:
    overview = words(client.get("/ui").text)
    flow = words(client.get("/ui/flows/P/B?stat=max").text)

    assert "Replication latency, latest Checkpoint latency, latest" in overview
    assert "Throughput, latest max" in flow
    assert "Replication latency, max of 15 min" in flow


def test_a_topic_that_was_at_rest_is_not_said_to_lack_an_aggregation(client: TestClient) -> None:
    rest = words(client.get("/ui/flows/P/B/topics/audit").text)
    busy = words(client.get("/ui/flows/P/B/topics/orders").text)

    assert "Idle: no record was copied in this time range" in rest
    assert "srm metrics aggregate" not in rest
    assert "no record was copied" not in busy


def test_where_the_flow_was_not_measured_either_its_topics_say_what_computes_windows(
    world: CopiedTopic,
) -> None:
    client = TestClient(create_app(still_views(look_at(world.forward))))

    told = words(client.get("/ui/flows/P/B/topics/Topic").text)

    assert "No measurements in this time range" in told
    assert "srm metrics aggregate" in told
