"""The decision whether an offset of an idle group may be written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.groups.checkpoints import CheckpointOutcome, CheckpointState
from srm.domain.groups.group_sync import LedgerEntry, SyncAction, SyncDecision, decide
from srm.domain.names.topics import Flow, TopicPartition

FLOW = Flow("P", "B")
UP, DOWN = TopicPartition("Payments", 0), TopicPartition("P.Payments", 0)


def outcome(offset: int | None, state: CheckpointState = "translated") -> CheckpointOutcome:
    return CheckpointOutcome(
        "billing", UP, 1000, state, "forward", DOWN, offset, 1000 if offset is not None else None
    )


def wrote(intended: int, previous: int | None = None, origin: str = "P") -> LedgerEntry:
    return LedgerEntry("billing", DOWN, "id", previous, intended, origin, "sync 1", settled=True)


@pytest.mark.parametrize(
    ("offset", "current", "entry", "action"),
    [
        pytest.param(100, None, None, "write", id="no offset yet"),
        pytest.param(100, None, wrote(90), "write", id="offset expired since our write"),
        pytest.param(100, 100, None, "unchanged", id="equal"),
        pytest.param(100, 90, None, "write", id="consumers here are behind"),
        pytest.param(100, 120, None, "consumer-ahead", id="consumers here are ahead"),
        pytest.param(100, 90, wrote(90), "write", id="own write is raised"),
        pytest.param(100, 120, wrote(120), "write", id="own write is lowered after a rewind"),
        pytest.param(100, 120, wrote(120, origin="C"), "consumer-ahead", id="another flow's write"),
        pytest.param(100, 90, wrote(90, origin="C"), "write", id="another flow's write is raised"),
        pytest.param(100, 20, wrote(90), "rewind-respected", id="operator rewound here"),
        pytest.param(100, 95, wrote(90), "write", id="consumers went on from our write"),
        pytest.param(100, 120, wrote(90), "consumer-ahead", id="consumers went past"),
    ],
)
def test_the_decision(
    offset: int, current: int | None, entry: LedgerEntry | None, action: SyncAction
) -> None:
    decision = decide(outcome(offset), current, entry, FLOW)

    assert (decision.action, decision.offset, decision.current) == (action, offset, current)


@pytest.mark.parametrize(
    ("offset", "current", "entry", "decided"),
    [
        pytest.param(100, 90, None, ("write", 100, 100), id="no other source is known"),
        pytest.param(100, 90, {"C": 90}, ("unchanged", 90, 100), id="the other has read less"),
        pytest.param(100, 90, {"C": 95}, ("write", 95, 100), id="the other has read on"),
        pytest.param(80, 90, {"C": 90}, ("write", 80, 80), id="this one has read less"),
        pytest.param(100, 90, {"D": 10}, ("write", 100, 100), id="a source that is no longer one"),
    ],
)
def test_under_one_name_the_source_with_the_least_progress_counts(
    offset: int,
    current: int,
    entry: dict[str, int] | None,
    decided: tuple[SyncAction, int, int],
) -> None:
    known = None if entry is None else replace(wrote(90, origin="C"), progress=entry)

    found = decide(outcome(offset), current, known, FLOW, joined={"C"})

    assert (found.action, found.offset, found.progress) == decided
    assert ("on C has read up to here" in found.reason) == (found.offset != offset)


def test_a_consumers_commit_found_before_an_interrupted_write_is_not_lowered() -> None:
    interrupted = LedgerEntry("billing", DOWN, "id", 120, 150, "P", "sync 1", previous_own=False)

    assert decide(outcome(100), 120, interrupted, FLOW).action == "consumer-ahead"
    assert decide(outcome(150), 120, interrupted, FLOW).action == "write"


def test_an_unfinished_translation_raises_but_never_lowers() -> None:
    unfinished = outcome(100, "not-copied-yet")

    assert decide(unfinished, 90, wrote(90), FLOW).action == "write"
    assert decide(unfinished, 120, wrote(120), FLOW).action == "floor-kept"


@pytest.mark.parametrize("state", ["no-map", "damaged-map", "past-end", "no-target"])
def test_without_a_checkpoint_nothing_is_written_and_the_reason_is_kept(
    state: CheckpointState,
) -> None:
    decision = decide(outcome(None, state), 5, None, FLOW)

    assert decision == SyncDecision("billing", DOWN, "not-translated", 5, None, state)


@pytest.mark.parametrize(
    ("entry", "action"),
    [
        pytest.param((940, 1000, "B", False), "own-write", id="ours from the target"),
        pytest.param((1000, 1040, "B", False), "own-write", id="found before it was settled"),
        pytest.param((1000, 1040, "B", True), "write", id="settled: the value before is a rewind"),
        pytest.param((940, 990, "B", False), "write", id="progress beyond our own write"),
        pytest.param((940, 1000, "C", False), "write", id="news from a third cluster"),
    ],
)
def test_a_commit_that_srm_carried_over_from_the_target_is_not_carried_back(
    entry: tuple[int, int, str, bool], action: SyncAction
) -> None:
    previous, intended, origin, settled = entry
    upstream = LedgerEntry(
        "billing", UP, "id", previous, intended, origin, "sync 1", settled=settled
    )

    assert decide(outcome(100), 90, None, FLOW, upstream).action == action


maybe = st.none() | st.integers(0, 6)


@given(st.integers(0, 6), maybe, maybe, st.integers(0, 6), st.sampled_from("PC"), st.booleans())
def test_a_commit_that_is_not_ours_is_never_lowered_and_a_rewind_never_raised(
    offset: int, current: int | None, previous: int | None, intended: int, origin: str, done: bool
) -> None:
    entry = LedgerEntry("billing", DOWN, "id", previous, intended, origin, "sync", settled=done)

    decision = decide(outcome(offset), current, entry, FLOW)

    if current is None or decision.action != "write":
        return
    if offset < current:
        assert current == intended
        assert origin == "P"
    elif current < intended:
        assert current == previous
        assert not done
