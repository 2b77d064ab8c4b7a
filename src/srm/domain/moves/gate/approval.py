"""Approvals of a move with the numbers shown: ``approval:<move id>`` in ``__srm-moves``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from srm.domain.text.documents import adapter, decode
from srm.errors import UsageError


@dataclass(frozen=True, slots=True)
class Approval:
    """One approval.

    ``by``: the approver, ``user@host`` from a shell, or the name of the Airflow user from a form.
    ``how``: the act of approval: ``--yes``, ``typed failover``, ``Airflow``.
    ``time_ms``: epoch milliseconds by the clock of the host where it was given.
    ``text``: the text as shown to the approver.
    ``numbers``: the numbers in that text by name, in records or seconds; None if not known.
    """

    by: str
    how: str
    time_ms: int
    text: str
    numbers: Mapping[str, int | float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.by:
            raise UsageError("the approval has no name: give the name of the approver")
        for name, number in self.numbers.items():
            if number is not None and not math.isfinite(number):
                raise UsageError(f"approval by {self.by}: {name} is {number}: use None for unknown")


def approval_key(move_id: str) -> str:
    """Return the key of the approvals of a move in the moves topic."""
    return f"approval:{move_id}"


def join_approvals(*some: Iterable[Approval]) -> tuple[Approval, ...]:
    """Join approvals from several clusters or calls: each one once, the oldest first."""
    found: list[Approval] = []
    for approval in (one for approvals in some for one in approvals):
        if approval not in found:
            found.append(approval)
    return tuple(sorted(found, key=lambda one: (one.time_ms, one.by, one.how)))


def encode_approvals(approvals: Iterable[Approval]) -> bytes:
    """Encode the approvals of one move as JSON."""
    return adapter(tuple[Approval, ...]).dump_json(tuple(approvals))


def decode_approvals(value: bytes) -> tuple[Approval, ...]:
    """Decode the output of :func:`encode_approvals`."""
    return decode(tuple[Approval, ...], "stored approval of a move", value)
