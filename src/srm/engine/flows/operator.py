"""Name of the operator for requests, pauses and approvals."""

from __future__ import annotations

import getpass
import os
import socket


def operator(host: str = "") -> str:
    """Return ``user@host``; in a container the user may have no name: then the user id."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{host or socket.gethostname()}"
