"""One question, one answer: both directions, either name, and what cannot be answered."""

from __future__ import annotations

import pytest

from srm.domain.names.topics import TopicPartition
from srm.engine.groups.translate import translate
from srm.errors import NotFoundError, UsageError

PAYMENTS, REPLICA = TopicPartition("Payments", 0), TopicPartition("P.Payments", 0)


def test_forward_from_the_source_to_the_replica(sites) -> None:
    found = translate(sites.flow("P->B"), PAYMENTS, 40)

    assert (found.cluster, found.to_cluster) == ("P", "B")
    assert (found.to_partition, found.to_offset, found.state) == (REPLICA, 41, "translated")


@pytest.mark.parametrize("name", ["Payments", "P.Payments"])
def test_reverse_reads_the_same_map_backwards_by_either_name(sites, name: str) -> None:
    found = translate(sites.flow("P->B"), TopicPartition(name, 0), 41, reverse=True)

    assert (found.cluster, found.partition) == ("B", REPLICA)
    assert (found.to_cluster, found.to_partition, found.to_offset) == ("P", PAYMENTS, 40)


def test_reverse_of_the_targets_replica_is_the_flows_reverse_checkpoint(sites) -> None:
    found = translate(sites.flow("P->B"), TopicPartition("B.Payments", 0), 20, reverse=True)

    assert (found.cluster, found.to_cluster) == ("P", "B")
    assert (found.to_partition, found.to_offset) == (PAYMENTS, 20)


def test_a_commit_after_the_markers_at_the_end_of_a_replica_has_read_all_of_it(sites) -> None:
    """Java's consumers pass them, and an idle copy reports no position after them."""
    sites.clusters["P"].mark("B.Payments", 0, 2)

    found = translate(sites.flow("P->B"), TopicPartition("B.Payments", 0), 52, reverse=True)

    assert (found.state, found.to_offset) == ("translated", 50)


def test_what_is_not_copied_says_how_much_remains(sites) -> None:
    sites.produce("P", 10)

    found = translate(sites.flow("P->B"), PAYMENTS, 107)

    assert (found.state, found.remaining, found.to_offset) == ("not-copied-yet", 7, None)


def test_a_topic_that_was_never_copied_has_no_map(sites) -> None:
    sites.clusters["P"].add_topic("Other")
    sites.clusters["B"].add_topic("P.Other")

    assert translate(sites.flow("P->B"), TopicPartition("Other", 0), 1).state == "no-map"


@pytest.mark.parametrize("missing", [TopicPartition("None", 0), TopicPartition("Payments", 7)])
def test_a_topic_or_partition_that_does_not_exist_is_not_found(
    sites, missing: TopicPartition
) -> None:
    with pytest.raises(NotFoundError, match="cluster P has no"):
        translate(sites.flow("P->B"), missing, 1)


def test_records_that_retention_took_are_counted_in_both_directions(sites) -> None:
    flow = sites.flow("P->B")
    sites.clusters["B"].trim("P.Payments", 0, 61)
    there = translate(flow, PAYMENTS, 40)
    sites.clusters["P"].trim("Payments", 0, 70)
    back = translate(flow, REPLICA, 41, reverse=True)

    assert (there.to_offset, there.skipped) == (61, 20)
    assert (back.to_offset, back.skipped) == (70, 10), "B has dropped the others itself"


def test_a_replica_that_was_created_again_is_noticed(sites) -> None:
    sites.clusters["B"].add_topic("P.Payments")

    assert translate(sites.flow("P->B"), PAYMENTS, 40).state == "past-end"


def test_a_replica_that_is_gone_is_named(sites) -> None:
    sites.clusters["B"].delete_topic("P.Payments")

    found = translate(sites.flow("P->B"), PAYMENTS, 40)

    assert found.state == "no-target"
    assert "P.Payments-0 does not exist on B" in found.reason


def test_with_the_source_down_the_way_back_is_still_known(sites) -> None:
    sites.clusters["P"].fail()

    found = translate(sites.flow("P->B"), REPLICA, 41, reverse=True)

    assert (found.state, found.to_offset) == ("translated", 40)
    assert "not compared" in found.reason


def test_a_damaged_map_is_named(sites) -> None:
    sites.maps[sites.flow("P->B").config.flow].errors[PAYMENTS] = "block 7 is damaged"

    found = translate(sites.flow("P->B"), PAYMENTS, 40)

    assert (found.state, found.to_offset) == ("damaged-map", None)
    assert "block 7" in found.reason


def test_negative_offsets_are_refused(sites) -> None:
    with pytest.raises(UsageError, match="-1"):
        translate(sites.flow("P->B"), PAYMENTS, -1)
