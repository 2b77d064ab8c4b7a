"""Meaning of a broker's answer for a partition: pure, except for queries of the logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from srm.errors import FencedError, IntegrityError, SrmError, message
from srm.replication import codes
from srm.replication.log_reader import LogReader
from srm.replication.partition import PartitionCopy, Stop
from srm.replication.ports import Produced, Wire

_CERTAIN_AFTER: Final = 6
"""Consecutive answers, over about 3 s, after which a topic is missing and not just new."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """The source may not hold any more what was copied: ask it once nothing is on its way."""


@dataclass(frozen=True, slots=True)
class SourceMoved:
    """The broker does not lead the partition in this epoch; ``otherwise``: without another one."""

    otherwise: Stop


@dataclass(frozen=True, slots=True)
class Walk:
    """Claim and walk the logs again: more may be on the target than is known."""

    source_start: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Source records in a range are gone that were to be copied, or that were copied.

    ``only_markers``: the copy has passed the range, but no record of it was copied.
    """

    first: int
    end: int
    what: str
    only_markers: bool = False


@dataclass(frozen=True, slots=True)
class Fine:
    """The source holds what was copied: fetch again from the copy's position."""


Verdict = Stop | FencedError | Doubt | SourceMoved | Walk | Lost | Fine


def judge_error(error: SrmError) -> Verdict:
    return error if isinstance(error, FencedError) else stop_of(error)


def stop_of(error: SrmError) -> Stop:
    return Stop(
        str(error),
        retriable=error.retriable,
        is_undecidable=isinstance(error, IntegrityError),
        action=error.action,
    )


def judge_refusal(copy: PartitionCopy, produced: Produced, target: str) -> Verdict:
    """The target, a cluster alias, did not take the oldest batch in flight."""
    error = produced.error
    if error in codes.FENCED:
        return FencedError(f"fenced by another owner (error {error})")
    if error in codes.REFUSED:
        refusal = codes.REFUSED[error]
        action = refusal.action
        reason = message(refusal.describe(produced.message), action)
        if error == codes.TOPIC_RIGHT_MISSING:
            missing = codes.missing_right("Write", copy.target.topic, target)
            reason, action = str(missing), missing.action
        outgoing = copy.queue.oldest_in_flight
        first = outgoing.stretches[0][0]
        return Stop(
            f"target refused {copy.target} at source offset {first}: {reason}",
            retriable=False,
            blocked=(first, outgoing.source_next) if error == codes.CORRUPT else None,
            action=action,
        )
    stale = error in codes.LEADERSHIP or error == codes.NO_ANSWER
    return Stop(
        f"produce error {error} {produced.message}".strip(), stale_leader="target" if stale else ""
    )


def judge_fetch(copy: PartitionCopy, error: int, failure: SrmError | None, source: str) -> Verdict:
    """Judge a failed fetch from the source, a cluster alias; ``failure``: the cause, if known."""
    if error == codes.OFFSET_OUT_OF_RANGE:
        return Doubt()
    if error == codes.TOPIC_RIGHT_MISSING:
        return stop_of(codes.missing_right("Read", copy.source.topic, source))
    if failure is None:
        refusal = codes.REFUSED.get(error, codes.Refusal(f"fetch error {error}"))
        failure = SrmError(refusal.name, refusal.action)
    if error == codes.UNREADABLE or error in codes.REFUSED:
        return Stop(str(failure), retriable=False, action=failure.action)
    stop = Stop(str(failure), stale_leader="source", action=failure.action)
    return SourceMoved(stop) if error in codes.LEADERSHIP else stop


async def judge_topic(copy: PartitionCopy, source: Wire, error: int) -> Verdict:
    """Check whether a source topic was deleted, or a broker does not know its id yet."""
    topic_id = await source.topic_id(copy.source.topic)
    if topic_id == copy.source_id:
        text = f"{copy.source}: the broker does not know the topic yet (error {error})"
        return Stop(text, stale_leader="source")
    gone = ""
    if copy.source_end > copy.source_next:
        gone = (
            f", with its records from offset {copy.source_next} to {copy.source_end - 1} or later"
        )
    return Stop(
        f"source topic {copy.source.topic} with id {copy.assigned.topic_id} is gone: "
        f"deleted or re-created{gone}; the driver assigns it again if "
        "it exists",
        retriable=topic_id is None and copy.failures < _CERTAIN_AFTER,
        stale_leader="source",
    )


async def judge_doubt(copy: PartitionCopy, source: Wire) -> Verdict:
    """Check whether the source still holds the log that was copied."""
    at, lineage = copy.source_next, copy.source_lineage
    start, _ = await source.log_range(copy.source)
    if at < start and copy.checked != (at, start):
        # The target may hold more than the last report says, or than this owner knows.
        return Walk(start)
    if at < start:
        return Lost(at, start, f"deleted on {source.alias} (retention, or DeleteRecords)")
    if copy.limits.is_overtaken(copy.found_epoch):
        return Walk(start)  # the claim reads the skipped ranges again
    log = LogReader.of_source(source, copy.assigned)
    is_patient = copy.failures < _CERTAIN_AFTER
    end, is_exact = shared = await log.holds_to(lineage, at, is_patient=is_patient)
    if end < at:
        before = ""
        if start < end and not is_exact:
            before = f", or earlier: it holds no leader epoch that was read from {lineage.begin} on"
        only_markers = shared.holds(lineage, copy.map.last_run)
        return Lost(end, at, f"the source's log was truncated there{before}", only_markers)
    if lineage:
        return Fine()
    return Stop(f"offset {at} of {copy.source} is out of range at the moment")
