"""What a restore makes of what it finds, and the map that it hands over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.names import internal_topics
from srm.domain.names.flow_topics import FlowTopics
from srm.domain.names.policy import DefaultReplicationPolicy, RestoringPolicy
from srm.domain.names.topics import Flow
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run, Runs, Translated
from srm.domain.recovery.restore import (
    RestoredPartition,
    RestoreFacts,
    RestoreRecord,
    copies_of,
    holes,
    invert,
    plan_topic,
    restore_flow,
    runs_from,
)
from srm.errors import IntegrityError
from srm_lab.testing.flows import flow_config


def _runs(steps: list[tuple[int, int, int]]) -> Runs:
    runs, source, target = [], 0, 0
    for source_gap, target_gap, count in steps:
        source, target = source + source_gap, target + target_gap
        runs.append(Run(source, target, count))
        source, target = source + count, target + count
    return OffsetMap.of(runs).runs


small = st.integers(0, 3)
runs_in_order = st.lists(st.tuples(small, small, st.integers(1, 4)), max_size=12).map(_runs)


def _pairs(runs: Runs) -> list[tuple[int, int]]:
    return [(r.source_start + n, r.target_start + n) for r in runs for n in range(r.count)]


@given(runs_in_order)
def test_the_other_way_round_a_map_says_the_same(runs: Runs) -> None:
    there, back = OffsetMap(runs), OffsetMap(invert(runs))

    assert _pairs(invert(runs)) == [(t, s) for s, t in _pairs(runs)]
    for source, target in _pairs(runs):
        assert there.forward(source) == Translated(target)
        assert back.forward(target) == Translated(source)
        assert back.backward(source + 1) == Translated(target + 1)


@given(runs_in_order, st.integers(0, 60))
def test_of_runs_from_an_offset_on_no_record_is_lost_or_told_twice(runs: Runs, at: int) -> None:
    assert _pairs(runs_from(runs, at)) == [(s, t) for s, t in _pairs(runs) if s >= at]


@given(runs_in_order, st.integers(0, 10))
def test_holes_are_all_offsets_before_the_end_that_are_in_no_run(runs: Runs, more: int) -> None:
    end = (int(runs.target_ends[-1]) if len(runs) else 0) + more
    mapped = {t for _, t in _pairs(runs)}

    found = [offset for first, last in holes(runs, end) for offset in range(first, last)]

    assert found == [offset for offset in range(end) if offset not in mapped]


def test_a_restore_has_names_that_no_cluster_can_have() -> None:
    flow = restore_flow(Flow("P", "B"))

    assert str(flow) == "restore.B->P"
    assert flow.target == "P"


@pytest.mark.parametrize(
    ("separator", "copy", "original"),
    [(".", "P.Payments", "Payments"), (".", "P.a.b", "a.b"), ("__", "P__Payments", "Payments")],
)
def test_a_copy_goes_back_under_its_name_without_the_prefix(
    separator: str, copy: str, original: str
) -> None:
    policy = RestoringPolicy(DefaultReplicationPolicy(separator))

    assert policy.format_remote_topic("restore.B", copy) == original
    assert not FlowTopics(Flow("restore.B", "P"), policy).is_cycle(copy)


def test_restored_are_the_copies_of_what_the_flow_goes_on_to_copy() -> None:
    rules = flow_config(topics=("Pay.*", "A.x"), heartbeats_replication_enabled=True)
    topics = [
        "P.Payments",
        "Payments",  # B's own
        "P.Orders",  # the flow does not copy it any more
        "P.heartbeats",  # is written anew
        "P.A.x",  # P has it from A, from where it comes again
        "A.Payments",
        internal_topics.checkpoints("P"),
        "P.B.Payments",  # has come from here
    ]
    assert copies_of(topics, rules.names, ("P", "B", "A")) == {"P.Payments": "Payments"}


def test_a_record_of_a_restore_survives_its_encoding() -> None:
    record = RestoreRecord(("r1", "r2"), {"Payments": "A" * 22}, "ann", 7)

    assert RestoreRecord.decode(record.value()) == record
    with pytest.raises(IntegrityError):
        RestoreRecord.decode(b"{}")


COPIED = RestoredPartition((0, 12), Position(12, 11, 12), Position(11, 12, 11))
NEW = RestoreFacts("T", "P.T", (COPIED, COPIED), exists=True, is_former=False, is_begun=True)
HALF = replace(COPIED, forward=Position(6, 7, 6))


@pytest.mark.parametrize(
    ("facts", "state", "offsets"),
    [
        (replace(NEW, exists=False, partitions=(RestoredPartition((2, 12)),)), "missing", 10),
        (replace(NEW, partitions=(RestoredPartition((0, 12)),)), "empty", 12),
        (replace(NEW, partitions=(COPIED, replace(COPIED, forward=None))), "begun", 0),
        (replace(NEW, partitions=(COPIED, HALF)), "begun", 0),
        (replace(NEW, partitions=(replace(HALF, restored=Position(9, 8, 9)),)), "begun", 3),
        (NEW, "restored", 0),
        (replace(NEW, is_former=True), "restored", 0),  # it goes on already
        (replace(NEW, is_former=True, is_begun=False), "refused", 0),
        (replace(NEW, is_begun=False), "begun", 0),
        (
            replace(NEW, partitions=(RestoredPartition((0, 12), begins_foreign=True),)),
            "refused",
            12,
        ),
    ],
)
def test_what_is_to_be_done_follows_from_what_is_there(
    facts: RestoreFacts, state: str, offsets: int
) -> None:
    found = plan_topic(facts, "B", "P")

    assert (found.state, found.offsets) == (state, offsets)
    assert bool(found.reason) == (state == "refused")
