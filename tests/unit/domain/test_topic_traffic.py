"""Offsets at several times, and some batches, make up a topic's traffic."""

from __future__ import annotations

import pytest

from srm.domain.capacity import TopicLoad
from srm.domain.topic_traffic import BatchSample, Marks, load_of, rates


def test_rates_are_means_over_each_span_and_all_partitions() -> None:
    marks = [
        Marks(0, 1000, 1100, {"hour": 640, "day": 136}),
        Marks(0, 2000, 2100, {"hour": 1640, "day": 1136}),
    ]

    assert rates(marks, 10.0) == {"now": 20.0, "hour": 720 / 3600, "day": 1728 / 86_400}


def test_no_record_so_late_means_that_nothing_was_written() -> None:
    assert rates([Marks(0, 1000, 1000)], 10.0) == {"now": 0.0, "hour": 0.0, "day": 0.0}


def test_what_retention_has_taken_is_not_guessed() -> None:
    """A log that begins within the last day says nothing of the whole day."""
    marks = [Marks(500, 1000, 1000, {"hour": 900, "day": 500}), Marks(0, 10, 10, {"day": 0})]

    assert rates(marks, 10.0) == {"now": 0.0, "hour": 100 / 3600}


def test_a_log_that_was_cut_meanwhile_has_no_negative_rate() -> None:
    assert rates([Marks(0, 1000, 900, {"hour": 1100})], 1.0)["now"] == 0.0
    assert rates([Marks(0, 1000, 900, {"hour": 1100})], 1.0)["hour"] == 0.0


def test_samples_add_up_and_the_codec_is_that_of_most_bytes() -> None:
    sample = BatchSample(2, 300, 30, {"none": 300}) + BatchSample(1, 500, 5, {"lz4": 500})

    assert sample == BatchSample(3, 800, 35, {"lz4": 500, "none": 300})
    assert sample.codec == "lz4"
    assert BatchSample().codec == "none"


def test_traffic_is_the_rate_in_batches_like_the_samples() -> None:
    sample = BatchSample(10, 160_000, 1600, {"lz4": 160_000})

    load = load_of(8, 20_000.0, sample)

    assert load == TopicLoad(8, 2.0, 16_000, 20_000.0, "lz4")
    assert load.batches_per_s == pytest.approx(125)


def test_a_quiet_topic_and_one_that_nobody_could_look_into_cost_their_partitions_only() -> None:
    assert load_of(8, 0.0, BatchSample(1, 100, 1, {"lz4": 100})) == TopicLoad(8, 0, 0, 0, "lz4")
    assert load_of(8, 50.0, BatchSample()).megabytes_per_s == 0.0
