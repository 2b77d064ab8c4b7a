"""The manifests for Kubernetes fit the commands, the documentation and each other.

tests/integration/test_helm.py renders the chart.
"""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.unit.deploy.queries import DASHBOARD, DEPLOY, RULES

from srm.cli.main import app, service
from srm.config.loader import load_config

CHART = DEPLOY / "helm" / "srm"
PROJECT = DEPLOY.parent
IMAGE_HOME = "/opt/srm/"
NAMES = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}
Acl = tuple[str, str, str, str]


def values() -> Any:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def templates() -> str:
    return "\n".join(path.read_text() for path in (CHART / "templates").iterdir())


def paths(tree: Any, prefix: str = "") -> set[str]:
    """Every value by its path; one of a map that users fill is a single value."""
    if not isinstance(tree, dict) or not tree or prefix in {".jobs", ".jobResources"}:
        return {prefix}
    if prefix.endswith(".resources"):
        return {prefix}
    return set.union(*(paths(value, f"{prefix}.{key}") for key, value in tree.items()))


def test_templates_use_every_value_of_the_chart_and_no_other() -> None:
    used = set(re.findall(r"\.Values((?:\.\w+)+)", templates()))

    assert used == paths(values())


def test_the_read_api_is_closed_unless_the_user_opens_it(tmp_path: Path) -> None:
    """Either it is off, or the chart's own file names who may read it."""
    path = tmp_path / "srm.properties"
    path.write_text(values()["properties"])
    access = load_config(path).service.access

    assert not access.insecure
    assert not values()["service"]["enabled"] or access.auth != "none"


def command_of(words: list[str]) -> Any:
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    return command


@pytest.mark.parametrize("name", values()["jobs"])
def test_each_cron_job_runs_a_command_of_srm_that_takes_the_file(name: str) -> None:
    job = values()["jobs"][name]
    program, *words = job["command"]

    assert len(job["schedule"].split()) == 5
    if program == "python":
        assert (PROJECT / words[0].removeprefix(IMAGE_HOME)).is_file()
    else:
        assert program == "srm"
        assert "--config" in {option for p in command_of(words).params for option in p.opts}


def test_the_service_and_the_replicator_are_started_as_their_commands_take_it() -> None:
    options = {option for p in typer.main.get_command(service).params for option in p.opts}
    text = (CHART / "templates" / "service.yaml").read_text()
    [line] = re.findall(r"args: \[(.*)\]", text)

    assert {word for word in line.split(", ") if word.startswith("--")} <= options
    assert "srm, replicate]" in (CHART / "templates" / "replicator.yaml").read_text()
    assert {"--config", "--flow"} <= {o for p in command_of(["replicate"]).params for o in p.opts}


def test_alert_rules_and_dashboard_of_the_chart_are_those_of_the_project() -> None:
    assert (CHART / "files" / RULES.name).resolve() == RULES
    assert (CHART / "files" / DASHBOARD.name).resolve() == DASHBOARD
    assert {"groups"} == set(yaml.safe_load(RULES.read_text()))


@pytest.mark.parametrize("name", ["apache", "kubeflow"])
def test_spark_operators_restart_the_replicator_always(name: str) -> None:
    spec = yaml.safe_load((DEPLOY / "spark" / f"{name}-operator.yaml").read_text())["spec"]

    if name == "apache":
        policy = spec["applicationTolerations"]["restartConfig"]["restartPolicy"]
        program, arguments = spec["pyFiles"], spec["driverArgs"]
    else:
        policy = spec["restartPolicy"]["type"]
        program, arguments = spec["mainApplicationFile"], spec["arguments"]
    assert policy == "Always"
    assert (PROJECT / program.removeprefix(f"local://{IMAGE_HOME}")).is_file()
    mounted = spec["sparkConf"]["spark.kubernetes.driver.secrets.srm-config"]
    assert arguments == ["--config", f"{mounted}/srm.properties"]


def documented(cluster: str) -> set[Acl]:
    """Return the rights that docs/security.md grants srm on P or B, by kafka-acls.sh."""
    found = set[Acl]()
    for line in (PROJECT / "docs" / "security.md").read_text().splitlines():
        if not line.startswith(f"$on_{cluster} "):
            continue
        words = shlex.split(line)[1:]
        pattern = "prefix" if "prefixed" in words else "literal"
        kind = next(word[2:] for word in words if word[2:] in {*NAMES, "cluster"})
        name = "" if kind == "cluster" else words[words.index(f"--{kind}") + 1]
        operations = [after for word, after in pairwise(words) if word == "--operation"]
        found |= {(NAMES.get(kind, kind), name, pattern, one) for one in operations}
    return found


@pytest.mark.parametrize("cluster", ["P", "B"])
def test_users_of_strimzi_have_the_rights_that_the_documentation_grants(cluster: str) -> None:
    users = yaml.safe_load_all((DEPLOY / "strimzi" / "kafka-users.yaml").read_text())
    [user] = [u for u in users if u["metadata"]["labels"]["strimzi.io/cluster"] == cluster.lower()]

    granted = {
        (
            acl["resource"]["type"],
            acl["resource"].get("name", ""),
            acl["resource"].get("patternType", "literal"),
            operation,
        )
        for acl in user["spec"]["authorization"]["acls"]
        for operation in acl["operations"]
    }

    assert granted == documented(cluster)
