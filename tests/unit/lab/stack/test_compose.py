"""docker-compose.yaml fits the rest of the project, as far as that can be seen without Docker.

``make compose-check`` runs it.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose.check import SLOTS

from srm.config.loader import load_config
from srm.domain.names.topics import Flow
from srm_lab.stack.jars import KAFKA_VERSION

PROJECT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((PROJECT / "docker-compose.yaml").read_text())


@pytest.fixture(scope="module")
def recipe(compose: Any) -> str:
    [build] = [one["build"] for one in compose["services"].values() if "build" in one]
    return (PROJECT / build["context"] / build["dockerfile"]).read_text()


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
        [bundle] = json.loads(environment["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
        assert bundle["classpath"] == "srm_airflow.bundle.SrmDagBundle"


def test_every_service_volume_config_and_file_that_is_named_exists(compose: Any) -> None:
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        sources = {volume.split(":")[0] for volume in service.get("volumes", ())}
        files = {source for source in sources if source.startswith(".")}
        assert all((PROJECT / file).is_file() for file in files), name
        assert sources - files <= set(compose["volumes"]), name
        configs = {config["source"] for config in service.get("configs", ())}
        assert configs <= set(compose["configs"]), name


def test_every_service_is_watched_or_runs_once(compose: Any) -> None:
    for name, service in compose["services"].items():
        assert ("test" in service.get("healthcheck", ())) is (service["restart"] != "no"), name


def test_services_of_one_image_wait_for_the_service_that_builds_it(compose: Any) -> None:
    services = compose["services"]

    def awaited(name: str) -> set[str]:
        direct = set(services[name].get("depends_on", ()))
        return direct.union(*map(awaited, direct))

    [builder] = [name for name, service in services.items() if "build" in service]
    users = [name for name, one in services.items() if one["image"] == services[builder]["image"]]
    assert len(users) > 1
    assert all(builder in awaited(name) for name in users if name != builder)


def copied(recipe: str) -> set[str]:
    """Return what of the project the image copies."""
    copies = [line.split()[1:-1] for line in recipe.splitlines() if line.startswith("COPY ")]
    return {name for names in copies if not names[0].startswith("--from") for name in names}


def test_the_build_is_sent_all_that_the_image_copies_and_nothing_else(recipe: str) -> None:
    lines = (PROJECT / ".dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}

    folders = {name if (PROJECT / name).is_dir() else "deploy/docker" for name in copied(recipe)}
    files = {name for name in copied(recipe) if "/" not in name}
    assert sent == files | folders


def test_the_wheel_is_built_from_what_the_image_copies(recipe: str, tmp_path: Path) -> None:
    """In a checkout the library and the files for browsers are among the sources already."""
    assert (
        f"UV_VERSION := {recipe.split('uv==')[1].split(maxsplit=1)[0]}"
        in (PROJECT / "Makefile").read_text()
    )
    for name in copied(recipe):
        if (PROJECT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(PROJECT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(PROJECT / name, tmp_path)
    (tmp_path / "src/srm/replication/native/libsrm.so").touch()
    command = [Path(sys.executable).with_name("uv"), "build", "--wheel", "--out-dir", "dist"]

    built = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )

    assert built.returncode == 0, built.stderr
    [wheel] = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "srm/service/static/vendor/uplot/uPlot.iife.min.js" in names
    assert {"srm_airflow/dags/srm_failover.py", "srm_airflow/spark_jobs/replicator.py"} < {*names}
    assert len(names) == len(set(names))


def test_its_properties_are_a_valid_configuration() -> None:
    config = load_config(PROJECT / "deploy" / "compose" / "srm.properties")

    assert config.warnings == ()
    assert set(config.flows) == {Flow("P", "B"), Flow("B", "P")}
    slots = sum(config.flow(flow).tasks_max for flow in config.flows)
    assert slots == SLOTS
