"""Which return it is: told from ids and ends of logs, by the worst of the topics."""

from __future__ import annotations

import pytest

from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.recovery.source_return import (
    SHAPES,
    PartitionReturn,
    describe,
    topic_return,
    topic_shape,
    worst,
)

COPIED = CopiedTopic("Payments", "old", "P.Payments", "remote", "cluster-p", "cluster-b")


@pytest.mark.parametrize(
    ("now", "copied_ids", "shape"),
    [
        ("old", (), "same"),
        ("new", (), "rebuilt"),
        ("new", ("new",), "same"),  # restored: P->B has a position of it
        (None, (), "missing"),
    ],
)
def test_a_topic_is_told_by_its_id(
    now: str | None, copied_ids: tuple[str, ...], shape: str
) -> None:
    found, evidence = topic_shape("Payments", now, [COPIED], copied_ids)

    assert found == shape
    assert (now or "old") in evidence


def test_a_topic_that_was_never_copied_is_new() -> None:
    assert topic_shape("Other", "id", [COPIED], ())[0] == "new"


def test_a_log_that_lost_its_end_makes_the_topic_shorter_and_is_named() -> None:
    cut = PartitionReturn(topic="Payments", partition=3, shape="shorter", cut_from=70, cut_to=100)

    found = topic_return("Payments", "old", ("same", "same id"), [cut])

    assert found.shape == "shorter"
    assert "Payments-3 ends at 70, but was copied to 100" in found.evidence


def test_the_flow_has_the_worst_shape_of_its_topics() -> None:
    assert worst(["same", "shorter", "new"]) == "shorter"
    assert worst(["missing", "rebuilt", "same"]) == "rebuilt"
    assert worst([]) == "same"


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_is_said_in_words_with_the_other_cluster_if_it_is_another(shape: str) -> None:
    assert "cluster two, formerly one," in describe(shape, "P", "one", "two")  # type: ignore[arg-type]
    assert "the same cluster" in describe(shape, "P", "one", "one")  # type: ignore[arg-type]


def test_what_retention_took_before_it_was_copied_is_no_residue() -> None:
    entry = PartitionReturn(
        *(100, 90, 140, 150, 150), topic="T", partition=0, shape="same", records=10
    )

    assert entry.residue == (140, 150)
