"""srm_failover as a whole: DAG.test() with the real engine on real brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.airflow.copies import COPIED, Site

from srm.config.loader import load_config
from srm.domain.topics import TopicPartition
from srm.engine import move as engine
from srm.wiring import open_move
from srm_airflow import moves
from srm_airflow.move_watch import MoveWatch
from srm_airflow.settings import config_path

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.kafka,
    # Running a task imports half of Airflow, which warns about the packages it uses itself.
    pytest.mark.filterwarnings("default"),
]


def move(
    site: Site, conf: Mapping[str, Any] | None = None, dag: Any = None, **kwargs: Any
) -> dict[str, str]:
    """Run srm_failover from the site's source to its target."""
    sides = {"source": site.x.alias, "target": site.y.alias}
    asked = {**sides, "residue_seconds": 0, **(conf or {})}
    return site.run(dag or site.dag("srm_failover"), asked, **kwargs)


def test_a_synchronised_group_moves_and_the_report_says_that_nothing_was_lost(site: Site) -> None:
    site.commit(60)

    states = move(site)

    assert states == {
        "run": "success",
        "plan": "success",
        "hold": "success",
        "wait": "success",
        "apply_and_go": "success",
        "release": "success",
        "verify": "success",
        "report": "success",
        "residue": "success",
    }
    assert site.y.committed(site.group) == {TopicPartition(site.remote, 0): 60}
    assert site.routes() == {(site.y.alias, "go")}
    report = site.xcom("report")
    assert report["ok"] is True
    assert report["rpo_records"] == 0
    assert report["groups"][site.group]["lag_at_hold"] == 40
    assert site.xcom("plan")["groups"][site.group]["lag"] == 40


def test_marking_the_wait_as_successful_opens_nothing_and_releases_the_hold(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The group has read further than the copy reaches: going now would skip or repeat records."""
    site.produce(30)
    site.commit(120)

    states = move(site, mark_success_pattern="wait")

    assert states["wait"] == "success"
    assert states["apply_and_go"] == "failed"
    assert "GateClosedError" in capsys.readouterr().out
    assert states["release"] == "success"
    assert states["run"] == "failed"
    assert site.y.committed(site.group) == {}
    assert site.routes() == {(site.x.alias, "go")}
    assert site.xcom("report", "report")["step"] == "released"


def test_a_group_that_is_not_synchronised_in_time_stays_where_it_is(site: Site) -> None:
    site.produce(30)
    site.commit(120)

    states = move(site, {"wait_seconds": 3})

    assert (states["wait"], states["apply_and_go"]) == ("failed", "upstream_failed")
    assert (states["release"], states["run"]) == ("success", "failed")
    assert site.routes() == {(site.x.alias, "go")}
    assert site.x.committed(site.group) == {TopicPartition(site.topic, 0): 120}


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
    assert site.y.committed(site.group) == {TopicPartition(site.remote, 0): 120}


def test_a_dry_run_plans_and_touches_nothing(site: Site) -> None:
    site.commit(60)

    states = move(site, {"dry_run": True})

    assert (states["plan"], states["hold"], states["report"]) == ("success", "skipped", "success")
    assert states["run"] == "success"
    assert site.y.committed(site.group) == {}
    assert site.routes() == {None}
    assert site.xcom("report")["groups"][site.group]["lag"] == 40


def test_an_unknown_key_is_refused_by_the_first_task(site: Site) -> None:
    site.commit(60)

    states = move(site, {"grups": ["billing"]})

    assert (states["plan"], states["hold"], states["run"]) == (
        "failed",
        "upstream_failed",
        "failed",
    )
    assert site.routes() == {None}


def test_a_plan_that_is_blocked_stops_before_anybody_is_held(site: Site) -> None:
    """There is no group to move: the reason is in the failure, nothing was touched."""
    states = move(site)

    assert (states["plan"], states["run"]) == ("failed", "failed")
    assert site.routes() == {None}


def test_what_is_written_to_the_source_after_the_report_makes_the_run_red(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report was clean: a producer that did not follow wrote only later."""
    site.commit(60)
    dag = site.dag("srm_failover")
    dag.get_task("residue").poke_interval = 1.0
    looks: list[int] = []
    watch = moves.watch_residue

    def counted(planned: Any) -> Any:
        looks.append(1)
        if len(looks) == 1:  # there may be no second one: the time may be over by then
            site.produce(7)
        return watch(planned)

    monkeypatch.setattr(moves, "watch_residue", counted)

    states = move(site, {"residue_seconds": 5}, dag=dag)

    assert looks
    assert (states["report"], states["residue"], states["run"]) == ("success", "failed", "failed")
    assert site.xcom("report")["residue"] == {}
    with open_move(load_config(config_path()), site.x.alias, site.y.alias) as context:
        kept = engine.MoveStore(context).report(site.xcom("plan")["move_id"])
    assert kept is not None
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
