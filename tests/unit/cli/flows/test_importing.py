"""``srm import`` takes the workers of MirrorMaker 2 and the lists of SRM from files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from srm.cli.flows import importing
from srm.cli.main import app
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.ports import FlowContext
from srm.replication.adoption import AdoptionContext
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import FakeClock

PROPERTIES = """\
clusters = P, B
P.bootstrap.servers = p:9092
B.bootstrap.servers = b:9092
P->B.enabled = true
"""


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Put two clusters in memory behind the command; no remote topic exists."""
    source, target = FakeCluster("P"), FakeCluster("B")
    source.add_topic("Payments")
    unused: Any = None

    @contextmanager
    def open_adoption(config: Config, flow: Flow, by: str) -> Iterator[AdoptionContext]:
        maps = FakeMapReader()
        context = FlowContext(config.flow(flow), source, target, maps, maps, FakeClock())
        yield AdoptionContext(context, unused, unused, unused, by)

    monkeypatch.setattr(importing, "open_adoption", open_adoption)
    return target


def run(path: Path, *command: str, lines: str = "") -> Result:
    file = path / "srm.properties"
    file.write_text(PROPERTIES + lines)
    options = "--config", str(file), "--dry-run", "--json"
    return CliRunner().invoke(app, ["import", *command, *options])


def test_lists_of_srm_count_in_a_dry_run_and_are_not_written(
    target: FakeCluster, tmp_path: Path
) -> None:
    lists = tmp_path / "topics.txt"
    lists.write_text("Current whitelist:\nPay.*\nCurrent blacklist:\nDone.\n")

    refused = run(tmp_path, "srm", "--flow", "P->B")
    result = run(tmp_path, "srm", "--flow", "P->B", "--list", f"topics={lists}")

    assert "P->B selects no topics" in str(refused.exception)
    assert result.exit_code == 0, result.exception
    assert target.topics() == {}
