"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import threading
from pathlib import Path
from typing import Final

import psutil

from srm.errors import StackError

LOOPBACK: Final = "127.0.0.1"

# Below the range from which Linux and macOS take the local ports of outgoing connections: a port
# from that range might be in use by some client just when a killed broker wants it back.
_FIRST: Final = 20_000
_LAST: Final = 32_000
BLOCK: Final = 60
"""Ports that one process takes in turn: a port that is free now is often wanted only seconds later,
and a broker that is down wants its own one back."""


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the JVM does: connections of an earlier server in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


class PortBlock:
    """Consecutive ports that no other process of this user chooses from while this one lives."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.first, self._lock = _lock_block()
        self._taken = 0

    def next(self) -> int | None:
        """Return a port that is free now, the least recently requested one; None if none."""
        for _ in range(BLOCK):
            port = self.first + self._taken % BLOCK
            self._taken += 1
            if is_free(port):
                return port
        return None


def _lock_block() -> tuple[int, int | None]:
    """Return the first port of a block, and the lock that ends with this process.

    Where every block is taken, or no lock can be had, it is any of them, without a lock.
    """
    firsts = list(range(_FIRST, _LAST - BLOCK + 2, BLOCK))
    random.SystemRandom().shuffle(firsts)
    folder = Path(tempfile.gettempdir()) / f"srm-ports-{os.getuid()}"
    for first in firsts:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(folder / str(first), os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            break
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            return first, lock
    return firsts[0], None


_blocks: list[PortBlock] = []
_choosing = threading.Lock()


def free_port() -> int:
    """Return a port that is free now, and that other processes of this user do not choose soon.

    Raises:
        StackError: none was found.
    """
    with _choosing:
        # A fork has the block of its parent. One that is full, of ours or of others, is left.
        if _blocks and _blocks[-1].owner == os.getpid() and (port := _blocks[-1].next()):
            return port
        _blocks.append(PortBlock())
        port = _blocks[-1].next()
    if port is None:
        raise StackError(f"no free TCP port between {_FIRST} and {_LAST} on {LOOPBACK}")
    return port


def require_free(port: int, purpose: str) -> None:
    """Check that the port is free.

    Raises:
            StackError: it is taken; the message names the process, as far as the system shows it.
    """
    if not is_free(port):
        holder = _holder(port)
        raise StackError(
            f"port {port}, needed by {purpose}, is taken{f' by {holder}' if holder else ''}: "
            "stop that program, or choose another folder with --home to get other ports"
        )


def answers(port: int) -> bool:
    """Return whether something accepts connections on the port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


def _holder(port: int) -> str | None:
    try:
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid is not None
            ):
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        return None
    return None
