"""Words of commands that people copy into a shell; pure."""

from __future__ import annotations


def quoted(word: str) -> str:
    """Write a word so that a POSIX shell takes it as it is.

    Names of consumer groups may hold anything, and whoever may join a group chooses its name.
    """
    escaped = word.replace("'", "'\\''")
    return f"'{escaped}'"
