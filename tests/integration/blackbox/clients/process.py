"""Consume, process, produce, exactly once: group offsets are committed in the transaction.

With ``--leave-pending`` it sends the offsets of its first batch to a transaction, leaves the group
and decides nothing until SIGTERM (aborts): the group's offsets are pending meanwhile.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from record import Record, stop_on_sigterm


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--topic", action="append", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--leave-pending", action="store_true")
    return parser.parse_args()


class Processor:
    """One member with its own transactional producer."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._record = Record(options.record, options.cluster)
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "transactional.id": f"{options.group}-0",
                "transaction.timeout.ms": 300_000,
            }
        )
        self._producer.init_transactions(30)
        self._consumer.subscribe(options.topic, on_assign=self._joined)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            batch = self._consumer.consume(50, timeout=0.2)
            if not batch:
                continue
            self._begin(batch)
            if self._options.leave_pending:
                self._leave_pending(stop)
                return
            self._producer.commit_transaction(30)
            for message in batch:
                place = message.topic(), message.partition(), message.offset()
                self._record.write("processed", *place, message.value().decode())
        self._consumer.close()

    def _begin(self, batch: list[Any]) -> None:
        """Write the results and the group's offsets into a transaction."""
        self._producer.begin_transaction()
        after: dict[tuple[str, int], int] = {}
        for message in batch:
            self._producer.produce(self._options.output, message.value(), message.key())
            after[message.topic(), message.partition()] = message.offset() + 1
        offsets = [TopicPartition(*where, offset) for where, offset in after.items()]
        group = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(offsets, group, 30)

    def _leave_pending(self, stop: threading.Event) -> None:
        self._producer.flush(30)
        self._consumer.close()
        self._record.write("open", self._options.output)
        while not stop.is_set():
            stop.wait(0.05)
        self._producer.abort_transaction(30)

    def _joined(self, _consumer: object, given: list[Any]) -> None:
        if given:
            self._record.write("joined", id=f"{len(given)} partitions")


def main() -> None:
    options, stop = _parse(), stop_on_sigterm()
    Processor(options).run(stop)


if __name__ == "__main__":
    main()
