"""Names of a flow's topics, and which of them it copies (MM2's MirrorSourceConnector)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from tests.suffix_policy import Merging, SuffixPolicy

from srm.domain.names.flow_topics import FlowTopics, RecordedCopies
from srm.domain.names.policy import DefaultReplicationPolicy, IdentityReplicationPolicy, NameFilter
from srm.domain.names.topics import Flow


class Renaming(SuffixPolicy):
    """Policy with a table of names, and the suffix for others."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        named = {("P", "Payments"): "Zahlungen"}
        default = super().format_remote_topic(source_alias, topic)
        return named.get((source_alias, topic), default)

    def topic_source(self, topic: str) -> str | None:
        return "P" if topic == "Zahlungen" else super().topic_source(topic)

    def upstream_topic(self, topic: str) -> str | None:
        return "Payments" if topic == "Zahlungen" else super().upstream_topic(topic)


A_TO_B: Final = Flow("A", "B")
ALL: Final = NameFilter((".*",))


@pytest.mark.parametrize(
    ("topic", "copied"),
    [
        ("orders", True),
        ("C.orders", True),
        ("B.orders", False),
        ("C.B.orders", False),
        ("__consumer_offsets", False),
        ("A.checkpoints.internal", False),
        ("my-internal", True),
        ("orders.internal", True),
        ("checkpoints.internal", False),  # its copy would be MM2's own topic
        ("mm2-offsets.A.internal", False),
        ("connect-offsets", False),
        ("__srm-ledger", False),
        ("heartbeats", True),
        ("C.heartbeats", True),
        ("B.heartbeats", False),
    ],
)
def test_internal_topics_and_cycles_are_never_copied(topic: str, copied: bool) -> None:
    assert FlowTopics(A_TO_B, DefaultReplicationPolicy(), ALL).selects(topic) is copied


def test_heartbeats_are_copied_without_being_listed_unless_switched_off() -> None:
    policy = DefaultReplicationPolicy()

    assert FlowTopics(A_TO_B, policy).selects("heartbeats")
    assert not FlowTopics(A_TO_B, policy, heartbeats=False).selects("heartbeats")
    listed = NameFilter(("heartbeats",))
    assert FlowTopics(A_TO_B, policy, listed, heartbeats=False).selects("heartbeats")


@pytest.mark.parametrize("separator", [".", "-"])
@pytest.mark.parametrize("named", [DefaultReplicationPolicy, IdentityReplicationPolicy])
def test_only_heartbeats_of_known_aliases_are_copied_unlisted(named: type, separator: str) -> None:
    """A user's ``orders.heartbeats`` has the form of a replicated heartbeats topic."""
    names = FlowTopics(A_TO_B, named(separator), aliases=frozenset({"A", "B", "C", "D"}))
    topics = ("heartbeats", "C.heartbeats", "D.C.heartbeats", "orders.heartbeats", "C.x.heartbeats")
    found = names.select([topic.replace(".", separator) for topic in topics])

    assert [name.replace(separator, ".") for name in found] == sorted(topics[:3])
    assert not names.selects("myheartbeats")
    assert replace(names, listed=ALL).selects(f"orders{separator}heartbeats")


def test_a_name_with_prefixes_shows_the_copy_its_original_and_its_counterpart() -> None:
    names = FlowTopics(A_TO_B, DefaultReplicationPolicy("_"), ALL)

    assert (names.remote("T"), names.original("A_T"), names.original("T")) == ("A_T", "T", None)
    assert (names.replica("T"), names.origin("B_T"), names.origin("C_T")) == ("B_T", "T", None)
    assert names.is_replica("B_T")
    assert [*filter(names.is_original, ("T", "C_T", "B_T", "A_T", "heartbeats"))] == ["T", "C_T"]


def test_a_name_that_the_policy_would_not_give_is_no_copy() -> None:
    """A table of a user reads its former names, too; a restore would fill the original twice."""
    there, back = Renaming("P", "."), Renaming("B", ".")
    names = FlowTopics(Flow("P", "B"), there, ALL, back=back)

    assert (names.original("Zahlungen"), names.original("Payments-from-P")) == ("Payments", None)
    assert names.original("orders-from-P") == "orders"
    assert not FlowTopics(Flow("B", "P"), back, ALL, back=there).is_replica("Payments-from-P")


def test_of_two_topics_with_one_copy_the_one_is_copied_to_which_its_name_leads_back() -> None:
    names = FlowTopics(Flow("P", "B"), Merging("P", "."), ALL)

    assert names.select(["orders", "orders-old", "Payments"]) == ("Payments", "orders")
    assert names.refusal("orders-old") == "taken"


def test_identity_keeps_names_but_those_of_heartbeats_as_mirrormaker_does() -> None:
    policy = IdentityReplicationPolicy(".", "A")

    assert policy.format_remote_topic("A", "T") == "T"
    assert policy.format_remote_topic("A", "heartbeats") == "A.heartbeats"
    assert policy.format_remote_topic("A", "my-heartbeats") == "A.my-heartbeats"
    assert (policy.topic_source("T"), policy.upstream_topic("T")) == ("A", "T")
    assert (policy.topic_source("C.heartbeats"), policy.topic_source("heartbeats")) == ("C", None)
    assert policy.upstream_topic("C.heartbeats") == "heartbeats"
    assert policy.is_internal_topic("A.checkpoints.internal")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("hop", ["C.D.", "A.B."])
def test_heartbeats_that_went_in_circles_are_looked_at_hop_by_hop(hop: str) -> None:
    """Two aliases for one cluster let MirrorMaker 2 add a prefix with each round."""
    policies = IdentityReplicationPolicy(".", "A"), IdentityReplicationPolicy(".", "B")
    names = FlowTopics(A_TO_B, policies[0], ALL, back=policies[1])

    assert names.is_cycle(f"{hop * 50}heartbeats") == ("B" in hop)


def test_topics_of_mirror_maker_2_are_no_copies_of_a_users() -> None:
    names = FlowTopics(A_TO_B, DefaultReplicationPolicy(), ALL)

    assert names.original("A.checkpoints.internal") is None
    assert names.origin("B.checkpoints.internal") is None
    assert names.original("A.orders.internal") == "orders.internal"


def test_with_a_policy_for_each_direction_no_topic_is_copied_in_circles() -> None:
    kept, prefixed = IdentityReplicationPolicy(".", "A"), DefaultReplicationPolicy()
    there = FlowTopics(A_TO_B, kept, ALL, back=prefixed)
    back = FlowTopics(A_TO_B.reverse, prefixed, ALL, back=kept)
    on_a, on_b = {"T"}, set[str]()

    for _ in range(4):
        on_b |= set(map(there.remote, there.select(on_a)))
        on_a |= set(map(back.remote, back.select(on_b)))

    # Without records of the first copy the name does not show where T of B is from.
    assert (on_a, on_b) == ({"T", "B.T"}, {"T"})
    known = replace(back, recorded=RecordedCopies(frozenset({"T"}), frozenset()))
    assert known.select(on_b) == ()
    assert known.refusal("T") == "cycle"


def test_each_hop_in_a_name_may_be_by_the_policy_of_either_flow() -> None:
    dotted, dashed = DefaultReplicationPolicy("."), DefaultReplicationPolicy("-")
    names = FlowTopics(A_TO_B, dotted, ALL, back=dashed)

    assert [one for one in ("T", "B-T", "C.B-T", "C-B.T", "C.T", "C-T") if names.is_cycle(one)] == [
        "B-T",
        "C.B-T",
        "C-B.T",
    ]
