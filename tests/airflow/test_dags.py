"""The DAG files: what they declare, and that parsing them stays cheap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.timetables.base import TimeRestriction
from airflow.timetables.simple import ContinuousTimetable

from srm.domain.flow_state.replication_records import DUTIES
from srm.domain.moves.progress import STEPS
from srm.domain.moves.request import FORM, MoveRequest
from srm_airflow import outcome
from srm_airflow.alerts import alert_failure
from srm_airflow.moves import FORM_ONLY
from srm_airflow.settings import config_path

pytestmark = pytest.mark.airflow

DAGS = Path(__file__).resolve().parents[2] / "dags"
EXPECTED = {
    "srm_replication",
    "srm_checkpoints",
    "srm_group_offset_sync",
    "srm_topic_sync",
    "srm_metrics_aggregation",
    "srm_verification",
    "srm_failover",
    "srm_failover.P.B",
    "srm_dry_run_P_to_B",
    "srm_dry_run_B_to_P",
    "srm_rpo_P_to_B",
    "srm_rpo_B_to_P",
    "srm_drill_P_to_B",
    "srm_drill_B_to_P",
}
SITES = ("east", "west")
MOVES = ("srm_failover", "srm_failover.P.B")


@pytest.fixture(scope="module")
def bag(srm_environment: None) -> Any:  # noqa: ARG001
    return DagBag(str(DAGS))


def test_all_dags_import_and_no_other_exists(bag: Any) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) == EXPECTED


def test_every_dag_runs_once_at_a_time_without_catching_up_and_explains_itself(bag: Any) -> None:
    for dag in bag.dags.values():
        assert dag.max_active_runs == (16 if dag.dag_id in MOVES else 1), dag.dag_id
        assert dag.catchup is False, dag.dag_id
        assert "srm" in dag.tags, dag.dag_id
        assert "When it is red" in (dag.doc_md or ""), dag.dag_id


def test_whether_a_new_dag_starts_by_itself_is_the_decision_of_the_airflow_it_is_put_into(
    bag: Any,
) -> None:
    """Putting the files there must not start replication where new DAGs are paused by default.

    A move only runs by hand, and must not be queued for a DAG that nobody has unpaused.
    """
    pinned = {name: dag.is_paused_upon_creation for name, dag in bag.dags.items()}

    assert {pinned.pop(name) for name in MOVES} == {False}
    assert set(pinned.values()) == {None}


def test_every_dag_but_the_endless_one_has_a_time_limit(bag: Any) -> None:
    endless = {name for name, dag in bag.dags.items() if dag.dagrun_timeout is None}
    assert endless == {"srm_replication"}


def test_schedules_follow_the_intervals_of_the_configuration(bag: Any) -> None:
    assert bag.dags["srm_checkpoints"].schedule == timedelta(seconds=17)
    # The refresh interval of 5 s is raised: a sync of topics every 5 s would only burn workers.
    assert bag.dags["srm_topic_sync"].schedule == timedelta(seconds=30)
    assert type(bag.dags["srm_replication"].timetable).__name__ == "ContinuousTimetable"
    assert bag.dags["srm_failover"].schedule is None


def test_a_run_of_the_replication_that_has_ended_is_followed_by_another_one(bag: Any) -> None:
    """Two runs of one logical date: the scheduler passed the second one over, for ever."""
    dag = bag.dags["srm_replication"]
    restriction = TimeRestriction(earliest=dag.start_date, latest=None, catchup=False)

    timetable = ContinuousTimetable()  # the scheduler's, which the DAG's own stands for
    first = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    second = timetable.next_dagrun_info(
        last_automated_data_interval=first.data_interval, restriction=restriction
    )

    assert second.logical_date > first.logical_date


def test_group_offset_sync_starts_when_checkpoints_of_either_flow_are_emitted(bag: Any) -> None:
    emitted = {asset.name for task in bag.dags["srm_checkpoints"].tasks for asset in task.outlets}
    condition = bag.dags["srm_group_offset_sync"].timetable.asset_condition
    assert {asset.name for asset in condition.objects} == emitted
    assert emitted == {"srm_checkpoints B->P", "srm_checkpoints P->B"}
    assert type(condition).__name__ == "AssetAny"
    assert {asset.uri for asset in condition.objects} == {
        "kafka://P/B.checkpoints.internal",
        "kafka://B/P.checkpoints.internal",
    }


@pytest.mark.parametrize(
    ("lines", "timetable"),
    [
        ("sync.group.offsets.interval.seconds = 45\n", "DeltaDataIntervalTimetable"),
        ("P->B.sync.group.offsets.interval.seconds = 45\n", "AssetOrTimeSchedule"),
    ],
)
def test_group_offset_sync_runs_by_its_own_interval_where_one_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: str, timetable: str
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(Path(os.environ["SRM_CONFIG"]).read_text() + lines)
    monkeypatch.setenv("SRM_CONFIG", str(file))

    bag = DagBag(str(DAGS / "srm_group_offset_sync.py"))

    assert bag.import_errors == {}
    found = bag.dags["srm_group_offset_sync"].timetable
    assert type(found).__name__ == timetable
    if timetable == "AssetOrTimeSchedule":
        assert found.asset_condition.name == "srm_checkpoints B->P"
        found = found.timetable
    assert found.delta == timedelta(seconds=45)


def test_a_flow_with_an_rpo_is_checked_so_often_and_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(Path(os.environ["SRM_CONFIG"]).read_text() + "P->B.rpo.seconds = 90\n")
    monkeypatch.setenv("SRM_CONFIG", str(file))

    bag = DagBag(str(DAGS / "srm_rpo.py"))

    assert bag.import_errors == {}
    checked, by_hand = bag.dags["srm_rpo_P_to_B"], bag.dags["srm_rpo_B_to_P"]
    [late] = checked.deadline
    assert checked.schedule == late.interval == timedelta(seconds=90)
    assert late.callback.kwargs == {"flow": "P->B", "config_path": str(file)}
    assert (by_hand.schedule, by_hand.deadline) == (None, None)


@pytest.mark.parametrize(("dag", "task"), [("rpo_P_to_B", "copy"), ("failover", "residue")])
def test_a_look_that_airflow_loses_is_repeated_soon(bag: Any, dag: str, task: str) -> None:
    """Airflow fails a rescheduled task whose worker ends after its next look is queued."""
    sensor = bag.dags[f"srm_{dag}"].get_task(task)

    assert (sensor.reschedule, sensor.retries) == (True, 20)
    assert sensor.retry_delay <= timedelta(seconds=5)


def test_one_application_replicates_all_enabled_flows(bag: Any) -> None:
    (task,) = bag.dags["srm_replication"].tasks

    assert sorted(task.flows) == ["B->P", "P->B"]
    assert task.without == DUTIES, "other DAGs do the rest"


def test_parsing_imports_neither_kafka_clients_nor_spark_nor_pandas() -> None:
    """Each parse is a process of its own, again and again: heavy imports there cost a core."""
    code = (
        "import json, sys\n"
        f"sys.path.append({str(DAGS.parent / 'plugins')!r})\n"
        "from airflow.dag_processing.dagbag import DagBag\n"
        "for name in ('srm_checkpoints', 'srm_group_offset_sync', 'srm_topic_sync'):\n"
        f"    DagBag({str(DAGS)!r} + f'/{{name}}.py')\n"
        "arrays = 'numpy' in sys.modules  # these run most often\n"
        f"bag = DagBag({str(DAGS)!r})\n"
        "heavy = {'confluent_kafka', 'aiokafka', 'pyspark', 'pandas', 'pyarrow'}\n"
        "print(json.dumps([sorted(heavy & set(sys.modules)), arrays, bag.import_errors]))\n"
    )
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.append({str(DAGS.parent / 'plugins')!r})\n{code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(found.stdout.splitlines()[-1]) == [[], False, {}]


def test_a_missing_configuration_is_an_import_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SRM_CONFIG", str(tmp_path / "absent.properties"))
    bag = DagBag(str(DAGS / "srm_checkpoints.py"))
    (message,) = bag.import_errors.values()

    assert "absent.properties" in message
    assert "SRM_CONFIG" in message


def test_a_configuration_without_flows_is_an_import_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty = tmp_path / "srm.properties"
    empty.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:9092\nB.bootstrap.servers = b:9092\n"
    )
    monkeypatch.setenv("SRM_CONFIG", str(empty))
    bag = DagBag(str(DAGS / "srm_replication.py"))
    (message,) = bag.import_errors.values()

    assert "P->B.enabled = true" in message


TWO_SITES = """
from srm_airflow import build_dags
build_dags({east!r}, "east")
build_dags({west!r}, "west")
"""


@pytest.fixture
def two_sites(tmp_path: Path) -> Path:
    """A DAG file of Airflow that declares the DAGs of two configurations."""
    names = {site: str(tmp_path / f"{site}.properties") for site in ("east", "west")}
    for name in names.values():
        Path(name).write_text(Path(os.environ["SRM_CONFIG"]).read_text())
    file = tmp_path / "sites.py"
    file.write_text(TWO_SITES.format(**names))
    return file


def test_a_dag_file_declares_the_dags_of_several_configurations(two_sites: Path) -> None:
    before = os.environ["SRM_CONFIG"]

    bag = DagBag(str(two_sites))

    assert bag.import_errors == {}
    assert set(bag.dags) == {name.replace("srm", site, 1) for name in EXPECTED for site in SITES}
    files = {site: bag.dags[f"{site}_replication"].tasks[0].config_path for site in SITES}
    assert files == {site: str(two_sites.with_name(f"{site}.properties")) for site in SITES}
    assets = {
        (asset.name, asset.uri)
        for site in SITES
        for task in bag.dags[f"{site}_checkpoints"].tasks
        for asset in task.outlets
    }
    assert len(assets) == len(dict(assets)) == len({uri for _, uri in assets}) == 4
    assert os.environ["SRM_CONFIG"] == before


def test_a_task_reads_the_configuration_that_its_dag_was_built_from(
    two_sites: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRM_DAG_PREFIX", "srm")  # both are as before after the test
    monkeypatch.setenv("SRM_CONFIG", os.environ["SRM_CONFIG"])

    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "east_topic_sync")  # as a task's process

    DagBag(str(two_sites))

    assert config_path() == two_sites.with_name("east.properties")


@dataclass
class Left:
    """The task's instance, as far as the template asks it: which flows are left to Spark."""

    flows: list[str]

    def xcom_pull(self, task_ids: str) -> list[str]:
        assert task_ids == "verify"
        return self.flows


def test_verification_by_hand_takes_topics_and_a_limit_from_the_form(bag: Any) -> None:
    task = bag.dags["srm_verification"].get_task("verify_in_spark")
    chosen = {"topics": ["Payments", "Refunds"], "records": 500, "full": True}
    task.render_template_fields({"params": chosen, "ti": Left(["B->P"])})

    assert task.upstream_task_ids == {"verify"}
    assert task.application_args == [
        "--config",
        os.environ["SRM_CONFIG"],
        "--flow",
        "B->P",
        "--topic",
        "Payments",
        "--topic",
        "Refunds",
        "--max-records",
        "500",
        "--full",
    ]


def test_the_form_of_a_move_has_a_field_with_a_title_for_every_setting(bag: Any) -> None:
    dag = bag.dags["srm_failover"]

    assert set(dag.params) == {*FORM_ONLY, *(field.name for field in fields(MoveRequest))}
    for name in dag.params:
        schema = dag.params.get_param(name).schema
        assert schema["title"], name
        assert schema["section"], name
        assert dag.params.get_param(name).description, name


def test_the_form_of_a_move_shows_the_bounds_and_choices_that_the_request_checks(bag: Any) -> None:
    for dag_id in MOVES:
        for name, setting in FORM.items():
            schema = bag.dags[dag_id].params.get_param(name).schema
            if setting.kind == "seconds":
                assert (schema["minimum"], schema["maximum"]) == setting.bounds
            if setting.kind == "choice":
                assert [*filter(None, schema["enum"])] == [*filter(None, setting.choices)]


def test_every_form_opens_with_its_button_enabled_and_takes_what_it_sends(bag: Any) -> None:
    """Airflow's form misses null and an empty text, unless null is among the types of the field."""
    for dag in bag.dags.values():
        for name in dag.params:
            param = dag.params.get_param(name)
            of = param.schema["type"]
            param.resolve()
            if "null" in of:
                param.resolve(None)  # a field that was cleared
            else:
                assert param.value not in (None, ""), (dag.dag_id, name)


def test_the_tasks_of_a_move_are_its_steps_and_each_of_them_can_leave_a_reason(bag: Any) -> None:
    dag = bag.dags["srm_failover"]
    beside = {"approve", "release", "residue"}

    tasks = [task.task_id for task in dag.topological_sort() if task.task_id not in beside]
    assert [step for task in tasks for step in task.split("_and_")] == [s.name for s in STEPS]
    assert set(outcome.REASON_STEPS) == {*dag.task_ids} - {"report", "residue"}


def test_few_tasks_stand_between_hold_and_go_and_release_covers_all_of_them(bag: Any) -> None:
    """Each task costs a second of downtime; a hold that nobody releases costs much more."""
    dag = bag.dags["srm_failover"]
    release = dag.get_task("release")

    assert dag.get_task("hold").downstream_task_ids == {"wait", "release"}
    assert dag.get_task("wait").downstream_task_ids == {"apply_and_go"}
    assert dag.get_task("hold").upstream_task_ids == {"approve"}
    assert release.is_teardown
    assert release.on_failure_fail_dagrun
    # With the plan as a setup too, it also runs when the hold itself failed half way.
    assert {t.task_id for t in dag.tasks if t.is_setup} == {"plan", "hold"}
    assert {"plan", "hold"} <= release.upstream_task_ids


@pytest.mark.parametrize(("kind", "key"), [("drill", "drill"), ("dry_run", "failover.dry.run")])
def test_a_rehearsal_runs_when_the_file_says_else_by_hand_and_tells_of_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, key: str
) -> None:
    file = tmp_path / "srm.properties"
    line = f"P->B.{key}.schedule = 0 6 * * 1\n"
    file.write_text(Path(os.environ["SRM_CONFIG"]).read_text() + line)
    monkeypatch.setenv("SRM_CONFIG", str(file))

    bag = DagBag(str(DAGS / f"srm_{kind}.py"))

    assert bag.import_errors == {}
    assert bag.dags[f"srm_{kind}_P_to_B"].schedule.expression == "0 6 * * 1"
    by_hand = bag.dags[f"srm_{kind}_B_to_P"]
    assert by_hand.schedule is None
    (callback,) = by_hand.tasks[0].on_failure_callback
    move = {"operation": kind.replace("_", " "), "source": "B", "target": "P"}
    assert (callback.func, callback.keywords) == (alert_failure, {"planned": move})
