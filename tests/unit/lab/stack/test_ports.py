"""Ports are free when chosen, and one that is taken is reported with its holder."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from srm.errors import StackError
from srm_lab.stack import process
from srm_lab.stack.process import LOOPBACK, PortBlock, answers, free_port, is_free, require_free


def listening() -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the JVM does
    server.bind((LOOPBACK, free_port()))
    server.listen()
    return server


def test_a_free_port_can_be_bound_and_is_no_local_port_of_a_client() -> None:
    port = free_port()

    assert is_free(port)
    assert not answers(port)
    assert 20_000 <= port <= 32_000


def test_processes_choose_from_different_ports_and_one_takes_no_port_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is given a port listens on it seconds later, and wants it back after a crash."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(process, "_LAST", 20_000 + 2 * process.BLOCK - 1)

    blocks = [PortBlock(), PortBlock()]  # a lock of one file is held once, whoever asks

    assert {block.first for block in blocks} == {20_000, 20_000 + process.BLOCK}
    taken = [blocks[0].next() for _ in range(process.BLOCK // 2)]
    assert len(set(taken)) == len(taken)
    assert PortBlock().next(), "without a lock where there is none"


def test_a_taken_port_names_purpose_and_holder() -> None:
    with listening() as server:
        port = server.getsockname()[1]

        assert answers(port)
        with pytest.raises(
            StackError,
            match=rf"port {port}, needed by Airflow, is taken by process {os.getpid()} \(",
        ):
            require_free(port, "Airflow")


def test_a_port_just_given_up_with_open_connections_is_free() -> None:
    with listening() as server:
        port = server.getsockname()[1]
        with socket.create_connection((LOOPBACK, port)):
            accepted, _ = server.accept()
            # The side that closes first leaves the connection in TIME_WAIT.
            accepted.close()

    require_free(port, "Kafka")
