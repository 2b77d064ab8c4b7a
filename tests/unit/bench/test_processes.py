"""Helper processes: the socket copy, the relay, the process tree and the probes' records."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from bench.clusters import PROJECT
from bench.probe import COUNTED, read, record
from bench.relay import relay
from bench.socket_copy import measure
from bench.tree import PeakMemory, Tree
from tests.waiting import eventually

from srm_lab.stack.process import LOOPBACK, free_port

BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint('burnt', flush=True)\ninput()\n"
PARENT = (
    "import subprocess, sys, time\n"
    f"subprocess.run([sys.executable, '-c', {BURN!r}])\n"
    "print('alone', flush=True)\ntime.sleep(600)\n"
)


def test_time_of_a_child_that_has_ended_still_counts() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        cwd=PROJECT,
    ) as process:
        tree = Tree(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "burnt\n"
        assert len(tree.processes()) == 2
        most = tree.cpu_seconds()
        process.stdin.write("end\n")
        assert process.stdout.readline() == "alone\n"
        assert len(tree.processes()) == 1
        later = tree.cpu_seconds()
        with PeakMemory(tree) as memory:
            pass
        process.kill()

    assert later >= most > 0.1
    assert memory.megabytes > 1


def test_socket_copy_moves_every_byte() -> None:
    result = measure("1kb", "1 KB", records=5000, size=1000)

    assert result.bytes == 5_000_000
    assert result.wall_seconds > 0


def test_record_tells_its_age() -> None:
    mark, age_ms = read(record(COUNTED, 1_000_000_000), 1_002_500_000)

    assert (mark, age_ms) == (COUNTED, 2.5)


class Echo:
    """A server that gives back what it gets."""

    def __init__(self) -> None:
        self.server = socket.create_server((LOOPBACK, 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self.server.accept()
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)


@pytest.fixture
def relayed() -> socket.socket:
    echo, port = Echo(), free_port()
    loop = asyncio.new_event_loop()
    threading.Thread(
        target=lambda: loop.run_until_complete(relay(0.05, port, echo.port)), daemon=True
    ).start()
    # Asking whether it listens would use up the echo's one connection.
    connection: list[socket.socket] = []

    def connect() -> bool:
        try:
            connection.append(socket.create_connection((LOOPBACK, port), 10))
        except OSError:
            return False
        return True

    eventually(connect, "the relay listens")
    return connection[0]


def test_relay_delays_each_way_and_changes_nothing(relayed: socket.socket) -> None:
    with relayed:
        began = time.monotonic()
        relayed.sendall(b"there and back")
        answer = relayed.recv(100)
        took = time.monotonic() - began

    assert answer == b"there and back"
    assert took >= 0.1


def test_relay_passes_much_at_once_in_order(relayed: socket.socket) -> None:
    sent = os.urandom(3_000_000)
    with relayed:
        threading.Thread(target=relayed.sendall, args=(sent,), daemon=True).start()
        got = bytearray()
        while len(got) < len(sent) and (data := relayed.recv(1 << 20)):
            got += data

    assert bytes(got) == sent
