"""Where one group stands in one partition, and where it goes on after a move from X to Y.

Pictured for the topic ``Payments`` and clusters X and Y (design: the four rows, seen from X)::

    on X                          on Y
    Payments    --- forward --->  X.Payments    through the map of X->Y
    Y.Payments  --- reverse --->  Payments      through the map of Y->X, read backwards

Everything here works on facts that were read before; nothing is guessed. The forecast of records
read again or skipped goes the way back through the map, so it also checks the translation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srm.domain.offset_map import NotCopiedYet, OffsetMap, Translated

Direction = Literal["forward", "reverse"]
PositionState = Literal["ready", "no_commit", "not_copied", "no_map", "conflict"]


@dataclass(frozen=True)
class PartitionFacts:
    """What the clusters say about one group in one partition; ends are last stable offsets.

    ``target_log_end`` is None where the partition does not exist on Y. ``target_is_ours`` tells
    that the offset committed on Y was written by srm itself (ledger), not by a consumer.
    """

    topic: str
    partition: int
    target_topic: str
    direction: Direction
    committed: int | None
    log_start: int
    log_end: int
    target_committed: int | None
    target_is_ours: bool
    target_log_start: int
    target_log_end: int | None
    offset_map: OffsetMap


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """Plan for one group in one partition; counts are records, offsets are next-to-read.

    ``resume`` is the offset on Y to write, None where nothing is to be written. ``remaining`` are
    source offsets still to be copied before ``resume`` is known.
    """

    topic: str
    partition: int
    target_topic: str
    direction: Direction
    state: PositionState
    committed: int | None
    lag: int
    resume: int | None = None
    target_committed: int | None = None
    remaining: int = 0
    re_read: int = 0
    skipped: int = 0

    @property
    def applied(self) -> bool:
        """Whether Y already holds the intended offset, or nothing is to be written."""
        return self.resume is None or self.resume == self.target_committed

    @property
    def name(self) -> str:
        """Topic and partition on X, for messages."""
        return f"{self.topic}-{self.partition}"


def records_on_source(facts: PartitionFacts, start: int, end: int) -> int:
    """Count records of X's partition in ``[start, end)``.

    On an original topic what is not copied yet counts by offsets, an upper bound; a remote topic
    holds copied records only, so that its markers of claims never count.
    """
    if facts.direction == "reverse":
        return facts.offset_map.records_between(start, end)
    return _source_side(facts.offset_map, start, end)


def records_on_target(facts: PartitionFacts, start: int, end: int) -> int:
    """Count records of Y's partition in ``[start, end)``, as :func:`records_on_source` does."""
    if facts.direction == "forward":
        return facts.offset_map.records_between(start, end)
    return _source_side(facts.offset_map, start, end)


def lag(facts: PartitionFacts) -> int:
    """Count the records on X that the group has still to read; without a commit, all of them."""
    start = facts.log_start if facts.committed is None else facts.committed
    return records_on_source(facts, max(start, facts.log_start), facts.log_end)


def partition_move(facts: PartitionFacts) -> PartitionMove:
    """Decide where the group goes on in this partition."""
    if facts.committed is None:
        return _row(facts, "no_commit")
    if facts.direction == "forward":
        translation = facts.offset_map.forward(facts.committed, facts.target_log_start)
    else:
        translation = facts.offset_map.backward(facts.committed)
    if isinstance(translation, NotCopiedYet):
        return _row(facts, "not_copied", remaining=translation.remaining)
    if not isinstance(translation, Translated) or facts.target_log_end is None:
        empty = facts.log_end <= facts.log_start
        return _row(facts, "no_commit" if empty else "no_map")
    if translation.offset > facts.target_log_end:
        return _row(facts, "not_copied", remaining=translation.offset - facts.target_log_end)
    return _translated(facts, facts.committed, translation.offset)


def _translated(facts: PartitionFacts, committed: int, resume: int) -> PartitionMove:
    theirs = facts.target_committed
    if theirs is not None and theirs > resume and not facts.target_is_ours:
        # A consumer on Y went further by its own commit. Past markers only, that is the same
        # place and stays as it is; past records, applying would make the group read them again.
        read_there = records_on_target(facts, resume, theirs)
        if read_there > 0:
            return _row(facts, "conflict", resume=resume, re_read=read_there)
        resume = theirs
    back = _back(facts, resume)
    return _row(
        facts,
        "ready",
        resume=resume,
        re_read=records_on_source(facts, back, committed),
        skipped=records_on_source(facts, max(committed, facts.log_start), back),
    )


def _back(facts: PartitionFacts, resume: int) -> int:
    """Offset on X that the resume offset on Y stands for."""
    if facts.direction == "forward":
        translation = facts.offset_map.backward(resume)
    else:
        translation = facts.offset_map.forward(resume)
    return translation.offset if isinstance(translation, Translated) else facts.log_end


def _source_side(offset_map: OffsetMap, start: int, end: int) -> int:
    reached = offset_map.runs[-1].source_end if offset_map.runs else 0
    if offset_map.position is not None:
        reached = max(reached, offset_map.position.source_next)
    known = offset_map.source_records_between(start, end)
    return known + max(0, end - max(start, reached))


def _row(
    facts: PartitionFacts,
    state: PositionState,
    *,
    resume: int | None = None,
    remaining: int = 0,
    re_read: int = 0,
    skipped: int = 0,
) -> PartitionMove:
    return PartitionMove(
        topic=facts.topic,
        partition=facts.partition,
        target_topic=facts.target_topic,
        direction=facts.direction,
        state=state,
        committed=facts.committed,
        lag=lag(facts),
        resume=resume,
        target_committed=facts.target_committed,
        remaining=remaining,
        re_read=re_read,
        skipped=skipped,
    )
