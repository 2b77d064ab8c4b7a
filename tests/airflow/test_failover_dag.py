"""srm_failover as a whole: DAG.test() with the real engine on real brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.airflow.conftest import listen
from tests.airflow.copies import COPIED, Site, copied_site
from tests.airflow.notified import Notified

from srm.config.loader import load_config
from srm.domain.flow_state import liveness_thresholds
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.groups.checkpoints import emit
from srm.engine.moves.verification import kept_report
from srm.wiring import open_flow, open_move
from srm_airflow import moves
from srm_airflow.settings import config_path
from srm_airflow.triggers import MoveWatch
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.kafka,
    # Running a task imports half of Airflow, which warns about the packages it uses itself.
    pytest.mark.filterwarnings("default"),
]


NOTIFIER = """\
failover.notifier = tests.airflow.notified.Notified
failover.notifier.arguments = {"channel": "{{ srm.event }}", "text": "{{ srm.text }}"}
"""


@pytest.fixture(autouse=True)
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a slot that has reported once for alive, however long these tests take."""
    monkeypatch.setattr(liveness_thresholds, "SILENT_S", 1e6)


def move(
    site: Site, conf: Mapping[str, Any] | None = None, dag: Any = None, **kwargs: Any
) -> dict[str, str]:
    """Run srm_failover from the site's source to its target."""
    sides = {"source": site.x.alias, "target": site.y.alias}
    asked = {**sides, "residue_seconds": 0, **(conf or {})}
    return site.run(dag or site.dag("srm_failover"), asked, **kwargs)


def moved(site: Site, place: int) -> dict[TopicPartition, int]:
    """Return the places of a group on the target, on whose new topic it misses nothing."""
    return {TopicPartition(site.remote, 0): place, TopicPartition(site.topic, 0): 0}


def test_a_synchronised_group_moves_and_the_report_says_that_nothing_was_lost(site: Site) -> None:
    site.commit(60)

    states = move(site)

    assert states == {
        "run": "success",
        "plan": "success",
        "approve": "skipped",
        "hold": "success",
        "wait": "success",
        "apply_and_go": "success",
        "release": "success",
        "verify": "success",
        "report": "success",
        "residue": "success",
    }
    assert site.y.committed_offsets(site.group) == moved(site, 60)
    assert site.routes() == {(site.y.alias, "go")}
    report = site.xcom("report")
    assert report["ok"] is True
    assert report["rpo_records"] == 0
    assert report["groups"][site.group]["lag_at_hold"] == 40
    assert '<span class="verdict good">clean</span>' in site.xcom("residue", "report_page")
    assert site.xcom("plan")["groups"][site.group]["lag"] == 40
    assert "clean" in site.xcom("report", moves.PAGE_KEY)
    assert site.note().startswith(f"failover {site.x.alias}->{site.y.alias}: clean; RPO 0 records")


def test_marking_the_wait_as_successful_opens_nothing_and_releases_the_hold(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The group has read further than the copy reaches: going now would skip or repeat records."""
    site.produce(30)
    site.commit(120)

    states = move(site, mark_success_pattern="wait")

    assert states["wait"] == "success"
    assert states["apply_and_go"] == "failed"
    assert "is not copied yet" in site.note().splitlines()[0], "what a person can act on"
    assert "GateClosedError" in capsys.readouterr().out
    assert states["release"] == "success"
    assert states["run"] == "failed"
    assert site.y.committed_offsets(site.group) == {}
    assert site.routes() == {(site.x.alias, "go")}
    assert site.xcom("report", "report")["step"] == "released"


def test_a_group_that_is_not_synchronised_in_time_stays_where_it_is(site: Site) -> None:
    site.produce(30)
    site.commit(120)

    states = move(site, {"wait_seconds": 3})

    assert (states["wait"], states["apply_and_go"]) == ("failed", "upstream_failed")
    assert (states["release"], states["run"]) == ("success", "failed")
    assert site.routes() == {(site.x.alias, "go")}
    assert site.x.committed_offsets(site.group) == {TopicPartition(site.topic, 0): 120}
    reason, _, state = site.note().partition("\n\n")
    assert f"replication of {site.topic}" in reason
    assert "not synchronised within 3 s" in reason
    assert state == f"failover {site.x.alias}->{site.y.alias}: clients were not moved"


def test_a_wait_that_is_over_when_the_copy_catches_up_goes_on_by_itself(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole wait is spent in the trigger, as in a move that takes longer than some seconds."""
    site.produce(30)
    site.commit(120)
    dag = site.dag("srm_failover")
    dag.get_task("wait").on_worker = 0.0
    polls: list[int] = []
    caught_up_at(monkeypatch, polls, 3, lambda: site.record_copy(COPIED + 30))

    states = move(site, dag=dag)

    assert len(polls) >= 3
    assert states["run"] == "success"
    assert site.y.committed_offsets(site.group) == moved(site, 120)


def test_a_dry_run_plans_and_touches_nothing(site: Site) -> None:
    site.commit(60)

    states = move(site, {"dry_run": True})

    assert (states["plan"], states["hold"], states["report"]) == ("success", "skipped", "success")
    assert states["run"] == "success"
    assert site.y.committed_offsets(site.group) == {}
    assert site.routes() == {None}
    assert site.xcom("report")["groups"][site.group]["lag"] == 40


def test_the_dry_run_of_a_flow_plans_from_its_source_to_its_target(site: Site) -> None:
    site.commit(60)

    states = site.run(site.dag("srm_dry_run", "_{}_to_{}"))

    assert states["run"] == "success", site.note()
    planned = site.xcom("plan")
    assert (planned["source"], planned["target"]) == (site.x.alias, site.y.alias)


def test_a_plan_that_is_blocked_stops_before_anybody_is_held(site: Site) -> None:
    """There is no group to move: the reason is in the failure, nothing was changed."""
    states = move(site)

    assert (states["plan"], states["run"]) == ("failed", "failed")
    assert site.routes() == {None}
    assert site.note().startswith(f"no group has offsets on {site.topic}")


def test_a_dead_cluster_is_given_up_when_somebody_has_approved_what_that_costs(
    clusters: Mapping[str, KafkaBroker],
    broker_factory: Callable[[str], KafkaBroker],
    airflow_db: None,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P's broker is killed: nothing of the run may ask it. The run is that of the pair."""
    file = tmp_path / "srm.properties"
    monkeypatch.setenv("SRM_CONFIG", str(file))
    brokers = {"P": broker_factory("X"), "B": clusters["B"]}
    Notified.told.clear()
    with copied_site(brokers, file, NOTIFIER) as site:
        listen(site, monkeypatch)
        site.commit(60)
        with open_flow(load_config(file), Flow.parse(site.flow)) as flow:
            emit(flow)
        brokers["P"].kill()
        dag = site.dag("srm_failover", ".{}.{}")
        conf = {"mode": "unplanned", "residue_seconds": 0}

        with site.answered("Reject") as shown:
            rejected = site.run(dag, conf)
        assert (rejected["approve"], rejected["hold"]) == ("success", "skipped")
        assert {rejected[step] for step in ("wait", "apply_and_go", "verify")} == {"skipped"}
        assert rejected["run"] == "success"
        assert site.note().startswith("ada did not approve failover-")
        assert site.y.committed_offsets(site.group) == {}

        with site.answered("Approve") as shown:
            states = site.run(dag, conf)

        assert shown["subject"] == (
            f"Abandon {site.x.alias} and move group {site.group} to {site.y.alias}?"
        )
        assert f"0 records of {site.x.alias} not copied" in shown["body"]
        assert f"| {site.group} | 40 | - | 0 |" in shown["body"], "its backlog; skipped"
        assert states["wait"] == "skipped"
        assert {states[s] for s in ("approve", "hold", "apply_and_go", "verify")} == {"success"}
        assert site.y.committed_offsets(site.group) == moved(site, 60)
        report = site.xcom("report", "report")
        assert report["step"] == "reported"
        (approval,) = report["approvals"]
        assert (approval["by"], approval["how"], approval["text"]) == (
            "ada",
            "Airflow",
            shown["body"],
        )
        assert approval["numbers"]["unread_backlog"] == 40
    assert [event for event, _ in Notified.told] == ["approval", "done", "approval", "done"]


def test_failback_alone_leaves_the_second_cluster_of_the_pair(site: Site) -> None:
    """It planned a move from the first cluster, as a failover does."""
    site.run(site.dag("srm_failover", ".{}.{}"), {"operation": "failback", "dry_run": True})

    planned = site.xcom("plan")
    assert (planned["source"], planned["target"]) == (site.y.alias, site.x.alias)
    assert planned["operation"] == "failback"


def test_an_approval_that_is_marked_as_given_is_none(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.commit(60)

    states = move(site, {"ask_approval": True}, mark_success_pattern="approve")

    assert (states["approve"], states["hold"], states["run"]) == ("success", "failed", "failed")
    assert "has not been approved" in capsys.readouterr().out
    assert site.routes() == {None}
    assert site.note().startswith("the move needs an approval")


def test_what_is_written_to_the_source_after_the_report_makes_the_run_red(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report was clean: a producer that did not follow wrote only later."""
    site.commit(60)
    dag = site.dag("srm_failover")
    dag.get_task("residue").poke_interval = 1.0
    looks: list[int] = []
    watch = moves.watch_residue

    def counted(*move: Any) -> Any:
        looks.append(1)
        if len(looks) == 1:  # there may be no second one: the time may be over by then
            site.produce(7)
        return watch(*move)

    monkeypatch.setattr(moves, "watch_residue", counted)

    states = move(site, {"residue_seconds": 20}, dag=dag)  # longer than until the report

    assert looks
    assert (states["report"], states["residue"], states["run"]) == ("success", "failed", "failed")
    assert site.xcom("report")["residue"] == {}
    with open_move(load_config(config_path()), site.x.alias, site.y.alias) as context:
        kept = kept_report(context, site.xcom("plan")["move_id"]).report
    assert (kept.ok, dict(kept.residue), kept.residue_over) == (False, {site.topic: 7}, True)


def caught_up_at(
    monkeypatch: pytest.MonkeyPatch, polls: list[int], poll: int, catch_up: Callable[[], None]
) -> None:
    """Let the copy catch up before the given look of the trigger."""
    look = MoveWatch.poll

    def counted(watch: MoveWatch) -> Any:
        polls.append(1)
        if len(polls) == poll:
            catch_up()
        return look(watch)

    monkeypatch.setattr(MoveWatch, "poll", counted)
