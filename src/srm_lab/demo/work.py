"""Work of the three applications on a payment: little, but real."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

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
