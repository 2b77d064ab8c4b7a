"""What becomes of a partition that cannot go on: try again, wait, stop, or go on after a loss.

Whatever goes wrong, the cure is to claim and resume again, at once or after a back-off, while the
other partitions go on. What cannot be cured stops the partition with a reason and the range of
source offsets that it is about; ``data.loss.policy=continue`` notes the range as lost and goes on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from srm.errors import DataLossError, FencedError, SrmError
from srm.replication import codes
from srm.replication.ports import Produced, Wire
from srm.replication.slot.partition import PartitionCopy, Phase
from srm.replication.slot.reporting import Reporter

logger = logging.getLogger(__name__)

_STOPPED_RETRY_S: Final = 30.0
_FENCED_RETRY_S: Final = 10.0
_FIRST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 10.0
_POLICY: Final = "set data.loss.policy=continue to record the loss and continue"


class Slot(Protocol):
    """What is asked of the slot."""

    def unplace(self, copy: PartitionCopy) -> None:
        """Fetch no more for a partition."""
        ...

    async def place(self, copy: PartitionCopy) -> None:
        """Fetch for it again."""
        ...

    def claim(self, copy: PartitionCopy) -> None:
        """Claim it, find its position and go on copying."""
        ...

    def begin_again(self, copy: PartitionCopy) -> None:
        """Take it up after a rest, if it is still ours."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task."""
        ...


class Trouble:
    """Decides for the partitions of one slot."""

    def __init__(self, slot: Slot, source: Wire, target: Wire, reporter: Reporter) -> None:
        self._slot = slot
        self._source = source
        self._target = target
        self._reporter = reporter

    def on_error(self, copy: PartitionCopy, error: SrmError) -> None:
        """Claiming or resuming failed."""
        if isinstance(error, FencedError):
            self._fenced(copy, str(error))
        else:
            self.stop(copy, str(error), retriable=error.retriable)

    def on_refused(self, copy: PartitionCopy, produced: Produced) -> None:
        """The target did not take a batch."""
        if produced.error in codes.FENCED:
            self._fenced(copy, f"fenced by another owner (error {produced.error})")
        elif produced.error in codes.OF_A_RECORD:
            self._refused_record(copy, produced)
        elif produced.error in codes.REFUSED:
            reason = f"{codes.REFUSED[produced.error]} {produced.message}".strip()
            if produced.error == codes.TOPIC_RIGHT_MISSING:
                reason = codes.missing_right("Write", copy.target.topic, self._target.alias)
            outgoing = copy.oldest_in_flight
            first = outgoing.stretches[0][0]
            self.stop(
                copy,
                f"target refused {copy.target} at source offset {first}: {reason}",
                retriable=False,
                blocked=(first, outgoing.source_next) if produced.error == codes.CORRUPT else None,
            )
        else:
            if produced.error in codes.LEADERSHIP or produced.error == codes.NO_ANSWER:
                self._target.leaders_changed()
            self.stop(copy, f"produce error {produced.error} {produced.message}".strip())

    def _refused_record(self, copy: PartitionCopy, produced: Produced) -> None:
        """Find the record to blame by limits the batch; what is left is one record."""
        outgoing = copy.oldest_in_flight
        offsets = outgoing.offsets()
        if copy.limits.learn(produced, len(outgoing.view), offsets):
            self._slot.claim(copy)
            return
        [offset] = offsets
        why = f"{codes.REFUSED[produced.error]} {produced.message}".strip()
        what = f"{len(outgoing.view)} bytes, {why}"
        if self._reporter.goes_on_after_loss:
            self._reporter.lost(copy, offset, offset + 1, f"{copy.target} refused it: {what}")
            copy.limits.leave_out(offset)
            self._slot.claim(copy)
            return
        self.stop(
            copy,
            f"{copy.target} refused the record at source offset {offset}: {what}; or {_POLICY}",
            retriable=False,
            blocked=(offset, offset + 1),
        )

    def on_fetch(self, copy: PartitionCopy, error: int, text: str) -> None:
        """The source did not give what was asked for."""
        if error == codes.OFFSET_OUT_OF_RANGE:
            copy.in_doubt = True
            self.on_doubt(copy)
        elif error in codes.TOPIC_GONE:
            self.stop(
                copy,
                f"source topic {copy.source.topic} with id {copy.assigned.topic_id} is gone: "
                f"deleted or created again{_not_copied(copy)}; the driver assigns it again if it "
                "exists",
                retriable=False,
            )
        elif error == codes.TOPIC_RIGHT_MISSING:
            reason = codes.missing_right("Read", copy.source.topic, self._source.alias)
            self.stop(copy, reason, retriable=False)
        elif error == codes.UNREADABLE or error in codes.REFUSED:
            self.stop(copy, text or codes.REFUSED[error], retriable=False)
        else:
            self._source.leaders_changed()
            self.stop(copy, text or f"fetch error {error}")

    def on_doubt(self, copy: PartitionCopy) -> None:
        """Ask whether the source still holds the log that was copied, once nothing is on its way.

        Two signs raise the doubt: the offset is out of range, or the batch there has another leader
        epoch than the one before it had, as after any election.
        """
        if copy.in_doubt and copy.is_drained:
            self._slot.unplace(copy)
            self._slot.spawn(self._settle(copy, copy.attempt))

    async def _settle(self, copy: PartitionCopy, attempt: int) -> None:
        at = copy.source_next
        try:
            start, end = await self._source.log_range(copy.source)
            known = copy.source_epoch >= 0
            if known:
                epoch_end = await self._source.epoch_end(copy.source, copy.source_epoch)
                end = end if epoch_end < 0 else epoch_end
        except SrmError as error:
            self.stop(copy, str(error), retriable=error.retriable)
            return
        if copy.attempt != attempt:
            return
        if at < start and copy.checked != (at, start):
            # More may be on the target than the last report told of, or than this owner knows.
            copy.checked = at, start
            self._slot.claim(copy)
        elif at < start:
            self._lost(copy, (at, start), "retention passed them")
        elif end < at:
            self._lost(copy, (end, at), "the source's log was truncated there")
        elif known:
            copy.go_back_to(at)
            await self._slot.place(copy)
        else:
            self.stop(copy, f"offset {at} of {copy.source} is out of range at the moment")

    def _lost(self, copy: PartitionCopy, lost: tuple[int, int], what: str) -> None:
        """Records are gone that were to be copied, or that were copied: go on or stop."""
        if self._reporter.goes_on_after_loss:
            self._reporter.lost(copy, *lost, what)
            if lost[0] < copy.source_next:
                copy.cut_at(lost[0])
            else:
                copy.go_back_to(lost[1])
            self._slot.spawn(self._slot.place(copy))
            return
        loss = DataLossError(
            f"{copy.source}: records {lost[0]} to {lost[1]} are gone: {what}; {_POLICY}"
        )
        self.stop(copy, str(loss), retriable=False, blocked=lost)

    def _fenced(self, copy: PartitionCopy, reason: str) -> None:
        self._slot.unplace(copy)
        copy.stop(Phase.FENCED, reason)
        logger.warning("%s: %s; waiting for a newer assignment", copy.target, reason)
        # Who fenced us may be gone again, and the assignment still right: then it is ours.
        self._later(copy, _FENCED_RETRY_S)

    def stop(
        self,
        copy: PartitionCopy,
        reason: str,
        *,
        retriable: bool = True,
        blocked: tuple[int, int] | None = None,
    ) -> None:
        """Leave a partition at rest for a while, with a reason."""
        self._slot.unplace(copy)
        back_off = _STOPPED_RETRY_S
        if retriable:
            back_off = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2 ** min(copy.failures, 10))
            back_off *= random.uniform(0.8, 1.2)  # noqa: S311 - spreads retries, hides nothing
        copy.stop(Phase.STOPPED, reason, blocked)
        logger.warning("%s: %s; next try in %.1f s", copy.source, reason, back_off)
        self._later(copy, back_off)

    def _later(self, copy: PartitionCopy, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, self._retry, copy, copy.attempt)

    def _retry(self, copy: PartitionCopy, attempt: int) -> None:
        if copy.attempt == attempt:
            self._slot.begin_again(copy)


def _not_copied(copy: PartitionCopy) -> str:
    """Say which records have gone with a topic; not as a range of the topic that has its name."""
    if copy.source_end <= copy.source_next:
        return ""
    return f", with its records from offset {copy.source_next} to {copy.source_end} or later"
