"""Pause and resume a flow in one transaction, in place of its driver.

The caller becomes the driver for a moment: an older one can publish nothing before it has read the
pause. The same transaction unassigns all partitions: no slot claims before it has read that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from srm.domain.flow_state.replication_records import (
    ASSIGNMENT_PREFIX,
    COMMANDS,
    PAUSE_KEY,
    REPORTS,
    SLOT_PREFIX,
    Assignment,
    Pause,
    read_pause,
)
from srm.domain.flow_state.slot_records import SlotHeartbeat, decode_slot_record
from srm.errors import ConflictError, IntegrityError, UnavailableError
from srm.replication.driver.assignment import AssignmentBook
from srm.replication.driver.state_book import DriverLog, LogRecord

_SEEN_S: Final = 10.0
_POLL_S: Final = 0.2
_NOTHING: Final[Mapping[bytes, bytes]] = MappingProxyType({})


def pause(log: DriverLog, wanted: Pause, request: str | None = None) -> Pause | None:
    """Write a pause, take all partitions from all slots, return the pause before; may be repeated.

    An existing pause is joined, but only that of ``request`` if given. ConflictError: that pause is
    over or replaced. FencedError: another driver began, and may publish.
    """
    log.fence()
    found = log.read()
    current = pause_in(found)
    if request is not None and current is None:
        raise ConflictError("the pause of the flow has ended: look at it again")
    require_same(current, request)
    if current is not None:
        wanted = current.joined_by(wanted)
    book, damaged = _read(found)
    changes = book.changes(dict.fromkeys(damaged, ()), again=damaged)
    _write(log, wanted, {change.key(): change.value() for change in changes})
    return current


def resume(
    log: DriverLog, decided: Mapping[bytes, bytes] = _NOTHING, request: str | None = None
) -> bool:
    """Delete the pause, that of ``request`` if given, and write ``decided``; False: there was none.

    ConflictError: another pause is in force. FencedError: another driver began: repeat it.
    """
    log.fence()
    current = pause_in(log.read())
    if current is None:
        return False
    require_same(current, request)
    _write(log, None, decided)
    return True


def require_same(current: Pause | None, request: str | None) -> None:
    """Refuse a pause other than that of ``request``, if one is given (ConflictError)."""
    if current is not None and request not in {None, current.request}:
        raise ConflictError(
            f"the flow was paused again by {current.by}: {current.reason}; "
            "check the new pause first"
        )


def leave(log: DriverLog, move_id: str) -> None:
    """Take a move off the pause, which ends with the last one; repeat it after a FencedError."""
    log.fence()
    current = pause_in(log.read())
    if current is None or move_id not in current.moves:
        return
    _write(log, current.without(move_id))


def pause_in(records: Iterable[LogRecord]) -> Pause | None:
    return read_pause({r.key: r.value for r in records if r.key == PAUSE_KEY and r.value})


def _write(log: DriverLog, wanted: Pause | None, more: Mapping[bytes, bytes] = _NOTHING) -> None:
    """Write or delete a pause together with other records; return when readers see it."""
    value = None if wanted is None else wanted.value()
    if value is None:
        log.publish(more, [(COMMANDS, PAUSE_KEY)])
    else:
        log.publish({PAUSE_KEY: value, **more})
    deadline = time.monotonic() + _SEEN_S
    while time.monotonic() < deadline:
        for record in log.poll(_POLL_S):
            if (record.key, record.value) == (PAUSE_KEY, value):
                return
    raise UnavailableError(f"the pause was written, but is not read after {_SEEN_S:g} s; repeat")


def _read(records: Iterable[LogRecord]) -> tuple[AssignmentBook, set[str]]:
    book, damaged = AssignmentBook(), set[str]()
    for record in records:
        value = record.value or b""
        try:
            if record.key.startswith(ASSIGNMENT_PREFIX):
                book.load(Assignment.decode(value))
            elif record.partition == REPORTS and record.key.startswith(SLOT_PREFIX):
                beat = decode_slot_record(record.key, value)
                if isinstance(beat, SlotHeartbeat):
                    book.saw(beat.generation)
        except IntegrityError:
            if record.key.startswith(ASSIGNMENT_PREFIX):
                damaged.add(record.key.removeprefix(ASSIGNMENT_PREFIX).decode(errors="replace"))
    return book, damaged
