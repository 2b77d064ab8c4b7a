"""Counterpart of Probe.java with librdkafka: a producer and a consumer for each argument."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer


def main(servers: str, topic: str, *probes: str) -> None:
    """Start all of them; each prints its results for ever."""
    for probe in probes:
        name, *settings = probe.split(",")
        props: dict[str, Any] = {
            "bootstrap.servers": servers,
            "client.id": name,
            **dict(setting.split("=", 1) for setting in settings),
        }
        for work in (_produce, _consume):
            threading.Thread(target=work, args=(name, topic, props)).start()


def _produce(name: str, topic: str, props: dict[str, Any]) -> None:
    producer, number = Producer({**props, "enable.idempotence": True}), 0
    while True:
        value = f"{name}/{number}"
        producer.produce(
            topic,
            value,
            name,
            0,
            on_delivery=lambda error, _message, value=value: _say(
                f"{'refused' if error else 'ack'} {value}"
            ),
        )
        number += 1
        producer.poll(0.2)


def _consume(name: str, topic: str, props: dict[str, Any]) -> None:
    consumer = Consumer({**props, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(1.0)
        if message is not None and not message.error() and message.value().startswith(b"B/"):
            _say(f"read {name} {message.value().decode()}")
        elif message is not None and message.error():
            time.sleep(0.2)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
