"""A driver's knowledge and decisions from one opening of the state topic to the next: a term."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from srm.domain.flow_state.liveness_thresholds import DEAF_S, ECHO_S, SLOT_DEAD_S
from srm.domain.flow_state.pause import PAUSE_KEY, Pause, read_pause
from srm.domain.flow_state.replication_records import ASSIGNMENT_PREFIX, Assignment, PartitionStatus
from srm.domain.flow_state.reported_positions import COPIED_PREFIX, CopiedTopic
from srm.domain.flow_state.slot_records import PositionGroup, SlotHeartbeat
from srm.replication.driver.assignment import (
    Assigned,
    AssignmentBook,
    assign,
    rebalance,
    relative_weights,
)
from srm.replication.driver.discovery import Discovered
from srm.replication.driver.driver_log import LogRecord
from srm.replication.driver.progress import ProgressBook
from srm.replication.driver.state_book import Cleaning, StateBook, decode

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
        """Know nothing yet; ``progress`` outlives the term."""
        self.liveness = liveness
        self.cleaning = Cleaning()
        self.pause: Pause | None = None  # while there is one, no slot copies
        self._progress = progress
        self._clock = clock
        self._book = AssignmentBook()
        self._state = StateBook(slots)
        self._settled: tuple[tuple[str, ...], Discovered] | None = None
        self._rebalance_due = clock() + REBALANCE_S

    # ----- what is written

    def load(self, record: LogRecord) -> None:
        """Apply a record from before the log was opened: it is not a heartbeat."""
        value = record.value or b""
        if record.key.startswith(ASSIGNMENT_PREFIX):
            self._book.load(Assignment.decode(value))
        elif record.key.startswith(COPIED_PREFIX):
            self.cleaning.load(CopiedTopic.decode(value))
        else:
            self.take(record, alive=False)

    def take(self, record: LogRecord, *, alive: bool = True) -> None:
        """Take in what a slot has written; ``alive``: just now."""
        key = record.partition, record.key
        if record.key == PAUSE_KEY:
            self._set_pause(record.value)
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

    def _set_pause(self, value: bytes | None) -> None:
        self.pause = read_pause({} if value is None else {PAUSE_KEY: value})
        self._settled = None

    def _heard(self, beat: SlotHeartbeat, *, alive: bool) -> None:
        """A slot is alive; what an older process of its id says does not count."""
        self._book.saw(beat.generation)
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
        return self._book.changes(wanted, again, self._state.newest)

    def on_publish(self, change: Assignment) -> None:
        """An assignment is in force."""
        self._book.load(change)

    def new_topics(self, found: Discovered | None) -> list[CopiedTopic]:
        """Return the topics to write down as copied; while nothing is copied, none become it."""
        return [] if self.pause is not None else self.cleaning.new_topics(found)

    def deletions(self, now: float) -> list[tuple[int, bytes]]:
        """Return some records to delete now, by partition and key; mostly none.

        None while the flow is paused: what a source that was lost has held is still to be decided.
        """
        if self.pause is not None:
            return []
        return self.cleaning.deletions(self._state, now)

    def _restarted_slots(self, alive: Collection[str]) -> set[str]:
        """Return the slots that are another process than assigned; naming it ends the older one."""
        newest = self._state.newest
        return {slot for slot in alive if self._book.incarnation_of(slot) != newest.get(slot)}

    def _is_settled(self, alive: tuple[str, ...], found: Discovered) -> bool:
        settled = self._settled
        return settled is not None and settled[0] == alive and settled[1] is found

    def _assignment(self, found: Discovered, alive: Collection[str], *, even_out: bool) -> Assigned:
        weights = relative_weights(self._progress.rates())
        partitions = () if self.pause is not None else found.partitions
        wanted = assign(partitions, alive, self._book.partitions_by_slot, weights)
        if even_out:
            self._rebalance_due = self._clock() + REBALANCE_S
            wanted = rebalance(wanted, weights, TOLERANCE, MAX_MOVES)
        return wanted


class Liveness:
    """Arrival times of slot reports, by which slots live. All times are monotonic seconds.

    Clocks of other machines are not compared with ours: the driver's own clock at arrival counts. A
    log that cannot be read makes every slot look silent, so silence only counts while the driver's
    own heartbeats return through the same log.
    """

    def __init__(
        self,
        expected: Collection[str],
        now: float,
        *,
        timeout_s: float = SLOT_DEAD_S,
        grace_s: float = 10.0,
    ) -> None:
        """Begin with every slot unknown.

        Reports of other slots than ``expected`` are ignored; one that is silent for ``timeout_s``
        is dead. The first assignment waits ``grace_s`` for all slots, counted from the first one.
        """
        self._expected = frozenset(expected)
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._seen: dict[str, float] = {}
        self._first: float | None = None
        self._echo = now

    def observe(self, slot: str, now: float) -> None:
        """Note that a report of the slot has arrived."""
        if slot in self._expected:
            self._seen[slot] = now
            self._first = now if self._first is None else self._first

    def echo(self, now: float) -> None:
        """Note that the driver's own heartbeat came back: the log can be written and read.

        During a gap slots could not report either, so their silence is counted from now on.
        """
        gap = now - self._echo
        if gap > ECHO_S:
            self._seen = {slot: min(now, seen + gap) for slot, seen in self._seen.items()}
        self._echo = now

    def alive(self, now: float) -> tuple[str, ...]:
        """Return the slots whose silence is short, in stable order."""
        return tuple(sorted(s for s, seen in self._seen.items() if now - seen <= self._timeout_s))

    def due(self, now: float) -> float:
        """Return when the next slot dies without another heartbeat; infinity: no live slot."""
        deaths = (seen + self._timeout_s for seen in self._seen.values())
        return min((death for death in deaths if death >= now), default=float("inf"))

    def deaf(self, now: float) -> bool:
        """Return whether heartbeats have not returned for too long: the reader has failed."""
        return now - self._echo > DEAF_S

    def is_decisive(self, now: float) -> bool:
        """Return whether the set of live slots is reliable.

        Not while our own heartbeats are missing, nor before all slots have reported or the grace is
        over: the first slot would get everything.
        """
        if self._first is None or now - self._echo > ECHO_S:
            return False
        complete = self._seen.keys() == self._expected
        return bool(self.alive(now)) and (complete or now - self._first >= self._grace_s)
