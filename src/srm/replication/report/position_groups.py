"""Grouping of a slot's positions into records: see :mod:`srm.domain.flow_state.slot_records`."""

from __future__ import annotations

from collections.abc import Iterable

from srm.domain.flow_state.replication_records import Incarnation, PartitionPosition
from srm.domain.flow_state.slot_records import GROUP_SIZE, PositionGroup
from srm.domain.offset_map.map_records import CopyId

Records = dict[bytes, bytes | None]


class PositionGroups:
    """Keeps the positions of a slot in groups, and knows which of them are to be written.

    A partition stays in its group until its last position is acknowledged in another record.
    """

    def __init__(self, slot: str, incarnation: Incarnation) -> None:
        self._slot = slot
        self._incarnation = incarnation
        self._groups: list[dict[CopyId, PartitionPosition]] = []
        self._number_of: dict[CopyId, int] = {}
        self._changed: set[int] = set()
        self._leaving: dict[CopyId, PartitionPosition] = {}
        self._left = 0

    def __len__(self) -> int:
        return len(self._number_of)

    def put(self, entry: PartitionPosition) -> None:
        """Report a position from now on."""
        copy_id = entry.copy_id
        self._leaving.pop(copy_id, None)
        number = self._number_of.get(copy_id)
        if number is None:
            number = self._number_of[copy_id] = self._number_with_room()
        group = self._groups[number]
        if group.get(copy_id) != entry:
            group[copy_id] = entry
            self._changed.add(number)

    def leave(self, entry: PartitionPosition) -> None:
        """Report a position for the last time: the slot no longer copies the partition."""
        self._leaving[entry.copy_id] = entry

    def last_positions(self) -> Records:
        """Return what is to be acknowledged before :meth:`forget_left`, each time by new keys."""
        entries = list(self._leaving.values())
        records: Records = {}
        for at in range(0, len(entries), GROUP_SIZE):
            part = entries[at : at + GROUP_SIZE]
            group = PositionGroup.of_left(self._slot, self._incarnation, self._left, part)
            records[group.key()] = group.value()
            self._left += 1
        return records

    def forget_left(self) -> None:
        """The last positions are acknowledged: take the partitions out of their groups."""
        for copy_id in self._leaving:
            number = self._number_of.pop(copy_id, None)
            if number is not None:
                del self._groups[number][copy_id]
                self._changed.add(number)
        self._leaving.clear()

    def to_write(self, *, everything: bool) -> Records:
        """Return the groups changed since :meth:`written`, or all; an empty one is deleted."""
        numbers: Iterable[int] = range(len(self._groups)) if everything else self._changed
        groups = (
            PositionGroup(
                self._slot, self._incarnation, str(number), tuple(self._groups[number].values())
            )
            for number in sorted(numbers)
        )
        return {
            group.key(): group.value() if group.positions else None
            for group in groups
            if group.positions or int(group.name) in self._changed
        }

    def written(self) -> None:
        """Record that the last result of :meth:`to_write` is acknowledged."""
        self._changed.clear()

    def _number_with_room(self) -> int:
        for number, group in enumerate(self._groups):
            if len(group) < GROUP_SIZE:
                return number
        self._groups.append({})
        return len(self._groups) - 1
