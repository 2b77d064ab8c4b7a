"""The driver's view of a flow whose partitions change their slot, by reports of real slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import pytest
from tests.integration.copying import CopyLab
from tests.waiting import eventually

from srm.domain import internal_topics
from srm.domain.replication_records import AssignedPartition, SlotReport
from srm.kafka.tail import KafkaTopicTail
from srm.replication.driver.progress import ProgressBook
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def _produce(lab: CopyLab, partitions: Sequence[AssignedPartition], count: int) -> None:
    producer = lab.producer()
    for number in range(count):
        producer.produce(partitions[0].topic, b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


def test_a_flow_is_caught_up_though_a_former_owner_repeats_an_older_position(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)
    partitions = lab.topic(2)
    moved = partitions[0].copy_id
    book = ProgressBook(str(lab.flow), ("0", "1"))
    book.set_partitions(partitions)
    said: list[tuple[str, int]] = []

    with ExitStack() as stack:
        stack.enter_context(lab.running("0"))
        stack.enter_context(lab.running("1"))
        tail = stack.enter_context(
            KafkaTopicTail(lab.target_props, internal_topics.replication(lab.flow.source))
        )

        def follow() -> list[tuple[str, int]]:
            """Feed the book what slots report; return what was said of the partition that moves."""
            for key, value in tail.poll(0.1):
                if key.startswith(b"slot:") and value is not None:
                    report = SlotReport.decode(key, value)
                    book.report(report)
                    said.extend(
                        (report.slot, entry.position.source_next)
                        for entry in report.positions
                        if entry.copy_id == moved
                    )
            return said

        _produce(lab, partitions, 20)
        lab.assign("0", partitions)
        eventually(lambda: ("0", 10) in follow(), "slot 0 has copied its first records")
        lab.assign("0", partitions[1:])
        lab.assign("1", partitions[:1])
        _produce(lab, partitions, 20)
        eventually(lambda: ("1", 20) in follow(), "slot 1 has copied the others")
        said.clear()
        eventually(lambda: follow() and said[-1] == ("0", 10), "slot 0 repeats where it stood")

        eventually(lambda: follow() and not book.behind({partitions[1]: 20}), "slot 0's own")
        eventually(lambda: follow() and said[-1] == ("0", 10), "slot 0's report came last again")
        assert book.behind({partitions[0]: 20, partitions[1]: 20}) == ()
        assert book.snapshot().lag == 0
