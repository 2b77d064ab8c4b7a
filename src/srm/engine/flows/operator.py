"""Name of the operator for requests, pauses and approvals."""

from __future__ import annotations

import getpass
import os
import socket


def operator(host: str = "") -> str:
    """Return ``user@host``; the user id where the user has no name.

    A user in a container may have no name; that must not stop an operation.

    ``host``: this machine's name, if known.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{host or socket.gethostname()}"
