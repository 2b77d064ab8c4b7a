"""Finding Java: versions are read in every notation, and each failure is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from srm.errors import StackError
from srm_lab.stack.java import find_java, parse_version


def fake_java(folder: Path, banner: str) -> Path:
    """Write a program that behaves like ``java -version``, and return the JAVA_HOME it is in."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.2" 2024-01-16', 21),
        ("bash: java: something else", None),
    ],
)
def test_the_version_is_read_from_any_notation(banner: str, version: int | None) -> None:
    assert parse_version(banner) == version


def test_java_home_decides_even_when_the_path_has_another_java(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk21", 'openjdk version "21.0.2" 2024-01-16')
    other = fake_java(tmp_path / "jdk17", 'openjdk version "17.0.1" 2024-01-16')

    java = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})

    assert java.version == 21
    assert java.program == home / "bin" / "java"


def test_java_is_found_on_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk17", 'openjdk version "17.0.1" 2024-01-16')

    assert find_java({"PATH": str(home / "bin")}).program == home / "bin" / "java"


def test_missing_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="Java is missing: install a JDK 17"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"JAVA_HOME is .* does not exist: correct or unset it"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_too_old_a_java_is_refused_with_its_version(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk11", 'openjdk version "11.0.2" 2019-01-15')

    with pytest.raises(StackError, match="is Java 11, but Kafka and Spark need 17 or newer"):
        find_java({"JAVA_HOME": str(home)})


def test_a_program_that_is_no_java_is_refused(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "hello")

    with pytest.raises(StackError, match="names no version"):
        find_java({"JAVA_HOME": str(home)})


def test_a_java_that_fails_is_refused(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "broken")
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")

    with pytest.raises(StackError, match="does not run"):
        find_java({"JAVA_HOME": str(home)})
