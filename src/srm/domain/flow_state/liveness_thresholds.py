"""Thresholds for missing heartbeats, in seconds; each must be longer than the one before it.

A brief failure to write the log kills no slot (SLOT_DEAD_S); partitions of a silent slot already
belong to another one (SILENT_S); a driver can recover by itself (LOST_S). An extra start is
harmless, since drivers and writers fence each other. Arrival times are on the reader's monotonic
clock. SILENT_S is also compared with the timestamps of records, so clock skew shows as silence. A
plan that it would block first waits ECHO_S for records to change.
"""

from __future__ import annotations

from typing import Final

HEARTBEAT_S: Final = 1.0  # driver, slots: the interval
ECHO_S: Final = 2.5  # driver, plan: its own heartbeat is missing, so no slot is judged
LOOK_S: Final = 4.0  # supervision: without a driver, an application may be started
SLOT_DEAD_S: Final = 5.0  # driver: the slot's partitions go to other slots
SILENT_S: Final = 10.0  # status, gate: the heartbeat is reported as missing
DEAF_S: Final = 20.0  # driver: its reader is at fault, and the log is reopened
LOST_S: Final = 30.0  # supervision: the application hangs, and another one is started
STARTUP_S: Final = 180.0  # supervision: as LOST_S, before a new application drives


def is_silent(age_ms: int | None) -> bool:
    """Return True if a missing heartbeat must be reported; None means there never was one."""
    return age_ms is None or age_ms > SILENT_S * 1000
