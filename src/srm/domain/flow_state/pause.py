"""Pause of a flow: a record of the state topic that stops all copying.

Key ``pause``, in the partition of commands (:mod:`.replication_records`), JSON. An unplanned
failover writes it first on the target, so that a returning source is not copied unasked. A decision
about the source's records deletes it. Drivers that start later obey it, too. Several moves may
abandon one source: they share its pause until the last one leaves it, or the source is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.text.json_records import JsonRecord
from srm.errors import IntegrityError

PAUSE_KEY: Final = b"pause"


@dataclass(frozen=True, slots=True)
class Pause(JsonRecord):
    """Reason why a flow is not copied; ``by`` and ``reason`` are informational.

    ``request`` is a unique id. ``move_id`` is the move that requested it, empty for an operator.
    ``time_ms`` is the writer's epoch time. ``joined`` are other moves that rely on it.
    """

    KIND = "pause"
    request: str
    by: str
    reason: str
    time_ms: int
    move_id: str = ""
    joined: tuple[str, ...] = ()

    @property
    def moves(self) -> tuple[str, ...]:
        """All moves that rely on it."""
        return (*([self.move_id] if self.move_id else []), *self.joined)

    def joined_by(self, other: Pause) -> Pause:
        """Return the pause with the moves of both and the first one's reason."""
        new = tuple(move_id for move_id in other.moves if move_id not in self.moves)
        return replace(self, request=other.request, joined=(*self.joined, *new))

    def without(self, move_id: str) -> Pause | None:
        """Return the pause without a move, None if no other move relies on it."""
        joined = tuple(one for one in self.joined if one != move_id)
        if self.move_id != move_id:
            return replace(self, joined=joined)
        return replace(self, move_id=joined[0], joined=joined[1:]) if joined else None


def read_pause(records: Mapping[bytes, bytes]) -> Pause | None:
    """Return a flow's pause, None without one. A damaged one counts: it must not start copying."""
    value = records.get(PAUSE_KEY)
    if value is None:
        return None
    try:
        return Pause.decode(value)
    except IntegrityError as error:
        return Pause("", "", f"its record cannot be read: {error}", 0)
