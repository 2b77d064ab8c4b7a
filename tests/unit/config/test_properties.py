"""Reading properties files."""

from __future__ import annotations

from pathlib import Path

import pytest

from srm.config.properties import (
    Property,
    literal_warnings,
    parse_properties,
    read_properties,
    resolve_references,
    with_overrides,
)
from srm.config.values import collect_problems
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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_refused_by_name(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "srm.properties"
    path.write_bytes("clusters = P, B".encode(encoding))

    with pytest.raises(
        ConfigError, match=r"srm\.properties: not UTF-8 but perhaps UTF-16; save it"
    ):
        read_properties(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: cannot be read \(No such file"):
        read_properties(tmp_path / "none.properties")


def test_an_override_replaces_the_line_and_says_so() -> None:
    lines = with_overrides((Property("a", "1", 1), Property("b", "2", 2)), {"a": " 9 ", "c": "3"})

    assert lines == (Property("b", "2", 2), Property("a", "9"), Property("c", "3"))
    assert lines[1].at("f.properties") == "override"
    assert lines[0].at("f.properties") == "f.properties line 2"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("topics = ${env:TOPICS}", "${env:...} is not replaced; add config.providers = env"),
        ("P.sasl.password = ${file:/x:y}", "${file:...} is not replaced; add config.providers"),
        ("P.sasl.password = $PW", "a shell's variables are not replaced; use ${env:NAME}"),
        ("P.sasl.password = ${PW}", "a shell's variables are not replaced"),
        ('P.sasl.jaas.config = X required password="$PW";', "a shell's variables"),
        ("P.bootstrap.servers = $HOST:9092", "a shell's variables"),
        ("topics = orders # of sales", "# and what follows belong to the value; write a comment"),
        ("tasks.max = 4 #four", "# and what follows belong to the value"),
        (
            "topics = ${vault:a:b}",
            (
                "${vault:...} is not replaced; srm has no provider of this name; use one of file, "
                "directory, env, and config.providers = NAME"
            ),
        ),
        (
            "config.providers.x.class=a.FileConfigProvider\ntopics = ${x:a:b}",
            "${x:...} is not replaced; add config.providers = x",
        ),
        (
            r"topics = order-\d+, a\.b, c\\.d",
            (
                r"Java drops the backslash of \d, \. and reads order-d+, a.b, c\.d; to keep it "
                r"write \\d"
            ),
        ),
        (r"P.sasl.password = PW\d", "Java drops each single backslash; to keep one write \\\\"),
    ],
)
def test_a_value_that_was_meant_otherwise_is_a_warning(line: str, why: str) -> None:
    (found,) = literal_warnings(parse_properties(line), "srm.properties")

    *before, last = line.splitlines()
    key = last.partition(" ")[0]
    assert found.startswith(f"srm.properties line {len(before) + 1}: {key}: {why}")
    assert "PW" not in found
    assert "/x" not in found


@pytest.mark.parametrize(
    "line",
    [
        "config.providers = env\ntopics = ${env:TOPICS}",
        "topics = ^orders$|pay$, a#b",
        r"topics = a\\.b, c\ d\u0041\=" + "\\\n  , e",
        "P.sasl.password = a$PW #1!",
        'P.sasl.jaas.config = X required username="u" password="a # b \\\\" # c";',
        "P->B.failover.command = sh -c 'echo $HOME # done'",
        "spark.executor.extraJavaOptions = -Dx=${env:HOME}",
    ],
)
def test_other_values_with_these_signs_are_none(line: str) -> None:
    assert [*literal_warnings(parse_properties(line), "srm.properties")] == []


@pytest.mark.parametrize(
    ("line", "shown"), [(r"P.client.id = C:\users\x", r"\users"), (r"P.sasl.password=a\users", "")]
)
def test_an_invalid_escape_is_one_problem_and_shows_nothing_of_a_secret(
    line: str, shown: str
) -> None:
    with collect_problems() as problems:
        lines = parse_properties(line, "srm.properties")

    escape = f" {shown}" if shown else ""
    assert [str(one) for one in problems] == [
        f"srm.properties line 1: invalid escape{escape}; write \\u with four hexadecimal digits"
    ]
    assert [*literal_warnings(lines, "srm.properties")] == []


@pytest.mark.parametrize("secret", ["$PW", "${vault:a:b}", "a # b", "${PW}"])
def test_a_value_that_is_kept_elsewhere_may_have_any_sign(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("SECRET", secret)
    text = "config.providers = env\nP.sasl.password = ${env:SECRET}\nP.airflow.connection = p"

    lines = resolve_references(
        parse_properties(text), "srm.properties", lambda _: {"sasl.username": secret}
    )

    assert [line.value for line in lines[1:]] == [secret, secret]
    assert [*literal_warnings(lines, "srm.properties")] == []


def test_of_two_references_the_one_without_its_provider_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAME", "srm")
    text = 'config.providers = env\nP.sasl.jaas.config = X a="${env:NAME}" b="${file:/x:y}";'

    lines = resolve_references(parse_properties(text), "srm.properties")

    (found,) = literal_warnings(lines, "srm.properties")
    assert "${file:...} is not replaced; add config.providers = env, file" in found
