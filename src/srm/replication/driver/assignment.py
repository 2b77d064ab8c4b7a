"""Assignment of partitions to slots: sticky first, balanced second, deterministic.

Three rules, each held by a property test:

- a partition that a live slot copies stays there: a new topic moves nothing, a lost slot moves only
  what it copied;
- unassigned partitions go, heaviest first, to the slot with the least load;
- a live slot that copies nothing while another copies several takes over from the heaviest ones.

Load is the sum of weights. A weight is a partition's byte rate relative to the mean rate, so that
a partition whose rate is unknown counts like an average one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeVar

from srm.domain.flow_state.replication_records import AssignedPartition, Assignment, Incarnation

Assigned = dict[str, tuple[AssignedPartition, ...]]
_K = TypeVar("_K")

UNKNOWN_WEIGHT: Final = 1.0
LEAST_WEIGHT: Final = 0.05  # an idle partition still costs its fetch and report entries


def relative_weights(rates: Mapping[_K, float]) -> dict[_K, float]:
    """Turn byte rates into weights around 1; without any traffic all weigh the same."""
    mean = sum(rates.values()) / len(rates) if rates else 0.0
    if mean <= 0.0:
        return dict.fromkeys(rates, UNKNOWN_WEIGHT)
    return {key: max(LEAST_WEIGHT, rate / mean) for key, rate in rates.items()}


def slot_order(slot: str) -> tuple[int, str]:
    """Sort key that puts slot 10 after slot 9."""
    return len(slot), slot


def assign(
    partitions: Collection[AssignedPartition],
    slots: Collection[str],
    current: Mapping[str, Iterable[AssignedPartition]],
    weights: Mapping[AssignedPartition, float] | None = None,
) -> Assigned:
    """Assign every partition to exactly one live slot; ``current`` may contain dead ones."""
    loads = _keep(partitions, slots, current, weights or {})
    if not loads:
        return {}
    for newcomer in [load for load in loads if not load.partitions]:
        _share(loads, newcomer)
    kept = {partition for load in loads for partition in load.partitions}
    _fill(loads, (partition for partition in set(partitions) if partition not in kept))
    return _result(loads)


def rebalance(
    current: Mapping[str, Iterable[AssignedPartition]],
    weights: Mapping[AssignedPartition, float],
    tolerance: float,
    max_moves: int,
) -> Assigned:
    """Move a few partitions from overloaded slots, as rates have drifted apart.

    ``current`` is complete, over live slots. The heaviest may carry ``tolerance`` times the mean
    load. Each move costs a claim, so there are ``max_moves`` at most.
    """
    everything = [partition for held in current.values() for partition in held]
    loads = _keep(everything, tuple(current), current, weights)
    mean = sum(load.total for load in loads) / max(1, len(loads))
    if not loads or max(load.total for load in loads) <= tolerance * mean:
        return _result(loads)
    goal = 1 + (tolerance - 1) / 4  # once started, get well below what starts it
    for _ in range(max_moves):
        heaviest = max(loads, key=lambda load: load.total)
        lightest = min(loads, key=lambda load: load.total)
        if heaviest.total <= goal * mean or not _move(heaviest, lightest):
            break
    return _result(loads)


class _Load:
    """Load of one slot; partitions ascend by weight."""

    def __init__(self, slot: str, weights: Mapping[AssignedPartition, float]) -> None:
        self.slot = slot
        self.weights = weights
        self.total = 0.0
        self.partitions: list[AssignedPartition] = []

    def weight(self, partition: AssignedPartition) -> float:
        return self.weights.get(partition, UNKNOWN_WEIGHT)

    def rank(self, partition: AssignedPartition) -> tuple[float, AssignedPartition]:
        return self.weight(partition), partition

    def add(self, partition: AssignedPartition) -> None:
        index = bisect_left(self.partitions, self.rank(partition), key=self.rank)
        self.partitions.insert(index, partition)
        self.total += self.weight(partition)

    def give(self, index: int) -> AssignedPartition:
        partition = self.partitions.pop(index)
        self.total -= self.weight(partition)
        return partition


def _keep(
    partitions: Collection[AssignedPartition],
    slots: Collection[str],
    current: Mapping[str, Iterable[AssignedPartition]],
    weights: Mapping[AssignedPartition, float],
) -> list[_Load]:
    wanted = set(partitions)
    loads = []
    for slot in sorted(set(slots), key=slot_order):
        load = _Load(slot, weights)
        held = wanted.intersection(current.get(slot, ()))
        wanted -= held  # two slots that both claim it: the first one keeps it
        load.partitions = sorted(held, key=load.rank)
        load.total = sum(load.weight(partition) for partition in load.partitions)
        loads.append(load)
    return loads


def _share(loads: list[_Load], newcomer: _Load) -> None:
    """Move partitions of the heaviest slots to the newcomer while that evens the load.

    A slot with one partition keeps it, as a move would only reverse the difference. So a newcomer
    stays empty only where no slot has two, and a repeated call moves nothing.
    """
    moving = True
    while moving:
        donors = [load for load in loads if len(load.partitions) > 1]
        moving = bool(donors) and _move(max(donors, key=lambda load: load.total), newcomer)


def _move(heavy: _Load, light: _Load) -> bool:
    """Move the partition that evens two slots best; False when none does.

    Moving weight w changes a difference d into ``|d - 2w|``: smaller exactly when 0 < w < d. So
    each move lowers the sum of squares, and a series of moves ends.
    """
    difference = heavy.total - light.total
    if heavy is light or not heavy.partitions:
        return False
    weights = heavy.weight
    at = bisect_left(heavy.partitions, difference / 2, key=weights)
    near = [index for index in (at, at - 1) if 0 <= index < len(heavy.partitions)]
    best = min(near, key=lambda index: abs(difference / 2 - weights(heavy.partitions[index])))
    if weights(heavy.partitions[best]) >= difference * (1 - 1e-9):
        return False
    light.add(heavy.give(best))
    return True


def _fill(loads: list[_Load], homeless: Iterable[AssignedPartition]) -> None:
    heap = [(load.total, len(load.partitions), index) for index, load in enumerate(loads)]
    heapq.heapify(heap)
    for partition in sorted(homeless, key=lambda p: (-loads[0].weight(p), p)):
        load = loads[heap[0][2]]
        load.add(partition)
        heapq.heapreplace(heap, (load.total, len(load.partitions), heap[0][2]))


def _result(loads: list[_Load]) -> Assigned:
    return {load.slot: tuple(sorted(load.partitions)) for load in loads}


class AssignmentBook:
    """The last assignment published for each slot.

    Invariant: ``generation`` is at least that of every one ever published, so a newer one is known.
    """

    def __init__(self) -> None:
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
        """Return the assignments to publish together, newer ones for slots in ``again``, too."""
        repeated, meant = set(again), incarnations or {}
        return tuple(
            Assignment(slot, self._generation + 1, wanted.get(slot, ()), meant.get(slot))
            for slot in sorted(self._held.keys() | wanted.keys())
            if slot in repeated or wanted.get(slot, ()) != self._held.get(slot, ())
        )
