"""How much slower than alone everything is on this machine now."""

from __future__ import annotations

import os

_SLOWEST = 8.0


def slowness(most: float = _SLOWEST) -> float:
    """Return how many runnable tasks there are for each core, 1 on a machine of its own.

    What the campaign gives a partition to move is multiplied by it: a busy machine is no fault. The
    load of some minutes counts, too: what is late now has waited while it was higher.
    """
    return min(most, max(1.0, max(os.getloadavg()[:2]) / (os.cpu_count() or 1)))
