"""Ports of the engine for the tables and control records of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class Stamped:
    """A value with its record's timestamp in epoch milliseconds.

    ``by_broker``: the broker's clock (``message.timestamp.type=LogAppendTime``), else the writer's.
    """

    value: bytes
    timestamp_ms: int
    by_broker: bool = False


Row = tuple[bytes, bytes | None]
"""Key and value of a record; None is a tombstone."""


class CompactedTopic(Protocol):
    """One compacted topic as a table."""

    def read(self) -> dict[bytes, bytes]:
        """Return the latest value of each key up to the current end; empty without the topic."""
        ...

    def read_stamped(self) -> dict[bytes, Stamped]:
        """Return the result of :meth:`read` with timestamps."""
        ...

    def read_history(self) -> dict[bytes, tuple[Stamped, ...]]:
        """Return all values of each key that the log still holds, oldest first.

        Values before a tombstone are not returned. No read returns records of open or aborted
        transactions.
        """
        ...

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Visit all records up to the current end: offset, key, and value (None: tombstone).

        Records are visited in log order and not kept. An interrupted scan restarts, so a record may
        be visited twice. A missing topic has no records.
        """
        ...

    def at(self, offsets: Collection[int]) -> dict[int, Row]:
        """Return the records at these offsets; scattered offsets cost little.

        Offsets without a record (compacted, not written yet, a marker) are omitted, as are all
        while the topic does not exist.

        Raises:
            IntegrityError: the log is damaged there.
        """
        ...

    def write(self, records: Mapping[bytes, bytes | None]) -> int | None:
        """Write in the given order and wait for all acknowledgements; None is a tombstone.

        Returns:
            Broker time of the last record, in epoch milliseconds; None where the topic does not
            have ``message.timestamp.type=LogAppendTime``.
        """
        ...


class ControlWriter(Protocol):
    """The only writer of control records between two clusters, on one of them.

    Opening it fences every older writer with the same transactional id and ends their transactions.
    Older writers cannot change what is read after that.
    """

    def write(
        self,
        tables: Mapping[str, Mapping[bytes, bytes | None]],
        before_commit: Callable[[], None] = lambda: None,
    ) -> Mapping[str, int]:
        """Write records by topic, partition 0, in one transaction; None is a tombstone.

        Success proves that no other writer was opened after this one. All later reads see the
        records. Brokers abort a transaction that is not committed within
        :data:`CONTROL_TRANSACTION_S`.

        Args:
            tables: the records, in their order.
            before_commit: called when brokers have all records and before the commit; an exception
                ends the call, and nothing was written.

        Returns:
            Broker time of the last record of each topic, in epoch milliseconds; only of topics with
            ``message.timestamp.type=LogAppendTime``.

        Raises:
            FencedError: a newer writer was opened; nothing was written. Drop this one.
            UnavailableError: the outcome is unknown; the next writer to open finds it out.
        """
        ...

    def close(self) -> None:
        """Drop the writer."""
        ...


CONTROL_TRANSACTION_S: Final = 5.0
"""Seconds that a control transaction may stay open; a paused process can commit until then."""

CONTROL_ABORT_S: Final = 10.0
"""Seconds until a broker aborts it after that: the default of
``transaction.abort.timed.out.transaction.cleanup.interval.ms``."""


class TablePort(Protocol):
    """Compacted topics and control records of a cluster."""

    def compacted_topic(self, topic: str, partition: int = 0) -> CompactedTopic:
        """Return one partition of a compacted topic as a table; the topic is not created."""
        ...

    def control_writer(self, transactional_id: str) -> ControlWriter:
        """Open the writer of control records and fence every older writer of this id.

        Later reads see everything that was committed before this call.
        """
        ...
