"""An application that reads payments, run as a process: ``python -m srm_lab.demo.application``.

Its loop is the whole contract with :class:`~srm.client.consumer.FailoverConsumer`: process a
payment, record that, only then ask for the next one. Moves happen inside ``poll``; the application
knows nothing of them but the cluster it writes into its record.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from srm.client.consumer import FailoverConsumer
from srm.clock import now_ms
from srm.config.loader import load_config
from srm.errors import SrmError
from srm.kafka.wire.errors import translate
from srm_lab.demo.producer import stop_on_signals
from srm_lab.demo.record import TOPIC, PaymentEntry, RecordWriter, read_payment

_SUSPICIOUS_IN_A_ROW: Final = 3
_SUSPICIOUS_AMOUNT: Final = 250.0


class BusinessLogic(Protocol):
    """The business side of an application."""

    def take(self, payment: Mapping[str, Any]) -> None:
        """Process one payment."""
        ...

    def summary(self) -> str:
        """Say in a few words what came of it."""
        ...


class Bookkeeping:
    """Books each payment from one account to another, in cents."""

    def __init__(self) -> None:
        self._balance: dict[tuple[str, str], int] = defaultdict(int)
        self._turnover = 0

    def take(self, payment: Mapping[str, Any]) -> None:
        """Book a payment."""
        cents, currency = round(payment["amount"] * 100), payment["currency"]
        self._balance[payment["payer"], currency] -= cents
        self._balance[payment["payee"], currency] += cents
        self._turnover += cents

    def summary(self) -> str:
        """Name the number of accounts, and that the books are balanced."""
        balanced = "balanced" if not sum(self._balance.values()) else "NOT BALANCED"
        accounts = len({account for account, _ in self._balance})
        return f"{accounts:,} accounts, {self._turnover / 100:,.0f} booked, {balanced}"


class Fraud:
    """Looks for accounts that make large payments one after the other."""

    def __init__(self) -> None:
        self._in_a_row: dict[str, int] = defaultdict(int)
        self._alarms = 0

    def take(self, payment: Mapping[str, Any]) -> None:
        """Judge a payment."""
        account = payment["payer"]
        large = payment["amount"] >= _SUSPICIOUS_AMOUNT
        self._in_a_row[account] = self._in_a_row[account] + 1 if large else 0
        if self._in_a_row[account] == _SUSPICIOUS_IN_A_ROW:
            self._alarms += 1

    def summary(self) -> str:
        """Name the number of accounts and alarms."""
        return f"{len(self._in_a_row):,} accounts watched, {self._alarms:,} alarms"


class Analytics:
    """Sums up turnover by merchant and currency."""

    def __init__(self) -> None:
        self._turnover: dict[tuple[str, str], float] = defaultdict(float)
        self._payments = 0

    def take(self, payment: Mapping[str, Any]) -> None:
        """Count a payment."""
        self._turnover[payment["merchant"], payment["currency"]] += payment["amount"]
        self._payments += 1

    def summary(self) -> str:
        """Name the best merchant."""
        if not self._turnover:
            return "nothing sold"
        (merchant, currency), sold = max(self._turnover.items(), key=lambda item: item[1])
        return f"{self._payments:,} payments, most at {merchant}: {sold:,.0f} {currency}"


WORK: Final[Mapping[str, Callable[[], BusinessLogic]]] = {
    "ledger": Bookkeeping,
    "fraud": Fraud,
    "analytics": Analytics,
}
"""The applications by their consumer group."""


logger = logging.getLogger(__name__)

SUMMARY_SUFFIX: Final = ".summary"
"""Suffix of the file next to the record; an application writes its result there at its end."""

_POLL_S: Final = 0.5
_SLICE_S: Final = 0.05


@dataclass(frozen=True)
class ApplicationOptions:
    """Settings of one application.

    ``pace`` is the number of payments per second before the first move, after it, after the
    second, ...; 0 means unlimited, the last value stays. ``delay`` is the minimum age in seconds of
    a payment before it is processed.
    """

    config: Path
    group: str
    pace: tuple[float, ...]
    delay: float
    record: Path


class Pace:
    """Waits between payments so that no more than the present pace are processed."""

    def __init__(self, paces: Sequence[float], stop: threading.Event) -> None:
        self._paces = paces
        self._stop = stop
        self._moves = -1
        self._cluster = ""
        self._began = 0.0
        self._done = 0

    def wait(self, cluster: str) -> None:
        """Wait until the next payment of this cluster is due."""
        if cluster != self._cluster:
            self._cluster = cluster
            self._moves += 1
            self._began, self._done = time.monotonic(), 0
        pace = self._paces[min(self._moves, len(self._paces) - 1)]
        if pace > 0:
            self._done += 1
            early = self._began + self._done / pace - time.monotonic()
            if early > 0:
                self._stop.wait(early)


def run(options: ApplicationOptions, stop: threading.Event) -> None:
    """Process payments until stopped.

    SrmError: a cluster refuses to be read.
    """
    work = WORK[options.group]()
    pace = Pace(options.pace, stop)
    config = load_config(options.config)
    with (
        RecordWriter(options.record) as record,
        FailoverConsumer({"group.id": options.group}, clusters=config) as consumer,
    ):
        consumer.subscribe([TOPIC])
        message = None
        while not stop.is_set():
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                raise translate(message.error(), f"reading on cluster {message.cluster}")
            payment = read_payment(message.value())
            cluster = consumer.cluster or ""
            _wait_for_age(payment, options.delay, stop)
            pace.wait(cluster)
            if stop.is_set():
                return  # not processed, so it is not committed either
            work.take(payment)
            record.write(_entry(message, cluster, payment["id"]))
        if message is not None:
            consumer.done(message)
    options.record.with_suffix(SUMMARY_SUFFIX).write_text(work.summary(), encoding="utf-8")


def _wait_for_age(payment: dict[str, Any], delay_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        young = payment["time_ms"] / 1000 + delay_s - time.time()
        if young <= 0:
            return
        stop.wait(min(young, _SLICE_S))


def _entry(message: Any, cluster: str, payment: str) -> PaymentEntry:
    return PaymentEntry(
        now_ms(),
        cluster,
        message.topic(),
        message.partition(),
        message.offset(),
        payment,
    )


def parse(arguments: Sequence[str] | None = None) -> ApplicationOptions:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--group", choices=sorted(WORK), required=True)
    parser.add_argument(
        "--pace", default="0", help="payments per second before each move, e.g. 9,0"
    )
    parser.add_argument("--delay", type=float, default=0.0, help="age of a payment in seconds")
    parser.add_argument("--record", type=Path, required=True, help="file of processed payments")
    given = parser.parse_args(arguments)
    pace = tuple(float(part) for part in given.pace.split(","))
    return ApplicationOptions(given.config, given.group, pace, given.delay, given.record)


def main() -> int:
    """Run one application; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = parse()
    try:
        run(options, stop_on_signals())
    except SrmError as error:
        logger.error("Error: %s", error)  # noqa: TRY400 -- the message says it all
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
