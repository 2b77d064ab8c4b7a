"""Precedence of the levels, as SRM documents it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.config.lines import Level, classify, resolve_client
from srm.config.loader import SettingsFile, understand
from srm.config.properties import (
    Property,
    parse_properties,
    parse_translated,
    resolve_references,
    with_overrides,
)
from srm.config.values import collect_problems
from srm.domain.names.topics import Flow

CLUSTERS = ("A", "B", "C")
FLOW = Flow("A", "B")
HEAD = "clusters = A, B, C\n"

LEVELS = {
    "": Level.GLOBAL,
    "workers.": Level.WORKERS,
    "connectors.": Level.CONNECTORS,
    "B.": Level.ALIAS,
    "A->B.": Level.FLOW,
}


def settings_file(text: str) -> SettingsFile:
    return understand(parse_properties(HEAD + text), "test.properties")


@given(
    levels=st.lists(st.sampled_from(sorted(LEVELS)), unique=True),
    noise=st.sets(st.sampled_from(["A.", "C.", "B->A.", "A->C.", "C->B."])),
    random=st.randoms(use_true_random=False),
)
def test_the_strongest_level_decides_whatever_the_order_of_lines(
    levels: list[str], noise: set[str], random: st.RandomObject
) -> None:
    """Lines of other clusters and flows never matter; without any line the default counts."""
    lines = [f"{prefix}tasks.max = {LEVELS[prefix] + 10}" for prefix in levels]
    lines += [f"{prefix}tasks.max = 99" for prefix in noise]
    random.shuffle(lines)

    resolved = settings_file("\n".join(lines)).resolve("tasks.max", FLOW)

    strongest = max((LEVELS[prefix] for prefix in levels), default=None)
    assert resolved.value == ("1" if strongest is None else str(strongest + 10))
    assert [candidate.level.split()[0] for candidate in resolved.trace] == [
        "default",
        *(LEVELS[prefix].name.lower() for prefix in sorted(levels, key=LEVELS.__getitem__)),
    ]


@given(
    written=st.sets(
        st.sampled_from(
            [
                "fetch.min.bytes",
                "consumer.fetch.min.bytes",
                "connectors.consumer.fetch.min.bytes",
                "A.fetch.min.bytes",
                "A.consumer.fetch.min.bytes",
                "A->B.consumer.fetch.min.bytes",
                "A->B.source.consumer.fetch.min.bytes",
            ]
        ),
        min_size=1,
    )
)
def test_client_settings_from_weak_to_strong(written: set[str]) -> None:
    """The list is in the order of strength; the strongest line that is there decides."""
    order = [
        "fetch.min.bytes",
        "consumer.fetch.min.bytes",
        "connectors.consumer.fetch.min.bytes",
        "A.fetch.min.bytes",
        "A.consumer.fetch.min.bytes",
        "A->B.consumer.fetch.min.bytes",
        "A->B.source.consumer.fetch.min.bytes",
    ]
    file = settings_file("\n".join(f"{key} = {order.index(key)}" for key in written))

    resolved = resolve_client("A", "consumer", file.settings, FLOW)["fetch.min.bytes"]

    assert resolved.value == str(max(order.index(key) for key in written))
    assert [c.key for c in resolved.trace] == sorted(written, key=order.index)


def test_the_later_of_two_equal_lines_decides() -> None:
    file = settings_file("tasks.max = 2\ntasks.max = 3\n")

    assert file.resolve("tasks.max", FLOW).value == "3"
    assert file.warnings == (
        "test.properties line 3: tasks.max was already set on line 2; this line counts",
    )


def test_a_cluster_line_reaches_the_flows_that_target_it() -> None:
    file = settings_file("B.tasks.max = 7\n")

    assert {str(f): file.resolve("tasks.max", f).value for f in file.flows} == {
        "A->B": "7",
        "C->B": "7",
        "A->C": "1",
        "B->A": "1",
        "B->C": "1",
        "C->A": "1",
    }


@pytest.mark.parametrize(
    ("line", "reaches"),
    [
        ("A->B.consumer.client.rack = x", {("A", "consumer")}),
        ("A->B.producer.client.rack = x", {("B", "producer")}),
        ("A->B.producer.override.client.rack = x", {("B", "producer")}),
        ("A->B.admin.client.rack = x", {("A", "admin"), ("B", "admin")}),
        ("A->B.target.consumer.client.rack = x", {("B", "consumer")}),
        (
            "A->B.target.cluster.client.rack = x",
            {("B", "admin"), ("B", "consumer"), ("B", "producer")},
        ),
        ("A->B.client.rack = x", set()),
        ("A.admin.client.rack = x", {("A", "admin")}),
        ("connectors.producer.override.client.rack = x", {("A", "producer"), ("B", "producer")}),
        ("A->C.consumer.client.rack = x", set()),
    ],
)
def test_a_line_reaches_the_clients_its_prefix_names(
    line: str, reaches: set[tuple[str, str]]
) -> None:
    file = settings_file(line)

    found = {
        (alias, kind)
        for alias in ("A", "B")
        for kind in ("admin", "consumer", "producer")
        if "client.rack" in resolve_client(alias, kind, file.settings, FLOW)  # type: ignore[arg-type]
    }
    assert found == reaches


def test_settings_of_consumers_do_not_reach_producers() -> None:
    file = settings_file("A.fetch.min.bytes = 5\n")

    assert "fetch.min.bytes" in resolve_client("A", "consumer", file.settings)
    assert "fetch.min.bytes" not in resolve_client("A", "producer", file.settings)


def test_keys_of_the_poll_and_admin_timeouts_are_not_client_settings() -> None:
    """MM2 has two keys of its own that look like client prefixes."""
    for key in ("consumer.poll.timeout.ms", "admin.timeout.ms"):
        setting = classify(Property(key, "1", 1), CLUSTERS)

        assert setting is not None
        assert not setting.is_client


def test_an_alias_named_like_the_start_of_a_key_hides_no_key() -> None:
    setting = classify(Property("topics.exclude", "x", 1), ("topics", "B"))

    assert setting is not None
    assert (setting.level, setting.name) == (Level.GLOBAL, "topics.exclude")


def test_source_and_target_are_usable_as_aliases() -> None:
    clusters = ("source", "target")
    own = classify(Property("source.security.protocol", "SSL", 1), clusters)
    flow = classify(Property("source->target", "true", 2), clusters)

    assert own is not None
    assert (own.level, own.scope, own.name) == (Level.ALIAS, "source", "security.protocol")
    assert flow is not None
    assert (flow.level, flow.name) == (Level.FLOW, "enabled")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            'A->B.topics = "orders", payments',
            'line N: A->B.topics: quotes belong to the entry "orde',
        ),
        ("A->B.groups = 'x'", "line N: A->B.groups: quotes belong to the entry 'x'; remove them"),
        ("A->B.topics = a;b", "line N: A->B.topics: ; belongs to the entry a;b; separate entries"),
        (
            "A.sasl.mechanism = PLAIN\nA.sasl.username = u",
            (
                "line N: A.sasl.mechanism, A.sasl.username: no effect without SASL in "
                "security.protocol; set A.security.protocol = SASL_SSL"
            ),
        ),
        (
            "A.security.protocol = SASL_PLAINTEXT\nA.ssl.ca.location = /ca.pem",
            "line N+1: A.ssl.ca.location: no effect without SSL in security.protocol; set A.sec",
        ),
        (
            "A->B.consumer.sasl.username = u",
            "line N: A->B.consumer.sasl.username: no effect without SASL in security.protocol; s",
        ),
    ],
)
def test_a_value_without_the_effect_that_was_meant_is_a_warning(lines: str, said: str) -> None:
    (warning,) = settings_file(lines).warnings

    first = HEAD.count("\n") + 1
    said = said.replace("N+1", str(first + 1)).replace("N", str(first), 1)
    assert warning.startswith(f"test.properties {said}")


@pytest.mark.parametrize(
    "lines",
    [
        "sasl.mechanism = PLAIN\nsasl.username = u\nA.security.protocol = SASL_SSL",
        "A.sasl.username = u\nA->B.consumer.security.protocol = SASL_SSL",
        "B.sasl.username = u\nA->B.target.producer.security.protocol = SASL_SSL",
        "A.ssl.ca.location = /ca.pem\nA.producer.security.protocol = SSL",
    ],
)
def test_a_login_is_used_if_one_cluster_kind_of_client_or_flow_uses_it(lines: str) -> None:
    assert settings_file(lines).warnings == ()


@pytest.mark.parametrize(
    "lines",
    [
        "config.providers = env\nA.security.protocol = ${env:NOT_SET}\nA.sasl.username = u",
        "A.airflow.connection = a\nA.ssl.ca.location = /ca.pem",
    ],
)
def test_a_protocol_that_is_unknown_here_gives_no_warning(lines: str) -> None:
    with collect_problems() as problems:
        resolved = resolve_references(parse_properties(HEAD + lines), "test.properties")
        file = understand(resolved, "test.properties")

    assert len(problems) == 1
    assert file.warnings == ()


def test_a_warning_names_no_line_that_its_file_does_not_have() -> None:
    text = f"{HEAD}A.sasl.username = u"
    (translated,) = understand(parse_translated(text), "mm2.json").warnings
    written = with_overrides(parse_properties(HEAD), {"A.sasl.username": "u"})
    (override,) = understand(written, "test.properties").warnings

    assert translated.startswith("mm2.json: A.sasl.username: no effect")
    assert override.startswith("override: A.sasl.username: no effect")
