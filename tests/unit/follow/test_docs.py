"""docs/clients.md and docs/formats.md say what is there, and their examples can be used."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer
import yaml
from tests.acknowledgements import acks_of
from tests.unit.follow.following import GROUP, config_in

from srm.cli.main import app
from srm.domain.moves.announcements import Ack
from srm.domain.moves.gate import ANNOUNCED_MS
from srm.domain.moves.routing import CLOCK_KEY, Route, decode_route
from srm.follow import supervisor
from srm.follow.values import SECRETIVE, Template, Values

ROOT = Path(__file__).parents[3]


def section(page: str, heading: str) -> str:
    """Return the text below a heading, with the smaller headings in it."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return text.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0]


PAGE = section("clients.md", "Any program: srm follow")
RECORDS = section("formats.md", "Routing records")
FOLLOW = typer.main.get_command(app).commands["follow"]  # type: ignore[attr-defined]
OPTIONS = {option for parameter in FOLLOW.params for option in parameter.opts if "-" in option}


OTHERS = {
    *("--bootstrap-server", "--include"),  # the console consumer's
    "--init",  # Docker's
}
"""Options of other programs on the page."""


def example(name: str) -> str:
    """Return an example that the page links to."""
    assert f"](../examples/follow/{name})" in PAGE
    return (ROOT / "examples" / "follow" / name).read_text("utf-8")


def accepted(arguments: list[str]) -> None:
    """Let the command's own parser take what comes behind ``srm follow``."""
    assert arguments[0].endswith("srm")
    assert arguments[1] == "follow"
    FOLLOW.make_context("follow", arguments[2:])


def table(page: str, heading: str) -> set[str]:
    """Names in the first column of the table below a heading."""
    text = page.split(f"\n### {heading}\n")[1].split("\n### ", maxsplit=1)[0]
    rows = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_option_on_the_page_exists_and_every_option_is_on_the_page() -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", PAGE))
    long = {option for option in OPTIONS if option.startswith("--")}
    assert named - OTHERS == long


def test_every_value_is_in_the_table(tmp_path: Path) -> None:
    values = Values(config_in(tmp_path), GROUP, "B", "me")
    names = [*values.environ(), *values.by_name(), *SECRETIVE]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_every_event_is_in_the_table() -> None:
    source = Path(supervisor.__file__).read_text("utf-8")
    events = set(re.findall(r'\bsay\(\s*"(\w+)"', source)) | {"held", "resumed", "orphaned", "log"}
    assert table(PAGE, "Logs") == events


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    text = example("audit.service")
    [line] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    command = shlex.split(line)
    accepted(command)
    grace = float(command[command.index("--grace") + 1])
    [limit] = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert float(limit) > grace
    systemd = shutil.which("systemd-analyze")
    if systemd is not None:
        unit = tmp_path / "audit.service"
        unit.write_text(text.replace(command[0], sys.executable))
        done = subprocess.run(
            [systemd, "verify", str(unit)],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_entry_point_of_the_image_is_a_command_that_works() -> None:
    parts = dict(re.findall(r"^(ENTRYPOINT|CMD) (.*)$", example("Dockerfile"), re.MULTILINE))
    accepted([*json.loads(parts["ENTRYPOINT"]), *json.loads(parts["CMD"])])


def test_the_manifest_of_kubernetes_is_whole(tmp_path: Path) -> None:
    pod = yaml.safe_load(example("deployment.yaml"))["spec"]["template"]["spec"]
    [container] = pod["containers"]
    accepted(container["command"])
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    [grace] = [part for part in container["command"] if part.startswith("--grace=")]
    assert pod["terminationGracePeriodSeconds"] > float(grace.partition("=")[2])
    values = Values(config_in(tmp_path), GROUP, "B", "me")
    rendered = Template("page", example("application.yaml.in"), tmp_path / "x").render(values)
    found = yaml.safe_load(rendered)
    assert found["spring"]["kafka"]["bootstrap-servers"] == "b1:9092"
    assert found["audit"]["topics"] == ["Payments", "P.Payments"]


@pytest.mark.parametrize(("heading", "record"), [("Route", Route), ("Acknowledgement", Ack)])
def test_every_field_of_a_record_is_documented(heading: str, record: type) -> None:
    assert table(RECORDS, heading) == {field.name for field in fields(record)}


def test_the_examples_of_records_are_what_is_written() -> None:
    route, ack = re.findall(r"^```json\n(.*?)^```", RECORDS, re.DOTALL | re.MULTILINE)
    assert json.loads(decode_route(b"group:audit", route.encode()).value()) == json.loads(route)
    [read] = acks_of({b"group:audit:c1": ack.encode()})
    assert json.loads(read.value()) == json.loads(ack)
    assert read.key() == b"group:audit:c1"


def test_a_reader_passes_over_fields_it_does_not_know_and_needs_no_optional_one() -> None:
    least = b'{"generation": 4294967296, "cluster": "B", "state": "go", "later": {"x": [1]}}'
    assert decode_route(b"group:g", least) == Route(1 << 32, "B", "go")
    ack = (
        b'{"subject": "group:g", "client": "c", "generation": 1, "state": "held", '
        b'"cluster": "B", "time_ms": 0, "later": 1}'
    )
    assert acks_of({b"group:g:c": ack}) == (Ack("group:g", "c", 1, "held", "B", 0),)


def test_keys_and_times_are_those_of_the_page() -> None:
    keys = table(RECORDS, "Keys")
    assert {"group:<group>", "topic:<topic>", CLOCK_KEY.decode()} <= keys
    assert f"{ANNOUNCED_MS // 1000} s" in RECORDS


def test_the_example_in_java_writes_the_fields_of_an_acknowledgement() -> None:
    """But for records that it processed and could not commit, and a producer's: absent is empty."""
    source = Path(__file__).parents[3] / "examples" / "java" / "FollowRoute.java"
    _, found, rest = source.read_text().partition("\"{'subject'")
    record = found + rest.partition(".replace")[0]

    written = set(re.findall(r"'(\w+)':", record))

    of_clients = {"uncommitted", "unwritten", "instance", "members"}
    assert written == {field.name for field in fields(Ack)} - of_clients
