"""docker-compose.yaml fits the rest of the project, as far as that can be seen without Docker."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from srm.config.loader import load_config
from srm.domain.topics import Flow
from srm.stack.jars import KAFKA_VERSION

PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((PROJECT / "docker-compose.yaml").read_text())


def test_the_clusters_run_the_locked_kafka_with_different_ids(compose: Any) -> None:
    brokers = [compose["services"][name] for name in ("kafka-p", "kafka-b")]

    assert {broker["image"] for broker in brokers} == {f"apache/kafka:{KAFKA_VERSION}"}
    ids = [broker["environment"]["CLUSTER_ID"] for broker in brokers]
    assert len(set(ids)) == 2
    assert all(len(base64.urlsafe_b64decode(text + "==")) == 16 for text in ids)


def test_airflow_runs_this_projects_dags_on_postgresql(compose: Any) -> None:
    for component in ("api-server", "scheduler", "dag-processor", "triggerer"):
        service = compose["services"][f"airflow-{component}"]
        environment = service["environment"]

        assert service["command"] == ["airflow", component]
        assert environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].startswith("postgresql")
        assert environment["AIRFLOW__CORE__DAGS_FOLDER"] == "/opt/srm/dags"


def test_every_service_volume_and_config_that_is_named_exists(compose: Any) -> None:
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        sources = {volume.split(":")[0] for volume in service.get("volumes", ())}
        assert sources <= set(compose["volumes"]), name
        assert {config["source"] for config in service.get("configs", ())} <= set(
            compose["configs"]
        ), name


def test_the_image_is_built_from_what_the_project_has(compose: Any) -> None:
    recipe = compose["services"]["airflow-scheduler"]["build"]["dockerfile_inline"]
    makefile = (PROJECT / "Makefile").read_text()

    version = recipe.split("uv==")[1].split()[0]
    assert f"UV_VERSION := {version}" in makefile
    copied = [line.split()[1:-1] for line in recipe.splitlines() if line.startswith("COPY")]
    assert all((PROJECT / name).exists() for names in copied for name in names)


def test_its_properties_are_a_valid_configuration(compose: Any, tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    path.write_text(compose["configs"]["srm-properties"]["content"])

    config = load_config(path)

    assert config.warnings == ()
    assert set(config.flows) == {Flow("P", "B"), Flow("B", "P")}
