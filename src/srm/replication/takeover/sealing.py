"""Seal of a copy for its handover: a final claim, and a check for foreign records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from srm.domain.names.topics import Flow
from srm.errors import FencedError
from srm.replication.claim.claim import Claim, is_marker, take, until_in_force
from srm.replication.log_reader import LogReader

_NOT_USED_S: Final = 0.0
"""Nothing is written under such a claim."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A claim and its marker: the last in the log, at ``marker``, taken in ``leader_epoch``."""

    claim: Claim
    marker: int
    leader_epoch: int


async def outbid(target: LogReader, flow: Flow) -> Claim:
    """Raise the epoch of a copy's claim as its next owner would, and see it in the log."""
    _, end = await target.wire.log_range(target.partition)
    claim = await take(target.wire, flow, target.partition, _NOT_USED_S)
    await until_in_force(target, end, claim)
    return claim


async def seal(target: LogReader, flow: Flow) -> Sealed:
    """Fence every process that still writes to a copy; while its flow is paused, none claims it.

    FencedError: another process claims it, or writes to it, at this moment.
    """
    claim = await outbid(target, flow)
    _, log_end = await target.wire.log_range(target.partition)
    last = await target.batch_from(log_end - 1)
    if last is None or not is_marker(last, claim):
        raise FencedError(
            f"{target.partition} on {target.wire.alias}: another process writes to it at this "
            "moment, perhaps another restore; run this again when it has ended"
        )
    return Sealed(claim, last.base_offset, last.leader_epoch)


async def begins_with_records(log: LogReader) -> bool:
    """Return whether a log begins with records, and not with the marker of a claim."""
    start, end = await log.wire.log_range(log.partition)
    if start == end:
        return False
    first = await log.batch_from(start)
    return first is not None and not first.is_control and first.record_count > 0


async def first_record_in(log: LogReader, ranges: Iterable[tuple[int, int]]) -> int | None:
    """Return the first offset in ordered ranges whose batch has records, if any."""
    start, end = await log.wire.log_range(log.partition)
    for first, last in ranges:
        at, stop = max(first, start), min(last, end)
        while at < stop:
            batch = await log.batch_from(at)
            if batch is None or batch.base_offset >= stop:
                break
            if not batch.is_control and batch.record_count > 0:
                return max(at, batch.base_offset)
            at = batch.last_offset + 1
    return None
