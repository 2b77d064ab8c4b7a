"""Minimum cost of moving bytes: one process receives from a socket and sends to another.

    python -m bench.socket_copy BYTES

It prints the CPU and wall seconds of the copying process; feeder and taker are other processes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from bench.clusters import PROJECT
from bench.errors import BenchError
from bench.results import Result, with_rates

_BUFFER: Final = 1 << 20
_SOCKET_BUFFER: Final = 1 << 22
_LIMIT_S: Final = 300.0


def copy_bytes(source: socket.socket, target: socket.socket) -> int:
    """Forward all bytes until the source ends; return their number."""
    buffer = memoryview(bytearray(_BUFFER))
    total = 0
    while count := source.recv_into(buffer):
        target.sendall(buffer[:count])
        total += count
    return total


def _pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection over the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    for end in (near, far):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    return near, far


def _feed(end: socket.socket, total: int) -> None:
    data = memoryview(os.urandom(_BUFFER))
    while total > 0:
        total -= end.send(data[: min(total, _BUFFER)])


def _take(end: socket.socket) -> None:
    buffer = bytearray(_BUFFER)
    while end.recv_into(buffer):
        pass


def _child(work: Callable[[], None], own: socket.socket, ends: Sequence[socket.socket]) -> int:
    """Fork a process that works on one end of a connection; return its id."""
    pid = os.fork()
    if pid == 0:
        for end in ends:
            if end is not own:
                end.close()
        work()
        own.close()
        os._exit(0)
    return pid


def main() -> None:
    """Copy the given number of bytes between two forked processes."""
    total = int(sys.argv[1])
    feed, source = _pair()
    target, take = _pair()
    ends = (feed, source, target, take)
    children = [
        _child(partial(_feed, feed, total), feed, ends),
        _child(partial(_take, take), take, ends),
    ]
    feed.close()
    take.close()
    began, before = time.monotonic(), time.process_time()
    copied = copy_bytes(source, target)
    figures = {
        "bytes": copied,
        "cpu_seconds": time.process_time() - before,
        "wall_seconds": time.monotonic() - began,
    }
    target.close()
    for pid in children:
        os.waitpid(pid, 0)
    sys.stdout.write(json.dumps(figures) + "\n")


def measure(case: str, title: str, records: int, size: int) -> Result:
    """Copy the bytes of a case's records."""
    command = [sys.executable, "-m", "bench.socket_copy", str(records * size)]
    done = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if done.returncode:
        raise BenchError(f"socket-copy failed: {done.stderr.strip().splitlines()[-1:]}")
    return with_rates(
        Result(
            case, "socket-copy", title, "socket-copy", records=records, **json.loads(done.stdout)
        )
    )


if __name__ == "__main__":
    main()
