"""Commands whose clusters are dead end at the limit of their patience, and at once with Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typer.testing import CliRunner

from srm import wiring
from srm.cli.main import app
from srm.cli.main import control as control_app
from srm.errors import SrmError
from srm.kafka.admin.clients import Clients
from srm.spark import session
from srm_lab.stack.process import free_port

pytestmark = pytest.mark.integration

_MOVE: Final = "srm-failover-1"
_CONTROL: Final = ("--source", "P", "--target", "B")
READERS: Final[dict[str, tuple[str, ...]]] = {
    "verify": ("-f", "P->B"),
    "translate": ("-f", "P->B", "-t", "Payments", "--offset", "1"),
    "status": (),
    "doctor": (),
    "config check": ("--online",),
    "why": ("Payments",),
    "restore": ("--from", "B", "--to", "P", "--dry-run"),
    "replicator stop": ("--wait", "0"),
    "replicator restart": ("--wait", "0"),
    "metrics aggregate": (),
    "metrics show": (),
    "checkpoints emit": (),
    "groups list": (),
    "groups sync": (),
    "topics list": (),
    "topics sync": (),
    "topics plan": (),
    "topics apply": ("--yes",),
    "import mm2": ("--dry-run",),
    "import srm": ("-f", "P->B", "--dry-run"),
    "export mm2": ("-f", "P->B", "--dry-run"),
    "config reload": ("--wait", "0"),
    "topics append": ("-f", "P->B", "--topic", "Payments"),
    "failover plan": (),
    "failover run": (),
    "failover release": (_MOVE,),
    "failover status": (),
    "failover redirect": (_MOVE,),
    "failover unfence": ("P",),
    "failover drill": (),
    "failover report show": (_MOVE,),
    "failover report verify": (_MOVE, "--public-key", "key.pem"),
    "return status": ("-f", "P->B"),
    "return settle": ("-f", "P->B", "--default", "keep", "--dry-run"),
    "residue list": ("-f", "P->B"),
    "residue show": ("-f", "P->B", "-t", "Payments"),
    "residue export": ("-f", "P->B", "--output", "residue"),
    "srm-control topics": (*_CONTROL, "--list"),
    "srm-control groups": (*_CONTROL, "--list"),
    "srm-control reverse-checkpointed-topics": (*_CONTROL, "--list"),
    "srm-control offsets": (*_CONTROL, "--export"),
}
"""Arguments of each command that reads a cluster and ends."""

OTHERS: Final = {
    "demo": "has clusters of its own",
    "stack up": "starts clusters",
    "stack down": "reads no cluster",
    "stack status": "reads the stack's processes",
    "replicate": "waits for its clusters",
    "follow": "waits for its clusters",
    "init": "writes a file",
    "completion": "prints a script",
    "schema": "prints a schema",
    "config import": "reads a file",
    "rights": "reads a file",
    "config explain": "reads a file",
    "config client": "reads a file",
}


def command_names() -> Iterator[str]:
    """Yield the name of each command of both programs."""
    for program, prefix in ((app, ()), (control_app, ("srm-control",))):
        yield from _leaves(typer.main.get_command(program), prefix)


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children:
        yield " ".join(path)
    for name, child in children.items():
        yield from _leaves(child, (*path, name))


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Return a port that accepts connections and never answers."""
    with socket.create_server(("", 0), backlog=1000) as listener:
        yield listener.getsockname()[1]


def configured(folder: Path, port: int) -> Path:
    path = folder / "srm.properties"
    path.write_text(
        "clusters = P, B\nP->B.enabled = true\nB->P.enabled = true\ntopics = .*\ngroups = .*\n"
        f"P.bootstrap.servers = 127.0.0.1:{port}\nB.bootstrap.servers = 127.0.0.2:{port}\n"
    )
    return path


def test_each_command_is_in_one_of_the_lists() -> None:
    assert {*READERS, *OTHERS} == set(command_names())
    assert not {*READERS} & {*OTHERS}


@pytest.mark.parametrize("name", sorted(READERS))
@pytest.mark.parametrize("dead", ["refuses", "hangs"])
def test_a_command_gives_dead_clusters_one_limit_and_names_the_reason(
    name: str,
    dead: str,
    tmp_path: Path,
    silent_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are queried side by side, and no client is made for a cluster that is silent."""
    monkeypatch.chdir(tmp_path)
    port = free_port() if dead == "refuses" else silent_port
    config = configured(tmp_path, port)
    public = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "key.pem").write_bytes(
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for client in ("admin", "reader", "producer", "call"):
        monkeypatch.setattr(Clients, client, _no_client)
    queried: list[str] = []
    probe = wiring.refusals_of
    monkeypatch.setattr(
        wiring, "refusals_of", lambda ends, s: queried.extend(a for a, _ in ends) or probe(ends, s)
    )
    program, *path = name.split() if name.startswith("srm-control") else ("srm", *name.split())
    arguments = [*path, *READERS[name], "--config", str(config)]
    limit = "300" if dead == "refuses" else "0.4"

    result = CliRunner().invoke(
        control_app if program == "srm-control" else app, ["--timeout", limit, *arguments]
    )

    assert isinstance(result.exception, SrmError), (result.output, result.exception)
    assert result.exception.exit_code == 6
    text = str(result.exception)
    reason = "connection refused" if dead == "refuses" else "no answer within 0.4 s"
    if not name.startswith("replicator"):
        assert re.search(rf"broker 127\.0\.0\.[12]:{port}: {reason}", text), text
        assert re.search(r"bootstrap\.servers|security\.protocol", result.exception.action)
    assert "\n" not in text
    assert queried
    assert len(queried) == len(set(queried)), "each cluster has one limit"


def test_no_spark_starts_for_dead_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(tmp_path, free_port())
    monkeypatch.setattr(session, "spark_session", lambda *_: pytest.fail("Spark has started"))

    result = CliRunner().invoke(app, ["metrics", "aggregate", "--spark", "--config", str(config)])

    assert isinstance(result.exception, SrmError), result.exception
    assert result.exception.exit_code == 6


def _no_client(*_arguments: object, **_named: object) -> None:
    pytest.fail("a client for a silent cluster")


def test_ctrl_c_ends_a_command_that_waits_for_a_cluster(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as listener:
        listener.settimeout(120)
        config = configured(tmp_path, listener.getsockname()[1])
        command = ["--timeout", "600", "failover", "plan", "--config", str(config)]
        process = _start("-m", "srm.cli.main", *command)
        connection, _ = listener.accept()
        with connection:
            _assert_interrupted(process)


def test_ctrl_c_ends_a_command_that_waits_in_a_call_of_a_client_library(silent_port: int) -> None:
    """Such a call does not end, and Python runs no handler until it does."""
    process = _start(
        "-c",
        "from confluent_kafka import Producer\n"
        "from srm.cli.console import end_soon_after_interrupt\n"
        "end_soon_after_interrupt()\n"
        f"client = Producer({{'bootstrap.servers': '127.0.0.1:{silent_port}'}})\n"
        "try:\n"
        "    print('waiting', flush=True)\n"
        "    client.list_topics(timeout=600)\n"
        "except KeyboardInterrupt:\n"  # before the call, on a busy machine
        "    raise SystemExit(130)\n",
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    _assert_interrupted(process)


def test_ctrl_c_lets_the_step_of_a_move_end_and_its_hold_be_released() -> None:
    process = _start(
        "-c",
        "import time\n"
        "from srm.cli.console import end_soon_after_interrupt\n"
        "from srm.cli.moves.failover import _interrupts_between_steps\n"
        "end_soon_after_interrupt()\n"
        "with _interrupts_between_steps() as interrupted:\n"
        "    print('step', flush=True)\n"
        "    interrupted.wait(60)\n"
        "    time.sleep(1.5)\n"
        "    print('released', flush=True)\n",
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "step\n"
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "released\n"), errors


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def _assert_interrupted(process: subprocess.Popen[str]) -> None:
    """Ctrl-C ends it, although it would wait for ten minutes."""
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
