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
from dataclasses import dataclass, field
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


def assign(
    partitions: Collection[AssignedPartition],
    slots: Collection[str],
    current: Mapping[str, Iterable[AssignedPartition]],
    weights: Mapping[AssignedPartition, float] | None = None,
) -> Assigned:
    """Assign every partition to exactly one live slot; ``current`` may contain dead ones."""
    loads, homeless = _keep(partitions, slots, current, weights or {})
    if not loads:
        return {}
    for newcomer in [load for load in loads if not load.partitions]:
        _share(loads, newcomer)
    _fill(loads, homeless)
    return _result(loads)


def rebalance(
    current: Mapping[str, Iterable[AssignedPartition]],
    weights: Mapping[AssignedPartition, float],
    tolerance: float,
    max_moves: int,
) -> Assigned:
    everything = [partition for held in current.values() for partition in held]
    loads, _ = _keep(everything, tuple(current), current, weights)
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


@dataclass(eq=False)
class _Load:
    slot: str
    weights: Mapping[AssignedPartition, float]
    partitions: list[AssignedPartition] = field(default_factory=list)
    total: float = 0.0

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
) -> tuple[list[_Load], set[AssignedPartition]]:
    """Return what each slot keeps, and the partitions that no slot has."""
    homeless = set(partitions)
    loads = []
    for slot in sorted(set(slots), key=lambda slot: (len(slot), slot)):  # 10 after 9
        load = _Load(slot, weights)
        held = homeless.intersection(current.get(slot, ()))
        homeless -= held  # two slots that both claim it: the first one keeps it
        load.partitions = sorted(held, key=load.rank)
        load.total = sum(load.weight(partition) for partition in load.partitions)
        loads.append(load)
    return loads, homeless


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


@dataclass(eq=False)
class AssignmentBook:
    """The last assignment published for each slot, slots that are dead or gone included.

    ``meant``: the process that it is for. Invariant: the generation is at least that of every one
    ever published.
    """

    held: Assigned = field(default_factory=dict)
    meant: dict[str, Incarnation | None] = field(default_factory=dict)
    _generation: int = 0

    def saw(self, generation: int) -> None:
        """A slot has seen an assignment of a generation, of which the record may be damaged."""
        self._generation = max(self._generation, generation)

    def load(self, assignment: Assignment) -> None:
        self.held[assignment.slot] = assignment.partitions
        self.meant[assignment.slot] = assignment.incarnation
        self.saw(assignment.generation)

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
_UNSETTLED: Final[tuple[tuple[str, ...], None]] = ((), None)


@dataclass(eq=False)
class Term:
    """Takes in what slots and earlier drivers have written, and says who copies what.

    While there is a ``pause``, no slot copies. ``_settled``: live slots and topics last assigned.
    """

    slots: Collection[str]
    liveness: Liveness
    progress: ProgressBook
    clock: Callable[[], float]
    cleaning: Cleaning = field(default_factory=Cleaning)
    book: AssignmentBook = field(default_factory=AssignmentBook)
    pause: Pause | None = None
    _settled: tuple[tuple[str, ...], Discovered | None] = _UNSETTLED

    def __post_init__(self) -> None:
        self._state = StateBook(self.slots)
        self._rebalance_due = self.clock() + REBALANCE_S

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
            self.pause, self._settled = read_pause(pause), _UNSETTLED
            return
        if record.value is None:
            self._state.forget(key)
            self.progress.positions(key, ())
            return
        found = decode(record)
        if found is None:
            return
        self._state.take(key, found)
        if isinstance(found, PositionGroup):
            self.progress.positions(key, found.positions)
        elif isinstance(found, PartitionStatus):
            self.progress.status(found)
        elif isinstance(found, SlotHeartbeat):
            self.book.saw(found.generation)
            # An older process of a slot's id does not show that the slot lives.
            if alive and self._state.newest.get(found.slot) == found.incarnation:
                self.liveness.observe(found.slot, self.clock())

    # ----- what follows from it

    def decide(self, found: Discovered | None, now: float) -> tuple[Assignment, ...]:
        """Return what has to be published: nothing unless topics, slots or rates ask for it."""
        alive = self.liveness.alive(now)
        self.progress.alive = len(alive)
        if found is None or not self.liveness.is_decisive(now):
            return ()
        due, newest = now >= self._rebalance_due, self._state.newest
        restarted = {slot for slot in alive if self.book.meant.get(slot) != newest.get(slot)}
        is_settled = self._settled[0] == alive and self._settled[1] is found
        if is_settled and not due and not restarted:
            return ()
        weights = relative_weights(self.progress.rates())
        partitions = () if self.pause is not None else found.partitions
        wanted = assign(partitions, alive, self.book.held, weights)
        if due:
            self._rebalance_due = self.clock() + REBALANCE_S
            wanted = rebalance(wanted, weights, TOLERANCE, MAX_MOVES)
        self._settled = alive, found
        return self.book.changes(wanted, restarted, newest)

    def new_topics(self, found: Discovered | None) -> list[CopiedTopic]:
        """Return the topics to write down as copied; while nothing is copied, none become it."""
        return [] if self.pause is not None else self.cleaning.new_topics(found)

    def deletions(self, now: float) -> list[tuple[int, bytes]]:
        return [] if self.pause is not None else self.cleaning.deletions(self._state, now)


@dataclass(eq=False)
class Liveness:
    """Arrival times of slot reports, by which slots live; monotonic seconds of the driver's clock.

    A slot silent for ``timeout_s`` is dead. The first assignment waits ``grace_s`` for all slots,
    counted from the first one. A log that cannot be read makes every slot look silent, so silence
    only counts while the driver's own heartbeats return through the same log, last ``echoed``.
    """

    expected: Collection[str]
    echoed: float
    timeout_s: float = SLOT_DEAD_S
    grace_s: float = 10.0
    _seen: dict[str, float] = field(default_factory=dict)
    _first: float | None = None

    def observe(self, slot: str, now: float) -> None:
        if slot in self.expected:
            self._seen[slot] = now
            self._first = now if self._first is None else self._first

    def echo(self, now: float) -> None:
        """Note that the driver's own heartbeat came back: the log can be written and read."""
        gap = now - self.echoed
        if gap > ECHO_S:
            self._seen = {slot: min(now, seen + gap) for slot, seen in self._seen.items()}
        self.echoed = now

    def alive(self, now: float) -> tuple[str, ...]:
        return tuple(sorted(s for s, seen in self._seen.items() if now - seen <= self.timeout_s))

    def due(self, now: float) -> float:
        """Return when the next slot dies without another heartbeat; infinity: no live slot."""
        deaths = (seen + self.timeout_s for seen in self._seen.values())
        return min((death for death in deaths if death >= now), default=float("inf"))

    def deaf(self, now: float) -> bool:
        """Return whether heartbeats have not returned for too long: the reader has failed."""
        return now - self.echoed > DEAF_S

    def is_decisive(self, now: float) -> bool:
        if self._first is None or now - self.echoed > ECHO_S:
            return False
        complete = self._seen.keys() == set(self.expected)
        return bool(self.alive(now)) and (complete or now - self._first >= self.grace_s)
