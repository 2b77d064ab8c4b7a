"""How much slower than alone everything is on this machine now."""

from __future__ import annotations

import os

_SLOWEST = 3.0


def slowness() -> float:
    """Return how many runnable tasks there are for each core, 1 on a machine of its own.

    What the campaign gives a partition to move is multiplied by it: a busy machine is no fault.
    """
    return min(_SLOWEST, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
