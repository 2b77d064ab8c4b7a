"""Port of the driver to the replication state topic; srm.kafka.state.driver_log implements it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from srm.domain.flow_state.reported_positions import CopiedTopic


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of the state topic or of the raw metrics topic; None is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int = 0


class DriverLog(Protocol):
    """The flow's state topic, read by anyone and written by one driver at a time."""

    def read(self) -> list[LogRecord]:
        """Return the latest record of each key of each partition of the state topic, in order.

        First those of the partition of commands. :meth:`poll` continues from here.

        The raw metrics topic is only followed, from its end.
        """
        ...

    def fence(self) -> None:
        """Become the driver: every older one can write no more."""
        ...

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """Return what has been committed since the last call, waiting while there is nothing."""
        ...

    def publish(
        self,
        records: Mapping[bytes, bytes],
        deletions: Collection[tuple[int, bytes]] = (),
    ) -> None:
        """Write all records to the partition of commands, or none (FencedError: a newer driver)."""
        ...

    def clear_maps(self, topics: Collection[CopiedTopic]) -> None:
        """Delete all maps of topics that are gone; safe to repeat, slow, from any thread."""
        ...

    def close(self) -> None:
        """Let go of all connections; the next :meth:`read` opens new ones."""
        ...
