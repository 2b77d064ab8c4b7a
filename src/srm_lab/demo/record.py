"""Payments, and records of what the programs did with them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from srm.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class PaymentEntry:
    """One payment: acknowledged to a producer, or processed by an application."""

    time_ms: int
    cluster: str
    topic: str
    partition: int
    offset: int
    payment: str

    def line(self) -> bytes:
        """Encode."""
        fields = (self.time_ms, self.cluster, self.topic, self.partition, self.offset, self.payment)
        return ("\t".join(map(str, fields)) + "\n").encode()

    @classmethod
    def parse(cls, line: str) -> PaymentEntry:
        """Decode.

        IntegrityError: it is not a line of a record.
        """
        try:
            time_ms, cluster, topic, partition, offset, payment = line.split("\t")
            return cls(int(time_ms), cluster, topic, int(partition), int(offset), payment)
        except ValueError as error:
            raise IntegrityError(f"{line!r} is not a line of a record of payments") from error


class RecordWriter:
    """Appends entries to a file, each one at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def write(self, entry: PaymentEntry) -> None:
        """Append one entry; it is with the operating system when this returns."""
        os.write(self._file, entry.line())


class RecordReader:
    """Reads a record that may still grow: each call returns what is new, whole lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new(self) -> Iterator[PaymentEntry]:
        """Yield the entries written since the last call; none without a file."""
        if not self._path.exists():
            return
        end = self._path.stat().st_size  # a writer may be faster than this
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n") or self._position >= end:
                    return
                self._position += len(line)
                yield PaymentEntry.parse(line.decode().rstrip("\n"))


def read_record(path: Path) -> list[PaymentEntry]:
    """Read a record as a whole."""
    return list(RecordReader(path).new())


TOPIC: Final = "Payments"
PARTITIONS: Final = 4

_ACCOUNTS: Final = 2_000
_CURRENCIES: Final = ("EUR", "USD", "GBP", "CHF", "PLN")
_CURRENCY_WEIGHTS: Final = (46, 30, 12, 7, 5)
_CHANNELS: Final = ("card", "transfer", "wallet", "direct-debit")
_CHANNEL_WEIGHTS: Final = (55, 25, 15, 5)
_MERCHANTS: Final = (
    "Corner Bakery",
    "Northern Rail",
    "Harbour Books",
    "Mill Lane Pharmacy",
    "Old Town Cinema",
    "Summit Outdoor",
    "Fresh & Near Market",
    "City Power and Light",
)


@dataclass(frozen=True, slots=True)
class Payment:
    """One record: ``key`` is the paying account, so that its payments stay in order."""

    id: str
    key: str
    value: bytes


class PaymentStream:
    """Endless payments of one producer, numbered from 1 without gaps.

    The same name gives the same payments; only their time is that of their making.
    """

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._random = random.Random(producer)  # noqa: S311 -- made-up data, no secret
        self._number = 0

    def next(self, time_ms: int) -> Payment:
        """Make the next payment."""
        self._number += 1
        payment_id = payment_name(self._producer, self._number)
        payer = self._account()
        body = {
            "id": payment_id,
            "time_ms": time_ms,
            "amount": round(self._random.lognormvariate(3.4, 1.1), 2),
            "currency": self._random.choices(_CURRENCIES, _CURRENCY_WEIGHTS)[0],
            "payer": payer,
            "payee": self._account(),
            "merchant": self._random.choice(_MERCHANTS),
            "channel": self._random.choices(_CHANNELS, _CHANNEL_WEIGHTS)[0],
            "reference": f"{self._random.getrandbits(64):016x}",
        }
        return Payment(payment_id, payer, json.dumps(body, separators=(",", ":")).encode())

    def _account(self) -> str:
        # A power of a uniform number favours the small ones: the busy accounts.
        return f"AC{int(_ACCOUNTS * self._random.random() ** 2):06d}"


def payment_name(producer: str, number: int) -> str:
    """Return the id of a producer's payment; numbers count from 1."""
    return f"{producer}-{number:08d}"


def read_payment(value: bytes) -> dict[str, Any]:
    """Decode a payment."""
    body: dict[str, Any] = json.loads(value)
    return body


def missing_numbers(ids: Iterable[str]) -> dict[str, int]:
    """Count, by producer, the numbers below the highest one that no id has: 0 where dense."""
    seen: dict[str, set[int]] = {}
    for payment_id in ids:
        producer, _, number = payment_id.rpartition("-")
        seen.setdefault(producer, set()).add(int(number))
    return {producer: max(numbers) - len(numbers) for producer, numbers in seen.items()}
