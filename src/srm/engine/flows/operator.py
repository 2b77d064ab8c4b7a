"""Who runs this: the name that goes into requests, pauses and approvals."""

from __future__ import annotations

import getpass
import os
import socket


def operator(host: str = "") -> str:
    """Return ``user@host``; a number where the user has no name.

    In a container a user may have none: no reason to stop on the worst day.

    Args:
        host: this machine's name, where the caller knows it already.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{host or socket.gethostname()}"
