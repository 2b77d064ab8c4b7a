"""The driver of one flow: it knows the topics and the live slots, and says who copies what.

It may be killed at any time: the assignment it published stays in force. Two drivers cannot
publish: the newer one fences the older one, which then ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from srm.domain.flow_state.liveness_thresholds import HEARTBEAT_S, SLOT_DEAD_S
from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    PAUSE_KEY,
    REQUEST_KEY,
    SETTINGS_KEY,
    AssignedPartition,
    DriverHeartbeat,
    DriverRequest,
)
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.errors import (
    ConfigError,
    FencedError,
    IntegrityError,
    SrmError,
    SupersededError,
    UnavailableError,
)
from srm.replication.driver.assignment import Liveness, Term
from srm.replication.driver.discovery import Discovered, Discovery
from srm.replication.driver.pausing import pause_in
from srm.replication.driver.state_book import DriverLog, LogRecord, ProgressBook

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 15.0
HEALTHY_S: Final = 30.0  # a job that ran for this long was fine: the pause starts small again


@dataclass(slots=True)
class Backoff:
    """Pause before the next attempt, doubled by each one that ends early."""

    next_s: float = FIRST_PAUSE_S

    def after(self, ran_s: float) -> float:
        if ran_s >= HEALTHY_S:
            self.next_s = FIRST_PAUSE_S
        pause, self.next_s = self.next_s, min(LONGEST_PAUSE_S, self.next_s * 2)
        return pause


def keep_running(
    name: str,
    job: Callable[[], None],
    stop: threading.Event,
    *,
    describe: Callable[[Exception], str] = str,
) -> None:
    """Run ``job`` again and again until ``stop``; ``describe`` makes a line of its error.

    SupersededError: another application drives the flow: the job would only end again.
    """
    pause = Backoff()
    while not stop.is_set():
        started = time.monotonic()
        try:
            job()
            reason = "it returned"
        except SupersededError:
            raise
        except Exception as error:  # whatever ends a job, it has to run again
            reason = describe(error)
            logger.debug("%s failed", name, exc_info=error)
        if stop.is_set():
            break
        wait = pause.after(time.monotonic() - started)
        logger.warning("%s ended, submitted again in %.1f s: %s", name, wait, reason)
        stop.wait(wait)


PENDING_S: Final = 0.2  # next look at a remote topic that was only just created
POLL_S: Final = 0.2  # while the driver waits for more than the log
LONGEST_POLL_S: Final = 0.5
FOUND_S: Final = 0.05  # an ordinary round of discovery is over by then
RETRY_S: Final = 1.0
SUCCESSOR_S: Final = 30.0  # for the first record of the process that fenced a driver
_MOST_PENDING: Final = 20
_DRIVING: Final = "the driver"
_DISCOVERING: Final = "discovery of topics"
CHARGE_S: Final = 5 * HEARTBEAT_S
"""A process that was suspended finds out only by its next record that another one drives."""
SIGN_OFF_S: Final = 10.0  # for the slots to end, before the last heartbeat says that they have


@dataclass(eq=False)
class FlowDriver:
    """Discovers, assigns and publishes for one flow until it is stopped or fenced.

    ``identity`` makes a heartbeat, with the same ``driver`` in each. ``settings`` are published
    with the next one.
    """

    flow: Flow
    log: DriverLog
    discovery: Discovery
    _: KW_ONLY
    slots: Collection[str]
    identity: Callable[[], DriverHeartbeat]
    duties: frozenset[str] = frozenset()
    refresh_s: float = 2.0
    slot_timeout_s: float = SLOT_DEAD_S
    grace_s: float = 10.0
    clock: Callable[[], float] = time.monotonic
    settings: bytes = b""
    discovered: Discovered | None = None
    obeyed: DriverRequest | None = None
    started_after: str | None = None
    _published_settings: bytes = b""
    _opened: bool = False
    _succeeds: bool = False
    _former: bytes | None = None
    _fenced: FencedError | None = None
    _heartbeat_due: float = 0.0
    _published: float = float("-inf")
    _next_round: float = float("-inf")

    def __post_init__(self) -> None:
        self.progress = ProgressBook(str(self.flow), self.slots)
        self._driver = self.identity().driver
        self._term = self._new_term()
        self._metrics_topic = internal_topics.raw_metrics(self.flow.source)

    def succeed(self, before: FlowDriver) -> None:
        """Continue for the same application: its requests count, and who has fenced it."""
        self.started_after, self.obeyed = before.started_after, before.obeyed
        self._succeeds = before._opened or before._succeeds
        self._former = before._former

    def run(
        self,
        stop: threading.Event,
        signs_off: Callable[[], bool] = lambda: True,
        begin: Callable[[], object] = lambda: None,
        driving: Callable[[], object] = lambda: None,
    ) -> None:
        """Drive the flow until ``stop``; whatever fails is reported and tried again.

        A request in the log that is newer than the application sets ``stop`` and is kept in
        ``obeyed``. ``begin`` is called before the flow is taken over, ``driving`` from the first
        heartbeat on, again and again. ``signs_off`` waits for the end of the slots; whether the
        last heartbeat says that the application has ended.
        """
        ended = threading.Event()
        name = f"srm-discovery-{self.flow}"
        rounds = threading.Thread(target=self._discover, args=(ended,), name=name, daemon=True)
        backoff = Backoff()
        try:
            while not stop.is_set():
                tried = self.clock()
                try:
                    self._drive(stop, begin, driving, rounds)
                except FencedError as error:
                    if not self._opened or self._fenced is not None:
                        raise
                    self._fenced = error
                except Exception as error:  # noqa: BLE001 -- it is reported, and tried again
                    pause_s = backoff.after(self.clock() - tried)
                    stop.wait(self._report(_DRIVING, error, pause_s))
            if self._opened and signs_off():
                self._sign_off()
        finally:
            ended.set()
            self.log.close()
            if self._opened:
                rounds.join(RETRY_S)

    @property
    def refusal(self) -> ConfigError | None:
        """The settings that keep the driver from its first opening: its own or the target's."""
        trouble = self.progress.troubles.get(_DRIVING)
        return trouble if isinstance(trouble, ConfigError) and not self._opened else None

    @property
    def is_in_charge(self) -> bool:
        """True if no other driver can have been in charge for long."""
        return self.clock() - self._published <= CHARGE_S

    def _drive(
        self,
        stop: threading.Event,
        begin: Callable[[], object],
        driving: Callable[[], object],
        rounds: threading.Thread,
    ) -> None:
        self.discovery.prepare()
        if not self._opened:
            if self.started_after is None:
                requests = (r.value for r in self.log.read() if r.key == REQUEST_KEY)
                self._request(next(requests, None) or b"")
            begin()
            if stop.is_set():
                return
        self._open(again=self._opened or self._succeeds, fenced=self._fenced, stop=stop)
        if not self._opened:
            rounds.start()
        self._opened, self._fenced = True, None
        self.progress.troubles.end(_DRIVING)
        while self.obeyed is None and not stop.is_set():
            self._step()
            driving()
        stop.set()

    def _open(
        self, *, again: bool, fenced: FencedError | None = None, stop: threading.Event | None = None
    ) -> None:
        if again:
            records = self.log.read()
            for record in records:
                if record.key == DRIVER_KEY and record.value != self._former:
                    self._survive(record, self._take)
            if fenced is not None and pause_in(records) == self.progress.pause:
                self._await_word(fenced, stop)
        self.log.fence()
        self._published_settings = b""
        self._term = self._new_term()
        self._heartbeat_due = self.clock()
        request = b""
        for record in self.log.read():
            if record.key == REQUEST_KEY:
                request = record.value or b""
            elif record.key == DRIVER_KEY:
                self._former = record.value  # not a word of who fences us, until we have written
            else:
                self._survive(record, self._term.load)
        self._request(request)
        self.progress.pause = pause = self._term.pause
        logger.info("%s: driver %s has taken over", self.flow, self._driver)
        if pause is not None:
            logger.warning("%s is paused: %s; nothing is copied", self.flow, pause.reason)

    def _report(self, what: str, error: Exception, pause_s: float) -> float:
        trouble = self.progress.troubles.report(what, error)
        return RETRY_S if trouble.retriable else max(RETRY_S, pause_s)

    def _await_word(self, fenced: FencedError, stop: threading.Event | None) -> None:
        until = self.clock() + SUCCESSOR_S
        while self.clock() < until:
            if stop is not None and stop.is_set():
                raise fenced
            for record in self.log.poll(POLL_S):
                if record.key == PAUSE_KEY:
                    return
                self._survive(record, self._take)
        logger.warning(
            "%s: fenced by a process that has written no heartbeat since; this driver starts "
            "again: %s",
            self.flow,
            fenced,
        )

    def _new_term(self) -> Term:
        liveness = Liveness(self.slots, self.clock(), self.slot_timeout_s, self.grace_s)
        return Term(self.slots, liveness, self.progress, self.clock)

    def _survive(self, record: LogRecord, take: Callable[[LogRecord], None]) -> None:
        try:
            take(record)
        except IntegrityError as error:
            logger.warning("%s: record %r is skipped: %s", self.flow, record.key, error)

    def _request(self, value: bytes) -> None:
        """Obey a request that is newer than the start of the application."""
        try:
            request = DriverRequest.decode(value) if value else None
        except IntegrityError as error:
            logger.warning("%s: a request to the driver is skipped: %s", self.flow, error)
            return
        if self.started_after is None:
            self.started_after = request.request if request else ""
        elif request is not None and request.request != self.started_after:
            self.obeyed = request
            text = "%s: %s requested by %s: this replicator ends"
            logger.warning(text, self.flow, request.action, request.by)

    def _heartbeat(self, *, ended: bool = False) -> bytes:
        beat = replace(
            self.identity(),
            started_after=self.started_after or "",
            ended=ended,
            duties=tuple(sorted(self.duties)),
            troubles=self.progress.duty_troubles.lines,
            pending=() if self.discovered is None else self.discovered.pending[:_MOST_PENDING],
        )
        return beat.value()

    def _sign_off(self) -> None:
        """Write that the application has ended, so that readers need not infer it from silence."""
        try:
            self.log.publish({DRIVER_KEY: self._heartbeat(ended=True)})
        except SrmError as error:
            logger.info("%s: no last heartbeat: %s", self.flow, error)

    def _discover(self, ended: threading.Event) -> None:
        """Repeat discovery; it has its own thread since a slow source must not silence us."""
        backoff = Backoff()
        while not ended.is_set():
            wait, tried = self.refresh_s, self.clock()
            try:
                before, found = self.discovered, self.discovery.round()
                if found.pending and (before is None or found.pending != before.pending):
                    wait = min(wait, PENDING_S)
                if found != before:  # otherwise the old object says that nothing has changed
                    self.progress.set_partitions(found.partitions, self._target_ends(found))
                    self.discovered = found
                self._term.cleaning.look(self.discovery.find_deleted, self._clear)
                self.progress.troubles.end(_DISCOVERING)
                backoff = Backoff()
            except Exception as error:  # noqa: BLE001 -- it is reported, and tried again
                pause_s = backoff.after(self.clock() - tried)
                wait = max(wait, self._report(_DISCOVERING, error, pause_s))
            self._next_round = self.clock() + wait
            ended.wait(wait)

    def _clear(self, topics: Collection[CopiedTopic]) -> None:
        self.discovery.forget(topics)
        self.log.clear_maps(topics)

    def _target_ends(self, found: Discovered) -> dict[AssignedPartition, int]:
        """Return from where records are counted: a number for people, not worth waiting for."""
        new = self.progress.unknown(found.partitions)
        try:
            return self.discovery.target_ends(new)
        except SrmError as error:
            logger.warning("%s: the number of copied records starts at zero: %s", self.flow, error)
            return {}

    def _step(self) -> None:
        for record in self.log.poll(self._patience_s()):
            self._survive(record, self._take)
        now, found = self.clock(), self.discovered
        changes = self._term.decide(found, now)
        if not changes and now < self._heartbeat_due:
            return
        records = {change.key(): change.value() for change in changes}
        records[DRIVER_KEY] = self._heartbeat()
        settings = self.settings
        if settings != self._published_settings:
            records[SETTINGS_KEY] = settings
        new = self._term.new_topics(found)
        records |= {topic.key(): topic.value() for topic in new}
        deletions = self._term.deletions(now)
        self.log.publish(records, deletions)
        self._term.cleaning.on_publish(new, deletions)
        self._published, self._published_settings = now, settings
        self._heartbeat_due = now + HEARTBEAT_S
        if self._term.liveness.deaf(now):
            raise UnavailableError(
                "the driver does not read back its own heartbeats; reading again"
            )
        for change in changes:
            self._term.book.load(change)
            text = "%s: slot %s copies %d partitions from generation %d"
            count, generation = len(change.partitions), change.generation
            logger.info(text, self.flow, change.slot, count, generation)

    def _patience_s(self) -> float:
        now = self.clock()
        found = self._next_round + FOUND_S if now < self._next_round else now + POLL_S
        due = min(self._heartbeat_due, self._term.liveness.due(now), found)
        return min(max(0.0, due - now), LONGEST_POLL_S)

    def _take(self, record: LogRecord) -> None:
        value = record.value
        if record.topic == self._metrics_topic:
            self.progress.metric(value or b"")
        elif record.key == DRIVER_KEY and value is not None:
            self._driver_record(DriverHeartbeat.decode(value))
        elif record.key == REQUEST_KEY and value is not None:
            self._request(value)
        else:
            self._term.take(record)

    def _driver_record(self, heartbeat: DriverHeartbeat) -> None:
        if heartbeat.driver == self._driver:
            self._term.liveness.echo(self.clock())
            return
        raise FencedError(
            f"flow {self.flow} is driven by another replicator now (pid {heartbeat.pid} on "
            f"{heartbeat.host}, Spark application {heartbeat.application_id}): this one ends"
        )
