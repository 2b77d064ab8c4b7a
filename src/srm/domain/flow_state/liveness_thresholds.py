"""Thresholds for missing heartbeats, in seconds: the only table of them.

Sorted, because each must be longer than the one before it:

=============  ======  =================  ==================================================
name           value   used by            meaning
=============  ======  =================  ==================================================
HEARTBEAT_S       1.0  driver, slots      heartbeat interval
ECHO_S            2.5  driver, plan       its own heartbeat is missing: no slot is judged
LOOK_S            4.0  supervision        no driver: an application may be started
SLOT_DEAD_S       5.0  driver             the slot's partitions go to other slots
SILENT_S         10.0  status, gate       heartbeat reported as missing
DEAF_S           20.0  driver             its reader is at fault: the log is reopened
LOST_S           30.0  supervision        the application hangs: another one is started
STARTUP_S       180.0  supervision        as LOST_S, before a new application drives
=============  ======  =================  ==================================================

A brief failure to write the log kills no slot (SLOT_DEAD_S); partitions of a silent slot already
belong to another one (SILENT_S); a driver can recover by itself (LOST_S). An extra start is
harmless, since drivers and writers fence each other. Arrival times are on the reader's monotonic
clock. SILENT_S is also compared with the timestamps of records, so clock skew shows as silence. A
plan that it would block first waits ECHO_S for records to change.
"""

from __future__ import annotations

from typing import Final

HEARTBEAT_S: Final = 1.0
ECHO_S: Final = 2.5
LOOK_S: Final = 4.0
SLOT_DEAD_S: Final = 5.0
SILENT_S: Final = 10.0
DEAF_S: Final = 20.0
LOST_S: Final = 30.0
STARTUP_S: Final = 180.0


def is_silent(age_ms: int | None) -> bool:
    """Return True if a missing heartbeat must be reported; None means there never was one."""
    return age_ms is None or age_ms > SILENT_S * 1000
