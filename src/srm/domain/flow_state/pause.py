"""The pause of a flow: a record of the state topic that keeps anything from being copied.

Key ``pause``, in the partition of commands (:mod:`.replication_records`), JSON. An unplanned
failover writes it on the target before anything else, so that a source that comes back copies
nothing unasked; what becomes of the source's records is decided first, then it is deleted. Unlike a
request to end it is obeyed by every driver, also one that starts later, and by this flow alone.

Several moves may give the same source up, some groups after the others: they share one pause, which
stands until the last of them has left it, or what became of the source is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.text import json_records
from srm.errors import IntegrityError

PAUSE_KEY: Final = b"pause"


@dataclass(frozen=True, slots=True)
class Pause:
    """Why nothing of a flow is copied; ``by`` and ``reason`` are for people.

    ``request`` is a unique id. ``move_id`` is the move that asked for it, empty where a person did.
    ``time_ms`` is the epoch time of who wrote it. ``joined`` are moves that rely on it, too.
    """

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
        """Return the pause that stands for both; the first one's reason is kept."""
        new = tuple(move_id for move_id in other.moves if move_id not in self.moves)
        return replace(self, request=other.request, joined=(*self.joined, *new))

    def without(self, move_id: str) -> Pause | None:
        """Return what stands when a move relies on it no more, None where nobody else does."""
        joined = tuple(one for one in self.joined if one != move_id)
        if self.move_id != move_id:
            return replace(self, joined=joined)
        return replace(self, move_id=joined[0], joined=joined[1:]) if joined else None

    def value(self) -> bytes:
        """Encode the record value."""
        return json_records.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Pause:
        """Decode a record value.

        Raises:
            IntegrityError: the value is not a pause.
        """
        found = json_records.decode(cls, "pause", value)
        return replace(found, joined=tuple(found.joined))


def read_pause(records: Mapping[bytes, bytes]) -> Pause | None:
    """Return the pause that stands in a flow's commands, None where there is none.

    One that cannot be read is a pause all the same: nothing is copied because of damage.
    """
    value = records.get(PAUSE_KEY)
    if value is None:
        return None
    try:
        return Pause.decode(value)
    except IntegrityError as error:
        return Pause("", "", f"its record cannot be read: {error}", 0)
