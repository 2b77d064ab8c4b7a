"""The lists of srm-control: kept on the target, added to what the properties file names."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.config.loader import load_config
from srm.config.model import FlowConfig
from srm.domain.names import internal_topics
from srm.domain.names.policy import NameFilter
from srm.domain.names.topics import Flow
from srm.engine.control.control_lists import (
    ControlLists,
    ListChange,
    ListPair,
    change,
    effective,
    load,
    merged_if_known,
)
from srm.errors import UsageError
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeCompactedTopic

FLOW = Flow("P", "B")
TOPIC = internal_topics.control("P")
PATTERNS = st.lists(st.from_regex(r"([a-z]|\.\*){1,6}", fullmatch=True))


@pytest.fixture
def target() -> FakeCluster:
    cluster = FakeCluster("B")
    cluster.add_topic(TOPIC, 1, {"cleanup.policy": "compact"})
    return cluster


@pytest.fixture
def flow_config(tmp_path: Path) -> FlowConfig:
    file = tmp_path / "srm.properties"
    file.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
        "topics = orders\ntopics.exclude = tmp\ngroups = billing\ngroups.exclude = console\n"
        "reverse.checkpointed.topics = P.orders\n"
    )
    return load_config(file).flow(FLOW)


def test_without_the_topic_all_lists_are_empty() -> None:
    assert load(FakeCluster("B"), FLOW) == ControlLists()


def test_added_entries_are_read_back_by_list_and_kind(target: FakeCluster) -> None:
    change(target, FLOW, "topics", ListChange(add=("b", "a.*"), add_deny=("a1",)), 1)
    change(target, FLOW, "groups", ListChange(add=("g",)), 2)
    change(target, FLOW, "reverse-checkpointed-topics", ListChange(add=("P.b",)), 3)

    assert load(target, FLOW) == ControlLists(
        ListPair(("a.*", "b"), ("a1",)), ListPair(("g",)), ListPair(("P.b",))
    )


def test_lists_of_the_opposite_flow_are_its_own(target: FakeCluster) -> None:
    change(target, FLOW, "topics", ListChange(add=("a",)), 1)

    assert load(target, Flow("C", "B")) == ControlLists()


def test_doing_it_twice_changes_nothing_and_says_so(target: FakeCluster) -> None:
    first = change(target, FLOW, "topics", ListChange(add=("a",)), 1)
    before = target.compacted_topic(TOPIC).read()
    second = change(target, FLOW, "topics", ListChange(add=("a",)), 2)

    assert (first.added, first.already) == (("a",), ())
    assert (second.added, second.already) == ((), ("a",))
    assert target.compacted_topic(TOPIC).read() == before


def test_removing_leaves_a_tombstone_only_for_what_was_there(target: FakeCluster) -> None:
    change(target, FLOW, "topics", ListChange(add=("a", "b"), add_deny=("c",)), 1)
    summary = change(target, FLOW, "topics", ListChange(remove=("a", "x"), remove_deny=("c",)), 2)

    assert summary.lists == ListPair(("b",), ())
    assert (summary.removed, summary.absent) == (("a", "c"), ("x",))


def test_a_change_that_another_one_overtakes_starts_over(
    target: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the list before the other one changed it."""
    reads = target.compacted_topic
    meanwhile = [lambda: change(target, FLOW, "topics", ListChange(add=("b",)), 2)]

    def overtaken(topic: str, partition: int = 0) -> FakeCompactedTopic:
        table = reads(topic, partition)
        read = table.read

        def and_then() -> dict[bytes, bytes]:
            found = read()
            if meanwhile:
                meanwhile.pop()()
            return found

        monkeypatch.setattr(table, "read", and_then)
        return table

    monkeypatch.setattr(target, "compacted_topic", overtaken)
    summary = change(target, FLOW, "topics", ListChange(add=("a", "b")), 1)

    assert (summary.added, summary.already) == (("a",), ("b",))
    assert summary.lists == ListPair(("a", "b"))


@given(add=PATTERNS, remove=PATTERNS)
def test_the_list_is_what_was_added_less_what_was_removed(
    add: list[str], remove: list[str]
) -> None:
    target = FakeCluster("B")
    target.add_topic(TOPIC)
    change(target, FLOW, "topics", ListChange(add=tuple(add)), 1)
    change(target, FLOW, "topics", ListChange(remove=tuple(remove)), 2)

    assert load(target, FLOW).topics.allow == tuple(sorted(set(add) - set(remove)))


@pytest.mark.parametrize("field", ["add", "add_deny"])
def test_a_pattern_that_does_not_compile_is_refused_before_anything_is_written(field: str) -> None:
    with pytest.raises(UsageError, match=r"'a\(' is not .*; 'b\[' is not .*nothing was changed"):
        ListChange(**{field: ("good", "a(", "b[")})


def test_an_entry_cannot_be_added_and_removed_at_once() -> None:
    with pytest.raises(UsageError, match="'a' is both added and removed"):
        ListChange(add=("a",), remove=("a",))


@pytest.mark.parametrize(
    "key",
    [
        b"\xff",
        b"[]",
        b"1",
        b'{"list": "topics"}',
        b'{"list": "topics", "kind": "allow", "pattern": 1}',
        b'{"list": "topics", "kind": "allow", "pattern": "a("}',
        b'{"list": "unheard of", "kind": "allow", "pattern": "a"}',
    ],
)
def test_a_bad_record_is_skipped_and_the_others_count(target: FakeCluster, key: bytes) -> None:
    change(target, FLOW, "topics", ListChange(add=("a",)), 1)
    target.compacted_topic(TOPIC).write({key: b"{}"})

    assert load(target, FLOW) == ControlLists(ListPair(("a",)))


def test_the_record_format(target: FakeCluster) -> None:
    change(target, FLOW, "topics", ListChange(add_deny=("a,b",)), 1700000000000)

    (key, value), *_ = target.compacted_topic(TOPIC).read().items()
    assert json.loads(key) == {"list": "topics", "kind": "deny", "pattern": "a,b"}
    assert json.loads(value) == {"added_ms": 1700000000000}


class TestEffective:
    def test_without_entries_the_settings_stay(self, flow_config: FlowConfig) -> None:
        assert effective(flow_config, ControlLists()) == flow_config

    def test_entries_add_to_the_file(self, flow_config: FlowConfig) -> None:
        merged = effective(
            flow_config,
            ControlLists(
                ListPair(("Payments", "orders"), ("secret",)),
                ListPair(("g",), ("h",)),
                ListPair(("P.Payments",)),
            ),
        )

        assert merged == dataclasses.replace(
            flow_config,
            topics=("orders", "Payments"),
            topics_exclude=("tmp", "secret"),
            groups=("billing", "g"),
            groups_exclude=("console", "h"),
            reverse_checkpointed_topics=("P.orders", "P.Payments"),
        )

    def test_denied_reverse_topics_are_left_out(self, flow_config: FlowConfig) -> None:
        lists = ControlLists(
            reverse_checkpointed_topics=ListPair(
                (r"P\..*", "(?i)p.upper"), ("P.secret.*", "(?i)P.X")
            )
        )

        chosen = NameFilter(effective(flow_config, lists).reverse_checkpointed_topics)

        assert [
            name
            for name in ("P.orders", "P.other", "P.secret", "P.secrets", "P.x", "P.xy", "p.UPPER")
            if chosen.matches(name)
        ] == ["P.orders", "P.other", "P.xy", "p.UPPER"]


def test_without_the_cluster_that_holds_the_lists_the_file_alone_counts(
    target: FakeCluster, flow_config: FlowConfig
) -> None:
    change(target, FLOW, "topics", ListChange(add=("more",)), 1)
    assert merged_if_known(flow_config, target).topics == ("orders", "more")

    target.fail()
    assert merged_if_known(flow_config, target) == flow_config
