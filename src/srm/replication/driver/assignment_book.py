"""The assignment in force, and what has to be published to change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from srm.domain.flow_state.replication_records import AssignedPartition, Assignment, Incarnation


class AssignmentBook:
    """The last assignment published for each slot.

    Invariant: ``generation`` is at least that of every assignment ever published for the flow, so
    that a slot can distinguish a newer one from one that it has already seen.
    """

    def __init__(self) -> None:
        """Begin with nothing published."""
        self._held: dict[str, tuple[AssignedPartition, ...]] = {}
        self._meant: dict[str, Incarnation | None] = {}
        self._generation = 0

    @property
    def partitions_by_slot(self) -> Mapping[str, tuple[AssignedPartition, ...]]:
        """Partitions by slot, slots that are dead or gone included."""
        return self._held

    def incarnation_of(self, slot: str) -> Incarnation | None:
        """Return the process that a slot's assignment is for."""
        return self._meant.get(slot)

    def saw(self, generation: int) -> None:
        """A slot has seen an assignment of a generation, of which the record may be damaged."""
        self._generation = max(self._generation, generation)

    def load(self, assignment: Assignment) -> None:
        """Take over what an earlier driver published."""
        self._held[assignment.slot] = assignment.partitions
        self._meant[assignment.slot] = assignment.incarnation
        self._generation = max(self._generation, assignment.generation)

    def changes(
        self,
        wanted: Mapping[str, tuple[AssignedPartition, ...]],
        again: Iterable[str] = (),
        incarnations: Mapping[str, Incarnation] | None = None,
    ) -> tuple[Assignment, ...]:
        """Return the assignments to publish together; a slot that is not wanted gets nothing.

        Args:
            wanted: partitions by live slot.
            again: slots that need a newer generation although their partitions stay.
            incarnations: the process that is meant, by slot.
        """
        repeated, meant = set(again), incarnations or {}
        return tuple(
            Assignment(slot, self._generation + 1, wanted.get(slot, ()), meant.get(slot))
            for slot in sorted(self._held.keys() | wanted.keys())
            if slot in repeated or wanted.get(slot, ()) != self._held.get(slot, ())
        )
