"""Writes of control records, fenced: a process that opens the writer fences all earlier ones.

Another process may write between a read and its write, or a paused one write an outdated result. So
each step first opens the cluster's only writer (srm.engine.cluster_ports.ControlWriter), then
reads, and writes in one transaction. That fails if the writer was opened since, and the step starts
over.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from srm.errors import ConflictError, FencedError

log = logging.getLogger(__name__)

CONTROL_ID: Final = "srm-control-records"
"""Transactional id of all control records of a cluster, for all its peers.

With one id per pair, two moves of the same clients to two targets would not fence each other.
"""

ATTEMPTS: Final = 12
_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0
_T = TypeVar("_T")


def until_not_fenced(what: str, attempt: Callable[[], _T]) -> _T:
    """Run an attempt that opens a writer, reads and writes, until it is not fenced."""
    last: FencedError | None = None
    for number in range(ATTEMPTS):
        try:
            return attempt()
        except FencedError as error:
            log.info("%s starts over: %s", what, error)
            last = error
        # A random pause: two processes must not keep fencing each other in turn.
        longest = min(_LONGEST_PAUSE_S, _PAUSE_S * 2**number)
        threading.Event().wait(random.uniform(0, longest))  # noqa: S311 -- no secret
    raise ConflictError(
        f"{what}: fenced {ATTEMPTS} times by other changes on these clusters; try again"
    ) from last
