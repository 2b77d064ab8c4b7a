"""Writing control records: who opens the writer later shuts out whoever did so earlier.

Moves, routes and the lists of srm-control are read, computed and written. In between anybody else
may have written, and a process that was paused may wake up and write what it computed long ago.
So each step opens the one writer of each cluster first (srm.engine.ports.ControlWriter),
reads after that, and writes in one transaction: the transaction succeeds only if nobody has opened
the writer since. A step that was overtaken starts over.
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
"""Transactional id of all control records of a cluster, whichever other cluster they are about.

One for each pair would let moves of the same clients to two targets pass each other on the source.
"""

ATTEMPTS: Final = 12
_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0
_T = TypeVar("_T")


def until_not_fenced(what: str, attempt: Callable[[], _T]) -> _T:
    """Run an attempt that opens a writer, reads and writes, until nobody comes in between.

    Args:
        what: who tries, for the message.
        attempt: is run again from its start when it was fenced.

    Raises:
        ConflictError: others came in between each time.
    """
    last: FencedError | None = None
    for number in range(ATTEMPTS):
        try:
            return attempt()
        except FencedError as error:
            log.info("%s starts over: %s", what, error)
            last = error
        # Two that fence each other in turn must not keep step.
        longest = min(_LONGEST_PAUSE_S, _PAUSE_S * 2**number)
        threading.Event().wait(random.uniform(0, longest))  # noqa: S311 -- no secret
    raise ConflictError(
        f"{what}: other moves of these clusters came in between {ATTEMPTS} times: try again"
    ) from last
