"""A stream of made-up payments that looks like a real one: few busy accounts, many quiet ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

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
