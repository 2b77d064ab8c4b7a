"""Java's regular expressions mean what Java makes of them, or are refused with their place."""

from __future__ import annotations

import re

import pytest

from srm.domain.names.java_pattern import parse
from srm.domain.names.policy import compile_pattern
from srm.domain.names.record_headers import Provenance, parse_overrides
from srm.engine.control.control_lists import ListChange, _denying
from srm.errors import ConfigError, UsageError

NAMES = (
    *("a", "x", "b-", "pay", "PAY", "pay1", "pay-7", "secret-7", "orders.eu", "orders-eu"),
    *("\xe9", "\xc9", "a b", "a\n", "\xb2", "", "\u212a", "a-c", "a]", "\u2167"),
)
JAVA_17 = {
    r"[a-z&&[^x]]+": {"a", "pay"},
    r"[a-z&&[^x]&&[^p]]+": {"a"},
    r"[a-z--[x]]+": {"a", "x", "b-", "pay", "orders-eu", "a-c"},
    r"[a-c[x-z]]+": {"a", "x"},
    r"[^a-c[x-z]]+": {"PAY", "orders.eu", "orders-eu", "\xe9", "\xc9", "\xb2", "\u212a", "\u2167"},
    r"[^a-z&&[^x]]+": {"x", "PAY", "\xe9", "\xc9", "\xb2", "\u212a", "\u2167"},
    r"[a-z&&[a-p]x]+": {"a", "x"},
    r"[]a]+": {"a", "a]"},
    r"[\Qa-c\E]+": {"a", "a-c"},
    r"[\d-z]+": set(),
    r"[&a]+": {"a"},
    r"\Qorders.eu\E": {"orders.eu"},
    r"\Qorders.\E.*": {"orders.eu"},
    r"\Qpay": {"pay"},
    r"a++a": set(),
    r"[a-z]++\d": {"pay1"},
    r"(?>pay|p)ay.*": set(),
    r"(?>p|pay)[-0-9]+": set(),
    r"\p{Alpha}+": {"a", "x", "pay", "PAY"},
    r"\p{Lower}+\d": {"pay1"},
    r"\pL+": {"a", "x", "pay", "PAY", "\xe9", "\xc9", "\u212a"},
    r"\p{L}+": {"a", "x", "pay", "PAY", "\xe9", "\xc9", "\u212a"},
    r"\P{L}+": {"\xb2", "\u2167"},
    r"\p{IsLu}+": {"PAY", "\xc9", "\u212a"},
    r"\p{N}+": {"\xb2", "\u2167"},
    r"(?i)\p{Lower}+": {"a", "x", "pay", "PAY"},
    r"\p{Punct}": set(),
    r"\w+": {"a", "x", "pay", "PAY", "pay1"},
    r"\W": {"\xe9", "\xc9", "\xb2", "\u212a", "\u2167"},
    r"\d+": set(),
    r"\S+\h\S+": {"a b"},
    r"pay\0061": {"pay1"},
    r"pay\x31": {"pay1"},
    r"pay\u0031": {"pay1"},
    r"pay\x{31}": {"pay1"},
    r"a\x0a": {"a\n"},
    r"(?i)pay.*": {"pay", "PAY", "pay1", "pay-7"},
    r"p(?i)a|X|k": {"x"},
    r"(?:(?i)p)ay": {"pay"},
    r"(?i:P)ay": {"pay"},
    "(?i)\xe9": {"\xe9"},
    r"(?i)[^k]": {"a", "x", "\xe9", "\xc9", "\xb2", "\u212a", "\u2167"},
    r"(?s)a.": {"a\n", "a]"},
    r"a.": {"a]"},
    r"a$.?": {"a"},
    r"^pay$": {"pay"},
    r"\Apay\z": {"pay"},
    r"a\Z.*": {"a"},
    r"\Gpay": {"pay"},
    r"(?<name>pay)-\d": {"pay-7"},
    r"(?!secret).*-\d": {"pay-7"},
    r".*(?<!-eu)": {
        "a",
        "x",
        "b-",
        "pay",
        "PAY",
        "pay1",
        "pay-7",
        "secret-7",
        "orders.eu",
        "\xe9",
        "\xc9",
        "a b",
        "\xb2",
        "",
        "\u212a",
        "a-c",
        "a]",
        "\u2167",
    },
    r"\bpay\b.*": {"pay", "pay-7"},
    r"\B": {""},
    r"pay{1}": {"pay"},
    r"pa{0,2}y": {"pay"},
    r"3}|pay": {"pay"},
    r"a\]|a]": {"a]"},
    r"orders[.]eu": {"orders.eu"},
    r"orders[.-]eu|a": {"a", "orders.eu", "orders-eu"},
    r"|pay": {"pay", ""},
}
"""Patterns, and which of the names ``Pattern.matches`` of JDK 17 accepts."""


@pytest.mark.filterwarnings("error::FutureWarning")  # of sets in sets, which reached operators
@pytest.mark.parametrize("pattern", JAVA_17)
def test_a_pattern_matches_what_it_matches_in_java(pattern: str) -> None:
    compile_pattern.cache_clear()
    re.purge()
    assert {name for name in NAMES if compile_pattern(pattern).fullmatch(name)} == JAVA_17[pattern]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("secret-[0-9]{1", "unclosed { at character 13; close it; a comma ends an entry, so write"),
        ("pay(a", "unclosed ( at character 4; close it; a comma ends an entry, so write (a,b) as"),
        ("pay[a", "unclosed [ at character 4; close it; a comma ends an entry, so write [a,b] as"),
        ("pay)", "unmatched ) at character 4"),
        ("x{a}", r"{ without a number at character 2; write {3}, or \{"),
        ("x{3,1}", "3 is above 1 at character 2"),
        ("{3}", "{ without a number at character 1"),
        ("*x", "lone * at character 1"),
        ("a**", "second repetition * at character 3"),
        ("^*a", "repeated nothing, * at character 2"),
        ("[z-a]", "z-a at character 2"),
        ("[a&&]", "&& without two sides at character 3"),
        (r"(a)(b)\2", r"\2 at character 7; write the repeated text"),
        (r"(?<n>a)\k<n>", r"\k at character 8"),
        ("(?P<n>a)", "(?P at character 1"),
        ("(?x)a", "(?x at character 1; the flags are i and s"),
        (r"\p{IsLatin}+", r"\p{IsLatin} at character 1; write the characters"),
        (r"a\R", r"\R at character 2"),
        (r"a\y", r"\y at character 2; remove the backslash"),
        (r"\u12", r"\u without a character's number at character 1"),
        (r"\08", r"\0 without a character's number at character 1"),
        ("a\\", "lone \\ at character 2"),
        ("(?<=a+)b", "look-behind"),
        ("a{99999999999}", "too large"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_its_place(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match="is not a regular expression.*" + re.escape(message)):
        compile_pattern(pattern)


def test_a_list_of_srm_control_takes_no_half_of_an_entry() -> None:
    with pytest.raises(UsageError, match=r"unclosed { at character 13.*nothing was changed"):
        ListChange(add_deny=("secret-[0-9]{1", "3}"))


def test_overrides_of_provenance_are_matched_as_in_java() -> None:
    (override,) = parse_overrides(r"\p{Alpha}+,[a-z&&[^x]]+,-")

    assert override.matches(Provenance("abc", "pay", 1))
    assert not override.matches(Provenance("abc", "xx", 1))


def test_a_denied_name_is_left_out_of_a_pattern_with_flags() -> None:
    pattern = _denying("(?i)pay.*|x", ("PAY", "(?i)PAY1"))

    assert [name for name in NAMES if compile_pattern(pattern).fullmatch(name)] == [
        *("x", "pay", "pay-7"),
    ]


@pytest.mark.parametrize(
    ("pattern", "prefix", "is_literal"),
    [
        ("orders[.]eu.*", "orders.eu", False),
        (r"orders\.eu", "orders.eu", True),
        (r"^\Qorders.\E[a-z]+$", "orders.", False),
        ("(?!x)pay-?", "pay", False),
        ("a|b", "", False),
        ("(?i)pay", "", False),
        ("pay(a|b)c", "pay", False),
        (".*x", "", False),
    ],
)
def test_each_name_that_a_pattern_matches_has_its_prefix(
    pattern: str, prefix: str, is_literal: bool
) -> None:
    found = parse(pattern)

    assert (found.prefix, found.is_literal) == (prefix, is_literal)
