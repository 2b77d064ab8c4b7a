"""A producer of payments, run as a process of its own: ``python -m srm_lab.demo.producer``.

It loads some payments as fast as it can, then continues at a steady rate until SIGTERM, following
its topic from cluster to cluster. What the cluster has acknowledged goes into its record.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from srm.client.messages import HeldError
from srm.client.producer import FailoverProducer
from srm.clock import now_ms
from srm.config.loader import load_config
from srm.errors import SrmError
from srm.threads import on_signals
from srm_lab.demo.record import TOPIC, Payment, PaymentEntry, PaymentStream, RecordWriter

logger = logging.getLogger(__name__)

_TICK_S: Final = 0.02


@dataclass(frozen=True)
class ProducerOptions:
    """Settings of one producer; ``rate`` is in payments per second."""

    config: Path
    name: str
    home: str
    initial: int
    rate: float
    record: Path


class PaymentProducer:
    """Writes the payments of one stream and records each acknowledgement."""

    def __init__(self, options: ProducerOptions, stop: threading.Event) -> None:
        self._options = options
        self._stop = stop
        self._stream = PaymentStream(options.name)
        self.failed = 0

    def run(self) -> None:
        """Write until stopped, then wait for all acknowledgements.

        SrmError: the cluster refuses, or a hold does not end in time.
        """
        options = self._options
        config = load_config(options.config)
        with (
            RecordWriter(options.record) as record,
            FailoverProducer({}, clusters=config, topics=[TOPIC], home=options.home) as producer,
        ):
            for _ in range(options.initial):
                if self._stop.is_set():
                    return
                self._send(producer, record)
            producer.flush()
            self._go_on(producer, record)

    def _go_on(self, producer: FailoverProducer, record: RecordWriter) -> None:
        began, sent = time.monotonic(), 0
        while not self._stop.wait(_TICK_S):
            due = int((time.monotonic() - began) * self._options.rate)
            if due - sent > self._options.rate:
                # A hold has just ended: customers come back, they do not pay twice as fast.
                began, sent, due = time.monotonic(), 0, 0
            while sent < due and not self._stop.is_set():
                self._send(producer, record)
                sent += 1

    def _send(self, producer: FailoverProducer, record: RecordWriter) -> None:
        payment = self._stream.next(now_ms())

        def on_delivery(error: Any, message: Any) -> None:
            self._note(record, payment, error, message)

        producer.poll(0)
        while True:
            try:
                producer.produce(TOPIC, payment.value, payment.key, on_delivery=on_delivery)
            except HeldError:
                raise
            except BufferError:
                producer.poll(_TICK_S)
            else:
                return

    def _note(
        self,
        record: RecordWriter,
        payment: Payment,
        error: Any,
        message: Any,
    ) -> None:
        if error is not None:
            self.failed += 1
            logger.error("payment %s was not written: %s", payment.id, error)
            return
        record.write(
            PaymentEntry(
                now_ms(),
                message.cluster,
                message.topic(),
                message.partition(),
                message.offset(),
                payment.id,
            )
        )


def parse(arguments: Sequence[str] | None = None) -> ProducerOptions:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--name", required=True, help="first part of the payment ids")
    parser.add_argument("--home", required=True, help="cluster to start on")
    parser.add_argument("--initial", type=int, default=0, help="payments to load at once")
    parser.add_argument("--rate", type=float, default=100.0, help="payments per second after that")
    parser.add_argument("--record", type=Path, required=True, help="file of acknowledged payments")
    return ProducerOptions(**vars(parser.parse_args(arguments)))


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    on_signals(signal.SIGTERM, signal.SIGINT, call=lambda _number: stop.set())
    return stop


def main() -> int:
    """Run one producer; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = parse()
    producer = PaymentProducer(options, stop_on_signals())
    try:
        producer.run()
    except SrmError as error:
        logger.error("Error: %s", error)  # noqa: TRY400 -- the message says it all
        return error.exit_code
    return 1 if producer.failed else 0


if __name__ == "__main__":
    sys.exit(main())
