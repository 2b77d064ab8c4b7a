"""The target refuses batches: they arrive in pieces, and a record to blame is named or noted."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence

import pytest
from tests.integration.copying import CopyLab
from tests.waiting import eventually

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.replication.batches.batch import batches
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

NOW_MS = time.time_ns() // 1_000_000
DAY_MS = 86_400_000
LARGE_BATCHES = {"linger.ms": 60_000, "batch.size": 500_000, "batch.num.messages": 1000}


def _lab(clusters: Mapping[str, KafkaBroker], **config: object) -> CopyLab:
    return CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap, **config)


def _topic(lab: CopyLab, partitions: int = 1, **target: str) -> Sequence[AssignedPartition]:
    found = lab.topic(partitions)
    lab.target.alter_topic_configs({found[0].target_topic: target})
    return found


def _send(
    lab: CopyLab,
    p: AssignedPartition,
    sizes: Sequence[int],
    timestamps: Mapping[int, int] | None = None,
    **settings: object,
) -> None:
    producer = lab.producer(**LARGE_BATCHES, **settings)
    for i, size in enumerate(sizes):
        producer.produce(
            p.topic,
            os.urandom(size),
            key=None if size == 0 else b"k",
            partition=p.partition,
            timestamp=(timestamps or {}).get(i, NOW_MS + i),
        )
    assert producer.flush(120) == 0


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_batches_above_the_targets_limit_arrive_in_pieces(
    clusters: Mapping[str, KafkaBroker], codec: str
) -> None:
    lab = _lab(clusters)
    [p] = _topic(lab, **{"max.message.bytes": "20000"})
    _send(lab, p, [1000] * 1500, **{"compression.type": codec})
    lab.assign("0", [p])

    with lab.running():
        lab.wait_until_copied([p])

    lab.assert_equal([p])


def test_a_record_too_large_for_the_target_stops_its_partition_until_it_is_allowed(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    lab = _lab(clusters)
    [p, other] = _topic(lab, 2, **{"max.message.bytes": "20000"})
    _send(lab, p, [500, 500, 30_000, 500])
    lab.assign("0", [p, other])

    with lab.running():
        status = lab.stopped(p)
        _send(lab, other, [500] * 10)
        lab.wait_until_copied([other])

        assert (status.lost_from, status.lost_to) == (2, 3)
        assert "source offset 2: 30" in status.reason
        assert "max.message.bytes" in status.reason
        assert ".errors.tolerance = all in" in status.reason

    lab.target.alter_topic_configs({p.target_topic: {"max.message.bytes": "40000"}})
    with lab.running():
        lab.wait_until_copied([p])
        eventually(
            lambda: (status := lab.status(p)) is not None and status.lost_from is None,
            "the status tells of no loss, for there was none",
        )

    lab.assert_equal([p, other])


@pytest.mark.parametrize("policy", [{"data_loss_policy": "continue"}, {"errors_tolerance": "all"}])
def test_records_that_the_target_refuses_are_noted_as_lost_and_the_rest_arrives(
    clusters: Mapping[str, KafkaBroker], policy: Mapping[str, str]
) -> None:
    lab = _lab(clusters, **policy)
    [large, old, keyless] = (
        _topic(lab, **settings)[0]
        for settings in (
            {"max.message.bytes": "20000"},
            {"message.timestamp.before.max.ms": str(DAY_MS)},
            {"cleanup.policy": "compact", "min.compaction.lag.ms": str(DAY_MS)},
        )
    )
    long_ago = NOW_MS - 3 * DAY_MS
    _send(lab, large, [500] * 40 + [30_000] + [500] * 30)
    _send(lab, old, [100] * 50, {7: long_ago, 8: long_ago, 30: long_ago})
    _send(lab, keyless, [100] * 20 + [0] + [100] * 20)
    lost = {large: {40}, old: {7, 8, 30}, keyless: {20}}
    lab.assign("0", list(lost))

    with lab.running():
        lab.wait_until_copied(list(lost))

    for p, offsets in lost.items():
        lab.assert_equal([p], without=offsets)
        status = lab.status(p)
        assert status is not None
        assert (status.lost_from, status.lost_to) == (max(offsets), max(offsets) + 1)
        assert f"lost {len(offsets)} source offset" in status.reason


# What is alone the target finds; the plain path looks into all that are tiny.
@pytest.mark.parametrize("batch", [1, 100])
def test_what_is_damaged_in_the_sources_log_does_not_arrive_with_a_valid_checksum(
    clusters: Mapping[str, KafkaBroker], batch: int
) -> None:
    lab = _lab(clusters)
    [p, other] = _topic(lab, 2)
    for _ in range(3):
        _send(lab, p, [100] * batch)
    _send(lab, other, [100] * 3)
    [segment] = (clusters["P"].home / "data" / f"{p.topic}-{p.partition}").glob("*.log")
    *_, damaged = batches(memoryview(segment.read_bytes()))
    first, last = damaged.base_offset, damaged.last_offset
    reason = (
        f"source offset {first}: CORRUPT_MESSAGE|records at offsets {first} to {last} are damaged"
    )
    with segment.open("r+b") as log:
        at = log.seek(-2, os.SEEK_END)
        [byte] = log.read(1)
        log.seek(at)
        log.write(bytes([byte ^ 1]))
    lab.assign("0", [p, other])

    with lab.running():
        eventually(
            lambda: re.search(reason, getattr(lab.status(p), "reason", "")), "the damage is told"
        )
        lab.wait_until_copied([other])

    assert len(read_log(clusters["B"].bootstrap, p.target_topic, 0)) == first >= 2 * batch
    lab.assert_equal([other])
