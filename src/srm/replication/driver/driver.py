"""The driver of one flow: it knows the topics and the live slots, and says who copies what.

It may be killed at any time: the assignment it published stays in force, and the next driver goes
on from it. Two drivers cannot publish: the newer one fences the older one, which then ends.
Correctness does not depend on any of this; claims see to it (:mod:`srm.replication.slot.claim`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, Protocol

from srm.domain import internal_topics
from srm.domain.replication_records import (
    ASSIGNMENT_PREFIX,
    DRIVER_KEY,
    REQUEST_KEY,
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
    DriverRequest,
    PartitionStatus,
)
from srm.domain.silence import HEARTBEAT_S, SLOT_DEAD_S
from srm.domain.slot_records import PositionGroup, SlotHeartbeat
from srm.domain.superseded import COPIED_PREFIX, CopiedTopic, GoneTopics
from srm.domain.topics import Flow, TopicPartition
from srm.errors import FencedError, IntegrityError, SrmError, UnavailableError
from srm.replication.driver.assignment import Assigned, assign, rebalance, relative_weights
from srm.replication.driver.assignment_book import AssignmentBook
from srm.replication.driver.cleaning import Cleaning
from srm.replication.driver.discovery import Discovered
from srm.replication.driver.driver_log import DriverLog, LogRecord
from srm.replication.driver.liveness import Liveness
from srm.replication.driver.progress import ProgressBook
from srm.replication.driver.state_book import StateBook, decode

logger = logging.getLogger(__name__)

PENDING_S: Final = 0.2  # next look at a remote topic that was only just created
POLL_S: Final = 0.2
RETRY_S: Final = 1.0
REBALANCE_S: Final = 60.0
TOLERANCE: Final = 1.5  # times the mean load, before partitions move for balance alone
MAX_MOVES: Final = 4
STUCK_S: Final = 5.0
SIGN_OFF_S: Final = 10.0  # for the slots to end, before the last heartbeat says that they have


class DiscoveryRounds(Protocol):
    """See :class:`srm.replication.driver.discovery.Discovery`."""

    def prepare(self) -> None:
        """Create the internal topics that the flow needs on its target."""
        ...

    def round(self) -> Discovered:
        """Find what the flow copies now."""
        ...

    def target_ends(
        self, partitions: Collection[AssignedPartition]
    ) -> dict[AssignedPartition, int]:
        """Return the log end of each target partition."""
        ...

    def gone(self, copied: Collection[CopiedTopic]) -> GoneTopics:
        """Return which of the topics are gone, as far as is known up to now."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals in seconds; tests shorten them."""

    refresh_s: float = 2.0
    slot_timeout_s: float = SLOT_DEAD_S
    grace_s: float = 10.0


class FlowDriver:
    """Discovers, assigns and publishes for one flow until it is stopped or fenced."""

    def __init__(
        self,
        flow: Flow,
        log: DriverLog,
        discovery: DiscoveryRounds,
        *,
        slots: Collection[str],
        identity: Callable[[], DriverHeartbeat],
        started_after: str | None = None,
        timing: Timing = Timing(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect nothing yet.

        Args:
            flow: the flow.
            log: its state topic.
            discovery: finds its topics.
            slots: ids of the slots of this application.
            identity: makes a heartbeat record; its ``driver`` must be the same in each.
            started_after: id of the request to end that stood when the application started, empty
                for none; without it, the one that stands when the log is first read.
            timing: intervals.
            clock: monotonic seconds.
        """
        self.progress = ProgressBook(str(flow), slots)
        self.discovered: Discovered | None = None
        self.obeyed: DriverRequest | None = None
        self._started_after = started_after
        self._flow = flow
        self._log = log
        self._discovery = discovery
        self._slots = tuple(slots)
        self._identity = identity
        self._driver = identity().driver
        self._timing = timing
        self._clock = clock
        self._book = AssignmentBook()
        self._liveness = self._new_liveness()
        self._state = StateBook(self._slots)
        self._cleaning = Cleaning()
        self._waiting: dict[TopicPartition, float] = {}
        self._metrics_topic = internal_topics.raw_metrics(flow.source)
        self._settled: tuple[tuple[str, ...], Discovered] | None = None
        self._heartbeat_due = 0.0
        self._rebalance_due = 0.0

    def run(self, stop: threading.Event, slots_ended: threading.Event | None = None) -> None:
        """Drive the flow until ``stop``; a cluster that does not answer is waited for.

        A request in the log that is newer than the application sets ``stop`` for all of it and is
        kept in ``obeyed``. The last heartbeat, which says that the application has ended, is
        written after ``slots_ended`` where that is given.

        Raises:
            FencedError: a newer driver has taken over the flow.
            AuthorizationError: a right is missing on the target.
        """
        ended = threading.Event()
        name = f"srm-discovery-{self._flow}"
        rounds = threading.Thread(target=self._discover, args=(ended,), name=name, daemon=True)
        opened = False
        try:
            while not stop.is_set():
                try:
                    self._open(again=opened)
                    if not opened:
                        rounds.start()
                    opened = True
                    while not self._must_end(stop):
                        self._step()
                except UnavailableError as error:
                    logger.warning(
                        "%s: the driver waits for %s: %s", self._flow, self._flow.target, error
                    )
                    stop.wait(RETRY_S)
            if opened:
                self._sign_off(slots_ended)
        finally:
            ended.set()
            self._log.close()
            if opened:
                rounds.join(RETRY_S)

    def _open(self, *, again: bool) -> None:
        """Become the driver, unless somebody else became it while we were away."""
        self._discovery.prepare()
        if again:
            self._check_successor(self._log.read())
        self._log.fence()
        self._book = AssignmentBook()
        self._liveness = self._new_liveness()
        self._state = StateBook(self._slots)
        self._cleaning = Cleaning()
        self._settled = None
        self._waiting = {}
        self._heartbeat_due = self._clock()
        self._rebalance_due = self._clock() + REBALANCE_S
        standing = b""
        for record in self._log.read():
            if record.key == REQUEST_KEY:
                standing = record.value or b""
            elif record.key != DRIVER_KEY:
                self._survive(record, self._load)
        self._request(standing)
        logger.info("%s: driver %s has taken over", self._flow, self._driver)

    def _survive(self, record: LogRecord, take: Callable[[LogRecord], None]) -> None:
        """Take a record in; one that is damaged is told and passed over."""
        try:
            take(record)
        except IntegrityError as error:
            logger.warning("%s: record %r is passed over: %s", self._flow, record.key, error)

    def _load(self, record: LogRecord) -> None:
        """Take in a record that stood there when the log was opened: no sign of life."""
        value = record.value or b""
        if record.key.startswith(ASSIGNMENT_PREFIX):
            self._book.load(Assignment.decode(value))
        elif record.key.startswith(COPIED_PREFIX):
            self._cleaning.load(CopiedTopic.decode(value))
        else:
            self._take_state(record)

    def _must_end(self, stop: threading.Event) -> bool:
        if self.obeyed is not None:
            stop.set()
        return stop.is_set()

    def _request(self, value: bytes) -> None:
        """Obey a request that did not stand when the application started."""
        try:
            request = DriverRequest.decode(value) if value else None
        except IntegrityError as error:
            logger.warning("%s: a request to the driver is passed over: %s", self._flow, error)
            return
        if self._started_after is None:
            self._started_after = request.request if request else ""
        elif request is not None and request.request != self._started_after:
            self.obeyed = request
            logger.warning(
                "%s: %s asked for by %s: this replicator ends",
                *(self._flow, request.action, request.by),
            )

    def _heartbeat(self, *, ended: bool = False) -> bytes:
        started_after = self._started_after or ""
        return replace(self._identity(), started_after=started_after, ended=ended).value()

    def _sign_off(self, slots_ended: threading.Event | None) -> None:
        """Say that the application has ended, so that nobody has to conclude it from silence."""
        if slots_ended is not None and not slots_ended.wait(SIGN_OFF_S):
            return
        try:
            self._log.publish({DRIVER_KEY: self._heartbeat(ended=True)})
        except SrmError as error:
            logger.info("%s: no last heartbeat: %s", self._flow, error)

    def _check_successor(self, records: list[LogRecord]) -> None:
        for record in records:
            if record.key == DRIVER_KEY:
                self._survive(record, self._take)

    def _new_liveness(self) -> Liveness:
        timing = self._timing
        return Liveness(
            self._slots, self._clock(), timeout_s=timing.slot_timeout_s, grace_s=timing.grace_s
        )

    def _discover(self, ended: threading.Event) -> None:
        """Repeat discovery; it has its own thread since a slow source must not silence us."""
        while not ended.is_set():
            wait = self._timing.refresh_s
            try:
                before, found = self.discovered, self._discovery.round()
                if found.pending and (before is None or found.pending != before.pending):
                    wait = min(wait, PENDING_S)
                if found != before:  # otherwise the old object says that nothing has changed
                    self.progress.set_partitions(found.partitions, self._target_ends(found))
                    self.discovered = found
                self._cleaning.look(self._discovery.gone, self._log.clear_maps)
            except SrmError as error:
                logger.warning("%s: topics could not be refreshed: %s", self._flow, error)
            ended.wait(wait)

    def _target_ends(self, found: Discovered) -> dict[AssignedPartition, int]:
        """Return from where records are counted: a number for people, not worth waiting for."""
        new = self.progress.unknown(found.partitions)
        try:
            return self._discovery.target_ends(new)
        except SrmError as error:
            logger.warning("%s: records are counted from now on only: %s", self._flow, error)
            return {}

    def _step(self) -> None:
        for record in self._log.poll(POLL_S):
            self._survive(record, self._take)
        now, found = self._clock(), self.discovered
        changes = self._decide(found, now)
        if not changes and now < self._heartbeat_due:
            return
        records = {change.key(): change.value() for change in changes}
        records[DRIVER_KEY] = self._heartbeat()
        new = self._cleaning.new_topics(found)
        records |= {topic.key(): topic.value() for topic in new}
        deletions = self._cleaning.deletions(self._state, now)
        self._log.publish(records, deletions)
        self._cleaning.published(new, deletions)
        self._heartbeat_due = now + HEARTBEAT_S
        if self._liveness.deaf(now):
            raise UnavailableError("the driver's own heartbeats do not come back; reading again")
        for change in changes:
            self._book.load(change)
            logger.info(
                *("%s: slot %s copies %d partitions from generation %d", self._flow, change.slot),
                *(len(change.partitions), change.generation),
            )

    def _take(self, record: LogRecord) -> None:
        value = record.value
        if record.topic == self._metrics_topic:
            self.progress.metric(value or b"")
        elif record.key == DRIVER_KEY and value is not None:
            self._driver_record(DriverHeartbeat.decode(value))
        elif record.key == REQUEST_KEY and value is not None:
            self._request(value)
        else:
            self._take_state(record, alive=True)

    def _take_state(self, record: LogRecord, *, alive: bool = False) -> None:
        """Take in what a slot has written; ``alive``: just now."""
        key = record.partition, record.key
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
            if alive and found.incarnation is None:  # a slot of an earlier version
                self._liveness.observe(found.slot, self._clock())
        elif isinstance(found, PartitionStatus):
            self._status(found)
        elif isinstance(found, SlotHeartbeat):
            self._heard(found, alive=alive)

    def _heard(self, beat: SlotHeartbeat, *, alive: bool) -> None:
        """A slot is alive; what an older process of its id says does not count."""
        self._book.saw(beat.generation)
        if not alive or self._state.newest.get(beat.slot) != beat.incarnation:
            return
        self._liveness.observe(beat.slot, self._clock())

    def _status(self, status: PartitionStatus) -> None:
        self.progress.status(status)
        partition = TopicPartition(status.topic, status.partition)
        if status.state == "waiting":
            self._waiting.setdefault(partition, self._clock())
        else:
            self._waiting.pop(partition, None)

    def _stuck_slots(self, now: float) -> set[str]:
        """Return the slots that have been waiting for a newer assignment for too long.

        A slot that was fenced waits for one before it claims again. Mostly the reason is a move
        that it has not heard of yet; where nothing has moved (the worker that fenced it is a dead
        predecessor of its own), somebody has to tell it to continue.
        """
        overdue = {p for p, since in self._waiting.items() if now - since > STUCK_S}
        if not overdue:
            return set()
        self._waiting = {p: now if p in overdue else t for p, t in self._waiting.items()}
        return {
            slot
            for slot, held in self._book.held.items()
            if any(TopicPartition(p.topic, p.partition) in overdue for p in held)
        }

    def _driver_record(self, heartbeat: DriverHeartbeat) -> None:
        if heartbeat.driver == self._driver:
            self._liveness.echo(self._clock())
            return
        raise FencedError(
            f"flow {self._flow} is driven by another replicator now (pid {heartbeat.pid} on "
            f"{heartbeat.host}, Spark application {heartbeat.application_id}): this one ends"
        )

    def _decide(self, found: Discovered | None, now: float) -> tuple[Assignment, ...]:
        """Return what has to be published: nothing unless topics, slots or rates ask for it."""
        alive = self._liveness.alive(now)
        self.progress.set_alive(alive)
        if found is None or not self._liveness.judged(now):
            return ()
        due = now >= self._rebalance_due
        again = self._stuck_slots(now) | self._restarted_slots(alive)
        if self._is_settled(alive, found) and not due and not again:
            return ()
        wanted = self._assignment(found, alive, even_out=due)
        self._settled = (alive, found)
        return self._book.changes(wanted, again, self._state.newest)

    def _restarted_slots(self, alive: Collection[str]) -> set[str]:
        """Return the slots that are another process than the one their assignment is for.

        Naming it has the older one end, if that still runs.
        """
        newest = self._state.newest
        return {slot for slot in alive if self._book.meant(slot) != newest.get(slot)}

    def _is_settled(self, alive: tuple[str, ...], found: Discovered) -> bool:
        settled = self._settled
        return settled is not None and settled[0] == alive and settled[1] is found

    def _assignment(self, found: Discovered, alive: Collection[str], *, even_out: bool) -> Assigned:
        weights = relative_weights(self.progress.rates())
        wanted = assign(found.partitions, alive, self._book.held, weights)
        if even_out:
            self._rebalance_due = self._clock() + REBALANCE_S
            wanted = rebalance(wanted, weights, TOLERANCE, MAX_MOVES)
        return wanted
