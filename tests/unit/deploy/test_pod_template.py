"""The pod of a task with KubernetesExecutor."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import yaml

TEMPLATE = Path(__file__).resolve().parents[3] / "deploy" / "airflow" / "pod-template.yaml"


def test_a_task_finds_the_properties_file_of_the_secret_where_srm_config_says() -> None:
    spec = yaml.safe_load(TEMPLATE.read_text())["spec"]

    (container,) = spec["containers"]
    config = PurePosixPath({one["name"]: one["value"] for one in container["env"]}["SRM_CONFIG"])
    (mount,) = container["volumeMounts"]
    (volume,) = spec["volumes"]
    assert config.parent == PurePosixPath(mount["mountPath"])
    assert mount["readOnly"]
    assert volume["name"] == mount["name"]
    assert "secret" in volume, "it has passwords, so no config map"


def test_airflow_takes_it_as_the_pod_of_a_task() -> None:
    """It sets the command of the container ``base``, and starts a failed task again by itself."""
    spec = yaml.safe_load(TEMPLATE.read_text())["spec"]

    assert spec["containers"][0]["name"] == "base"
    assert spec["restartPolicy"] == "Never"
