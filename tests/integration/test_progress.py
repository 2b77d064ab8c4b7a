"""The driver's view of a flow whose partitions change their slot, by reports of real slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import pytest
from tests.integration.copying import CopyLab
from tests.waiting import eventually

from srm.domain import internal_topics
from srm.domain.replication_records import REPORTS, AssignedPartition
from srm.domain.slot_records import PositionGroup, decode_slot_record
from srm.kafka.tail import KafkaTopicTail
from srm.replication.driver.progress import ProgressBook
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def _produce(lab: CopyLab, partitions: Sequence[AssignedPartition], count: int) -> None:
    producer = lab.producer()
    for number in range(count):
        producer.produce(partitions[0].topic, b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0


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
            KafkaTopicTail(lab.target_props, internal_topics.replication(lab.flow.source), REPORTS)
        )

        def follow() -> list[tuple[str, int]]:
            """Feed the book what slots report; return what was said of the partition that moves."""
            for key, value in tail.poll(0.1):
                if not key.startswith(b"slot:") or value is None:
                    continue
                group = decode_slot_record(key, value)
                if isinstance(group, PositionGroup):
                    book.positions((REPORTS, key), group.positions)
                    said.extend(
                        (group.slot, entry.position.source_next)
                        for entry in group.positions
                        if entry.copy_id == moved
                    )
            return said

        _produce(lab, partitions, 20)
        lab.assign("0", partitions)
        eventually(lambda: ("0", 10) in follow(), "slot 0 has copied its first records")
        lab.assign("0", partitions[1:])
        lab.assign("1", partitions[:1])
        # Before, slot 0 might copy what comes now: it hears of its assignment in its own time.
        eventually(lambda: ("1", 10) in follow(), "slot 1 has taken over")
        _produce(lab, partitions, 20)
        eventually(lambda: ("1", 20) in follow(), "slot 1 has copied the others")
        eventually(lambda: follow().count(("0", 10)) > 1, "slot 0 has told where it left")

        eventually(lambda: follow() and not book.behind({partitions[1]: 20}), "slot 0's own")
        assert book.behind({partitions[0]: 20, partitions[1]: 20}) == ()
        assert book.snapshot().lag == 0
