"""Metrics say what a look has found, in base units, and nothing where nothing is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.prometheus.conftest import MEASURED
from tests.unit.service.prometheus.moves import reported_move, running_move

from srm.config.model import ServiceSettings
from srm.domain.metrics import Statistics
from srm.domain.moves.revisions import KeptReport
from srm.engine.groups.checkpoints import emit
from srm.service.prometheus.exposition import move_samples, samples, topic_samples
from srm.service.prometheus.metric_table import METRICS, STATES
from srm.service.views.documents import TopicRow
from srm.service.views.flow_rows import FlowLook
from srm.service.views.series import Measured
from srm.service.views.views import Views
from srm_lab.testing.flows import P_TO_B, flow_config

Values = dict[tuple[str, ...], float]


def told(views: Views) -> Values:
    return {(name, *labels): value for name, labels, value in samples(views)}


def test_every_metric_has_a_value_where_everything_is_known(everything: Views) -> None:
    assert {name for name, *_ in told(everything)} == METRICS.keys()


def test_each_series_is_told_once_and_with_all_its_labels(everything: Views) -> None:
    series = [(name, labels) for name, labels, _ in samples(everything)]

    assert len(series) == len(set(series))
    assert all(len(labels) == len(METRICS[name].labels) for name, labels in series)


def test_a_flow_tells_its_lag_its_state_and_what_a_disaster_would_cost(views: Views) -> None:
    values = told(views)

    assert values["srm_flow_lag_offsets", "P", "B"] == 3
    assert values["srm_topic_lag_offsets", "P", "B", "Topic"] == 3
    assert values["srm_forecast_lost_records", "P", "B"] == 3
    assert [values["srm_flow_state", "P", "B", state] for state in STATES] == [1, *[0] * 6]
    assert values["srm_flow_partitions", "P", "B", "copying"] == 1
    assert values["srm_replicator_slots", "P", "B", "true"] == 1


def test_a_group_tells_what_it_would_read_again_and_whether_it_can_go_on(views: Views) -> None:
    values = told(views)

    assert values["srm_group_read_again_records", "P", "B", "audit"] == 0, "by its commits"
    assert values["srm_group_unread_backlog_records", "P", "B", "audit"] == 0
    assert values["srm_group_can_go_on", "P", "B", "audit"] == 1
    assert values["srm_flow_groups", "P", "B", "yes"] == 1


@pytest.mark.parametrize("alias", ["P", "B"])
def test_a_silent_cluster_leaves_no_figures_of_now(everything: Views, alias: str) -> None:
    """Lag 0, 2.59 kB/s and 81 ms were shown of a flow that had stopped a minute before."""
    [watch] = everything._watches.values()
    [(flow, look)] = watch.look.flows.items()
    assert look.view is not None
    silent = f"{alias} does not answer"
    away = replace(look.view, status=replace(look.view.status, source_error=silent))
    look = replace(look, view=away) if alias == "P" else replace(look, error=silent)
    watch.look = replace(watch.look, flows={flow: look})  # type: ignore[misc]

    names = {name for name, *_ in told(everything)}
    summary, [topic] = everything.flows()[0], everything.topics(flow)

    assert "srm_flow_window_end_timestamp_seconds" in names
    assert not [name for name in names if "_lag_offsets" in name or "_rate_" in name]
    assert not [name for name in names if "_replication_latency_" in name]
    assert (summary.measured, topic.measured) == (None, None)
    since_ms = away.status.heard_ms if alias == "P" else look.looked_ms
    assert summary.lag_at_ms == since_ms
    assert summary.replicator is not None
    is_known = alias == "P"
    assert (summary.replicator.alive is None, summary.replicator.slots_alive is None) == (
        not is_known,
        not is_known,
    )


def test_windows_are_told_in_seconds_with_their_end(everything: Views) -> None:
    values = told(everything)

    assert values["srm_flow_rate_max_bytes_per_second", "P", "B"] == 2000
    assert values["srm_topic_replication_latency_max_seconds", "P", "B", "Topic"] == 0.08
    assert values["srm_flow_checkpoint_latency_avg_seconds", "P", "B"] == 0.025
    assert values["srm_flow_rate_records_per_second", "P", "B"] == 10
    assert values["srm_flow_window_end_timestamp_seconds", "P", "B"] == 120


HOURS = 3_600_000


def at_rest(views: Views, lag: int = 0, error: str = "") -> Values:
    """Tell of the flow ten hours after its last window."""
    [watch] = views._watches.values()
    [look] = watch.look.flows.values()
    assert look.view is not None
    [one] = look.view.status.topics
    status = replace(look.view.status, topics=(replace(one, remaining=lag),), remaining=lag)
    view = replace(look.view, status=status)
    look = replace(look, view=view, looked_ms=MEASURED.end_ms + 10 * HOURS, error=error)
    watch.look = replace(watch.look, flows={look.flow: look})  # type: ignore[misc]
    return told(views)


def of_windows(values: Values) -> dict[str, float]:
    return {
        key[0]: value for key, value in values.items() if "_rate_" in key[0] or "_lat" in key[0]
    }


def test_a_flow_at_rest_has_no_rate_and_no_latency_any_more(everything: Views) -> None:
    """It was said to copy 2 MB/s for as long as nothing was copied."""
    values = at_rest(everything)

    found = of_windows(values)
    assert set(found.values()) == {0}
    assert not [name for name in found if "latency" in name]
    assert {"srm_flow_rate_bytes_per_second", "srm_topic_rate_records_per_second"} <= set(found)
    assert values["srm_flow_window_end_timestamp_seconds", "P", "B"] == 120


@pytest.mark.parametrize(("lag", "error"), [(5, ""), (0, "B does not answer")])
def test_without_a_window_of_late_the_rate_of_what_lags_or_is_not_seen_is_not_known(
    everything: Views, lag: int, error: str
) -> None:
    values = at_rest(everything, lag, error)

    assert not of_windows(values)
    assert values["srm_flow_window_end_timestamp_seconds", "P", "B"] == 120


def topic(measured: Measured) -> TopicRow:
    return TopicRow("Topic", "P.Topic", "RUNNING", (), 1, 1, (), 9, 0, measured)


def test_the_rate_is_of_all_partitions_next_to_the_slowest_and_the_fastest() -> None:
    spread = replace(MEASURED, byte_rate=Statistics(100, 900, 1000, 2))
    look = FlowLook(
        P_TO_B, flow_config(), looked_ms=MEASURED.end_ms, measured={"": spread, "Topic": spread}
    )

    values = {name: value for name, _, value in topic_samples(look, [topic(spread)])}

    assert values["srm_topic_rate_bytes_per_second"] == 1000
    assert values["srm_topic_rate_min_bytes_per_second"] == 100
    assert values["srm_topic_rate_max_bytes_per_second"] == 900


def test_a_topic_at_rest_has_no_rate_any_more(everything: Views) -> None:
    """Its last window is kept for two hours: what it says was shown as the rate of now."""
    [watch] = everything._watches.values()
    [look] = watch.look.flows.values()
    later = replace(MEASURED, start_ms=MEASURED.end_ms, end_ms=MEASURED.end_ms + 60_000)
    look = replace(look, measured={**look.measured, "": later})
    watch.look = replace(watch.look, flows={look.flow: look})  # type: ignore[misc]

    values = told(everything)

    assert values["srm_flow_rate_max_bytes_per_second", "P", "B"] == 2000
    assert values["srm_topic_rate_max_bytes_per_second", "P", "B", "Topic"] == 0
    assert values["srm_topic_rate_records_per_second", "P", "B", "Topic"] == 0
    assert values["srm_topic_window_end_timestamp_seconds", "P", "B", "Topic"] == 120
    assert not [key for key in values if key[0].startswith("srm_topic_replication_latency")]


def test_without_a_window_there_is_no_rate_and_not_a_rate_of_nothing(views: Views) -> None:
    assert not [name for name, *_ in told(views) if "_rate_" in name or "_latency_" in name]


def test_losses_count_and_what_people_have_decided_does_not(world: CopiedTopic) -> None:
    world.lose()
    world.leave("keep")

    values = told(still_views(look_at(world.forward)))

    assert values["srm_flow_lost_offsets", "P", "B"] == 1


def test_a_flow_that_was_never_seen_tells_only_that() -> None:
    look = FlowLook(P_TO_B, flow_config(), error="cluster B does not answer")

    values = told(still_views(look))

    assert values["srm_flow_state", "P", "B", "UNKNOWN"] == 1
    assert values["srm_flow_look_up", "P", "B"] == 0
    assert values["srm_flow_look_timestamp_seconds", "P", "B"] == 0
    assert not {name for name, *_ in values} & {"srm_replicator_up", "srm_flow_lag_offsets"}


def test_after_a_failed_look_only_that_and_its_time_are_shown(world: CopiedTopic) -> None:
    """The lag, a live replicator and copied partitions were shown of a dead target."""
    look = replace(look_at(world.forward), error="cluster B: timed out")

    values = told(still_views(look))

    assert values["srm_flow_look_up", "P", "B"] == 0
    assert values["srm_flow_state", "P", "B", "UNKNOWN"] == 1
    names = {name for name, *_ in values if not name.startswith(("srm_service", "srm_target"))}
    assert names == {
        *("srm_flow_info", "srm_flow_state", "srm_flow_look_up"),
        "srm_flow_look_timestamp_seconds",
    }


def test_a_source_that_is_away_is_told(world: CopiedTopic) -> None:
    world.p.fail()

    values = told(still_views(look_at(world.forward)))

    assert values["srm_flow_source_up", "P", "B"] == 0
    assert values["srm_flow_state", "P", "B", "DEGRADED"] == 1


def test_topics_and_groups_are_left_out_on_request_and_their_totals_are_not(views: Views) -> None:
    settings = ServiceSettings(prometheus_topics=False, prometheus_groups=False)
    views.config = replace(views.config, service=settings)

    values = told(views)

    assert not {each for name, *_ in values for each in METRICS[name].labels} & {"topic", "group"}
    assert values["srm_flow_groups", "P", "B", "yes"] == 1
    assert ("srm_checkpoints_oldest_timestamp_seconds", "P", "B") in values


def test_a_deleted_group_makes_no_checkpoint_old_and_no_group_unread(world: CopiedTopic) -> None:
    for group in ("audit", "gone"):
        world.commit(group, 8)
    emit(world.forward)
    world.p.delete_groups(["gone"])
    emit(world.forward)
    world.clock.advance(700_000)
    emit(world.forward)

    values = told(still_views(look_at(world.forward)))

    assert values["srm_checkpoints_oldest_timestamp_seconds", "P", "B"] == world.clock() / 1000
    assert values["srm_checkpoints_unread_groups", "P", "B"] == 0
    assert values["srm_flow_groups", "P", "B", "yes"] == 1


def test_a_move_that_holds_clients_tells_since_when() -> None:
    moves = [running_move("m1", "held", 30_000), running_move("m2", "applied", 20_000)]

    values = {(name, *labels): value for name, labels, value in move_samples(moves)}

    assert values == {
        ("srm_move_running", "P", "B", "failover", "planned", "held"): 1,
        ("srm_move_running", "P", "B", "failover", "planned", "applied"): 1,
        ("srm_move_hold_timestamp_seconds", "P", "B", "failover", "planned"): 20,
    }


def test_of_moves_that_have_ended_the_last_one_tells_how_it_went() -> None:
    moves = [reported_move("new", 50_000, ok=False), reported_move("old", 45_000)]

    values = {name: value for name, _, value in move_samples(moves)}

    assert values["srm_move_last_end_timestamp_seconds"] == 50
    assert values["srm_move_last_ok"] == 0
    assert values["srm_move_last_rpo_records"] == 3
    assert values["srm_move_last_rto_seconds"] == 4.25
    assert values["srm_move_last_read_again_records"] == 2
    assert values["srm_move_last_residue_records"] == 7


def test_a_residue_that_no_look_has_counted_is_not_a_sample() -> None:
    look = reported_move("m1")
    assert look.report is not None
    uncounted = replace(look.report.report, residue={}, residue_seen_ms=None)
    look = replace(look, report=KeptReport.made(uncounted, None))

    names = {name for name, *_ in move_samples([look])}

    assert "srm_move_last_rpo_at_most_records" in names
    assert "srm_move_last_residue_records" not in names


def test_a_released_move_was_not_clean(everything: Views) -> None:
    values = told(everything)

    assert values["srm_move_last_ok", "P", "B", "failback", "planned"] == 0
    assert values["srm_move_last_rto_seconds", "P", "B", "failback", "planned"] == 39
    assert values["srm_drill_last_ok", "P", "B"] == 1
    assert values["srm_drill_last_rto_seconds", "P", "B"] == 3.5
