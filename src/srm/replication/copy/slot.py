"""A slot: one event loop that copies many partitions, inside one long-lived Spark task."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from srm.clock import now_s, until_next
from srm.config.model import ClusterClients, FlowConfig
from srm.domain.flow_state.liveness_thresholds import HEARTBEAT_S
from srm.domain.flow_state.replication_records import (
    NO_INCARNATION,
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
    PartitionNotes,
)
from srm.domain.flow_state.slot_records import next_incarnation
from srm.domain.offset_map.map_records import IndexRecord
from srm.domain.text.amount import some
from srm.errors import FencedError, SrmError, SupersededError, UnavailableError
from srm.replication.copy.claiming import SlotContext
from srm.replication.copy.lifecycle import Lifecycle
from srm.replication.mapping.starts import Start, StartReader, is_whole, read_chunk
from srm.replication.partition import PartitionCopy

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

_CHUNK_S: Final = 0.2
"""Between two chunks, half a million runs: so a slot reads at most some 5 MB a second for this."""
_ROUND_S: Final = 600.0
_FIRST_ROUNDS_S: Final = 1.0


class _Read(Protocol):
    def __call__(self, work: Callable[[], _T]) -> Awaitable[_T]: ...


@dataclass(eq=False)
class MapScrub:
    """Goes through the maps of the partitions that a slot has at that moment, again and again."""

    copies: Callable[[], Sequence[PartitionCopy]]
    checker: StartReader
    read: _Read
    begin_again: Callable[[PartitionCopy], Awaitable[None]]
    _seen: set[PartitionCopy] = field(default_factory=set)

    async def work(self) -> None:
        """Look at new partitions soon, at all of them from time to time."""
        rounds = 0
        while True:
            await asyncio.sleep(_FIRST_ROUNDS_S)  # the rhythm of looks, not a wait
            rounds += 1
            copies = self.copies()
            if rounds * _FIRST_ROUNDS_S >= _ROUND_S:
                rounds = 0
                self._seen.clear()
            self._seen &= set(copies)
            await self.look([copy for copy in copies if copy not in self._seen])

    async def look(self, copies: Sequence[PartitionCopy]) -> None:
        """Look at the maps of some partitions; what cannot be read now is looked at again."""
        try:
            if copies:
                assigned = [copy.assigned for copy in copies]
                starts = await self.read(partial(self.checker.log_starts, assigned))
                for copy in copies:
                    copy.map.target_log_start = starts.get(copy.assigned, 0)
            for copy in copies:
                await self._look_at(copy)
                self._seen.add(copy)
        except SrmError as error:
            logger.warning("the check of the offset maps is interrupted and is repeated: %s", error)

    async def _look_at(self, copy: PartitionCopy) -> None:
        topic = self.checker.map_of(copy.assigned)
        root, newest = copy.map.index.records
        for number in range(root.deleted, len(root.entries)):
            chunk = await self.read(partial(read_chunk, root, number, topic))
            if chunk is not None and number == 0 and self._is_below(copy, root):
                copy.map.index.drop_chunk(chunk)
            elif chunk is None or not await self.read(partial(is_whole, chunk, topic)):
                await self.begin_again(copy)
                return
            await asyncio.sleep(_CHUNK_S)  # the rate
        if not await self.read(partial(is_whole, newest, topic)):
            await self.begin_again(copy)

    def _is_below(self, copy: PartitionCopy, root: IndexRecord) -> bool:
        first = root.entries[0]
        maps = copy.map
        return (
            first.source_end <= maps.source_log_start and first.target_end <= maps.target_log_start
        )


_REPORT_EVERY_S: Final = 1.0
_POLL_S: Final = 1.0
_STOP_LOOK_S: Final = 5.0  # a stop is heard at once; a thread looks whether it still has to
_LOAD_RETRY_S: Final = 1.0
_SIGNS: Final = 3  # heartbeats, reports and the stop: one each
_READ_S: Final = 10.0  # to read the assignment to the end of its log, before a claim
_CUT_S: Final = 60.0  # for a report that is under way, and one that holds all


@dataclass(frozen=True, slots=True)
class SlotSpec:
    """Settings of a slot for its Spark task; ``source`` and ``target`` are for its clients.

    It obeys the ``driver`` of its application, any if empty. Its text form hides secrets; its
    pickled form is complete.
    """

    flow_config: FlowConfig
    slot: str
    source: ClusterClients
    target: ClusterClients
    driver: str = ""


class AssignmentFeed(Protocol):
    """Input of a slot: its assignment, and decisions to copy after foreign records."""

    @property
    def position(self) -> int:
        """Offset up to which the log with the assignment was read."""

    async def poll(self, timeout_s: float) -> Assignment | None:
        """Return the newest assignment that arrived since the last call, if any."""

    async def end(self) -> int:
        """Ask where the log ends: its high watermark, open transactions included."""

    @property
    def driver(self) -> DriverHeartbeat | None:
        """The last heartbeat of a driver, as far as the log was read."""

    def take_decisions(self) -> Collection[PartitionNotes]:
        """Return the decisions that have arrived since the last call; does not block."""

    def share(self) -> float:
        """Return this slot's part of all assigned partitions, 0 to 1; does not block."""


class Slot:
    """Copies the assigned partitions until stopped."""

    def __init__(
        self, context: SlotContext, feed: AssignmentFeed, starts: StartReader, driver: str = ""
    ) -> None:
        self._context = context
        self._driver = driver
        self._foreign_until: int | None = None
        self._feed = feed
        self._starts = starts
        self._reporter = context.reporter
        self._wanted: set[AssignedPartition] = set()
        self._loading: set[AssignedPartition] = set()
        self._leaving: list[PartitionCopy] = []
        self._incarnation = NO_INCARNATION
        self._generation = -1
        self._read_to = -1
        self._has_read = asyncio.Event()
        self._reports_begun = 0
        self._reports_ended = 0
        self._reported = asyncio.Event()
        self._report_due = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        # Reading may take long, and many may want to: none of that may silence the slot.
        self._readers = ThreadPoolExecutor(3, thread_name_prefix="srm-slot-reader")
        self._signs = ThreadPoolExecutor(_SIGNS, thread_name_prefix="srm-slot-signs")
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._partitions = Lifecycle(
            context,
            read_assignment=self._read_assignment,
            load_again=lambda assigned: self._load([assigned]),
            cut_map=self._cut_map,
            report_now=self._report_due.set,
            spawn=self._spawn,
        )
        self._scrub = MapScrub(
            lambda: [*self._partitions.copies.values()], starts, self._read, self._begin_before_loss
        )

    async def run(self, stop: threading.Event) -> None:
        """Copy until ``stop`` is set, then write the last positions; after an error start again."""
        before = await self._read(partial(self._starts.predecessor, self._reporter.slot))
        self._incarnation = next_incarnation(before.incarnations, self._context.now_ms())
        self._reporter.begin(self._incarnation, before.notes)
        self._spawn(self._beat())
        self._spawn(self._follow_assignments())
        self._spawn(self._report())
        self._spawn(self._partitions.watch_targets())
        self._spawn(self._partitions.watch_ends())
        self._spawn(self._scrub.work())
        try:
            await self._until_end(stop)
        finally:
            self._partitions.end()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._readers.shutdown(wait=False, cancel_futures=True)
            self._signs.shutdown(wait=False)
        if self._failure is not None:
            raise self._failure
        copies = list(self._partitions.copies.values())
        self._reporter.report(copies, self._leaving)

    async def _until_end(self, stop: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        failed = loop.create_task(self._failed.wait())
        try:
            while self._failure is None:
                stopped = loop.run_in_executor(self._signs, stop.wait, _STOP_LOOK_S)
                await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
                if stopped.done() and stopped.result():
                    return
        finally:
            failed.cancel()

    # ----- assignments

    async def _follow_assignments(self) -> None:
        while True:
            try:
                newest = await self._feed.poll(_POLL_S)
                await self._check_driver()
            except SupersededError:
                raise
            except SrmError as error:
                self._reporter.troubles.report("assignment", error)
                await asyncio.sleep(_POLL_S)  # back-off between attempts
                continue
            self._reporter.troubles.end("assignment")
            self._context.quota.set_share(self._feed.share())
            self._partitions.hear(self._feed.take_decisions())
            if newest is not None and newest.generation > self._generation:
                self._apply(newest)
            self._read_to = self._feed.position
            self._has_read.set()
            self._has_read.clear()

    async def _check_driver(self) -> None:
        """End for good (SupersededError) if another application drives the flow."""
        beat = self._feed.driver
        if beat is None or self._driver in ("", beat.driver):
            self._foreign_until = None
            return
        if self._foreign_until is None:
            self._foreign_until = await self._feed.end()
        if self._feed.position >= self._foreign_until:
            flow = self._context.config.flow
            raise SupersededError(
                f"another application drives flow {flow} now (pid {beat.pid} on "
                f"{beat.host}, Spark application {beat.application_id}): slot "
                f"{self._reporter.slot} of this one ends"
            )

    async def _read_assignment(self) -> None:
        """Wait until all is read and obeyed that the log of assignments holds now."""
        end = await self._feed.end()
        try:
            async with asyncio.timeout(_READ_S):
                while self._read_to < end or self._foreign_until is not None:
                    await self._has_read.wait()
        except TimeoutError as error:
            raise UnavailableError(
                f"the assignment of slot {self._reporter.slot} is read to offset {self._read_to} "
                f"of {end} only: its topic does not answer, or a transaction is open there"
            ) from error

    def _apply(self, assignment: Assignment) -> None:
        meant = assignment.incarnation
        if meant is not None and meant > self._incarnation:
            raise FencedError(
                f"slot {assignment.slot} is another process now ({meant}): this one "
                f"({self._incarnation}) leaves its partitions alone and ends"
            )
        self._reporter.report_everything()
        self._wanted = set(assignment.partitions)
        held = self._partitions.copies
        for assigned in [a for a in held if a not in self._wanted]:
            self._leaving.append(self._partitions.release(assigned))
        self._generation = assignment.generation
        self._load([a for a in assignment.partitions if a not in held and a not in self._loading])

    def _load(self, assigned: Sequence[AssignedPartition]) -> None:
        if assigned:
            self._loading.update(assigned)
            self._spawn(self._load_and_begin(tuple(assigned)))

    async def _load_and_begin(self, loading: tuple[AssignedPartition, ...]) -> None:
        what = f"start of {some([f'{one.topic}-{one.partition}' for one in loading])}"
        while loading:
            try:
                starts = await self._read(partial(self._starts.load, loading))
            except UnavailableError as error:
                starts = dict.fromkeys(loading, error)
            away: dict[AssignedPartition, UnavailableError] = {}
            for assigned in loading:
                start = starts.get(assigned)
                if isinstance(start, UnavailableError) and assigned in self._wanted:
                    away[assigned] = start
                    continue
                self._loading.discard(assigned)
                if assigned in self._wanted:
                    self._partitions.begin(assigned, start)
            loading = tuple(away)
            if away:
                self._reporter.troubles.report(what, away[loading[0]])
                await asyncio.sleep(_LOAD_RETRY_S)  # back-off between attempts
        self._reporter.troubles.end(what)

    async def _cut_map(self, assigned: AssignedPartition, target_end: int) -> Start:
        """Cut the map of a partition, once all that is known of it here is written down."""
        known = self._reports_begun
        try:
            async with asyncio.timeout(_CUT_S):
                while self._reports_ended <= known or not self._reporter.is_written(assigned):
                    await self._reported.wait()
        except TimeoutError as error:
            raise UnavailableError(f"no report was written in {_CUT_S:.0f} s") from error
        return await self._read(partial(self._starts.cut, assigned, target_end))

    async def _begin_before_loss(self, copy: PartitionCopy) -> None:
        assigned = copy.assigned
        starts = await self._read(partial(self._starts.load, [assigned], thorough=True))
        start = starts.get(assigned)
        if isinstance(start, UnavailableError):
            raise start
        if self._partitions.copies.get(assigned) is copy:
            self._partitions.release(assigned)
            self._partitions.begin(assigned, start)

    async def _read(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    # ----- reporting and tasks

    async def _report(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            leaving, self._leaving = self._leaving, []
            copies = list(self._partitions.copies.values())
            write = self._reporter.prepare(copies, leaving)
            self._reports_begun += 1
            await loop.run_in_executor(self._signs, write)
            self._reports_ended = self._reports_begun
            self._reported.set()
            self._reported.clear()
            for copy in copies:
                if copy.position_is_unreported and self._reporter.has_reported_position(copy):
                    copy.note_position_reported()
                held = copy.position_is_unreported or self._reporter.is_full(copy)
                self._partitions.hold_back(copy, held=held)
            with suppress(TimeoutError):  # the rhythm of reports
                async with asyncio.timeout(until_next(_REPORT_EVERY_S)):
                    await self._report_due.wait()
            self._report_due.clear()

    async def _beat(self) -> None:
        """Write a heartbeat each second, however long a report takes; first once all is read.

        The driver assigns partitions to a process with heartbeats, and must not count on those of
        another application.
        """
        await self._read_assignment()
        loop = asyncio.get_running_loop()
        signs = SourceSigns()
        while True:
            copies, now = list(self._partitions.copies.values()), now_s()
            # srm itself writes heartbeats to the source: no forecast counts them.
            is_heartbeats = self._context.config.names.is_heartbeats
            counted = [copy for copy in copies if not is_heartbeats(copy.assigned.topic)]
            ends = {copy: copy.source_end for copy in counted}
            highs = {copy: copy.source_high for copy in counted}
            signs.look(self._partitions.source_heard_s(), ends, now, highs)
            held = signs.held_back.items()
            ends_of_held = tuple(
                (copy.assigned.target_topic_id, copy.assigned.partition, end) for copy, end in held
            )
            known = signs.silent_s(now), signs.growth, ends_of_held
            beat = partial(self._reporter.beat, self._generation, len(copies), *known)
            await loop.run_in_executor(self._signs, beat)
            await asyncio.sleep(until_next(HEARTBEAT_S))  # the rhythm of heartbeats, not a wait

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = self._failure or failure
            self._failed.set()


class SourceSigns:
    """A slot's last knowledge of its source, updated with each heartbeat."""

    def __init__(self) -> None:
        self._heard_at = float("-inf")
        self._looked_at = 0.0
        self._ends: dict[Any, int] = {}
        self._growth: deque[float] = deque(maxlen=10)
        self.held_back: Mapping[Any, int] = {}
        """High watermarks of logs that grew after an open transaction, at the last answer."""

    def look(
        self,
        heard_at: float | None,
        ends: Mapping[Any, int],
        now: float,
        highs: Mapping[Any, int] | None = None,
    ) -> None:
        """Record the progress of partitions.

        ``heard_at``: last answer for all of them, monotonic; None: not known. ``highs``: high
        watermarks, above ``ends`` while a transaction is open.
        """
        if not ends:
            self._growth.clear()  # others copy what grew
        if heard_at is None or heard_at <= self._heard_at:
            return
        self._heard_at = heard_at
        # Before the first answer an end is 0: the records already there are not growth.
        grown = sum(
            max(0, end - before) for which, end in ends.items() if (before := self._ends.get(which))
        )
        if self._ends and now > self._looked_at:
            self._growth.append(grown / (now - self._looked_at))
        # A transaction of the usual kind is over at the next look.
        held = {
            which: high
            for which, high in (highs or {}).items()
            if high > ends[which] == self._ends.get(which)
        }
        most = sorted(held, key=lambda which: ends[which] - held[which])[:2000]
        self.held_back = {which: held[which] for which in most}
        self._ends, self._looked_at = dict(ends), now

    def silent_s(self, now: float) -> float:
        """Return for how long the source has not answered; infinity: it never has."""
        return now - self._heard_at

    @property
    def growth(self) -> int:
        """Offsets a second that the source grew by at most, in the last seconds it answered."""
        return round(max(self._growth, default=0.0))
