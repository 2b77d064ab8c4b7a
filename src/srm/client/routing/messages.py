"""Messages with the cluster they were read from or written to."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message


class FailoverMessage(Message):
    """A message of confluent-kafka, with the ``cluster`` it was read from or written to.

    ``epoch`` is the number of the consumer's stay on a cluster: an offset is valid only within it.
    """

    cluster: str = ""
    epoch: int = 0


def stamp(message: Any, cluster: str, epoch: int = 0) -> FailoverMessage:
    """Copy a message and set its cluster and epoch."""
    known = {
        "topic": message.topic(),
        "value": message.value(),
        "key": message.key(),
        "headers": message.headers(),
        "error": message.error(),
        "offset": message.offset(),
        "partition": message.partition(),
        "timestamp": message.timestamp(),
        "latency": message.latency(),
        "leader_epoch": message.leader_epoch(),
    }
    # The constructor refuses None for some of them, though each can be None.
    copy = FailoverMessage(**{name: value for name, value in known.items() if value is not None})
    copy.cluster = cluster
    copy.epoch = epoch
    return copy
