"""Queue of the processes that open the writer of control records: each gets its turn.

Without it each one that opens the writer fences the one before, whose changes start over, and of
many at once none finishes. The fence alone keeps changes atomic: a process that does not queue, or
has waited for a dead one, does no harm.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import Final

from srm.engine.cluster_ports import CompactedTopic, tolerate
from srm.errors import SrmError

_logger = logging.getLogger(__name__)

QUEUE_PREFIX: Final = b"queue:"
TURN_S: Final = 5.0
"""Longest turn: then the next one is served, as the process may be dead."""
_POLL_S: Final = 0.05
_LONGEST_POLL_S: Final = 0.5


class Place:
    """A place in the queue of one cluster: a record, in the order of the log."""

    def __init__(self, topic: CompactedTopic) -> None:
        self._topic = topic
        self._key = QUEUE_PREFIX + secrets.token_hex(8).encode()
        self._is_in = False

    def wait(self, deadline: float) -> None:
        """Wait for the turn, at most until the monotonic ``deadline``; take a place first."""
        served, since = b"", time.monotonic()
        while (now := time.monotonic()) < deadline:
            queue = [key for key in self._topic.read_stamped() if key.startswith(QUEUE_PREFIX)]
            if self._key not in queue:
                self._topic.write({self._key: b"{}"})
                self._is_in = True
                continue
            if queue[0] == self._key:
                return
            if queue[0] != served:
                served, since = queue[0], now
            elif now - since > TURN_S:
                _logger.info("the turn of %s is over", served)
                self._topic.write({served: None})
                continue
            time.sleep(min(_LONGEST_POLL_S, _POLL_S * queue.index(self._key)))

    def leave(self) -> None:
        """Let the next one have its turn; a record that is left costs it ``TURN_S``."""
        if self._is_in:
            self._is_in = False
            tolerate(lambda: self._topic.write({self._key: None}), "a turn is not ended", SrmError)
