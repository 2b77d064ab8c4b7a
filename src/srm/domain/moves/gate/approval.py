"""Who approved a move, when, how, and with which numbers in view.

Kept as one document for each move, ``approval:<move id>`` in ``srm-moves.internal``: a move may be
approved more than once, when its first attempt was released, say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from srm.domain.text.documents import adapter, decode
from srm.errors import UsageError


@dataclass(frozen=True, slots=True)
class Approval:
    """One approval.

    ``by`` is who: ``user@host`` from a shell, the name Airflow knows from a form. ``how`` says by
    which act: ``--yes``, ``typed failover``, ``Airflow``. ``time_ms`` is when, in epoch
    milliseconds by the clock of where it was given. ``text`` is what was shown, as a person has
    read it, and ``numbers`` are those in it by name: records, seconds; None is "not known".

    Raises:
        UsageError: nobody is named, or a number is not finite.
    """

    by: str
    how: str
    time_ms: int
    text: str
    numbers: Mapping[str, int | float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.by:
            raise UsageError("an approval without a name is none: say who approves")
        for name, number in self.numbers.items():
            if number is not None and not math.isfinite(number):
                raise UsageError(f"approval by {self.by}: {name} is {number}: use None for unknown")


def approval_key(move_id: str) -> str:
    """Key of the approvals of a move in the moves topic."""
    return f"approval:{move_id}"


def join_approvals(*some: Iterable[Approval]) -> tuple[Approval, ...]:
    """Join what several clusters, or calls, know: each approval once, the oldest first."""
    found: list[Approval] = []
    for approval in (one for approvals in some for one in approvals):
        if approval not in found:
            found.append(approval)
    return tuple(sorted(found, key=lambda one: (one.time_ms, one.by, one.how)))


def encode_approvals(approvals: Iterable[Approval]) -> bytes:
    """Encode the approvals of one move as JSON."""
    return adapter(tuple[Approval, ...]).dump_json(tuple(approvals))


def decode_approvals(value: bytes) -> tuple[Approval, ...]:
    """Decode what :func:`encode_approvals` wrote.

    Raises:
        IntegrityError: these are no approvals.
    """
    return decode(tuple[Approval, ...], "stored approval of a move", value)
