"""The schemas of documents: each command with --json has one, and its documents follow it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from srm.cli.console import document
from srm.cli.flows.topics import FlowTopicSync
from srm.cli.main import app
from srm.cli.schemas import DOCUMENTS, schema_of
from srm.domain.names.topics import Flow
from srm.engine.control.topic_sync import TopicSyncPlan

LAB = ("demo", "stack")
LINES = ("replicate", "residue show")
"""Commands that print one object a line, not a document."""
CONFIG = """\
clusters = P, B
P.bootstrap.servers = localhost:1
B.bootstrap.servers = localhost:2
P->B.enabled = true
"""


def with_json(command: Any, path: tuple[str, ...] = ()) -> list[str]:
    children = getattr(command, "commands", {})
    if not children:
        options = [option for one in command.params for option in one.opts]
        return [" ".join(path)] if "--json" in options else []
    return [found for name, one in children.items() for found in with_json(one, (*path, name))]


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_each_command_that_prints_a_document_has_a_schema() -> None:
    srm = {one for one in with_json(typer.main.get_command(app)) if one.split()[0] not in LAB}

    assert srm == {*DOCUMENTS, *LINES}


@pytest.mark.parametrize("command", sorted(DOCUMENTS))
def test_a_schema_is_one(command: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(command))


@pytest.mark.parametrize(
    "words",
    [("config", "check"), ("config", "explain", "topics"), ("rights", "--principal", "User:a")],
)
def test_what_a_command_prints_follows_its_schema(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(CONFIG)
    command = " ".join(
        word for word in words[:2] if word in {"config", "check", "explain", "rights"}
    )

    shown = json.loads(run(*words, "--config", str(file), "--json"))

    jsonschema.validate(shown, json.loads(run("schema", *command.split())))


def test_flows_and_partitions_have_the_notation_of_documents() -> None:
    synced = FlowTopicSync(Flow("P", "B"), dry_run=True, plan=TopicSyncPlan())
    schema = schema_of("topics plan")

    jsonschema.validate(json.loads(document([synced])), schema)
    assert schema["$defs"]["Flow"]["type"] == "string"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{"flow": {"source": "P"}, "dry_run": True, "plan": {}}], schema)


def test_an_unknown_command_is_answered_with_the_known_ones() -> None:
    done = CliRunner().invoke(app, ["schema", "stat"])

    assert "failover plan" in str(done.exception)
    assert set(run("schema").splitlines()) == set(DOCUMENTS)


@pytest.mark.parametrize(
    ("command", "listed", "other"),
    [("failover status", {"m1": "held"}, {"m1": "lost"}), ("failover drill", [], ["d1"])],
)
def test_what_a_command_lists_without_a_name_follows_its_schema(
    command: str, listed: object, other: object
) -> None:
    jsonschema.validate(listed, schema_of(command))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(other, schema_of(command))
