"""A plain producer: ``produce.py --bootstrap ... --topic ... --record FILE``.

With ``--transactional-id`` it writes transactions of ``--batch`` records, of which every fifth is
aborted; with ``--leave-open`` it writes one batch and neither commits nor aborts it until SIGUSR1
(commits) or SIGTERM (aborts).
"""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from record import Record, stop_on_sigterm


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--prefix", required=True, help="of the ids; unique per run of a client")
    parser.add_argument("--rate", type=float, default=50.0, help="records per second; 0: no pause")
    parser.add_argument("--count", type=int, default=0, help="end after so many; 0: never")
    parser.add_argument("--transactional-id")
    parser.add_argument("--timeout", type=int, default=300, help="of transactions, in seconds")
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--leave-open", action="store_true")
    return parser.parse_args()


class Writer:
    """Hands numbered records to Kafka and writes down what became of each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.record = Record(options.record, options.cluster)
        self.number = 0
        self._open: list[tuple[str, int, int, str]] = []
        settings: dict[str, Any] = {"bootstrap.servers": options.bootstrap}
        if options.transactional_id:
            settings["transactional.id"] = options.transactional_id
            settings["transaction.timeout.ms"] = options.timeout * 1000
        self.producer = Producer(settings)

    def produce(self) -> None:
        self.number += 1
        value = f"{self._options.prefix}-{self.number}"
        self.producer.produce(self._options.topic, value, value, on_delivery=self._delivered)
        self.producer.poll(0)

    def decided(self, kind: str) -> None:
        """Write down what became of the transaction's records."""
        for place in self._open:
            self.record.write(kind, *place)
        self._open.clear()

    def _delivered(self, error: object, message: Any) -> None:
        value = message.value().decode()
        if error is not None:
            self.record.write("failed", message.topic(), id=value)
            return
        place = message.topic(), message.partition(), message.offset(), value
        if self._options.transactional_id:
            self._open.append(place)
        else:
            self.record.write("acked", *place)


def _plain(writer: Writer, options: argparse.Namespace, stop: threading.Event) -> None:
    while not stop.is_set() and not (options.count and writer.number >= options.count):
        writer.produce()
        if options.rate:
            stop.wait(1 / options.rate)
    writer.producer.flush(30)


def _transactional(writer: Writer, options: argparse.Namespace, stop: threading.Event) -> None:
    writer.producer.init_transactions(30)
    turn = 0
    while not stop.is_set() and not (options.count and writer.number >= options.count):
        turn += 1
        writer.producer.begin_transaction()
        for _ in range(options.batch):
            writer.produce()
            if options.rate:
                stop.wait(1 / options.rate)
        writer.producer.flush(30)
        if turn % 5 == 0:
            writer.producer.abort_transaction(30)
            writer.decided("aborted")
        else:
            writer.producer.commit_transaction(30)
            writer.decided("acked")


def _left_open(writer: Writer, options: argparse.Namespace, stop: threading.Event) -> None:
    commit = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: commit.set())
    writer.producer.init_transactions(30)
    writer.producer.begin_transaction()
    for _ in range(options.batch):
        writer.produce()
    writer.producer.flush(30)
    writer.record.write("open", options.topic)
    while not stop.is_set() and not commit.is_set():
        stop.wait(0.05)
    if commit.is_set():
        writer.producer.commit_transaction(30)
        writer.decided("acked")
    else:
        writer.producer.abort_transaction(30)
        writer.decided("aborted")


def main() -> None:
    options, stop = _parse(), stop_on_sigterm()
    writer = Writer(options)
    if options.leave_open:
        _left_open(writer, options, stop)
    elif options.transactional_id:
        _transactional(writer, options, stop)
    else:
        _plain(writer, options, stop)


if __name__ == "__main__":
    main()
