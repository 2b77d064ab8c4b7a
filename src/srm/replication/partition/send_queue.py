"""The batches of one partition that wait for the target, and those on their way to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from srm.replication.batches.batch import BatchToSend, next_sequence
from srm.replication.ports import ProducerId

Rewrite = Callable[[memoryview, int, int, int], None]


class SendQueue:
    """Batches in the order of the source: first those in flight, then those that wait.

    ``rewrite`` makes a batch ours in place, given producer id, epoch and first sequence number.
    """

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        self._waiting: deque[BatchToSend] = deque()
        self._in_flight: deque[BatchToSend] = deque()
        self._sequence = 0
        self.bytes = 0
        """Size of what is not acknowledged yet."""

    @property
    def has_waiting(self) -> bool:
        """True if a batch waits to be sent."""
        return bool(self._waiting)

    @property
    def is_empty(self) -> bool:
        """True if all added batches are acknowledged."""
        return not self._waiting and not self._in_flight

    @property
    def oldest_in_flight(self) -> BatchToSend:
        """The batch that the next answer of the target is about."""
        return self._in_flight[0]

    def put(self, batch: BatchToSend) -> None:
        """Add a batch."""
        self._waiting.append(batch)
        self.bytes += len(batch.view)

    def send_next(self, producer: ProducerId) -> BatchToSend:
        """Take the next batch that waits, made ours; it is in flight from now on."""
        batch = self._waiting.popleft()
        self._rewrite(batch.view, producer.id, producer.epoch, self._sequence)
        self._sequence = next_sequence(self._sequence, batch.count)
        self._in_flight.append(batch)
        return batch

    def acknowledge(self) -> None:
        """Let go of the oldest batch in flight."""
        self.bytes -= len(self._in_flight.popleft().view)

    def clear(self) -> None:
        """Forget all batches: resume decides what is sent next, and under which claim."""
        self._waiting.clear()
        self._in_flight.clear()
        self.bytes = self._sequence = 0
