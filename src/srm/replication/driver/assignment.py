"""Assignment of partitions to slots: sticky first, balanced second, deterministic.

- A partition that a live slot copies stays there: a new topic moves nothing.
- Unassigned partitions go, heaviest first, to the slot with the least load.
- A live slot that copies nothing while another copies several takes over from the heaviest ones.

Load is the sum of weights: byte rates relative to the mean rate, 1 where it is unknown.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from srm.domain.flow_state.liveness_thresholds import DEAF_S, ECHO_S, SLOT_DEAD_S
from srm.domain.flow_state.replication_records import (
    ASSIGNMENT_PREFIX,
    PAUSE_KEY,
    AssignedPartition,
    Assignment,
    Incarnation,
    PartitionStatus,
    Pause,
    read_pause,
)
from srm.domain.flow_state.replication_state import COPIED_PREFIX, CopiedTopic
from srm.domain.flow_state.slot_records import PositionGroup, SlotHeartbeat
from srm.replication.driver.discovery import Discovered
from srm.replication.driver.state_book import Cleaning, LogRecord, ProgressBook, StateBook, decode

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
    """Move partitions of the heaviest slots to the newcomer while that evens the load."""
    moving = True
    while moving:
        donors = [load for load in loads if len(load.partitions) > 1]
        moving = bool(donors) and _move(max(donors, key=lambda load: load.total), newcomer)


def _move(heavy: _Load, light: _Load) -> bool:
    """Move the partition that evens two slots best; False when none does.

    Weight w changes a difference d into ``|d - 2w|``, smaller if 0 < w < d: a series of moves ends.
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
    """The last assignment published for each slot, slots that are dead or gone included.

    ``meant``: the process that it is for. Invariant: the generation is at least that of every one
    ever published.
    """

    def __init__(self) -> None:
        self.held: dict[str, tuple[AssignedPartition, ...]] = {}
        self.meant: dict[str, Incarnation | None] = {}
        self._generation = 0

    def saw(self, generation: int) -> None:
        """A slot has seen an assignment of a generation, of which the record may be damaged."""
        self._generation = max(self._generation, generation)

    def load(self, assignment: Assignment) -> None:
        self.held[assignment.slot] = assignment.partitions
        self.meant[assignment.slot] = assignment.incarnation
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
            for slot in sorted(self.held.keys() | wanted.keys())
            if slot in repeated or wanted.get(slot, ()) != self.held.get(slot, ())
        )


REBALANCE_S: Final = 60.0
TOLERANCE: Final = 1.5  # times the mean load, before partitions move for balance alone
MAX_MOVES: Final = 4


class Term:
    """Takes in what slots and earlier drivers have written, and says who copies what."""

    def __init__(
        self,
        slots: Collection[str],
        liveness: Liveness,
        progress: ProgressBook,
        clock: Callable[[], float],
    ) -> None:
        self.liveness = liveness
        self.cleaning = Cleaning()
        self.pause: Pause | None = None  # while there is one, no slot copies
        self._progress = progress
        self._clock = clock
        self.book = AssignmentBook()
        self._state = StateBook(slots)
        self._settled: tuple[tuple[str, ...], Discovered] | None = None
        self._rebalance_due = clock() + REBALANCE_S

    # ----- what is written

    def load(self, record: LogRecord) -> None:
        """Apply a record from before the log was opened: it is not a heartbeat."""
        value = record.value or b""
        if record.key.startswith(ASSIGNMENT_PREFIX):
            self.book.load(Assignment.decode(value))
        elif record.key.startswith(COPIED_PREFIX):
            self.cleaning.load(CopiedTopic.decode(value))
        else:
            self.take(record, alive=False)

    def take(self, record: LogRecord, *, alive: bool = True) -> None:
        """Take in what a slot has written; ``alive``: just now."""
        key = record.partition, record.key
        if record.key == PAUSE_KEY:
            pause = {} if record.value is None else {PAUSE_KEY: record.value}
            self.pause, self._settled = read_pause(pause), None
            return
        if record.value is None:
            self._state.forget(key)
            self._progress.positions(key, ())
            return
        found = decode(record)
        if found is None:
            return
        self._state.take(key, found)
        if isinstance(found, PositionGroup):
            self._progress.positions(key, found.positions)
        elif isinstance(found, PartitionStatus):
            self._progress.status(found)
        elif isinstance(found, SlotHeartbeat):
            self._heard(found, alive=alive)

    def _heard(self, beat: SlotHeartbeat, *, alive: bool) -> None:
        """A slot is alive; what an older process of its id says does not count."""
        self.book.saw(beat.generation)
        if not alive or self._state.newest.get(beat.slot) != beat.incarnation:
            return
        self.liveness.observe(beat.slot, self._clock())

    # ----- what follows from it

    def decide(self, found: Discovered | None, now: float) -> tuple[Assignment, ...]:
        """Return what has to be published: nothing unless topics, slots or rates ask for it."""
        alive = self.liveness.alive(now)
        self._progress.set_alive(alive)
        if found is None or not self.liveness.is_decisive(now):
            return ()
        due = now >= self._rebalance_due
        again = self._restarted_slots(alive)
        if self._is_settled(alive, found) and not due and not again:
            return ()
        wanted = self._assignment(found, alive, even_out=due)
        self._settled = (alive, found)
        return self.book.changes(wanted, again, self._state.newest)

    def new_topics(self, found: Discovered | None) -> list[CopiedTopic]:
        """Return the topics to write down as copied; while nothing is copied, none become it."""
        return [] if self.pause is not None else self.cleaning.new_topics(found)

    def deletions(self, now: float) -> list[tuple[int, bytes]]:
        if self.pause is not None:
            return []
        return self.cleaning.deletions(self._state, now)

    def _restarted_slots(self, alive: Collection[str]) -> set[str]:
        newest = self._state.newest
        return {slot for slot in alive if self.book.meant.get(slot) != newest.get(slot)}

    def _is_settled(self, alive: tuple[str, ...], found: Discovered) -> bool:
        settled = self._settled
        return settled is not None and settled[0] == alive and settled[1] is found

    def _assignment(self, found: Discovered, alive: Collection[str], *, even_out: bool) -> Assigned:
        weights = relative_weights(self._progress.rates())
        partitions = () if self.pause is not None else found.partitions
        wanted = assign(partitions, alive, self.book.held, weights)
        if even_out:
            self._rebalance_due = self._clock() + REBALANCE_S
            wanted = rebalance(wanted, weights, TOLERANCE, MAX_MOVES)
        return wanted


class Liveness:
    """Arrival times of slot reports, by which slots live; monotonic seconds of the driver's clock.

    A log that cannot be read makes every slot look silent, so silence only counts while the
    driver's own heartbeats return through the same log.
    """

    def __init__(
        self,
        expected: Collection[str],
        now: float,
        *,
        timeout_s: float = SLOT_DEAD_S,
        grace_s: float = 10.0,
    ) -> None:
        """Begin with every slot of ``expected`` unknown; one silent for ``timeout_s`` is dead.

        The first assignment waits ``grace_s`` for all slots, counted from the first one.
        """
        self._expected = frozenset(expected)
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._seen: dict[str, float] = {}
        self._first: float | None = None
        self._echo = now

    def observe(self, slot: str, now: float) -> None:
        if slot in self._expected:
            self._seen[slot] = now
            self._first = now if self._first is None else self._first

    def echo(self, now: float) -> None:
        """Note that the driver's own heartbeat came back: the log can be written and read."""
        gap = now - self._echo
        if gap > ECHO_S:
            self._seen = {slot: min(now, seen + gap) for slot, seen in self._seen.items()}
        self._echo = now

    def alive(self, now: float) -> tuple[str, ...]:
        return tuple(sorted(s for s, seen in self._seen.items() if now - seen <= self._timeout_s))

    def due(self, now: float) -> float:
        """Return when the next slot dies without another heartbeat; infinity: no live slot."""
        deaths = (seen + self._timeout_s for seen in self._seen.values())
        return min((death for death in deaths if death >= now), default=float("inf"))

    def deaf(self, now: float) -> bool:
        """Return whether heartbeats have not returned for too long: the reader has failed."""
        return now - self._echo > DEAF_S

    def is_decisive(self, now: float) -> bool:
        if self._first is None or now - self._echo > ECHO_S:
            return False
        complete = self._seen.keys() == self._expected
        return bool(self.alive(now)) and (complete or now - self._first >= self._grace_s)
