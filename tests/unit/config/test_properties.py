"""Reading properties files."""

from __future__ import annotations

from pathlib import Path

import pytest

from srm.config.properties import (
    Property,
    parse_properties,
    read_properties,
    with_overrides,
)
from srm.errors import ConfigError


def test_line_numbers_count_comments_blank_lines_and_continuations() -> None:
    text = "# head\n\na = 1\nb = x,\\\n    y\n! note\nc:3\n"

    assert parse_properties(text) == (
        Property("a", "1", 3),
        Property("b", "x,y", 4),
        Property("c", "3", 7),
    )


def test_a_flow_key_is_one_key_and_its_value_may_hold_equal_signs() -> None:
    assert parse_properties("A->B.enabled = true\r\nx=p=a\r\n") == (
        Property("A->B.enabled", "true", 1),
        Property("x", "p=a", 2),
    )


def test_a_single_backslash_is_dropped_as_java_does() -> None:
    assert parse_properties(r"x = a\.b" + "\n" + r"y = a\\.b")[0].value == "a.b"
    assert parse_properties(r"y = a\\.b")[0].value == r"a\.b"


def test_a_broken_unicode_escape_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"
    file.write_text("a = 1\nb = \\u12\n")

    with pytest.raises(ConfigError, match=r"srm\.properties line 2"):
        read_properties(file)


def test_utf8_is_read_and_latin1_is_still_understood(tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"
    file.write_bytes("﻿a = é".encode())
    assert read_properties(file)[0] == Property("a", "é", 1)

    file.write_bytes("a = é".encode("latin-1"))
    assert read_properties(file)[0].value == "é"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: cannot be read \(No such file"):
        read_properties(tmp_path / "none.properties")


def test_an_override_replaces_the_line_and_says_so() -> None:
    lines = with_overrides((Property("a", "1", 1), Property("b", "2", 2)), {"a": " 9 ", "c": "3"})

    assert lines == (Property("b", "2", 2), Property("a", "9"), Property("c", "3"))
    assert lines[1].at("f.properties") == "override"
    assert lines[0].at("f.properties") == "f.properties line 2"
