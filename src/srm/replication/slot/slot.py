"""A slot: one event loop that copies many partitions, inside one long-lived Spark task.

The slot follows its assignment live. Each partition is placed (leaders found), claimed when there
is a batch to write, resumed, and copied; whatever goes wrong, the cure is to claim and resume
again after a back-off, while the other partitions go on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from srm.config.model import ClusterClients, FlowConfig
from srm.domain.partition_notes import PartitionNotes
from srm.domain.replication_records import AssignedPartition, Assignment, PartitionPosition
from srm.errors import SrmError
from srm.replication.batches.transform import ClusterIds, Transform
from srm.replication.clock import now_s
from srm.replication.ports import Clock, Wire
from srm.replication.slot.claim import take
from srm.replication.slot.fetching import SourceLoop
from srm.replication.slot.log_reader import LogReader
from srm.replication.slot.partition import PartitionCopy, Phase
from srm.replication.slot.quota import Quota
from srm.replication.slot.recovery import Trouble
from srm.replication.slot.reporting import Reporter
from srm.replication.slot.resume import Start, resume
from srm.replication.slot.sending import TargetLink
from srm.replication.slot.walk import Comparison

logger = logging.getLogger(__name__)

_REPORT_EVERY_S: Final = 1.0
_CLAIMS_AT_ONCE: Final = 16
_STALE_ASSIGNMENT_S: Final = 3.0
_POLL_S: Final = 0.5
_FAILURE_S: Final = 1.0  # until a failed task ends the slot; a stop is heard at once
_AT_REST: Final = (Phase.FENCED, Phase.STOPPED)


@dataclass(frozen=True, slots=True)
class SlotSpec:
    """What a Spark task needs to be a slot: ``source`` and ``target`` are for its clients.

    As text it shows no secret; pickled, as Spark sends it to its workers, it is whole.
    """

    flow_config: FlowConfig
    slot: str
    source: ClusterClients
    target: ClusterClients


class AssignmentFeed(Protocol):
    """The assignment of one slot, as the driver publishes it. Calls block."""

    def poll(self, timeout_s: float) -> Assignment | None:
        """Return the newest assignment that arrived since the last call, if any."""
        ...

    def share(self) -> float:
        """Return this slot's part of all assigned partitions, 0 to 1; does not block."""
        ...


class Predecessor(NamedTuple):
    """What the predecessor of a slot has left behind."""

    positions: tuple[PartitionPosition, ...]
    notes: tuple[PartitionNotes, ...]


class StartReader(Protocol):
    """Reads from the offset map where partitions were left. Calls block."""

    def load(self, partitions: Sequence[AssignedPartition]) -> dict[AssignedPartition, Start]:
        """Return where to start each partition; one without a map is left out."""
        ...

    def former(self, slot: str) -> Predecessor:
        """Return what a slot of that name reported last, and has ever noted."""
        ...


class Slot:
    """Copies what it is assigned until told to stop."""

    def __init__(
        self,
        config: FlowConfig,
        source: Wire,
        target: Wire,
        feed: AssignmentFeed,
        starts: StartReader,
        reporter: Reporter,
        now_ms: Clock,
        claim_lifetime_s: float,
        quota: Quota,
        clusters: ClusterIds,
    ) -> None:
        self._flow = config.flow
        self._source = source
        self._target = target
        self._feed = feed
        self._starts = starts
        self._reporter = reporter
        self._now_ms = now_ms
        self._claim_lifetime_s = claim_lifetime_s
        self._quota = quota
        self._records = config.records
        self._clusters = clusters
        self._read_committed = config.isolation_level == "read_committed"
        self._copies: dict[AssignedPartition, PartitionCopy] = {}
        self._leaving: list[PartitionCopy] = []
        self._kept: dict[tuple[str, int], PartitionPosition] = {}
        self._loops: dict[int, SourceLoop] = {}
        self._links: dict[int, TargetLink] = {}
        self._placed: dict[PartitionCopy, tuple[SourceLoop, TargetLink]] = {}
        self._generation = -1
        self._heard_at = float("-inf")
        self._heard = asyncio.Event()
        self._claiming = asyncio.Semaphore(_CLAIMS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(max_workers=3, thread_name_prefix="srm-slot")
        self._failure: BaseException | None = None
        self._trouble = Trouble(self, source, target, reporter)

    async def run(self, stop: threading.Event) -> None:
        """Copy until ``stop`` is set, then write the last positions.

        Raises:
            SrmError: an internal task failed; the Spark job is started again.
        """
        loop = asyncio.get_running_loop()
        # Our first report replaces the last one of our predecessor, so it has to tell the same.
        former = await loop.run_in_executor(self._threads, self._starts.former, self._reporter.slot)
        self._kept = {(entry.topic_id, entry.partition): entry for entry in former.positions}
        self._reporter.remember(former.notes)
        self.spawn(self._follow_assignments())
        self.spawn(self._report())
        try:
            while self._failure is None:
                if await loop.run_in_executor(None, stop.wait, _FAILURE_S):
                    break
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._threads.shutdown(wait=False)
        if self._failure is not None:
            raise self._failure
        copies = list(self._copies.values())
        self._reporter.report(self._generation, copies, self._leaving, self._kept.values())

    # ----- assignments

    async def _follow_assignments(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            newest = await loop.run_in_executor(self._threads, self._feed.poll, _POLL_S)
            self._heard_at = now_s()
            self._heard.set()
            self._heard.clear()
            self._quota.set_share(self._feed.share())
            if newest is not None and newest.generation > self._generation:
                await self._apply(newest)

    async def _apply(self, assignment: Assignment) -> None:
        wanted = set(assignment.partitions)
        for assigned in [a for a in self._copies if a not in wanted]:
            self._release(self._copies.pop(assigned))
        for copy in self._copies.values():
            if copy.phase is Phase.FENCED:
                copy.phase = Phase.IDLE
                self.spawn(self.place(copy))
        added = [a for a in assignment.partitions if a not in self._copies]
        self._generation = assignment.generation
        if not added:
            return
        loop = asyncio.get_running_loop()
        starts = await loop.run_in_executor(self._threads, self._starts.load, added)
        for assigned in added:
            self.spawn(self._begin(assigned, starts.get(assigned)))

    async def _begin(self, assigned: AssignedPartition, start: Start | None) -> None:
        """Bring a new partition to IDLE at its known, or first, position."""
        transform = None
        if not self._records.does_nothing:
            transform = Transform(
                self._records,
                self._clusters,
                self._flow.source,
                assigned.topic,
                assigned.target_topic,
            )
        copy = PartitionCopy(
            assigned, start or Start(0, 0, fresh=True, has_position=False), transform
        )
        self._copies[assigned] = copy
        if copy.has_position:
            await self.place(copy)
        else:
            await self._first_position(copy)

    async def _first_position(self, copy: PartitionCopy) -> None:
        """Begin a partition that was never copied at the start of both logs."""
        try:
            source_start, _ = await self._source.log_range(copy.source)
            target_start, _ = await self._target.log_range(copy.target)
        except SrmError as error:
            self._trouble.stop(copy, str(error), retriable=error.retriable)
            return
        copy.go_back_to(source_start)
        copy.target_next = target_start
        copy.has_position = True
        await self.place(copy)

    def _release(self, copy: PartitionCopy) -> None:
        self.unplace(copy)
        copy.stop(Phase.FENCED, "")
        if copy.map.has_claim:  # otherwise the run may still be growing, where it is not seen here
            copy.map.close_block()
        self._leaving.append(copy)
        if copy.has_position:
            position = copy.position()
            self._kept[position.topic_id, position.partition] = position

    # ----- placing: which brokers lead the partition

    async def place(self, copy: PartitionCopy) -> None:
        """Fetch from, and send to, the brokers that lead the partition; claim if data waits."""
        try:
            source_node = await self._source.leader(copy.source)
            target_node = await self._target.leader(copy.target)
            await self._target.connect(target_node)
        except SrmError as error:
            self._trouble.stop(copy, str(error), retriable=error.retriable)
            return
        if self._copies.get(copy.assigned) is not copy or copy.phase in _AT_REST:
            return
        self.unplace(copy)
        loop = self._loops.get(source_node)
        if loop is None:
            committed = self._read_committed
            loop = self._loops[source_node] = SourceLoop(
                self._source.fetch_session(source_node, read_committed=committed),
                f"node {source_node} of {self._flow.source}",
                self._on_data,
                self._trouble.on_fetch,
                self._quota,
                read_committed=committed,
            )
            self.spawn(loop.run())
        link = self._links.get(target_node)
        if link is None:
            link = self._links[target_node] = TargetLink(
                self._target,
                target_node,
                self._now_ms,
                self._on_progress,
                self.claim,
                self._trouble.on_refused,
            )
        self._placed[copy] = (loop, link)
        loop.add(copy)
        if copy.phase is Phase.IDLE and copy.needs_claim:
            self.claim(copy)

    def unplace(self, copy: PartitionCopy) -> None:
        """Fetch no more for a partition."""
        placed = self._placed.pop(copy, None)
        if placed is not None:
            placed[0].remove(copy)

    # ----- copying

    def _on_data(self, copy: PartitionCopy) -> None:
        if copy.in_doubt:
            self._trouble.on_doubt(copy)
        elif copy.needs_claim:
            self.claim(copy)
        elif copy.can_send and copy in self._placed:
            self._placed[copy][1].data_waits(copy)

    def _on_progress(self, copy: PartitionCopy) -> None:
        if copy.in_doubt:
            self._trouble.on_doubt(copy)
            return
        placed = self._placed.get(copy)
        if placed is not None and copy.wants_data:
            placed[0].look_at(copy)

    def claim(self, copy: PartitionCopy) -> None:
        """Claim the partition, find its position and go on copying."""
        if copy.phase is not Phase.CLAIMING:
            copy.begin_claiming()
            self.spawn(self._claim_and_resume(copy, copy.attempt))

    async def _claim_and_resume(self, copy: PartitionCopy, attempt: int) -> None:
        try:
            async with self._claiming:
                await self._assignment_is_fresh()
                if copy.attempt != attempt:
                    return
                claim = await take(self._target, self._flow, copy.target, self._claim_lifetime_s)
                resumed = await resume(
                    LogReader(
                        self._source,
                        copy.source,
                        copy.source_id,
                        read_committed=self._read_committed,
                    ),
                    LogReader(self._target, copy.target, copy.target_id, read_committed=False),
                    copy.known_start(),
                    claim,
                    Comparison(
                        self._records.added, self._reporter.goes_on_after_loss, copy.transform
                    ),
                )
        except SrmError as error:
            if copy.attempt != attempt:
                return
            self._trouble.on_error(copy, error)
        else:
            if copy.attempt == attempt:
                if resumed.notes:
                    self._reporter.strange(copy, "; ".join(resumed.notes))
                copy.begin_copying(claim, resumed)
                await self.place(copy)

    async def _assignment_is_fresh(self) -> None:
        """Wait for news of the assignment after a pause: it may be somebody else's by now."""
        while now_s() - self._heard_at > _STALE_ASSIGNMENT_S:
            await self._heard.wait()

    # ----- reporting and tasks

    async def _report(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            leaving, self._leaving = self._leaving, []
            copies = list(self._copies.values())
            write = self._reporter.prepare(self._generation, copies, leaving, self._kept.values())
            await loop.run_in_executor(self._threads, write)
            await asyncio.sleep(_REPORT_EVERY_S)  # the rhythm of reports, not a wait

    def begin_again(self, copy: PartitionCopy) -> None:
        """Take up a partition that was at rest, if it is still ours."""
        if self._copies.get(copy.assigned) is copy:
            copy.phase = Phase.IDLE
            self.spawn(self.place(copy) if copy.has_position else self._first_position(copy))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of the slot; its failure ends the slot."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = self._failure or failure
