"""Claim of a partition: check of the target's log, then the claim, then the walk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from srm.clock import now_s
from srm.config.model import FlowConfig
from srm.domain.names.record_headers import ClusterIds, Transform
from srm.domain.names.topics import Flow
from srm.domain.offset_map.map_records import CopyId
from srm.domain.offset_map.runs import OffsetRange, both_ends
from srm.errors import FencedError, IntegrityError, UnavailableError
from srm.replication.batches.batch import content_hash
from srm.replication.claim import (
    Claim,
    ClaimLifetime,
    ClaimPermits,
    WalkPermits,
    held_log,
    take,
    until_in_force,
)
from srm.replication.copy.fetching import Quota
from srm.replication.copy.write_answers import Doubt
from srm.replication.log_reader import LogReader, Meter
from srm.replication.partition import PartitionCopy, Stop
from srm.replication.ports import Clock, Wire
from srm.replication.report import Reporter
from srm.replication.resume.find_place import records_of_others
from srm.replication.resume.resume import Resumed, Walked, resume
from srm.replication.resume.source_lookahead import LOOK_AHEAD_RECORDS, Comparison
from srm.replication.takeover import read_range, whole_log


@dataclass(frozen=True, slots=True)
class SlotContext:
    """Settings, clusters and limits that all partitions of a slot share."""

    config: FlowConfig
    source: Wire
    target: Wire
    reporter: Reporter
    now_ms: Clock
    claim_lifetime: ClaimLifetime
    quota: Quota
    clusters: ClusterIds

    @property
    def read_committed(self) -> bool:
        """True if records of open and aborted transactions are not copied."""
        return self.config.isolation_level == "read_committed"


@dataclass(frozen=True, slots=True)
class TargetCut:
    """The target's log holds nothing of what was copied from an offset on."""

    end: int


Outcome = tuple[Claim, Resumed] | TargetCut | Doubt | Stop | None
"""A claim in force with a proven position, or why there is none.

None: the attempt was abandoned; the caller has to check for that in any case.
"""


class Claiming:
    """Claims the partitions of one slot, with bounded concurrency."""

    def __init__(
        self, context: SlotContext, read_assignment: Callable[[], Awaitable[None]]
    ) -> None:
        self._context = context
        self._config = context.config
        self._source = context.source
        self._target = context.target
        self._read_assignment = read_assignment
        self._claims = ClaimPermits()
        self._walks = WalkPermits()
        self.after_others: set[CopyId] = set()
        """Copies that begin after records of others, by decision."""

    async def claim_and_resume(self, copy: PartitionCopy, attempt: int) -> Outcome:
        """Claim a partition and find its position; IntegrityError: it cannot be decided."""
        source_leader = await self._source.leader(copy.source)
        nodes = source_leader.node, (await self._target.leader(copy.target)).node
        target = LogReader.of_target(self._target, copy.assigned)
        async with self._claims.hold(nodes[1]):
            await self._read_assignment()
            if copy.attempt != attempt:
                return None
            held = await held_log(target, copy.known_start(), is_shared=copy.is_shared)
            is_whole = await self._is_source_whole(copy)
        is_short = held.end < copy.target_next  # a claim shows where, before a loss may stop it
        is_cut = held.is_exact and is_short
        if is_cut or not (is_short or is_whole):
            return TargetCut(held.end) if is_cut else Doubt()
        if copy.is_undecidable:  # a claim would change nothing, and epochs are few
            await self._walks.walk(nodes, partial(self._walk, copy, attempt, None))
        copy.note_target(held.lineage)
        claim = await self._claim(copy, attempt, nodes[1], target, held.log_end)
        if claim is None:
            return None
        # Until the claim was in force the log could still lose its end, and another owner copy on.
        if copy.target_next:
            held = await held_log(target, copy.known_start(), is_shared=copy.is_shared)
            if held.end < copy.target_next:
                return TargetCut(held.end_without(claim.claims_since(copy.written_by)))
            copy.note_target(held.lineage)
        if copy.attempt == attempt:
            copy.note_claimed_cut(claim)
        resumed = await self._walks.walk(nodes, partial(self._walk, copy, attempt, claim))
        if copy.attempt == attempt and resumed.has_rotated:
            wait_s = copy.note_rotated(claim.expires) - now_s()
            if wait_s > 0:
                reason = (
                    f"{copy.target}: its claim has a new producer id; an owner under the old id "
                    f"may still write for {wait_s:.0f} s, so copying waits"
                )
                return Stop(reason, retriable=False, retry_s=wait_s)
        return claim, resumed

    async def _is_source_whole(self, copy: PartitionCopy) -> bool:
        log = LogReader.of_source(self._source, copy.assigned)
        at, lineage = copy.source_next, copy.source_lineage
        return not lineage or (await log.holds_to(lineage, at)).end == at

    async def _claim(
        self,
        copy: PartitionCopy,
        attempt: int,
        target_node: int,
        target: LogReader,
        target_end: int,
    ) -> Claim | None:
        """Return a claim in force, or one that begins the log; None if the attempt was abandoned.

        The assignment is read again under the claim: a pause is written before its seals. So a seal
        fences each claim before it, and each claim after it has read the pause.
        """
        async with self._claims.hold(target_node):
            if copy.attempt != attempt:
                return None
            lifetime_s = await self._context.claim_lifetime.seconds()
            claim = await take(
                self._target,
                self._config.flow,
                copy.target,
                lifetime_s,
                may_begin=not (target_end or copy.is_shared or copy.known_start().producer_ids),
            )
            copy.note_claim(claim)
        if not claim.begins:
            claim = await until_in_force(target, target_end, claim)
        await self._read_assignment()
        return claim if copy.attempt == attempt else None

    async def _are_known(
        self, copy: PartitionCopy, transform: Transform, target: LogReader
    ) -> bool:
        """Return whether the target's records are copies of other flows, or originals there."""
        if copy.others is None or not copy.is_shared:
            return False
        are_originals = self._config.both_ways and (
            await self._returns(copy, transform) or await self._are_apart(copy, transform, target)
        )
        joins = self._config.joins(copy.source.topic)
        if not (are_originals or joins):
            return False
        async for found in read_range(target, OffsetRange(*copy.target, *copy.others)):
            if any(map(transform.is_copy, found)):
                return False
            if not (are_originals or all(map(transform.is_of_another, found))):
                return False
        return True

    async def _returns(self, copy: PartitionCopy, transform: Transform) -> bool:
        """Return whether the opposite flow copies what the target holds."""
        source = LogReader.of_source(self._source, copy.assigned)
        start, end = await source.wire.log_range(copy.source)
        async for records in read_range(source, OffsetRange(*copy.source, start, end)):
            for record in records:
                if transform.returns(record):
                    return True
                if not transform.came_by_hops(record):
                    return False
        return True

    async def _are_apart(
        self, copy: PartitionCopy, transform: Transform, target: LogReader
    ) -> bool:
        """Return whether both logs are whole and small, and no key and value is in both.

        Headers do not count: another tool may have copied the records and added some.
        """
        known, read = set[int](), 0
        for log in (target, LogReader.of_source(self._source, copy.assigned)):
            async for records in whole_log(log):
                read += len(records or ())
                if records is None or read > LOOK_AHEAD_RECORDS:
                    return False
                own = (record for record in records if not transform.returns(record))
                found = {content_hash(record.key, record.value) for record in own}
                if log is target:
                    known |= found
                elif not known.isdisjoint(found):
                    return False
        return True

    async def _walk(
        self, copy: PartitionCopy, attempt: int, claim: Claim | None, meter: Meter
    ) -> Resumed:

        def note_walk(walked: Walked) -> None:
            if copy.attempt != attempt:
                raise FencedError(f"{copy.target}: released while its logs were walked")
            if claim is not None:
                copy.note_walk(claim, walked)

        committed = self._context.read_committed
        source = LogReader.of_source(self._source, copy.assigned, meter, read_committed=committed)
        target = LogReader.of_target(self._target, copy.assigned, meter)
        copy.decide({note: await source.held_to(note) for note in copy.decisions})
        start = copy.known_start()
        comparison = Comparison.of(
            self._config, copy.source.topic, copy.transform, copy.limits.left_out
        )
        if copy.accepts_loss:
            comparison = replace(comparison, accepts_loss=True)
        if copy.is_unknown and copy.assigned.copy_id not in self.after_others:
            others = await records_of_others(
                target, start.producer_ids, copy.others, comparison.is_of_another
            )
            copy.note_others(others)
            if copy.others is not None and not (
                copy.transform and await self._are_known(copy, copy.transform, target)
            ):
                raise _held_by_others(copy, copy.others, self._config.flow)
        progress = note_walk if claim is not None else None
        resumed = await resume(source, target, start, claim, comparison, progress)
        if claim is not None and claim.begins and resumed.target_next:
            raise UnavailableError(f"{copy.target}: another producer began its log: retrying")
        return resumed


def _held_by_others(copy: PartitionCopy, offsets: tuple[int, int], flow: Flow) -> IntegrityError:
    topic, remote = copy.source.topic, copy.target.topic
    return IntegrityError(
        f"{copy.target} on {flow.target} holds records that srm did not copy, at target offsets "
        f"{both_ends(*offsets)}; {flow} would copy {copy.source} a second time",
        f"to continue after the copies among them, run srm import mm2 --flow '{flow}' --topic "
        f"{topic}; to copy after these records, run srm topics append --flow '{flow}' --topic "
        f"{topic}; "
        f"to copy into an empty topic, delete {remote} on {flow.target}",
    )
