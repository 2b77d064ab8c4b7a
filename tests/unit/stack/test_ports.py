"""Ports are free when chosen, and one that is taken is reported with its holder."""

from __future__ import annotations

import os
import socket

import pytest

from srm.errors import StackError
from srm.stack.ports import LOOPBACK, answers, free_port, is_free, require_free


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
