"""Life of the partitions of one slot: placed, claimed, resumed, copied, stopped, restarted.

After any failure a partition is claimed and resumed again, at once or after a back-off, while the
others continue. A permanent failure stops it with a reason and the range of source offsets.
``data.loss.policy=continue`` notes the range as lost and continues after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any, Final

from srm.domain.flow_state.replication_records import AssignedPartition, PartitionNotes
from srm.domain.offset_map.runs import both_ends
from srm.domain.text.amount import amount, set_key
from srm.errors import DataLossError, FencedError, SrmError, message
from srm.replication import codes
from srm.replication.batches.merging import Merging
from srm.replication.claim import Claim, first_record_in, held_log, until_in_force
from srm.replication.copy import write_answers
from srm.replication.copy.claiming import Claiming, SlotContext, TargetCut
from srm.replication.copy.sending import Placement, Spawn
from srm.replication.copy.write_answers import Verdict
from srm.replication.log_reader import LogReader
from srm.replication.mapping.starts import NOWHERE, Start
from srm.replication.native.library import native_library
from srm.replication.partition import PartitionCopy, Phase, Stop
from srm.replication.ports import Produced

logger = logging.getLogger(__name__)

_WATCH_S: Final = 30.0
_CHECKED_AT_ONCE: Final = 200
_SUM_UP_S: Final = 10.0
"""Time in which stops with one reason are counted, not logged: a lost broker stops thousands."""
_AT_REST: Final = (Phase.FENCED, Phase.STOPPED)


class Lifecycle:
    """Takes every partition of one slot through its phases."""

    def __init__(
        self,
        context: SlotContext,
        *,
        read_assignment: Callable[[], Awaitable[None]],
        load_again: Callable[[AssignedPartition], None],
        cut_map: Callable[[AssignedPartition, int], Awaitable[Start]],
        report_now: Callable[[], None],
        spawn: Spawn,
    ) -> None:
        """Hold no partition yet.

        ``read_assignment`` waits until the slot obeys the current end of the assignment log.
        ``load_again`` requests the start of a partition, and then :meth:`begin`. ``cut_map`` cuts a
        map at a target offset and returns the new start. ``report_now`` begins the next report, for
        which a copy waits. ``spawn`` runs a task whose failure ends the slot.
        """
        self.copies: dict[AssignedPartition, PartitionCopy] = {}
        self._context, self._config = context, context.config
        self._source, self._target = context.source, context.target
        self._reporter = context.reporter
        self._accepts_loss = self._config.data_loss_policy == "continue"
        native = native_library()
        self._merging = Merging(native, self._config.merge_bytes) if native else None
        self._load_again = load_again
        self._cut_map = cut_map
        self._report_now = report_now
        self._spawn = spawn
        self._has_ended = False
        self._more_stops: dict[str, int] = {}
        self._claiming = Claiming(context, read_assignment)
        self._placement = Placement(context, self, spawn)

    # ----- coming and leaving

    def begin(self, assigned: AssignedPartition, start: Start | SrmError | None) -> None:
        """Take a partition on at its known, or first, position; an error stops it at once."""
        config, known = self._config, start if isinstance(start, Start) else NOWHERE
        transform = config.transform(self._context.clusters, assigned.topic, assigned.target_topic)
        copy = PartitionCopy(
            assigned,
            known,
            None if config.records.does_nothing else transform,
            self._merging,
            is_shared=config.shares(assigned.topic),
            has_lost_start=isinstance(start, SrmError),
        )
        self.copies[assigned] = copy
        if known.fresh and known.has_former:
            self._reporter.begins(copy, known.target_next)
        if known.copy_is_gone:
            self._reporter.note_anomaly(
                copy,
                f"{copy.target} is not the topic of the earlier copy: that was deleted, or had "
                "another name; all that the source holds is copied again",
            )
        if isinstance(start, SrmError):
            self._carry_out(copy, write_answers.judge_error(start))
        else:
            self._take_up(copy)

    def release(self, assigned: AssignedPartition) -> PartitionCopy:
        """Let go of a partition; nothing is written for it any more."""
        copy = self.copies.pop(assigned)
        self._placement.remove(copy)
        copy.leave()
        return copy

    def end(self) -> None:
        """Begin nothing more, whatever is due or answered."""
        self._has_ended = True

    def hold_back(self, copy: PartitionCopy, *, held: bool) -> None:
        if copy.held_back != held:
            copy.hold_back(held=held)
            if not held:
                self._placement.fetch_on(copy)

    def source_heard_s(self) -> float | None:
        """Return when the source last answered for all partitions, monotonic seconds."""
        going = (copy for copy in self.copies.values() if copy.phase not in _AT_REST)
        return self._placement.heard_s(going)

    def hear(self, decided: Collection[PartitionNotes]) -> None:
        """Take up what has waited for a decision."""
        copy_ids = {note.copy_id for note in decided}
        self._claiming.after_others |= copy_ids
        for copy in list(self.copies.values()):
            if copy.phase is Phase.STOPPED and copy.assigned.copy_id in copy_ids:
                self._take_up(copy)

    def _take_up(self, copy: PartitionCopy) -> None:
        copy.take_up()
        if copy.has_lost_start:
            del self.copies[copy.assigned]
            self._load_again(copy.assigned)
        elif copy.has_position:
            self._run(copy, self._place(copy))
        else:
            self._run(copy, self._find_first_position(copy))

    async def _find_first_position(self, copy: PartitionCopy) -> None:
        attempt = copy.attempt
        source_start, _ = await self._source.log_range(copy.source)
        target_start, target_end = await self._target.log_range(copy.target)
        if copy.attempt == attempt:
            copy.begin_at(source_start, target_start, target_end)
            await self._place(copy, compared=True)

    # ----- copying

    async def _place(self, copy: PartitionCopy, *, compared: bool = False) -> None:
        """Fetch from, and send to, the partition's leaders; claim if data waits."""
        source = await self._source.leader(copy.source)
        target_node = (await self._target.leader(copy.target)).node
        await self._target.connect(target_node)
        has_moved = False
        if copy.phase is Phase.IDLE and not compared:
            has_moved = await self._has_end_moved(copy)
        if self.copies.get(copy.assigned) is not copy or copy.phase in _AT_REST:
            return
        self._placement.put(copy, source, target_node)
        if copy.phase is Phase.IDLE and (copy.needs_claim or has_moved):
            self.claim(copy)

    async def watch_targets(self) -> None:
        """Look from time to time where targets end that get no record, and so are not compared."""
        await self._watch(lambda copy: copy.is_idle and copy.has_position, self._look_at_target)

    async def watch_ends(self) -> None:
        """Learn how far the source is where it is not fetched from: what has stopped lags, too."""
        await self._watch(lambda copy: copy.phase in _AT_REST, self._look_at_end)

    async def _watch(
        self,
        is_due: Callable[[PartitionCopy], bool],
        look: Callable[[PartitionCopy, int], Awaitable[None]],
    ) -> None:
        async def look_alone(copy: PartitionCopy) -> None:
            try:
                if is_due(copy):
                    await look(copy, copy.attempt)
            except SrmError as error:
                logger.debug("%s: %s", copy.source, error)
            except Exception:  # what one broker says must not stop the looks at others
                logger.exception("%s: unexpected failure", copy.source)

        while True:
            await asyncio.sleep(_WATCH_S)  # the rhythm of looks, not a wait
            copies = list(self.copies.values())
            for first in range(0, len(copies), _CHECKED_AT_ONCE):
                await asyncio.gather(*map(look_alone, copies[first : first + _CHECKED_AT_ONCE]))

    async def _look_at_end(self, copy: PartitionCopy, attempt: int) -> None:
        if await self._source.topic_id(copy.source.topic) != copy.source_id:
            return  # another topic has the name now
        end = (await self._source.log_end(copy.source)).end
        if copy.attempt == attempt:
            copy.note_source_end(end)

    async def _look_at_target(self, copy: PartitionCopy, attempt: int) -> None:
        has_moved = await self._has_end_moved(copy)
        node = (await self._target.leader(copy.target)).node
        if copy.attempt != attempt or not copy.is_idle:
            return
        if has_moved:
            self.claim(copy)
        elif not self._placement.sends_to(copy, node):
            await self._place(copy, compared=True)

    async def _has_end_moved(self, copy: PartitionCopy) -> bool:
        """Return whether the target's log lost its end or holds only markers after the position.

        A log that lost its end and has grown again is found as before a claim. A translation needs
        a position after markers. Where other flows write, claims would follow each other without
        end.

        A log that ends at the position under a later leader gives that epoch to the position. So a
        report about a log that has lost its end since does not count, whatever its claim.
        """
        at, attempt = copy.target_next, copy.attempt
        now = await self._target.log_end(copy.target)
        if now.end < at or not copy.has_position:
            return now.end < at
        log = LogReader.of_target(self._target, copy.assigned)
        if at and copy.target_lineage.epoch != now.epoch:  # a leader does not truncate its log
            held = await held_log(log, copy.known_start(), is_shared=copy.is_shared)
            if held.end < at:
                return True
            # The former leader may have acknowledged a batch whose answer is on its way.
            is_same = copy.attempt == attempt and copy.target_next == at and copy.is_idle
            if is_same and now.end == at:
                copy.note_target(held.lineage.with_leader(now.epoch, at))
        if self._config.joins(copy.source.topic) or now.end <= at:
            return False
        return await first_record_in(log, [(at, now.end)]) is None

    def on_data(self, copy: PartitionCopy) -> None:
        """Send what was fetched; claim first where no claim is in force."""
        if copy.in_doubt:
            self._settle_doubt(copy)
        elif copy.needs_claim:
            self.claim(copy)
        elif copy.can_send:
            self._placement.data_waits(copy)

    def on_progress(self, copy: PartitionCopy) -> None:
        if copy.claim is not None and copy.claim.begins:
            self._run(copy, self._read_back(copy, copy.attempt, copy.claim))
        if copy.in_doubt:
            self._settle_doubt(copy)
        else:
            self._placement.fetch_on(copy)

    async def _read_back(self, copy: PartitionCopy, attempt: int, claim: Claim) -> None:
        """Read the first batch of a log by the topic's id: it takes the place of a marker."""
        claim = await until_in_force(LogReader.of_target(self._target, copy.assigned), 0, claim)
        if copy.attempt == attempt:
            copy.note_in_force(claim)
            self._placement.data_waits(copy)

    def claim(self, copy: PartitionCopy) -> None:
        if copy.phase is not Phase.CLAIMING:
            copy.begin_claiming()
            self._run(copy, self._claim_and_resume(copy, copy.attempt))

    async def _claim_and_resume(self, copy: PartitionCopy, attempt: int) -> Stop | None:
        outcome = await self._claiming.claim_and_resume(copy, attempt)
        if copy.attempt != attempt:
            return None
        match outcome:
            case TargetCut(end):
                await self._begin_at_cut(copy, attempt, end)
            case Stop():
                return outcome
            case write_answers.Doubt():
                copy.take_up()
                self._carry_out(copy, outcome)
            case (claim, resumed):
                if resumed.notes:
                    self._reporter.note_anomaly(copy, "; ".join(resumed.notes))
                if resumed.former_end is not None:
                    self._reporter.begins(copy, resumed.former_end)
                if copy.over:
                    self._reporter.over(copy)
                copy.begin_copying(claim, resumed)
                if copy.position_is_unreported:
                    self._report_now()
                await self._place(copy)
        return None

    async def _begin_at_cut(self, copy: PartitionCopy, attempt: int, target_end: int) -> None:
        start = await self._cut_map(copy.assigned, target_end)
        if copy.attempt != attempt:
            return
        self._reporter.note_anomaly(
            copy,
            f"the log of {copy.target} lost its end: offsets "
            f"{both_ends(target_end, copy.target_next)} are gone or not ours; copied again from "
            f"source offset {start.source_next}",
        )
        self.release(copy.assigned)
        self.begin(copy.assigned, start)

    # ----- trouble

    def on_fetch_trouble(self, copy: PartitionCopy, error: int, failure: SrmError | None) -> None:
        if error in codes.TOPIC_GONE:
            self._placement.remove(copy)
            self._run(copy, write_answers.judge_topic(copy, self._source, error))
            return
        self._carry_out(copy, write_answers.judge_fetch(copy, error, failure, self._source.alias))

    def on_refused(self, copy: PartitionCopy, produced: Produced) -> None:
        """The target did not take the oldest batch in flight."""
        if produced.error in codes.OF_A_RECORD:
            self._blame_record(copy, produced)
        else:
            self._carry_out(copy, write_answers.judge_refusal(copy, produced, self._target.alias))

    def _settle_doubt(self, copy: PartitionCopy) -> None:
        """Ask whether the source holds what was copied, once nothing is on its way."""
        if copy.is_drained:
            self._placement.remove(copy)
            self._run(copy, write_answers.judge_doubt(copy, self._source))

    def _carry_out(self, copy: PartitionCopy, verdict: Verdict) -> None:
        match verdict:
            case Stop():
                self._stop(copy, verdict)
            case FencedError():
                self._fence(copy, str(verdict))
            case write_answers.Doubt():
                copy.doubt()
                self._settle_doubt(copy)
            case write_answers.SourceMoved(otherwise):
                self._placement.remove(copy)
                self._source.leaders_changed()
                self._run(copy, self._follow_leader(copy, copy.attempt, otherwise))
            case write_answers.Walk(source_start):
                copy.note_checked(source_start)
                self.claim(copy)
            case write_answers.Lost():
                self._lose(copy, verdict)
            case write_answers.Fine():
                copy.believe()
                self._run(copy, self._place(copy))

    async def _follow_leader(
        self, copy: PartitionCopy, attempt: int, otherwise: Stop
    ) -> Stop | None:
        """Fetch from another leader under the same claim: an election needs no walk."""
        leader = await self._source.leader(copy.source)
        if leader == copy.source_leader:
            return otherwise
        if copy.attempt == attempt:
            await self._place(copy)
        return None

    def _blame_record(self, copy: PartitionCopy, produced: Produced) -> None:
        """Find the records to blame by cutting the batch: one, or all that the broker names."""
        outgoing = copy.queue.oldest_in_flight
        offsets = outgoing.offsets()
        size, is_merged = len(outgoing.view), outgoing.is_merged
        if copy.limits.learn(produced, size, offsets, is_merged=is_merged):
            self.claim(copy)
            return
        blocked = offsets[0], offsets[-1] + 1
        refusal = codes.REFUSED[produced.error]
        what = f"{size:,} bytes as sent, {refusal.describe(produced.message)}"
        if self._accepts_loss or self._config.errors_tolerance == "all":
            full_text = message(f"{copy.target} refused it: {what}", refusal.action)
            for offset in offsets:
                self._reporter.lost(copy, offset, offset + 1, full_text)
            copy.skip_to(blocked[1])
            self.claim(copy)
            return
        skip = f"to skip it, {set_key(self._config.flow, 'errors.tolerance', 'all')}"
        action = "; or ".join(filter(None, (refusal.action, skip)))
        count = amount(len(offsets), "record")
        refused = f"{copy.target} refused {count} from source offset {offsets[0]}: {what}"
        stop = Stop(message(refused, action), retriable=False, blocked=blocked, action=action)
        self._stop(copy, stop)

    def _lose(self, copy: PartitionCopy, lost: write_answers.Lost) -> None:
        """Records are gone that were to be copied, or that were copied: continue or stop."""
        first, end = lost.first, lost.end
        is_decided = lost.only_markers or copy.limits.leaves_out(first, end)
        if not (self._accepts_loss or is_decided):
            accept = set_key(self._config.flow, "data.loss.policy", "continue")
            loss = DataLossError(
                f"{copy.source}: records {both_ends(first, end)} are gone: {lost.what}",
                f"to record the loss and continue, {accept}",
            )
            self._stop(copy, replace(write_answers.stop_of(loss), blocked=(first, end)))
            return
        if not is_decided:
            self._reporter.lost(copy, first, end, lost.what, is_cut=first < copy.source_next)
        if first < copy.source_next:
            copy.cut_at(first, lost=not lost.only_markers)
            self.claim(copy)
        else:
            copy.go_back_to(end)
            self._run(copy, self._place(copy))

    def _fence(self, copy: PartitionCopy, reason: str) -> None:
        self._placement.remove(copy)
        stop = Stop(reason)
        copy.rest(Phase.FENCED, stop)
        logger.warning("%s: %s; claimed again while it is assigned", copy.target, reason)
        self._retry_later(copy, stop.back_off_s(copy.failures))

    def _stop(self, copy: PartitionCopy, stop: Stop) -> None:
        self._placement.remove(copy)
        if stop.stale_leader:
            (self._source if stop.stale_leader == "source" else self._target).leaders_changed()
        back_off = stop.back_off_s(copy.failures)
        level = logging.WARNING if self._is_news(copy, stop) else logging.DEBUG
        copy.rest(Phase.STOPPED, stop)
        what = stop.reason.removeprefix(f"{copy.source}: ")
        logger.log(level, "%s: %s; next try in %.1f s", copy.source, what, back_off)
        self._retry_later(copy, back_off)

    def _is_news(self, copy: PartitionCopy, stop: Stop) -> bool:
        if stop.reason == copy.reason or (copy.is_troubled and stop.retriable):
            return False
        why = stop.reason.removeprefix(f"{copy.source}: ")
        why = why.replace(str(copy.target), "its copy").replace(str(copy.source), "it")
        if why in self._more_stops:
            self._more_stops[why] += 1
            return False
        self._more_stops[why] = 0
        asyncio.get_running_loop().call_later(_SUM_UP_S, self._sum_up, why)
        return True

    def _sum_up(self, why: str) -> None:
        if more := self._more_stops.pop(why):
            logger.warning("%s of partitions: %s", amount(more, "more stop"), why)

    def _retry_later(self, copy: PartitionCopy, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, self._retry, copy, copy.attempt)

    def _retry(self, copy: PartitionCopy, attempt: int) -> None:
        if copy.attempt == attempt and self.copies.get(copy.assigned) is copy:
            self._take_up(copy)

    def _run(self, copy: PartitionCopy, work: Coroutine[Any, Any, Verdict | None]) -> None:
        if self._has_ended:
            work.close()
        else:
            self._spawn(self._guard(copy, copy.attempt, work))

    async def _guard(
        self, copy: PartitionCopy, attempt: int, work: Coroutine[Any, Any, Verdict | None]
    ) -> None:
        try:
            verdict = await work
            if verdict is not None and copy.attempt == attempt:
                self._carry_out(copy, verdict)
        except SrmError as error:
            failure = write_answers.judge_error(error)
        except Exception as error:  # what befalls one partition must not end the slot
            logger.exception("%s: unexpected failure", copy.source)
            failure = write_answers.stop_of(SrmError(f"unexpected {error!r}", "see the log"))
        else:
            return
        if copy.attempt == attempt:
            self._carry_out(copy, failure)
