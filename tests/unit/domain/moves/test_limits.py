"""What clients of a source may bring is compared with what the target admits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srm.domain.moves.limits import LIMITS_UNKNOWN, TARGET_LIMITS, Limits, target_limits

CONFIGS = {
    "group.max.session.timeout.ms": "1800000",
    "group.min.session.timeout.ms": "6000",
    "group.max.size": "2147483647",
    "group.consumer.max.size": "2147483647",
    "group.consumer.min.session.timeout.ms": "45000",
    "group.consumer.max.session.timeout.ms": "60000",
    "transaction.max.timeout.ms": "900000",
    "offsets.retention.minutes": "10080",
    "message.max.bytes": "1048588",
}
KINDS = frozenset({"classic", "consumer"})
P = Limits("P", CONFIGS, KINDS, {"Payments": 1_048_588}, {})
B = replace(P, alias="B")
GROUPS = {"classic": ["monthly"], "consumer": ["modern"]}


def texts(source: Limits | None, target: Limits, groups=GROUPS) -> list[str]:
    found = [*target_limits(source, target, groups)]
    assert {one.id for one in found} <= {TARGET_LIMITS, LIMITS_UNKNOWN}
    assert not any(one.blocks for one in found)
    return [one.text for one in found]


def with_config(limits: Limits, key: str, value: str) -> Limits:
    return replace(limits, configs={**limits.configs, key: value})


def test_alike_clusters_have_no_finding() -> None:
    assert texts(P, B) == []


@pytest.mark.parametrize(
    ("key", "refuses", "admits"),
    [
        ("group.max.session.timeout.ms", "10000", "1900000"),
        ("group.min.session.timeout.ms", "7000", "5000"),
        ("group.max.size", "1", "2147483647"),
        ("group.consumer.max.size", "1", "2147483647"),
        ("group.consumer.max.session.timeout.ms", "50000", "70000"),
        ("group.consumer.min.session.timeout.ms", "46000", "1000"),
        ("transaction.max.timeout.ms", "10000", "1000000"),
        ("offsets.retention.minutes", "1", "20000"),
    ],
)
def test_a_limit_of_the_target_is_named_if_it_is_narrower(
    key: str, refuses: str, admits: str
) -> None:
    [text] = texts(P, with_config(B, key, refuses))

    assert text.startswith(f"{key} is {refuses} on B and {CONFIGS[key]} on P: ")
    assert texts(P, with_config(B, key, admits)) == []


def test_limits_of_a_protocol_count_where_a_group_has_it() -> None:
    narrow = with_config(B, "group.consumer.max.size", "1")

    assert texts(P, narrow, {"classic": ["monthly"]}) == []


@pytest.mark.parametrize("key", sorted(CONFIGS))
def test_brokers_that_lack_a_setting_are_compared_in_the_others(key: str) -> None:
    without = {name: value for name, value in CONFIGS.items() if name != key}

    assert texts(replace(P, configs=without), B) == []
    assert texts(P, replace(B, configs=without)) == []


def test_groups_whose_protocol_the_target_does_not_admit_are_named() -> None:
    classic_only = replace(B, kinds=frozenset({"classic"}))
    [found] = target_limits(P, classic_only, GROUPS)

    assert found.text.startswith("1 group (modern) with the consumer group protocol, which B does")
    assert "feature group.version" in found.action
    assert texts(P, classic_only, {"classic": ["monthly"], "other": ["connect"]}) == []


def test_a_topic_that_takes_smaller_records_on_the_target_is_named() -> None:
    [text] = texts(P, replace(B, sizes={"Payments": 1000}))
    [by_broker] = texts(P, with_config(replace(B, sizes={}), "message.max.bytes", "900"))

    assert text.startswith("max.message.bytes of topic Payments is 1000 on B and 1048588 on P")
    assert by_broker.startswith("max.message.bytes of topic Payments is 900 on B")


def test_quotas_that_are_smaller_on_the_target_are_named() -> None:
    ada = (("user", "ada"),)
    limited = replace(B, quotas={ada: {"producer_byte_rate": 10.0}})

    [text] = texts(P, limited)
    assert (
        text
        == "quota producer_byte_rate of user ada is 10 on B and none on P: clients are throttled"
    )
    assert texts(replace(P, quotas={ada: {"producer_byte_rate": 10.0}}), limited) == []
    assert texts(replace(P, quotas=None), limited) == []


def test_of_a_lost_source_clients_bring_their_defaults() -> None:
    narrow = with_config(
        with_config(B, "transaction.max.timeout.ms", "10000"), "group.max.size", "1"
    )

    [text] = texts(None, narrow, {"classic": []})

    assert text.startswith("transaction.max.timeout.ms is 10000 on B and 60000 by default in")


@pytest.mark.parametrize("side", ["P", "B"])
def test_a_missing_right_is_one_note(side: str) -> None:
    source, target = (
        replace(one, configs={}, quotas=None) if one.alias == side else one for one in (P, B)
    )

    [text] = texts(source, target)

    assert text.startswith(f"limits of {side} for clients are not compared: srm lacks Describe")
