"""Shells complete commands, options and names; in trouble there is silently nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from srm import wiring
from srm.cli import completing
from srm.cli.main import app
from srm.domain.names import internal_topics
from srm.engine.moves import tables


@pytest.fixture(autouse=True)
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(
        "clusters = P, B\nP.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
        "P->B.enabled = true\n"
    )
    monkeypatch.setenv("SRM_CONFIG", str(file))


def completed(*words: str, of: str = "bash", program: str = "srm") -> list[str]:
    """Return what a shell is given for the last word."""
    line = " ".join([program, *words])
    variable = f"_{program}_COMPLETE".replace("-", "_").upper()
    name = "control_main" if program == "srm-control" else "main"
    code = f"import sys; sys.argv[0] = '{program}'; import srm.cli.main as m; m.{name}()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={
            **os.environ,
            variable: f"complete_{of}",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words)),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_and_options_are_completed() -> None:
    assert completed("re") == ["replicate", "replicator", "return", "residue", "restore"]
    assert completed("failover", "re") == ["release", "redirect", "report"]
    assert completed("failover", "run", "--mo") == ["--mode", "--move-id"]
    assert completed("failover", "run", "--mode", "un") == ["unplanned"]
    assert completed("to", program="srm-control") == ["topics"]


def test_flows_come_from_the_configuration() -> None:
    assert completed("status", "--flow", "P") == ["P:B"]  # the > of P->B redirects
    assert completed("topics", "--source", "P", program="srm-control") == ["P"]


def test_other_shells_get_help_with_the_names() -> None:
    assert "Remote topics on the target." in " ".join(completed("topi", of="zsh"))
    assert completed("topi", of="fish")[:2] == ["topics", "Remote"]


@pytest.mark.parametrize("file", ["missing", "broken"])
def test_without_a_usable_file_there_is_nothing_to_complete(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").write_text("clusters = P\nnonsense")
    monkeypatch.setenv("SRM_CONFIG", str(tmp_path / file))

    assert completed("status", "--flow", "") == []


class Cluster(SimpleNamespace):
    """A cluster with names; one that hangs answers after everything is over."""

    def topics(self) -> Any:
        if self.hangs:
            time.sleep(60)
        return {f"{self.alias}-orders": 0, "__consumer_offsets": 0, internal_topics.MOVES: 0}

    def groups(self) -> Any:
        if self.fails:
            raise OSError("away")
        return {f"{self.alias}-billing": 0, "$(touch x)": 0, "a b": 0, "*": 0, "x;y": 0}


def context(**params: object) -> typer.Context:
    found: Any = typer.main.get_command(app)
    made: Any = found.make_context("srm", ["status"], resilient_parsing=True)
    made.params.update(params)
    return made


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Aliases of the clusters that hang or fail."""
    dead: set[str] = set()

    @contextmanager
    def opened(_config: object, alias: str, _limit: float) -> Iterator[Cluster]:
        yield Cluster(alias=alias, hangs=alias in dead, fails=alias in dead)

    monkeypatch.setattr(wiring, "open_cluster", opened)
    return dead


@pytest.mark.usefixtures("clusters")
def test_topics_and_groups_come_from_the_clusters() -> None:
    assert completing.topics(context()) == ["P-orders", "B-orders"]
    assert set(completing.groups(context(flow=["P:B"]))) == {"P-billing", "B-billing"}


def test_a_dead_cluster_costs_seconds_and_nothing_else(
    clusters: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters.add("P")
    monkeypatch.setattr(completing, "LIMIT_S", 0.5)

    assert completing.topics(context()) == ["B-orders"]
    assert completing.groups(context()) == ["B-billing"]


def test_moves_are_those_of_the_clusters_that_answer(
    clusters: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {at: SimpleNamespace(move_id=f"failover-{at}", created_ms=at) for at in (1, 3, 2)}

    def read(cluster: Cluster) -> SimpleNamespace:
        cluster.topics()
        return SimpleNamespace(lines=lines)

    monkeypatch.setattr(tables.MoveRecords, "read", read)
    monkeypatch.setattr(completing, "LIMIT_S", 0.5)
    clusters.add("P")

    assert completing.moves(context()) == ["failover-3", "failover-2", "failover-1"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_of_bash_completes_in_bash(tmp_path: Path) -> None:
    program = tmp_path / "srm"
    code = "import sys; sys.argv[0] = 'srm'; import srm.cli.main as m; m.main()"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    program.chmod(0o755)
    lines = (
        'eval "$(srm completion bash)"\n'
        "COMP_WORDS=(srm status --flow P) COMP_CWORD=3\n"
        "_srm_completion srm\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", lines],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert done.stdout.split() == ["P:B"]
