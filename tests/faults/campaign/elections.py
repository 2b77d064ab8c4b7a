"""What is asked of clusters whose brokers start, or elect leaders, is asked again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaException

from srm.errors import SrmError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_PATIENCE_S: Final = 240.0  # a broker on a busy machine starts in a minute


def persistently(what: str, work: Callable[[], _T]) -> _T:
    """Try again while a cluster is down.

    Raises:
        SrmError, KafkaException: it is still down after four minutes.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return work()
        except (SrmError, KafkaException) as error:
            if time.monotonic() > deadline:
                raise
            logger.info("%s is tried again: %s", what, error)
            time.sleep(0.3)  # between two attempts
