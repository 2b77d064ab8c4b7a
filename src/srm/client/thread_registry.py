"""Registry of the consumers each thread uses, for a producer that makes the thread wait.

An application that reads and writes in one loop would block its own move. Its producer waits for
the end of the hold, while its consumer, which is not polled, does not leave its group.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

from confluent_kafka import KafkaException

log = logging.getLogger(__name__)


class Following(Protocol):
    """A consumer that can follow a hold between two calls."""

    def follow(self) -> None:
        """Leave the cluster if the route requires it."""


class _Mine(threading.local):
    def __init__(self) -> None:
        self.consumers: weakref.WeakSet[Following] = weakref.WeakSet()


_mine = _Mine()


def note_consumer(consumer: Following) -> None:
    """Register a consumer that this thread uses."""
    _mine.consumers.add(consumer)


def forget_consumer(consumer: Following) -> None:
    """Remove a closed consumer."""
    _mine.consumers.discard(consumer)


def let_consumers_leave() -> None:
    """Let the consumers of this thread follow a hold."""
    for consumer in list(_mine.consumers):
        try:
            consumer.follow()
        except KafkaException as error:  # it remains a member, and its next poll raises this
            log.warning("a consumer of this thread cannot leave: %s", error)
