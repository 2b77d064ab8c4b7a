"""Cells of a fleet: how large they are, the traffic, what was sent, and what it cost."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from bench import fleet_cost
from bench.data import records_in, sized
from bench.fleet import PARTITIONS, RATES, Sizes, new_topics
from bench.load import Spread, pace
from bench.report import render
from bench.results import Result, load_all, save
from bench.sent_batches import count_batches, log_sizes
from bench.tables import gist

from srm.replication.batches.batch import batches, verify

CELL = Result(
    "fleet-16kb-100p", "srm", "batches of 16 KB, 100 partitions", "fleet",
    records=160_000, bytes=160_000_000, wall_seconds=10.0, cpu_seconds=2.0,
    megabytes_per_second=16.0, source_broker_cpu_seconds=6.0, target_broker_cpu_seconds=3.0,
    details={
        "partitions": 100, "batch_bytes": 16_000, "offered_megabytes_per_second": 16.0,
        "batches": 10_000, "sent_batches": 8000, "behind_seconds": 0.0,
        "idle_cores": {"replicator": 0.04, "source_broker": 0.06, "target_broker": 0.05},
        "source_broker_cores_uncopied": 0.44,
    },
)  # fmt: skip


def test_batches_have_exactly_the_size_that_is_wanted() -> None:
    for size in RATES:
        for data in sized(size):
            [batch] = batches(memoryview(bytearray(data)))
            verify(batch)
            assert (len(data), batch.record_count) == (size, records_in(size))
    assert len(set(sized(1000))) > 1


def test_a_size_that_no_batch_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no batch has 50 bytes"):
        sized(50)


def test_topics_fill_up_to_the_partitions_that_are_wanted_and_none_is_too_large() -> None:
    assert new_topics("t", 0, 10) == {"t-00000": 10}
    assert new_topics("t", 100, 1000) == {"t-00100": 900}
    assert list(new_topics("t", 1000, 3500).values()) == [1000, 1000, 500]
    assert new_topics("t", 10, 10) == {}


def test_a_fraction_makes_cells_smaller_but_not_too_short() -> None:
    assert Sizes.of(1.0) == replace(Sizes(), followed=list(PARTITIONS))
    small = Sizes.of(0.01)
    assert (small.followed, small.seconds) == ([1, 10, 100], 4.0)


def test_traffic_goes_to_all_partitions_and_to_each_once_at_a_time() -> None:
    spread = Spread({"a": 3, "b": 5})
    source = random.Random(1)

    drawn = spread.draw(100, source)
    seen = {(t, p) for _ in range(200) for t, ps in spread.draw(2, source).items() for p in ps}

    assert {topic: sorted(places) for topic, places in drawn.items()} == {
        "a": [0, 1, 2],
        "b": [0, 1, 2, 3, 4],
    }
    assert seen == {*(("a", p) for p in range(3)), *(("b", p) for p in range(5))}
    assert spread.draw(0, source) == {}


def test_batches_are_counted_in_the_files_of_a_log(tmp_path: Path) -> None:
    def batch(size: int) -> bytes:
        return struct.pack(">qi", 0, size - 12) + bytes(size - 12)

    for folder in ("t-0", "t-1", "other-0"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0.log").write_bytes(batch(100))
    before = log_sizes(tmp_path, ["t"])
    for folder in ("t-0", "other-0"):
        with (tmp_path / folder / "0.log").open("ab") as log:
            log.write(batch(100) + batch(2000))
    (tmp_path / "t-0" / "9.log").write_bytes(batch(300) + batch(300)[:4])

    assert len(before) == 2
    assert count_batches(before, log_sizes(tmp_path, ["t"])) == 3
    assert count_batches(log_sizes(tmp_path, ["t"]), log_sizes(tmp_path, ["t"])) == 0


def test_cost_is_without_what_the_brokers_would_do_anyway() -> None:
    assert fleet_cost.loaded(CELL) == pytest.approx(
        {"replicator": 0.2, "source_broker": 0.16, "target_broker": 0.25}
    )
    assert fleet_cost.at_rest(CELL) == 0.04
    assert fleet_cost.per_100_megabytes(CELL) == pytest.approx(
        {
            "replicator": 0.04 + 0.16 * 100 / 16,
            "source_broker": 0.16 * 100 / 16,
            "target_broker": 0.25 * 100 / 16,
        }
    )


def test_the_table_has_both_engines_next_to_each_other_in_order_of_size() -> None:
    mm2 = replace(CELL, engine="mm2-tuned", cpu_seconds=10.0)
    late = {**CELL.details, "batch_bytes": 1000, "behind_seconds": 3.0}

    small, large = fleet_cost.rows([CELL, mm2, replace(CELL, details=late)])

    assert small[:5] == ["1 KB", "100", "16", "1.04 *", "-"]
    assert large == [
        *("16 KB", "100", "16", "1.04", "6.04", "1.00", "1.00", "1.56", "1.56"),
        *("0.80", "0.80", "0.04", "0.04"),
    ]


def test_the_page_and_the_terminal_show_it() -> None:
    assert "| 16 KB | 100 | 16 | 1.04 | - |" in render([CELL], [])
    assert "## What a fleet costs\n\nNot measured." in render([], [])
    assert gist(CELL) == (
        "cores per 100 MB/s: replicator 1.04, source broker 1.00, target broker 1.56; "
        "0.80 batches sent for each"
    )


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    save(CELL, tmp_path)

    [read] = load_all(tmp_path)
    assert fleet_cost.rows([read]) == fleet_cost.rows([CELL])


class Broker:
    """Takes what is appended."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Mapping[int, bytes]]] = []

    def append(self, requests: Iterable[tuple[str, Mapping[int, bytes]]]) -> None:
        self.requests.extend(requests)


def test_no_more_is_produced_than_the_rate_and_all_of_it_is_counted() -> None:
    broker = Broker()

    sent = pace(broker, Spread({"a": 50, "b": 50}), [b"x", b"y"], 1000, 0.05)  # type: ignore[arg-type]

    assert sent == sum(len(batches) for _, batches in broker.requests)
    assert 0 < sent <= 50
    assert {topic for topic, _ in broker.requests} <= {"a", "b"}
