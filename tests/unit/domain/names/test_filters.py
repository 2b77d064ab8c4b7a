"""Which topics and groups a flow selects (MM2's DefaultTopicFilter and DefaultGroupFilter)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.names.policy import NameFilter, split_patterns
from srm.errors import ConfigError

NAMES = st.from_regex(r"[a-zA-Z0-9._\-]{1,20}", fullmatch=True)


@given(NAMES)
def test_an_empty_list_selects_nothing(name: str) -> None:
    assert not NameFilter().matches(name)


@given(NAMES)
def test_exclude_wins(name: str) -> None:
    assert NameFilter((".*",)).matches(name)
    assert not NameFilter((".*", "x"), ("nothing", ".*")).matches(name)


def test_names_are_told_from_patterns() -> None:
    chosen = NameFilter(("orders", "eu.orders", "a.*", "b|c", "hidden"), ("hid.*",))

    assert chosen.names == {"orders", "eu.orders"}


def test_a_pattern_has_to_match_the_whole_name() -> None:
    orders = NameFilter(("orders",))

    assert orders.matches("orders")
    assert not orders.matches("orders-eu")
    assert not orders.matches("my.orders")
    assert not NameFilter(("a|b",)).matches("ab")
    assert not orders.matches("orders\n")


def test_patterns_do_not_influence_each_other() -> None:
    """Joined with | as MM2 does it, a flag or a group of one pattern could reach the next."""
    mixed = NameFilter(("(?i)orders", "pay(ments)?"))

    assert mixed.matches("ORDERS")
    assert mixed.matches("payments")
    assert not mixed.matches("PAYMENTS")


@pytest.mark.parametrize("lists", [(("a(",), ()), (("a",), ("*x",))])
def test_a_pattern_that_does_not_compile_is_refused(
    lists: tuple[tuple[str, ...], tuple[str, ...]],
) -> None:
    with pytest.raises(ConfigError, match="is not a regular expression"):
        NameFilter(*lists)


def test_lists_are_split_at_commas_and_trimmed() -> None:
    assert split_patterns(" a , b.*,, c ") == ("a", "b.*", "c")
    assert split_patterns("") == ()


def test_the_pattern_that_decides_is_named_the_first_of_those_that_match() -> None:
    names = NameFilter(("a", "a.*", "b"), (".*c", "abc"))

    assert (names.included_by("abc"), names.excluded_by("abc")) == ("a.*", ".*c")
    assert (names.included_by("x"), names.excluded_by("x")) == (None, None)
