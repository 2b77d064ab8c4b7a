"""Consumers that a thread works with, for a producer that makes the thread wait.

An application that reads and writes in one loop would stop its own move: its producer waits for
the end of the hold, while its consumer, which nobody asks for messages, does not leave its group.
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
        """Leave if the route says so."""


class _Mine(threading.local):
    def __init__(self) -> None:
        self.consumers: weakref.WeakSet[Following] = weakref.WeakSet()


_mine = _Mine()


def note_consumer(consumer: Following) -> None:
    """Remember that this thread works with the consumer."""
    _mine.consumers.add(consumer)


def forget_consumer(consumer: Following) -> None:
    """Forget a consumer that is closed."""
    _mine.consumers.discard(consumer)


def let_consumers_leave() -> None:
    """Let the consumers of this thread follow a hold."""
    for consumer in list(_mine.consumers):
        try:
            consumer.follow()
        except KafkaException as error:  # it stays a member, and its next poll raises this
            log.warning("a consumer of this thread cannot leave: %s", error)
