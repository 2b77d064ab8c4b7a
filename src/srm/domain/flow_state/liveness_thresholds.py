"""How long a silence means what: the one table of thresholds for signs of life, in seconds.

Sorted, because each has to be longer than the one before it:

=============  ======  =================  ==================================================
name           value   used by            what follows
=============  ======  =================  ==================================================
HEARTBEAT_S       1.0  driver, slots      how often a sign of life is written
ECHO_S            2.5  driver             its own heartbeat is missing: no slot is judged
LOOK_S            4.0  supervision        nobody drives the flow: one may be started
SLOT_DEAD_S       5.0  driver             the slot's partitions go to other slots
SILENT_S         10.0  status, gate       people are told that there is no sign of life
DEAF_S           20.0  driver             its reader is at fault: the log is opened again
LOST_S           30.0  supervision        the application hangs: another one is started
STARTUP_S       180.0  supervision        a new application does not drive yet: as LOST_S
=============  ======  =================  ==================================================

ECHO_S is two missed heartbeats and a slow broker. SLOT_DEAD_S is longer, so that a log that cannot
be written for a moment kills no slot. SILENT_S comes after it: whoever reads that a slot is silent
finds its partitions with another one. LOST_S comes after DEAF_S: a driver that can cure itself is
given the time to. LOOK_S only has to see a heartbeat change; a start too many is no harm, since
drivers and writers fence each other. STARTUP_S is a cold Spark application on a busy machine.

The driver and supervision measure on their own monotonic clock when signs arrive. SILENT_S is also
compared with the age that a record's own time says, so clocks that differ show as silence.
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
    """Whether people should be told that there is no sign of life; None: there never was one."""
    return age_ms is None or age_ms > SILENT_S * 1000
