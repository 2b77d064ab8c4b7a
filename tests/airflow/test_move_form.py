"""What the forms of moves offer, and where it comes from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.comms import ErrorResponse
from tests.unit.engine.moves.control.moving import World, busy_world, config_in

from srm.config.loader import load_config
from srm.domain.names.policy import SHADOW_PREFIX
from srm_airflow import move_form
from srm_airflow.move_form import Choices

pytestmark = pytest.mark.airflow

DAGS = Path(__file__).resolve().parents[2] / "dags"
P_TO_B = "srm_choices_P_to_B"
NOTED = {"topics": ["Payments", "Refunds"], "groups": ["audit", "billing"]}


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Airflow's variables, as the API keeps them; a string is one that is not JSON."""
    kept: dict[str, Any] = {}

    def get(name: str, default: Any, deserialize_json: bool) -> Any:
        assert deserialize_json
        found = kept.get(name, default)
        return json.loads(found) if isinstance(found, str) else found

    def write(name: str, value: Any, serialize_json: bool) -> None:
        assert serialize_json
        kept[name] = json.loads(json.dumps(value))

    monkeypatch.setattr(move_form.Variable, "get", get)
    monkeypatch.setattr(move_form.Variable, "set", write)
    return kept


@pytest.fixture
def world(tmp_path: Path) -> World:
    return busy_world(config_in(tmp_path))


def test_the_form_of_a_pair_offers_what_its_flows_have_noted(kept: dict[str, Any]) -> None:
    kept |= {P_TO_B: NOTED, "srm_choices_B_to_P": {"topics": [], "groups": ["late"]}}

    bag = DagBag(str(DAGS / "srm_failover.py"))

    params = bag.dags["srm_failover.P.B"].params
    assert params.get_param("topics").schema["examples"] == ["Payments", "Refunds"]
    assert params.get_param("groups").schema["examples"] == ["audit", "billing", "late"]
    source = params.get_param("source")
    assert source.schema["enum"] == [None, "P", "B", ""]
    assert source.schema["values_display"] == {"null": "as the operation says", "P": "P", "B": "B"}
    assert (source.value, source.resolve(""), source.resolve("P")) == (None, "", "P")
    assert params.get_param("operation").schema["values_display"] == {
        "failover": "failover: P -> B",
        "failback": "failback: B -> P",
    }
    topics = params.get_param("topics")
    assert topics.resolve(["Brand-new"]) == ["Brand-new"], "what is not noted yet can be moved"
    assert topics.resolve(None) is None, "what the form sends when the last choice is taken away"


def test_without_notes_the_form_takes_names_as_text(kept: dict[str, Any]) -> None:
    kept[P_TO_B] = "not JSON"

    bag = DagBag(str(DAGS / "srm_failover.py"))

    assert bag.import_errors == {}
    schema = bag.dags["srm_failover.P.B"].params.get_param("topics").schema
    assert "examples" not in schema
    assert schema["items"] == {"type": "string"}


def test_there_is_a_form_for_each_pair_with_a_flow_between(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "srm.properties"
    text = Path(os.environ["SRM_CONFIG"]).read_text()
    file.write_text(
        text.replace("clusters = P, B", "clusters = P, B, DR")
        + "DR.bootstrap.servers = 127.0.0.1:3\nDR->B.enabled = true\n"
    )
    monkeypatch.setenv("SRM_CONFIG", str(file))

    bag = DagBag(str(DAGS / "srm_failover.py"))

    assert set(bag.dags) == {"srm_failover", "srm_failover.P.B", "srm_failover.B.DR"}
    source = {name: dag.params.get_param("source") for name, dag in bag.dags.items()}
    assert source["srm_failover.B.DR"].schema["enum"] == [None, "B", "DR", ""]
    assert source["srm_failover"].schema["enum"] == [None, "P", "B", "DR", ""]


def test_what_is_noted_are_originals_and_the_groups_of_either_side(
    world: World, kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = world.context().forward
    world.start(f"{SHADOW_PREFIX}m1.near", "B", {"P.Payments": 10})

    move_form.note(context)

    assert kept == {P_TO_B: {"topics": ["Payments"], "groups": ["far", "near"]}}

    monkeypatch.setattr(move_form.Variable, "set", lambda *_args, **_kwargs: pytest.fail("written"))
    move_form.note(context)


def test_a_cluster_that_is_away_leaves_the_choices_as_they_were(
    world: World, kept: dict[str, Any]
) -> None:
    kept[P_TO_B] = NOTED
    world.p.fail()

    move_form.note(world.context().forward)

    assert kept == {P_TO_B: NOTED}


def test_a_variable_that_cannot_be_written_stops_no_sync(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise AirflowRuntimeError(ErrorResponse(detail={"message": "no right"}))

    monkeypatch.setattr(move_form.Variable, "set", refuse)

    move_form.note(world.context().forward)


def test_choices_are_those_of_flows_between_the_clusters_alone(kept: dict[str, Any]) -> None:
    kept[P_TO_B] = NOTED
    config = load_config(os.environ["SRM_CONFIG"])

    assert move_form.read_choices(config, ("P", "DR")) == Choices()
    assert move_form.read_choices(config, ("B", "P")).topics == ("Payments", "Refunds")


def test_a_task_that_is_about_to_run_reads_no_choices_and_builds_its_own_dag_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between hold and go everything else would be time without service."""
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "srm_failover.P.B")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "hold")
    monkeypatch.setattr(move_form, "_read_variable", lambda _flow: pytest.fail("read"))

    bag = DagBag(str(DAGS / "srm_failover.py"))

    assert bag.import_errors == {}
    assert set(bag.dags) == {"srm_failover.P.B"}
