"""ACLs of the source on the target: MirrorMaker 2's rules, and more by choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from srm.domain.names.policy import DefaultReplicationPolicy, IdentityReplicationPolicy
from srm.domain.names.rights import Acl
from srm.domain.names.topics import Flow
from srm.engine.control.topic_sync import TopicSyncPlan, plan_acls
from srm_lab.testing.flows import flow_config

NOTHING = TopicSyncPlan()

TOPICS = ("Pay", "Pay.eu", "Other")


def copied(acl: Acl, **settings: Any) -> list[Acl]:
    config = flow_config(topics=("Pay.*",), groups=("app.*",), **settings)
    return [*plan_acls(NOTHING, [acl], (), TOPICS, config).acls]


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
        (on_topic("Read", permission="Deny"), "Read"),
        (on_topic("Read", host="10.0.0.1"), "Read"),
    ],
)
def test_a_literal_acl_of_a_topic_is_copied_by_the_rules_of_mirrormaker(
    acl: Acl, operation: str | None
) -> None:
    """Write stays, All becomes Read; everything else is copied as it is."""
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


KEPT: Any = {"policy": IdentityReplicationPolicy(".", "P")}


@pytest.mark.parametrize(
    ("acl", "settings"),
    [
        (on_topic("Read"), KEPT),
        (on_topic("Read", name="*"), {**KEPT, "sync_acls_include": ("prefixed",)}),
        (Acl("group", "app1", "User:app", "Read"), {"sync_acls_include": ("groups",)}),
        (
            Acl("transactional-id", "tx", "User:app", "Write"),
            {"sync_acls_include": ("transactional-ids",)},
        ),
    ],
)
def test_where_both_flows_use_a_name_a_revoked_acl_does_not_come_back(
    acl: Acl, settings: dict[str, Any]
) -> None:
    """Neither side leads: a rule of one side was added there, or removed from the other."""
    config = flow_config(topics=("Pay.*",), groups=("app.*",), **settings)
    both = replace(config, both_enabled=True)

    [finding] = plan_acls(NOTHING, [acl], [], TOPICS, both).findings

    assert plan_acls(NOTHING, [acl], [], TOPICS, config).acls
    assert plan_acls(NOTHING, [acl], [], TOPICS, both).acls == ()
    assert plan_acls(NOTHING, [], [acl], TOPICS, both).surplus_acls == ()
    assert plan_acls(NOTHING, [acl], [acl], TOPICS, both).findings == ()
    assert finding.subject == acl.subject
    assert finding.text == f"{acl.rule} is on P only, both flows use this name"
    assert finding.action == "add it on B, or remove it on P"


def test_a_flow_that_renames_its_copies_leads_while_both_are_enabled() -> None:
    assert copied(on_topic("Read"), both_enabled=True)


@pytest.mark.parametrize(("name", "pattern"), [("Pay", "prefixed"), ("*", "literal")])
def test_a_pattern_gives_access_to_copies_alone_where_they_keep_their_names(
    name: str, pattern: Any
) -> None:
    """As a pattern it would cover topics of the target's own, and internal ones."""
    acl = on_topic("All", name=name, pattern=pattern)

    found = copied(acl, sync_acls_include=("prefixed",), **KEPT)

    assert found == [on_topic("Read", name=topic) for topic in ("Pay", "Pay.eu")]


@pytest.mark.parametrize(
    ("acl", "why"),
    [
        *(
            (on_topic(operation, principal="User:*", permission="Deny"), "it could stop srm there")
            for operation in ("All", "Alter")
        ),
        (on_topic("Write", permission="Deny"), "it could stop srm there"),
        (on_topic("Write", name="*", permission="Deny"), "it could stop srm there"),
        (Acl("transactional-id", "*", "User:app", "Write"), "it covers names of srm"),
        (
            Acl("transactional-id", "s", "User:app", "Write", pattern="prefixed"),
            "it covers names of srm",
        ),
        (
            Acl("transactional-id", "__", "User:app", "Describe", pattern="prefixed"),
            "it covers names of srm",
        ),
    ],
)
def test_a_rule_that_could_stop_the_replicator_is_a_finding_until_the_target_has_it(
    acl: Acl, why: str
) -> None:
    config = flow_config(topics=("Pay.*",), sync_acls_include=("prefixed", "transactional-ids"))
    found = plan_acls(NOTHING, [acl], [], TOPICS, config)

    [finding] = found.findings
    assert (found.acls, finding.text) == ((), f"{acl.rule} is on P only, {why}")
    assert plan_acls(NOTHING, [acl], [acl, *on_remote(acl)], TOPICS, config).findings == ()


def on_remote(acl: Acl) -> list[Acl]:
    return [replace(acl, name=f"P.{acl.name}")] if acl.resource == "topic" else []


def test_no_pattern_reaches_topics_of_srm() -> None:
    config = flow_config(
        topics=("Pay.*",), sync_acls_include=("prefixed",), policy=DefaultReplicationPolicy("-")
    )
    srm_first = replace(config, flow=Flow("srm", "B"))

    found = plan_acls(NOTHING, [on_topic("Read", name="*")], [], TOPICS, srm_first)

    assert (found.acls, len(found.findings)) == ((), 1)
