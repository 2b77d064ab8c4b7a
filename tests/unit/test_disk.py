"""A full disk is one clear line, and a file is written whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from srm.errors import StackError
from srm.files import disk_errors, write_atomically
from srm_lab.stack.jars import require_free_space


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_full_disk_is_named_as_such() -> None:
    def fill() -> None:
        with Path("/dev/full").open("wb") as file:
            file.write(b"x" * 100_000)

    with (
        pytest.raises(StackError, match="the disk is full while writing /dev/full: free some"),
        disk_errors(Path("/dev/full")),
    ):
        fill()


def test_an_exhausted_quota_is_a_full_disk_too(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="the disk is full"), disk_errors(tmp_path):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_other_refusals_keep_their_reason(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="Is a directory"), disk_errors(tmp_path):
        tmp_path.write_text("x")


def test_too_little_space_says_how_much_is_needed_and_where(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"the disk is full: \d+ MB are free at .*, 10\d+ MB are"):
        require_free_space(tmp_path / "not" / "yet", 10**18)


def test_enough_space_is_no_error(tmp_path: Path) -> None:
    require_free_space(tmp_path / "not" / "yet", 1)

    assert list(tmp_path.iterdir()) == []


def test_writing_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "file"
    write_atomically(target, b"old")
    write_atomically(target, b"new")

    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]
