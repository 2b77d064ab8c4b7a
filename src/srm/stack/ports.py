"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import random
import socket
from typing import Final

import psutil

from srm.errors import StackError

LOOPBACK: Final = "127.0.0.1"

# Below the range from which Linux and macOS take the local ports of outgoing connections: a port
# from that range might be in use by some client just when a killed broker wants it back.
_FIRST: Final = 20_000
_LAST: Final = 32_000
_ATTEMPTS: Final = 200


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the JVM does: connections of an earlier server in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """Return a port that is free now.

    Raises:
        StackError: none was found.
    """
    for _ in range(_ATTEMPTS):
        port = random.SystemRandom().randint(_FIRST, _LAST)
        if is_free(port):
            return port
    raise StackError(f"no free TCP port between {_FIRST} and {_LAST} on {LOOPBACK}")


def require_free(port: int, purpose: str) -> None:
    """Check that the port is free.

    Raises:
        StackError: it is taken; the message names who holds it, as far as the system tells.
    """
    if not is_free(port):
        holder = _holder(port)
        raise StackError(
            f"port {port}, needed by {purpose}, is taken{f' by {holder}' if holder else ''}: "
            "stop that program, or choose another folder with --home to get other ports"
        )


def answers(port: int) -> bool:
    """Tell whether something accepts connections on the port."""
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
