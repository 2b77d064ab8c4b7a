"""Policies and filters that a properties file names, ours and those of users."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.suffix_policy import SUFFIX_POLICY, SuffixPolicy

from srm.config.loader import load_config
from srm.config.model import Config
from srm.config.values import filter_of, policy_of
from srm.domain.names.policy import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    NameFilter,
    ReplicationPolicy,
    check_filter,
    check_policy,
)
from srm.domain.names.topics import Flow
from srm.errors import ConfigError

FILE = "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"


class Even(NameFilter):
    """Filter of names of an even length."""

    def matches(self, name: str) -> bool:
        return NameFilter.matches(self, name) and len(name) % 2 == 0


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "com.cloudera.dim.mirror.IdentityReplicationPolicy",
        "IdentityReplicationPolicy",
    ],
)
def test_java_names_of_known_policies_are_understood(name: str) -> None:
    assert policy_of(name, "P", ".") == IdentityReplicationPolicy(".", "P")
    default = name.replace("Identity", "Default")
    assert policy_of(default, "P", "_") == DefaultReplicationPolicy("_")


def test_a_flow_has_the_policy_and_the_filters_that_its_lines_name(tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"
    lines = (
        "topics = .*",
        "groups = .*",
        "replication.policy.class = IdentityReplicationPolicy",
        f"P->B.replication.policy.class = {SUFFIX_POLICY}",
        f"P->B.topic.filter.class = {__name__}:Even",
        f"P->B.group.filter.class = {__name__}:Even",
        f"P->B.config.property.filter.class = {__name__}:Even",
    )
    file.write_text(FILE + "\n".join(lines) + "\n")

    config = load_config(file)

    there, back = config.flow(Flow("P", "B")), config.flow(Flow("B", "P"))
    assert there.names.remote("Payments") == "Payments-from-P"
    assert there.names.original("Payments-from-P") == "Payments"
    assert there.names.select(["odd", "even"]) == ("even",)
    assert there.names.refusal("odd") == "filtered"
    assert there.group_names.matches("even")
    assert not there.group_names.matches("odd")
    assert there.config_property_filter is Even
    assert back.names.remote("Payments") == "Payments"
    assert back.names.select(["odd"]) == ("odd",)


@pytest.mark.parametrize(
    ("separator", "here", "there"),
    [("-", "us-east", "eu-west"), ("_", "us_east", "eu"), ("__", "us_", "eu__x")],
)
def test_names_lead_back_where_aliases_contain_the_separator(
    tmp_path: Path, separator: str, here: str, there: str
) -> None:
    file, flow = tmp_path / "srm.properties", Flow(here, there)
    file.write_text(
        f"clusters = {here}, {there}\n{here}.bootstrap.servers = p:1\n"
        f"{there}.bootstrap.servers = b:1\ntopics = .*\n"
        f"replication.policy.separator = {separator}\n"
    )

    names = load_config(file).flow(flow).names
    copy, replica = f"{here}{separator}orders", f"{there}{separator}orders"

    check_policy(names.policy, ["orders", f"a{separator}b"], here)
    assert (names.remote("orders"), names.original(copy)) == (copy, "orders")
    assert (names.replica("orders"), names.origin(replica)) == (replica, "orders")
    assert names.select(["orders", replica, f"x{separator}{replica}"]) == ("orders",)
    assert load_config(file).flow(flow.reverse).names.refusal(copy) == "cycle"
    assert names.is_heartbeats(f"{here}{separator}heartbeats")


@pytest.mark.parametrize(
    ("separator", "short", "long"), [("-", "a", "a-b"), ("_", "us", "us_east"), ("--", "a", "a-")]
)
def test_aliases_whose_copies_may_have_the_same_name_are_refused(
    tmp_path: Path, separator: str, short: str, long: str
) -> None:
    file = tmp_path / "srm.properties"
    lines = (
        f"clusters = {long}, {short}, C",
        *(f"{one}.bootstrap.servers = {number}:1" for number, one in enumerate((long, short, "C"))),
        f"{short}->C.enabled = true",
    )

    def load(*more: str) -> Config:
        file.write_text("\n".join((*lines, *more)) + "\n")
        return load_config(file)

    with pytest.raises(ConfigError) as refused:
        load(f"replication.policy.separator = {separator}")

    rest = f"{long}{separator}".removeprefix(f"{short}{separator}")
    assert str(refused.value).endswith(
        f"{long}{separator}topic may be the copy of topic of {long}, or of {rest}topic of {short}; "
        "set another replication.policy.separator"
    )
    assert "\n" not in str(refused.value)
    assert load().flow(Flow(short, "C")).names.remote("topic") == f"{short}.topic"
    identity = "replication.policy.class = IdentityReplicationPolicy"
    kept = load(f"replication.policy.separator = {separator}", identity).flow(Flow(long, "C"))
    assert kept.policy.topic_source(f"{long}{separator}heartbeats") == long


@pytest.mark.parametrize(
    ("separator", "clusters", "is_clear"),
    [
        ("-", "a, b, a-b", False),
        ("-", "a, b, c, a-b-c", False),
        ("_", "us, east, us_east", False),
        ("-", "a, a-b, c", True),
        (".", "a, b, a-b", True),
    ],
)
def test_heartbeats_of_one_cluster_or_of_two_hops_are_refused_under_one_name(
    tmp_path: Path, separator: str, clusters: str, is_clear: bool
) -> None:
    file = tmp_path / "srm.properties"
    servers = (f"{one}.bootstrap.servers = {one}:1\n" for one in clusters.split(", "))
    file.write_text(
        f"clusters = {clusters}\n{''.join(servers)}replication.policy.separator = {separator}\n"
        "replication.policy.class = IdentityReplicationPolicy\n"
    )

    if is_clear:
        load_config(file)
        return
    long = clusters.rpartition(", ")[2]
    first, rest = long.split(separator, 1)
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    assert str(refused.value).endswith(
        f"{long}{separator}heartbeats may be the copy of heartbeats of {long}, or of "
        f"{rest}{separator}heartbeats of {first}; set another replication.policy.separator"
    )


def test_flows_that_keep_names_both_ways_mark_where_records_come_from(tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"
    identity = "replication.policy.class = IdentityReplicationPolicy\nP->B.enabled = true\n"

    file.write_text(FILE + f"P->B.{identity}")
    one_way = load_config(file).flow(Flow("P", "B"))
    file.write_text(FILE + identity + "B->P.enabled = true\n")
    both = load_config(file).flow(Flow("P", "B"))

    assert (one_way.both_ways, one_way.records.provenance) == (False, False)
    assert (both.both_ways, both.records.provenance) == (True, True)


HUB = """clusters = A, B, C, D
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
C.bootstrap.servers = c:1
D.bootstrap.servers = d:1
topics = .*
replication.policy.class = IdentityReplicationPolicy
A->C.enabled = true
B->C.enabled = true
"""


def test_flows_from_sources_that_share_no_records_join_under_one_name(tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"

    file.write_text(HUB + "C->A.enabled = true\nC->B.enabled = true\n")
    hub = load_config(file)
    file.write_text(HUB + "D->A.enabled = true\n")
    chain = load_config(file)

    assert {str(f): sorted(c.joined) for f, c in hub.flow_configs.items() if c.joined} == {
        "A->C": ["B"],
        "B->C": ["A"],
    }
    into = hub.flow(Flow("A", "C"))
    assert into.joins("Payments")
    assert into.shares("Payments")
    assert into.records.provenance
    assert not into.joins("heartbeats"), "these keep their prefix"
    assert chain.flow(Flow("A", "C")).joined == {"B"}
    assert chain.flow(Flow("A", "C")).shares("Payments")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("A->B.enabled = true\n", "C would get records of A twice, by A->C and B->C"),
        (
            "D->A.enabled = true\nD->B.enabled = true\n",
            "C would get records of D twice, by A->C and B->C",
        ),
        ("A->C.provenance.header.name = x\n", r"provenance\.header\.name differs from that of"),
    ],
    ids=["one source copies the other", "both copy a third", "copies are known by two headers"],
)
def test_flows_that_would_bring_one_record_twice_do_not_join(
    tmp_path: Path, lines: str, message: str
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(HUB + lines)

    with pytest.raises(ConfigError, match=message):
        load_config(file)

    file.write_text(HUB.replace("topics = .*", "A->C.topics = T\nB->C.topics = U") + lines)
    if "twice" in message:
        assert load_config(file).flow(Flow("A", "C")).joined == frozenset()


def test_both_flows_that_keep_names_use_one_header(tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(
        FILE + "replication.policy.class = IdentityReplicationPolicy\n"
        "P->B.provenance.header.name = x\n"
    )

    with pytest.raises(ConfigError, match=r"provenance\.header\.name differs from that of"):
        load_config(file)


def test_a_flow_that_keeps_names_and_one_that_renames_copy_different_topics(tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"
    lines = (
        "P->B.replication.policy.class = IdentityReplicationPolicy\nP->B.enabled = true\n"
        "B->P.enabled = true\nP->B.topics = a\nB->P.topics = "
    )

    file.write_text(f"{FILE}{lines}b\n")
    assert load_config(file).flow(Flow("B", "P")).names.remote("b") == "B.b"
    file.write_text(f"{FILE}{lines}.*\n")
    with pytest.raises(ConfigError, match="P->B keeps names of topics and B->P does not"):
        load_config(file)


def test_two_flows_may_keep_names_on_one_target_for_different_topics(tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(
        "clusters = P, B, C\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
        "C.bootstrap.servers = c:1\nreplication.policy.class = IdentityReplicationPolicy\n"
        "P->C.enabled = true\nB->C.enabled = true\nP->C.topics = a\nB->C.topics = b, c\n"
    )

    into = load_config(file).flow(Flow("B", "C"))

    assert into.names.select(["a", "b"]) == ("b",)
    assert (into.joined, into.shares("b")) == (frozenset(), False), "each copy has one writer"


def test_users_check_their_classes() -> None:
    for policy in (
        SuffixPolicy("P", "."),
        DefaultReplicationPolicy(),
        IdentityReplicationPolicy(".", "P"),
    ):
        check_policy(policy, ["Payments", "orders.eu"])
    check_filter(Even, ["even"], ["odd"])


@dataclass(frozen=True)
class Circular(SuffixPolicy):
    """Policy that does not rename heartbeats."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return topic if topic == "heartbeats" else f"{topic}-from-{source_alias}"


@dataclass(frozen=True)
class At(SuffixPolicy):
    """Policy with a sign that Kafka refuses in names."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{topic}@-from-{source_alias}"

    def upstream_topic(self, topic: str) -> str | None:
        return topic.partition("@")[0] or None


@dataclass(frozen=True)
class Table(SuffixPolicy):
    """Policy that knows its own topics alone."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return {(source_alias, "Payments"): "Zahlungen"}[source_alias, topic]


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("Circular", "heartbeats become 'heartbeats'"),
        ("At", "Kafka refuses the name 'topic@-from-P'"),
        (
            "Table",
            r"Table\('P', '\.'\) failed: KeyError\(\('P', 'topic'\)\); flows",
        ),
    ],
)
def test_a_policy_that_breaks_a_rule_is_refused_with_the_file(
    tmp_path: Path, policy: str, why: str
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(f"{FILE}replication.policy.class = {__name__}:{policy}\n")

    with pytest.raises(ConfigError, match=why) as refused:
        load_config(file)

    assert policy in str(refused.value)


class Everything(NameFilter):
    """Filter of all names, those of drills included."""

    def matches(self, name: str) -> bool:
        return bool(name)


def test_a_class_that_breaks_a_rule_is_named_with_the_rule() -> None:
    with pytest.raises(ConfigError, match="Circular: heartbeats become 'heartbeats'"):
        check_policy(Circular("P", "."), ["Payments"])
    with pytest.raises(ConfigError, match="SuffixPolicy: topic_source"):
        check_policy(SuffixPolicy("P", "."), ["Payments"], source_alias="a-from-b")
    with pytest.raises(ConfigError, match=r"Everything: it selects 'srm-drill\.x'"):
        check_filter(Everything, [], [])
    with pytest.raises(ConfigError, match="failed"):
        policy_of(f"{ReplicationPolicy.__module__}:ReplicationPolicy", "P", ".")
    assert filter_of("DefaultTopicFilter", "x.DefaultTopicFilter") is NameFilter
