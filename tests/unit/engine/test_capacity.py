"""The traffic of a flow's topics, read from its source."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.engine.conftest import TwoSites

from srm.domain.capacity import TopicLoad, capacity
from srm.domain.topic_traffic import BatchSample, Marks
from srm.domain.topics import Flow, TopicPartition
from srm.engine.capacity import FlowCapacity, described_capacity, flow_capacity, reckon
from srm.errors import UnavailableError

FLOW = Flow("P", "B")
BATCHES = BatchSample(10, 160_000, 1600, {"lz4": 160_000})
SMALL = BatchSample(100, 100_000, 100, {"none": 100_000})


def marks(records: int, partitions: int = 1) -> list[Marks]:
    """Return a log that has got so many records a second over the last hour, and none now."""
    return [Marks(0, records * 3600, records * 3600, {"hour": 0, "day": 0})] * partitions


def of(
    topics: Mapping[str, int],
    found: Mapping[str, list[Marks]],
    samples: Mapping[str, BatchSample],
    tasks_max: int = 1,
) -> FlowCapacity:
    return reckon(FLOW, tasks_max, topics, found, samples, 10.0)


def test_topics_come_with_most_traffic_first_and_the_total_is_the_models() -> None:
    found = of(
        {"quiet": 2, "busy": 4},
        {"quiet": marks(0, 2), "busy": marks(500, 4)},
        {"busy": BATCHES},
    )

    assert [row.topic for row in found.topics] == ["busy", "quiet"]
    busy = found.topics[0]
    assert busy.load.records_per_s == pytest.approx(2000)
    assert busy.load.megabytes_per_s == pytest.approx(0.2)
    assert (busy.load.codec, busy.load.batch_bytes) == ("lz4", 16_000)
    assert (busy.peak, busy.sampled) == ("hour", True)
    assert found.capacity == capacity([row.load for row in found.topics])
    assert [row.cores for row in found.topics] == list(found.capacity.topics)


def test_a_topic_of_which_no_batch_was_read_is_taken_to_be_like_the_others() -> None:
    found = of({"a": 1, "b": 1}, {"a": marks(100), "b": marks(10)}, {"a": BATCHES})

    assert [row.sampled for row in found.topics] == [True, False]
    assert found.topics[1].load.batch_bytes == found.topics[0].load.batch_bytes


def test_the_highest_rate_counts_and_is_named() -> None:
    grown = [Marks(0, 3600, 13_600, {"hour": 0, "day": 0})]

    [row] = of({"a": 1}, {"a": grown}, {"a": BATCHES}).topics

    assert (row.peak, row.load.records_per_s) == ("now", 1000.0)
    assert row.rates == {"now": 1000.0, "hour": 1.0, "day": 3600 / 86_400}


def test_advice_names_the_slots_that_are_missing_and_batches_that_are_too_small() -> None:
    found = of({"clicks": 200}, {"clicks": marks(200, 200)}, {"clicks": SMALL})

    assert found.slots_needed > 1
    assert found.capacity.slots == found.slots_needed
    assert found.advice[0].startswith("tasks.max is 1: at this peak")
    assert found.saving is not None
    assert found.advice[1].startswith("clicks has batches of 1.0 KB")


def test_advice_says_that_slots_will_do_and_nothing_of_a_saving_that_is_none() -> None:
    found = of({"a": 1}, {"a": marks(10)}, {"a": SMALL}, tasks_max=4)

    assert found.advice == ("1 slot will do at this peak, tasks.max is 4",)
    assert found.saving is None


def test_what_is_reckoned_with_are_the_slots_that_the_flow_has() -> None:
    """Each goes its own rounds, so two cost more than one."""
    one, two = (
        of({"a": 8}, {"a": marks(500, 8)}, {"a": SMALL}, tasks_max=slots) for slots in (1, 2)
    )

    assert (one.slots_needed, two.slots_needed) == (1, 1)
    assert (one.capacity.slots, two.capacity.slots) == (1, 2)
    assert two.capacity.total.replicator > one.capacity.total.replicator


def test_what_goes_beyond_what_was_measured_is_said() -> None:
    many = of({"a": 5000}, {"a": marks(1, 5000)}, {"a": SMALL})
    quiet = of({"a": 5000, "b": 1}, {"a": marks(0, 5000), "b": marks(1)}, {"b": SMALL})

    assert any("beyond what the figures rest on" in line for line in many.advice)
    assert not any("beyond" in line for line in quiet.advice)
    described = described_capacity(TopicLoad(5000, 20.0, 16_000))
    assert any("beyond what the figures rest on" in line for line in described.advice)


def test_a_described_topic_is_advised_as_a_real_one_is() -> None:
    found = described_capacity(TopicLoad(200, 40.0, 1000), slots=20)

    assert found.capacity.slots == max(found.slots_needed, 20)
    assert found.advice[0].startswith("the topic has batches of 1.0 KB")


def test_without_traffic_there_is_nothing_to_advise_on() -> None:
    found = of({"a": 3}, {"a": marks(0, 3)}, {"a": BATCHES})

    assert found.capacity.slots == 1
    assert len(found.advice) == 1
    assert "no traffic was seen" in found.advice[0]


def test_a_flow_that_selects_nothing_is_read_too() -> None:
    assert of({}, {}, {}).topics == ()


def test_selected_topics_are_read_while_they_grow(sites: TwoSites) -> None:
    source = sites.clusters["P"]
    source.add_topic("other")
    source.produce("other", 0, 1000)
    source.produce("Payments", 0, 50, timestamp_ms=sites.clock() - 10_000_000)
    source.produce("Payments", 0, 36, timestamp_ms=sites.clock() - 1_000_000)
    said: list[str] = []

    def tell(text: str) -> None:
        if text.startswith("looking at batches"):
            source.produce("Payments", 0, 7_200_000, timestamp_ms=sites.clock())
        said.append(text)

    found = flow_capacity(sites.flow("P->B"), 0.01, tell)

    [row] = found.topics
    assert row.topic == "Payments"
    assert row.rates["hour"] == pytest.approx(36 / 3600)
    assert row.rates["day"] == pytest.approx(86 / 86_400)
    assert row.rates["now"] == pytest.approx(7_200_000 / found.window_s, rel=0.2)
    assert row.peak == "now"
    assert said[:2] == ["reading topics", "where logs end: 0 of 1 partition"]


def test_a_partition_without_a_leader_holds_nothing_up(sites: TwoSites) -> None:
    source = sites.clusters["P"]
    source.add_topic("Payments-2", 2)
    sites.change("P->B", topics=("Payments.*",))
    source.produce("Payments-2", 1, 36, timestamp_ms=sites.clock())
    source.leaderless.add(TopicPartition("Payments-2", 0))

    found = flow_capacity(sites.flow("P->B"), 0.01, lambda _text: None)

    row = next(row for row in found.topics if row.topic == "Payments-2")
    assert (row.load.partitions, row.rates["hour"]) == (2, pytest.approx(0.01))


def test_a_source_that_does_not_answer_is_an_error(sites: TwoSites) -> None:
    sites.clusters["P"].fail()

    with pytest.raises(UnavailableError):
        flow_capacity(sites.flow("P->B"), 0.01, lambda _text: None)


def test_a_flow_without_a_topic_of_its_own_says_which_were_looked_for(sites: TwoSites) -> None:
    sites.change("P->B", topics=("Orders.*",))
    found = flow_capacity(sites.flow("P->B"), 0.01, lambda _: None)

    assert found.advice[0] == "no topic of P matches topics = Orders.*"

    sites.change("P->B", topics=())
    found = flow_capacity(sites.flow("P->B"), 0.01, lambda _: None)
    assert "no topic is selected: srm-control topics --source P --target B" in found.advice[0]


def test_a_target_that_is_not_there_yet_is_done_without(sites: TwoSites) -> None:
    sites.clusters["B"].fail()

    found = flow_capacity(sites.flow("P->B"), 0.01, lambda _: None)

    assert [row.topic for row in found.topics] == ["Payments"]
    assert found.advice[0].startswith("without the lists of srm-control, as B does not answer")
