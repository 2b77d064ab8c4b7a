"""A plain consumer with librdkafka's defaults, so with auto-commit: ``consume.py --group ...``.

With ``--store`` it names the offsets to commit itself, when it has processed them. librdkafka's
default loses records at ``close()`` where transaction markers are among the records it has fetched
and not handed out: a marker moves the stored offset past the records before it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from record import Record, stop_on_sigterm


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--topic", action="append", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--reset", help="auto.offset.reset; librdkafka's own default if not given")
    parser.add_argument("--instance", help="group.instance.id of a static member")
    parser.add_argument("--session", type=int, help="seconds a member may be silent")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds each record takes")
    parser.add_argument("--store", action="store_true", help="store offsets when processed")
    parser.add_argument("--assign", type=int, help="assign so many partitions, join no group")
    parser.add_argument("--count", type=int, default=0, help="end after so many; 0: never")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "group.protocol": options.protocol,
    }
    if options.instance:
        settings["group.instance.id"] = options.instance
    if options.session:
        settings["session.timeout.ms"] = options.session * 1000
        settings["max.poll.interval.ms"] = options.session * 1000
    if options.store:
        settings["enable.auto.offset.store"] = False
    if options.reset:
        settings["auto.offset.reset"] = options.reset
    return settings


def main() -> None:
    options, stop = _parse(), stop_on_sigterm()
    record = Record(options.record, options.cluster)
    consumer = Consumer(_settings(options))

    def joined(_consumer: object, given: list[Any]) -> None:
        if given:
            record.write("joined", id=f"{len(given)} partitions")

    if options.assign is None:
        consumer.subscribe(options.topic, on_assign=joined)
    else:
        places = [TopicPartition(t, n) for t in options.topic for n in range(options.assign)]
        consumer.assign(places)
        joined(consumer, places)
    done = 0
    while not stop.is_set() and not (options.count and done >= options.count):
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        if options.pause:
            stop.wait(options.pause)
        # Counts as processed even if the stop came while it worked: the next commit covers it.
        record.write(
            "processed",
            message.topic(),
            message.partition(),
            message.offset(),
            message.value().decode(),
        )
        if options.store:
            consumer.store_offsets(message)
        done += 1
    consumer.close()


if __name__ == "__main__":
    main()
