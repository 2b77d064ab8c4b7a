"""Messages that remember where they came from."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message


class FailoverMessage(Message):
    """A message of confluent-kafka, with the ``cluster`` it was read from or written to.

    ``epoch`` counts how often its consumer has opened on a cluster: an offset means something only
    to the consumer as it was then.
    """

    cluster: str = ""
    epoch: int = 0


def stamp(message: Any, cluster: str, epoch: int = 0) -> FailoverMessage:
    """Copy a message and write onto it where it came from."""
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
    # Not all of them can be given as None, though each can be None.
    copy = FailoverMessage(**{name: value for name, value in known.items() if value is not None})
    copy.cluster = cluster
    copy.epoch = epoch
    return copy
