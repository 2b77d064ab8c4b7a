"""ACLs of the source on the target: MirrorMaker 2's rules, and more by choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from srm.domain.names.acls import Acl
from srm.engine.control.acl_sync import acls_to_copy
from srm_lab.testing.flows import flow_config

TOPICS = ("Pay", "Pay.eu", "Other")


def copied(acl: Acl, **settings: Any) -> list[Acl]:
    config = flow_config(topics=("Pay.*",), groups=("app.*",), **settings)
    return sorted(acls_to_copy([acl], TOPICS, config))


def on_topic(operation: str, **changes: Any) -> Acl:
    return replace(Acl("topic", "Pay", "User:app", operation), **changes)


@pytest.mark.parametrize(
    ("acl", "operation"),
    [
        (on_topic("Read"), "Read"),
        (on_topic("Describe"), "Describe"),
        (on_topic("AlterConfigs"), "AlterConfigs"),
        (on_topic("All"), "Read"),
        (on_topic("Write"), None),
        (on_topic("Write", permission="Deny"), "Write"),
        (on_topic("All", permission="Deny"), "All"),
        (on_topic("Read", host="10.0.0.1"), "Read"),
    ],
)
def test_a_literal_acl_of_a_topic_is_copied_by_the_rules_of_mirrormaker(
    acl: Acl, operation: str | None
) -> None:
    """Write stays, All becomes Read; denials and everything else are copied as they are."""
    expected = [] if operation is None else [replace(acl, name="P.Pay", operation=operation)]

    assert copied(acl) == expected


@pytest.mark.parametrize("name", ["Other", "B.Pay", "__consumer_offsets", "*"])
def test_acls_of_topics_that_are_not_copied_stay(name: str) -> None:
    assert copied(on_topic("Read", name=name)) == []


def test_an_acl_of_a_selected_topic_is_copied_before_that_topic_exists() -> None:
    assert copied(on_topic("Read", name="Pay.new"))[0].name == "P.Pay.new"


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [("Pay", "prefixed", "P.Pay"), ("*", "literal", "P."), ("Oth", "prefixed", None)],
)
def test_prefixes_are_copied_by_choice_where_a_selected_topic_has_them(
    name: str, pattern: Any, expected: str | None
) -> None:
    acl = on_topic("All", name=name, pattern=pattern)

    found = copied(acl, sync_acls_include=("prefixed",))

    assert copied(acl) == []
    assert [(one.name, one.pattern, one.operation) for one in found] == (
        [] if expected is None else [(expected, "prefixed", "Read")]
    )


@pytest.mark.parametrize(
    ("acl", "is_copied"),
    [
        (Acl("group", "app1", "User:app", "Read"), True),
        (Acl("group", "other", "User:app", "Read"), False),
        (Acl("group", "*", "User:app", "Read"), True),
        (Acl("transactional-id", "tx", "User:app", "Write"), True),
        (Acl("transactional-id", "srm-x", "User:srm", "Write"), False),
    ],
)
def test_groups_and_transactional_ids_are_copied_by_choice_under_their_names(
    acl: Acl, is_copied: bool
) -> None:
    assert copied(acl) == []
    assert copied(acl, sync_acls_include=("groups", "transactional-ids")) == [acl] * is_copied
