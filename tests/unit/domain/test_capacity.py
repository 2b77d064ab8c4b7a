"""What a fleet takes follows from its traffic, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.capacity import (
    BUSY,
    LARGER_BATCH_BYTES,
    Cores,
    TopicLoad,
    capacity,
    needed_slots,
    round_seconds,
    saving_of_larger_batches,
    sent_per_s,
    slots_of,
)
from srm.domain.capacity_costs import REPLICATOR, SOURCE_BROKER, TARGET_BROKER, Units
from srm.replication.batches.merging import LARGEST_MERGED, SMALL_COMPRESSED

rates = st.floats(0.001, 2000)
sizes = st.floats(100, 1_000_000)
codecs = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])
loads = st.builds(
    TopicLoad, partitions=st.integers(1, 20_000), megabytes_per_s=rates, batch_bytes=sizes,
    codec=codecs,
)  # fmt: skip
QUIET = TopicLoad(100, 0.0, 0.0)


def figures(cores: Cores) -> list[float]:
    return [cores.replicator, cores.source_brokers, cores.target_brokers]


@given(loads, st.floats(1, 100))
def test_more_traffic_of_the_same_kind_never_costs_less(load: TopicLoad, times: float) -> None:
    more = replace(load, megabytes_per_s=load.megabytes_per_s * times)

    for less, cores in zip(
        figures(capacity([load], 1).total), figures(capacity([more], 1).total), strict=True
    ):
        assert cores >= less * (1 - 1e-9)


@given(loads, st.floats(1, 50))
def test_the_same_bytes_in_more_batches_never_cost_less(load: TopicLoad, times: float) -> None:
    smaller = replace(load, batch_bytes=load.batch_bytes / times)
    if smaller.is_merged and not load.is_merged:  # then fewer are sent: other work
        smaller = replace(load, codec="gzip", batch_bytes=smaller.batch_bytes)
        load = replace(load, codec="gzip")

    for less, cores in zip(
        figures(capacity([load], 1).total), figures(capacity([smaller], 1).total), strict=True
    ):
        assert cores >= less * (1 - 1e-9)


def test_without_traffic_only_what_idles_costs() -> None:
    cost = capacity([QUIET])

    assert cost.slots == 1
    assert cost.shared.replicator == pytest.approx(REPLICATOR.always)
    assert cost.shared.target_brokers == pytest.approx(TARGET_BROKER.always)
    assert cost.topics[0].replicator == pytest.approx(100 * REPLICATOR.partitions)
    assert cost.topics[0].source_brokers == pytest.approx(100 * SOURCE_BROKER.partitions)
    assert (cost.catch_up_megabytes_per_s, cost.outage_minutes) == (0.0, 0.0)


def test_a_fleet_of_nothing_is_a_driver_and_a_slot() -> None:
    cost = capacity([])

    assert (cost.slots, cost.topics) == (1, ())
    assert cost.total == cost.shared


@given(st.lists(loads, min_size=1, max_size=4))
def test_the_total_is_the_sum_of_its_parts(fleet: list[TopicLoad]) -> None:
    cost = capacity(fleet)

    expected = sum(cost.topics, cost.shared)
    assert figures(cost.total) == pytest.approx(figures(expected))


@given(loads)
def test_a_topic_costs_the_same_as_its_halves(load: TopicLoad) -> None:
    whole = replace(load, partitions=2 * load.partitions)
    half = replace(load, megabytes_per_s=load.megabytes_per_s / 2)

    assert figures(capacity([half, half], 3).total) == pytest.approx(
        figures(capacity([whole], 3).total)
    )


@given(st.lists(loads, min_size=1, max_size=3))
def test_slots_are_as_few_as_keep_each_below_its_share(fleet: list[TopicLoad]) -> None:
    slots = needed_slots(fleet)
    partitions = sum(load.partitions for load in fleet)

    def share(count: int) -> float:
        return (capacity(fleet, count).total.replicator - REPLICATOR.always) / count

    assert 1 <= slots <= partitions
    assert slots == partitions or share(slots) <= BUSY * (1 + 1e-9)
    assert slots == 1 or share(slots - 1) > BUSY * (1 - 1e-9)


@given(st.lists(loads, min_size=1, max_size=3), st.integers(1, 50))
def test_slots_that_are_meant_count_even_if_fewer_would_do(
    fleet: list[TopicLoad], tasks_max: int
) -> None:
    needed, partitions = needed_slots(fleet), sum(load.partitions for load in fleet)
    slots = slots_of(fleet, needed, tasks_max)

    assert slots >= needed
    assert slots in {needed, min(tasks_max, partitions)}


@given(loads)
def test_no_more_batches_are_sent_than_were_made_and_none_is_too_large(load: TopicLoad) -> None:
    sent = sent_per_s(load, round_seconds(load.partitions))

    assert sent <= load.batches_per_s * (1 + 1e-9)
    assert sent >= min(load.batches_per_s, load.megabytes_per_s) * (1 - 1e-9)


def test_batches_of_few_partitions_are_merged_and_of_many_they_are_not() -> None:
    few, many = (TopicLoad(partitions, 20.0, 1000) for partitions in (1, 10_000))

    assert sent_per_s(few, 0.005) == pytest.approx(1 / 0.005)
    assert sent_per_s(many, 0.005) > 0.99 * many.batches_per_s


@pytest.mark.parametrize(
    ("size", "codec", "merged"),
    [
        (LARGEST_MERGED, "none", True), (LARGEST_MERGED + 1, "none", False),
        (SMALL_COMPRESSED, "lz4", True), (SMALL_COMPRESSED + 1, "zstd", False),
        (1_000, "gzip", False), (1_000, "snappy", True),
    ],
)  # fmt: skip
def test_what_is_merged_is_as_the_replicator_does_it(size: int, codec: str, merged: bool) -> None:
    assert TopicLoad(1, 1.0, size, codec=codec).is_merged is merged


@given(st.integers(1, 1000), st.floats(0.1, 200), st.floats(1000, 64_000))
def test_a_backlog_takes_longer_the_busier_the_slots_are(
    partitions: int, rate: float, size: float
) -> None:
    load = TopicLoad(partitions, rate, size)
    cost, more = capacity([load], 2), capacity([load], 4)

    assert more.catch_up_megabytes_per_s >= cost.catch_up_megabytes_per_s * (1 - 1e-9)
    if cost.outage_minutes is None:
        assert cost.catch_up_megabytes_per_s <= rate
    else:
        spare = cost.catch_up_megabytes_per_s - rate
        assert cost.outage_minutes * spare == pytest.approx(60 * rate)


def test_a_fleet_that_is_faster_than_its_slots_never_catches_up() -> None:
    assert capacity([TopicLoad(10_000, 100_000, 1000)], 1).outage_minutes is None


def test_larger_batches_save_most_where_there_are_most_small_ones() -> None:
    fleet = [TopicLoad(100, 50, 100_000), TopicLoad(1000, 5, 1000), TopicLoad(1000, 20, 1000)]

    saving = saving_of_larger_batches(fleet, 2)

    assert saving is not None
    assert (saving.index, saving.batch_bytes) == (2, LARGER_BATCH_BYTES)
    changed = [*fleet[:2], replace(fleet[2], batch_bytes=LARGER_BATCH_BYTES)]
    before, after = capacity(fleet, 2).topics[2], capacity(changed, 2).topics[2]
    assert saving.cores.target_brokers == pytest.approx(
        before.target_brokers - after.target_brokers, rel=0.2
    )


def test_large_batches_and_no_traffic_have_nothing_to_save() -> None:
    assert saving_of_larger_batches([QUIET, TopicLoad(10, 10, 20_000)], 1) is None


@given(st.builds(Units, *[st.floats(0, 1e6)] * 8))
def test_cost_is_the_sum_over_all_units(work: Units) -> None:
    assert work.cost(Units(*[1.0] * 8)) == pytest.approx(sum(work))
