"""Port of the reader of starts: where partitions were left, and whether their maps are whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.replication_records import AssignedPartition, Incarnation
from srm.domain.offset_map.map_index import IndexRecord
from srm.errors import SrmError
from srm.replication.mapping.start_positions import Start


class Predecessor(NamedTuple):
    """State left by earlier processes of this slot."""

    incarnations: tuple[Incarnation, ...]
    notes: tuple[PartitionNotes, ...]


class StartReader(Protocol):
    """Reads where partitions were left; blocks; UnavailableError: map or state cannot be read."""

    def load(
        self, partitions: Sequence[AssignedPartition]
    ) -> Mapping[AssignedPartition, Start | SrmError]:
        """Return where to start each partition copied before, or why that is not known."""
        ...

    def load_again(self, assigned: AssignedPartition) -> Start | SrmError | None:
        """Look at every block of a partition; the start is before the first that is lost."""
        ...

    def cut(self, assigned: AssignedPartition, target_end: int) -> Start:
        """Cut the map at what the target's log still holds, and return where to copy again from.

        Without a position where nothing of the map is left.
        """
        ...

    def predecessor(self, slot: str) -> Predecessor:
        """Return who was a slot of that name, and what they have ever noted."""
        ...

    def target_log_starts(
        self, partitions: Collection[AssignedPartition]
    ) -> dict[AssignedPartition, int]:
        """Return the first offsets that the targets' logs hold; unknown ones are left out."""
        ...

    def read_chunk(
        self, assigned: AssignedPartition, root: IndexRecord, number: int
    ) -> IndexRecord | None:
        """Return a full chunk by the number of its entry in the root, None if it is lost."""
        ...

    def is_whole(self, assigned: AssignedPartition, chunk: IndexRecord) -> bool:
        """Return whether every block of a chunk exists and can be read."""
        ...
