"""srm restore: what it shows, asks and says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from tests.unit.replication.restore.world import FORWARD, MARKER, World
from typer.testing import CliRunner

from srm.cli.main import app
from srm.domain.names.topics import TopicPartition
from srm.errors import ConflictError, UsageError

FILE = "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
Srm = Callable[..., Result]


@pytest.fixture
def world() -> World:
    return World({"Payments": [[MARKER, 0, 1, 2, 3]], "Orders": [[MARKER, 5]]})


@pytest.fixture
def srm(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Srm:
    path = tmp_path / "srm.properties"
    path.write_text(FILE)

    @contextmanager
    def opened(*_: object) -> Iterator[object]:
        yield world.context()

    monkeypatch.setattr("srm.cli.moves.recovery.open_restore", opened)

    def run(*arguments: str) -> Result:
        ends = ("--from", "B", "--to", "P", "--config", str(path))
        result = CliRunner().invoke(app, ["restore", *ends, *arguments])
        if result.exception is not None:
            raise result.exception
        return result

    return run


def test_a_dry_run_shows_what_would_be_done_and_does_nothing(
    srm: Srm, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "srm.spark.replicator", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)  # it is not installed
    text = srm("--dry-run").stdout

    assert "P->B is paused by ann: unplanned failover m1" in text
    [line] = [line for line in text.splitlines() if "P.Payments" in line]
    assert line.split()[:4] == ["Payments", "P.Payments", "1", "5"]
    assert "will be created and copied" in line
    assert world.life.writes == 0


def test_a_restore_says_each_step_and_what_is_next(srm: Srm, world: World) -> None:
    text = srm("--yes").stdout

    said = [
        "creating Orders, Payments on P",
        "sealing 2 partitions on B",
        "copying 7 offsets",
        "handing over Payments: 4 records",
        "P->B resumes. Next: srm status",
        "srm failover plan --config ",
        " --operation failback --source B --target P",
    ]
    assert [line for line in said if line not in text] == []
    assert not world.is_paused(world.b, FORWARD)


def test_what_stays_paused_is_named_with_the_way_out(srm: Srm) -> None:
    text = srm("--yes", "--topic", "Payments").stdout

    assert "P->B stays paused until Orders is restored, too, or decided with srm return" in text


def test_as_json_there_is_the_plan_and_what_was_done(srm: Srm) -> None:
    planned = json.loads(srm("--dry-run", "--json", "-t", "Payments").stdout)
    assert planned["done"] is None
    assert planned["plan"]["unrestored"] == ["Orders"]
    [topic] = planned["plan"]["topics"]
    assert (topic["topic"], topic["state"], topic["offsets"]) == ("Payments", "missing", 5)

    done = json.loads(srm("--yes", "--json").stdout)

    assert done["done"] == {
        "topics": ["Orders", "Payments"],
        "records": 5,
        "checkpoints": 0,
        "goes_on": True,
        "unrestored": [],
    }
    again = json.loads(srm("--yes", "--json").stdout)
    assert [topic["state"] for topic in again["plan"]["topics"]] == ["restored", "restored"]


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_where_nobody_can_be_asked_it_wants_a_yes(srm: Srm, arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="--yes"):
        srm(*arguments)


def test_a_topic_without_a_copy_is_named_with_those_that_have_one(srm: Srm) -> None:
    with pytest.raises(UsageError, match=r"no copy of Paymnts .* copies of: Orders, Payments"):
        srm("--yes", "--topic", "Paymnts")


def test_what_cannot_be_restored_is_one_line_and_changes_nothing(srm: Srm, world: World) -> None:
    world.p.add_topic("Payments", 1)
    world.append("P", TopicPartition("Payments", 0), 99)
    before = world.life.writes

    for approval in ("--dry-run", "--yes"):
        with pytest.raises(ConflictError, match="delete Payments on P and run this again"):
            srm(approval)

    assert world.life.writes == before
