"""An archive of classes is written once, by whoever needs it first, and nobody depends on it."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from srm.errors import StackError
from srm_lab.stack.java import Java, archive_options, class_archive, write_archive

OPTION = "-XX:ArchiveClassesAtExit="


def obedient(folder: Path, option: str) -> None:
    assert folder.is_dir()
    Path(option.removeprefix(OPTION)).write_bytes(b"classes")


def never(_folder: Path, _option: str) -> None:
    raise AssertionError


def failing(error: Exception) -> Callable[[Path, str], None]:
    def run(_folder: Path, _option: str) -> None:
        raise error

    return run


def test_each_build_of_java_and_each_set_of_jars_has_an_archive_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SRM_CACHE_DIR", str(tmp_path / "cache"))
    jar, jars = tmp_path / "jars" / "kafka.jar", tmp_path / "jars"
    jars.mkdir()
    jar.touch()

    def kept(build: str = "17.0.15+6") -> Path:
        return class_archive("kafka-4.3.1", Java(Path("/usr/bin/java"), 17, build), jars)

    first = kept()
    assert first == kept()
    assert first.name.startswith("kafka-4.3.1-java-17.0.15+6-")
    assert first.parent == tmp_path / "cache"
    assert kept("21") != first

    os.utime(jar, ns=(0, 0))  # installed again
    assert kept() != first


def test_it_is_written_once_and_used_from_then_on(tmp_path: Path) -> None:
    archive = tmp_path / "cache" / "kafka.jsa"
    told: list[str] = []

    assert archive_options(archive) == ()
    write_archive(archive, obedient, told.append)
    write_archive(archive, never, told.append)

    assert archive_options(archive)[0] == f"-XX:SharedArchiveFile={archive}"
    assert len(told) == 1
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.parametrize(
    "run",
    [
        failing(StackError("no broker")),
        failing(subprocess.TimeoutExpired("spark-submit", 300)),
        lambda _folder, _option: None,
    ],
    ids=["does not start", "does not end", "writes nothing"],
)
def test_where_none_can_be_written_java_starts_without_one(
    run: Callable[[Path, str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    archive = tmp_path / "kafka.jsa"

    write_archive(archive, run)

    assert archive_options(archive) == ()
    assert list(tmp_path.iterdir()) == []
    assert "no archive of classes" in caplog.text


def test_a_new_one_ends_those_of_its_program_that_no_run_has_used_for_a_week(
    tmp_path: Path,
) -> None:
    names = "kafka-4.2-java-17-a.jsa", "kafka-4.3-java-17-b.jsa", "spark-4-java-17-c.jsa"
    unused, used, other = (tmp_path / name for name in names)
    for archive in (unused, used, other):
        archive.write_bytes(b"classes")
        os.utime(archive, (0, 0))
    archive_options(used)

    new = tmp_path / "kafka-4.3-java-21-d.jsa"
    write_archive(new, obedient)

    assert sorted(tmp_path.iterdir()) == [used, new, other]
