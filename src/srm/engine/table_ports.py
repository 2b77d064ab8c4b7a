"""Tables and control records of a cluster, as the engine needs them; a part of its ports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class Stamped:
    """A value with its record's timestamp in epoch milliseconds.

    ``by_broker``: by the broker's clock, as the topic had ``message.timestamp.type=LogAppendTime``;
    else by the writer's.
    """

    value: bytes
    timestamp_ms: int
    by_broker: bool = False


Row = tuple[bytes, bytes | None]
"""Key and value of a record; None is a tombstone."""


class CompactedTopic(Protocol):
    """One compacted topic as a table."""

    def read(self) -> dict[bytes, bytes]:
        """Return the latest value of each key up to the end at call time; no topic reads empty."""
        ...

    def read_stamped(self) -> dict[bytes, Stamped]:
        """Return what :meth:`read` returns, with timestamps."""
        ...

    def read_history(self) -> dict[bytes, tuple[Stamped, ...]]:
        """Return all values of each key that the log still holds, oldest first.

        A tombstone ends a row: what was before it is not returned. Records of transactions that
        are open, or were aborted, are not seen by any read.
        """
        ...

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Show all records up to the end at call time: offset, key, and value (None: tombstone).

        In the order of the log, and without keeping them; what breaks off begins again, so a record
        may be shown twice. No topic has none.
        """
        ...

    def at(self, offsets: Collection[int]) -> dict[int, Row]:
        """Return the records that stand at these offsets, scattered ones too, at little cost.

        An offset where none stands (compacted away, not written yet, a marker's) is left out, as
        all are while the topic does not exist.

        Raises:
            IntegrityError: the log is damaged there.
        """
        ...

    def write(self, records: Mapping[bytes, bytes | None]) -> int | None:
        """Write in the given order and wait for all acknowledgements; None is a tombstone.

        Returns:
            When the last record was written by the clock of the broker, in epoch milliseconds;
            None where the topic does not have ``message.timestamp.type=LogAppendTime``.
        """
        ...


class ControlWriter(Protocol):
    """The one writer of control records between two clusters, on one of them.

    Opening it has shut out every older one of the same transactional id, and ended what they had
    begun, so whatever is read after that is not overtaken by them.
    """

    def write(
        self,
        tables: Mapping[str, Mapping[bytes, bytes | None]],
        before_commit: Callable[[], None] = lambda: None,
    ) -> Mapping[str, int]:
        """Write records by topic, partition 0, in one transaction; None is a tombstone.

        That this succeeds proves that no other writer was opened since this one was, and all reads
        that begin after it see what was written. The brokers
        abort a transaction that is not committed within :data:`CONTROL_TRANSACTION_S`.

        Args:
            tables: the records, in their order.
            before_commit: called when brokers have all records and the transaction's time runs;
                what it raises ends the call, and nothing was written.

        Returns:
            When the last record of each topic was written by the clock of the broker, in epoch
            milliseconds; only of topics with ``message.timestamp.type=LogAppendTime``.

        Raises:
            FencedError: another one was opened since; nothing was written. This one is of no more
                use.
            UnavailableError: it is not known whether it was written; who opens next finds out.
        """
        ...

    def close(self) -> None:
        """Drop the writer."""
        ...


CONTROL_TRANSACTION_S: Final = 5.0
"""Seconds a control transaction may stay open: until then a paused process can still commit."""

CONTROL_ABORT_S: Final = 10.0
"""Seconds until a broker notices that: transaction.abort.timed.out.transaction.cleanup.interval.ms,
by default."""
