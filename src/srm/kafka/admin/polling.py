"""Taking messages from a consumer without waiting for more than there are."""

from __future__ import annotations

import logging
import math
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message

from srm.kafka.admin.errors import ERROR_CLASSES, translate
from srm.kafka.wire.rights import on_topic

_BATCH: Final = 5000
_logger = logging.getLogger(__name__)


def drain(consumer: Consumer, wait_s: float) -> list[Message]:
    """Return available messages, waiting up to ``wait_s`` seconds for the first message or event.

    Consumer.consume(n, timeout) alone waits until n messages are available or the time is up.
    librdkafka counts whole milliseconds and returns at once for a fraction of one. A caller that
    waits for the rest of its time would spin until it is over.
    """
    first = consumer.poll(math.ceil(wait_s * 1000) / 1000)
    if first is None:
        return []
    return [first, *consumer.consume(_BATCH, 0)]


def position_after(message: Message, where: str) -> int | None:
    """Return the position after a record or an end-of-partition event, None after other events.

    Raises:
        SrmError: the event is an error that waiting does not cure.
    """
    error = message.error()
    if error is None:
        return int(message.offset()) + 1
    code = error.code()
    if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local codes are named so
        return int(message.offset())
    # A reader without a group needs no right to its group.id, and librdkafka reconnects by itself.
    if code != KafkaError.GROUP_AUTHORIZATION_FAILED and not _passes(code):
        raise translate(error, where, on_topic("Read", message.topic() or "that is followed"))
    _logger.debug("%s: %s", where, error)
    return None


def _passes(code: int) -> bool:
    cls = ERROR_CLASSES.get(code)
    return cls is not None and cls.retriable
