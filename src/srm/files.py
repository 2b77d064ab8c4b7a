"""Files whose errors are reported in one clear line, and generated documents."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from srm.errors import StackError, UsageError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Raise StackError for errors of the file system while ``where`` is written."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StackError(f"the disk is full while writing {where}: free some space") from error
        raise StackError(f"cannot write {where}: {error.strerror or error}") from error


def user_path(named: Path | str) -> Path:
    """Return the path that a user wrote, where ``~`` is a home; an unknown user's stays."""
    try:
        return Path(named).expanduser()
    except RuntimeError:
        return Path(named)


def file_stamp(path: Path) -> tuple[object, ...]:
    """Return a value that changes with a file, or those of a folder, without reading them."""
    try:
        found = path.stat()
        inside = sorted(path.iterdir()) if path.is_dir() else []
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_ino, found.st_size, *map(file_stamp, inside))


@contextmanager
def user_file(file: Path | str, use: Literal["read", "written"]) -> Iterator[None]:
    """Raise UsageError for errors of the file system with a file that a user named."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{file}: cannot be {use} ({error.strerror or error})") from None


def require_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before a command collects what is to be there."""
    with user_file(path, "written"):
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise OSError("no right to do it, or no such directory")


def is_file(path: Path) -> bool:
    """Return whether a file that a user named exists."""
    with user_file(path, "read"):
        return path.is_file()


def read_text(file: Path | str) -> str:
    """Read a file that a user named."""
    try:
        with user_file(file, "read"):
            return Path(file).read_text("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{file}: cannot be read (not UTF-8)") from None


def write_atomically(target: Path, content: bytes) -> None:
    """Write a file atomically: readers see the old content or all of the new one."""
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
