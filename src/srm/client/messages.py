"""Messages and exceptions of confluent-kafka with the cluster they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from srm.errors import ConflictError, UnavailableError
from srm.kafka.wire.errors import NOTHING, Needs, translate


class HeldError(UnavailableError, BufferError):
    """A hold lasted longer than the client may wait; nothing was handed over.

    Also a BufferError, so an application that retries when the queue is full retries here too.
    """


class ClosedError(ConflictError, RuntimeError):
    """The client is closed; also a RuntimeError, as in confluent-kafka."""


class ForkedError(ConflictError, RuntimeError):
    """The client was opened before its process was forked: its threads are in the parent."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"this {kind} was opened before fork and works only in the parent process",
            "make one in each child",
        )


PRINCIPAL: Final = "the application's principal"


def with_place(error: KafkaError, where: str, needs: Needs = NOTHING) -> KafkaError:
    """Return an error of the same code that names the place and the missing right."""
    return with_text(error, str(translate(error, where, needs, PRINCIPAL)))


def with_text(error: KafkaError, text: str) -> KafkaError:
    """Return an error of the same code and kind with another text."""
    return KafkaError(
        error.code(),
        text,
        fatal=error.fatal(),
        retriable=error.retriable(),
        txn_requires_abort=error.txn_requires_abort(),
    )


@contextmanager
def named_errors(where: str, needs: Needs = NOTHING) -> Iterator[None]:
    """Add the place and the missing right to every KafkaException of the block."""
    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        if not isinstance(cause, KafkaError):
            raise
        raise KafkaException(with_place(cause, where, needs)) from error


def must_abort(text: str) -> KafkaException:
    """Build the exception after which an application has to abort its transaction."""
    return KafkaException(KafkaError(KafkaError._STATE, text, txn_requires_abort=True))  # noqa: SLF001 -- librdkafka's local codes are named so


_FIELDS: Final = (
    *("topic", "value", "key", "headers", "error"),
    *("offset", "partition", "timestamp", "latency", "leader_epoch"),
)


class FailoverMessage(Message):
    """A message of confluent-kafka, with the ``cluster`` it was read from or written to.

    ``epoch`` is the number of the consumer's stay on a cluster: an offset is valid only within it.
    """

    cluster: str = ""
    epoch: int = 0


def stamp(message: Any, cluster: str, epoch: int = 0) -> FailoverMessage:
    """Copy a message and set its cluster and epoch."""
    known = {name: getattr(message, name)() for name in _FIELDS}
    # The constructor refuses None for some of them, though each can be None.
    copy = FailoverMessage(**{name: value for name, value in known.items() if value is not None})
    copy.cluster = cluster
    copy.epoch = epoch
    return copy
