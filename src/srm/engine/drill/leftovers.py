"""Records and shadow groups of drills on a target, and their removal, also after a kill."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from srm.domain.groups.ledger import all_entries
from srm.domain.names import internal_topics
from srm.domain.names.filters import SHADOW_PREFIX
from srm.domain.recovery.drill import DRILL_KEY, LEASE_MS, Drill
from srm.engine.cluster_ports import Cluster
from srm.engine.moves.control.move_records import decode_or_none
from srm.errors import GroupActiveError, SrmError

log = logging.getLogger(__name__)

_LEFT_S: Final = 15.0
"""Longer than the session of a member that was killed, see srm.kafka.tables.group_member."""
_LOOK_S: Final = 0.25
RUNNING_HERE: Final[set[str]] = set()
"""Drills of this process."""


def read_drills(target: Cluster, flow: str | None = None) -> tuple[Drill, ...]:
    """Return the drills that a target has records of, of all flows or one, oldest first."""
    return tuple(one for one, _ in _list_drills(target) if flow in {None, one.flow})


def _list_drills(target: Cluster) -> list[tuple[Drill, int]]:
    found: list[tuple[Drill, int]] = []
    for key, row in target.compacted_topic(internal_topics.MOVES).read_stamped().items():
        if key.startswith(DRILL_KEY):
            drill = decode_or_none(row.value, Drill.decode, f"{key.decode(errors='replace')}: ")
            if drill is not None:
                found.append((drill, row.timestamp_ms))
    return sorted(found, key=lambda item: (item[0].time_ms, item[0].drill_id))


def remove_leftovers(target: Cluster, now_ms: int) -> tuple[Drill, ...]:
    """Remove the leftovers of drills that no longer run; return the drills that do run."""
    alive: list[Drill] = []
    for drill, heard_ms in _list_drills(target):
        if drill.state != "running":
            continue
        if _is_alive(drill, now_ms - heard_ms):
            alive.append(drill)
            continue
        log.warning("drill %s was interrupted: its shadow groups are removed", drill.drill_id)
        remove_shadows(target, drill)
        why = ("it was killed; a later run removed its shadow groups",)
        write_drill(target, replace(drill, state="interrupted", shadowed=(), problems=why))
    return tuple(alive)


def try_to_remove_leftovers(target: Cluster, now_ms: int) -> None:
    """Call :func:`remove_leftovers` within another operation; a failure is only logged."""
    try:
        remove_leftovers(target, now_ms)
    except SrmError as error:
        log.warning("leftovers of a drill on %s stay for now: %s", target.alias, error)


def remove_shadows(target: Cluster, drill: Drill) -> None:
    """Delete the shadow groups of a drill and their ledger entries; safe to repeat."""
    if drill.shadows:
        _delete(target, drill.shadows.values())
    prefix = f"{SHADOW_PREFIX}{drill.drill_id}."
    table = target.compacted_topic(internal_topics.LEDGER)
    ours = [e.key() for e in all_entries(table.read()) if e.group.startswith(prefix)]
    if ours:
        table.write(dict.fromkeys(ours))


def _delete(target: Cluster, groups: Collection[str]) -> None:
    """Delete groups, retrying while sessions of killed members have not timed out."""
    deadline, pause = time.monotonic() + _LEFT_S, threading.Event()
    while True:
        try:
            return target.delete_groups(groups)
        except GroupActiveError:
            if time.monotonic() >= deadline:
                raise
        pause.wait(_LOOK_S)


def write_drill(target: Cluster, *drills: Drill, forget: Iterable[Drill] = ()) -> None:
    """Write the records of drills, and delete those of others."""
    records: dict[bytes, bytes | None] = {one.key(): None for one in forget}
    records |= {one.key(): one.value() for one in drills}
    target.compacted_topic(internal_topics.MOVES).write(records)


def _is_alive(drill: Drill, age_ms: int) -> bool:
    if drill.place and drill.place == place_of_processes():
        if drill.pid == os.getpid():
            return drill.drill_id in RUNNING_HERE
        try:
            os.kill(drill.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it exists
    return age_ms < LEASE_MS


@cache
def place_of_processes() -> str:
    """Name the kernel and the namespace in which process ids are unique, empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return ""
