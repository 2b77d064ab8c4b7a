"""A consumer on srm.client: ``failover.py --config FILE --group ... --topic ... --record FILE``."""

from __future__ import annotations

import argparse
from pathlib import Path

from record import Record, stop_on_sigterm

from srm.client.consumer import FailoverConsumer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--record", type=Path, required=True)
    options, stop = parser.parse_args(), stop_on_sigterm()
    records: dict[str, Record] = {}

    def on(cluster: str) -> Record:
        return records.setdefault(cluster, Record(options.record, cluster))

    with FailoverConsumer({"group.id": options.group}, clusters=options.config) as consumer:

        def joined(_consumer: object, given: list[object]) -> None:
            if given and consumer.cluster is not None:
                on(consumer.cluster).write("joined", id=f"{len(given)} partitions")

        consumer.subscribe([options.topic], on_assign=joined)
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            place = message.topic(), message.partition(), message.offset()
            on(message.cluster).write("processed", *place, message.value().decode())


if __name__ == "__main__":
    main()
