"""What the return of a source needs of both logs; srm.kafka.state.returned_logs fulfils it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.recovery.residue import ResidueRecord
from srm.domain.recovery.source_return import CopyEnd
from srm.domain.verification.offset_ranges import OffsetRange
from srm.errors import SrmError

Wanted = tuple[AssignedPartition, OffsetRange]
"""A range of source offsets of a partition."""


class ReturnedLogs(Protocol):
    """Both logs of the partitions of one flow. Calls block, and may take long."""

    def copy_ends(
        self, partitions: Sequence[AssignedPartition], show: Callable[[int], None]
    ) -> dict[AssignedPartition, CopyEnd | SrmError]:
        """Walk the logs and return where each copy ends, or why that cannot be told.

        Nothing is written. What it returns is final while nobody writes to the copies.

        Args:
            partitions: source partitions, without a target topic id where there is no copy.
            show: called with the number of those that are done.

        Raises:
            SrmError: a cluster does not answer.
        """
        ...

    def count(
        self,
        wanted: Sequence[Wanted],
        visit: Callable[[int, Sequence[int], Sequence[int]], None],
    ) -> None:
        """Show the records of ranges that the flow would copy: markers are none.

        Several ranges are read at once, each in order.

        Args:
            wanted: the ranges.
            visit: called with the index of a range, and offsets and timestamps of records.

        Raises:
            SrmError: a partition cannot be read.
        """
        ...

    def read(
        self,
        wanted: Sequence[Wanted],
        visit: Callable[[int, Sequence[ResidueRecord]], bool],
    ) -> None:
        """Show the same records whole, one range after the other.

        Args:
            wanted: the ranges.
            visit: called with the index of a range and some records; False ends that range.

        Raises:
            SrmError: a partition cannot be read.
        """
        ...
