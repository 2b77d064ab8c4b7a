"""Where one group stands in one partition, and where it continues after a move.

Pictured for the topic ``Payments`` and a move from the source P to the target B::

    on the source                 on the target
    Payments    --- forward --->  P.Payments    through the map of P->B
    B.Payments  --- reverse --->  Payments      through the map of B->P, read backwards

What a commit means is decided in :mod:`srm.domain.translation`; added here is what the group has
committed on the target already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from srm.domain.topics import TopicPartition
from srm.domain.translation import (
    UNFINISHED,
    Direction,
    Log,
    PartitionFacts,
    State,
    Translation,
    translate,
)

PositionState = State | Literal["conflict"]
"""States of a translation, and: a consumer's own commit on the target is further."""

_NOTHING = Log(0, 0, 0)


@dataclass(frozen=True)
class GroupPosition:
    """What both clusters say about one group in one partition.

    ``target_is_ours``: the offset committed on the target was written by srm itself (ledger), not
    by a consumer. ``accept_open_transactions``: what an open transaction holds back on the source
    is not waited for.
    """

    facts: PartitionFacts
    committed: int | None
    target_committed: int | None
    target_is_ours: bool
    accept_open_transactions: bool = False


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """Plan for one group in one partition; counts are records, offsets are next-to-read.

    ``resume`` is the offset on the target to write, None where nothing is to be written.
    ``remaining`` are source offsets still to be copied before it is known. ``uncopied`` is the part
    of ``skipped`` that is from before the first copied record. ``passed_kept`` are offsets of the
    target that were kept there when it returned, and that the group passes over, as it has read
    later records in the copy. ``reason`` explains the state and what is skipped.
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
    uncopied: int = 0
    reason: str = ""
    passed_kept: int = 0

    @property
    def applied(self) -> bool:
        """Whether the target already holds the intended offset, or nothing is to be written."""
        return self.resume is None or self.resume == self.target_committed

    @property
    def name(self) -> str:
        """Topic and partition on the source, for messages."""
        return f"{self.topic}-{self.partition}"

    @property
    def target(self) -> TopicPartition:
        """The partition on the target where the group continues."""
        return TopicPartition(self.target_topic, self.partition)

    @property
    def left_to_reset(self) -> bool:
        """Whether auto.offset.reset of the clients decides about records of this partition.

        In reverse it always does: an empty copy would have had an exact position.
        """
        undecided = self.state == "no-commit" and self.committed is None
        records = self.lag > 0 or self.direction == "reverse"
        return undecided and records and self.target_committed is None


def partition_move(group: GroupPosition) -> PartitionMove:
    """Decide where the group continues in this partition."""
    facts = group.facts
    found = translate(facts, group.committed)
    log = facts.upstream_log or _NOTHING
    if found.state in {"no-map", "no-target"} and log.end <= log.start:
        found = Translation("no-commit")  # there is nothing to read on either side
    row = PartitionMove(
        topic=facts.upstream.topic,
        partition=facts.upstream.partition,
        target_topic=facts.downstream.topic,
        direction=facts.direction,
        state=found.state,
        committed=group.committed,
        lag=facts.records_upstream(max(group.committed or 0, log.start), log.end),
        target_committed=group.target_committed,
        remaining=found.remaining,
        reason=found.reason,
    )
    if found.state in UNFINISHED and group.accept_open_transactions:
        row = _without_waiting(row, group, found, log)
    elif found.state == "translated":
        row = replace(row, resume=found.offset)
    if row.resume is None:
        return row
    row = replace(
        row,
        skipped=found.skipped,
        uncopied=found.uncopied,
        passed_kept=_passed_kept(group, row.resume),
    )
    return _beside_theirs(row, group)


def _passed_kept(group: GroupPosition, resume: int) -> int:
    """Count what was kept on the target in front of where a group continues.

    Who has been behind it there, or was put there, is done with it.
    """
    facts = group.facts
    log, been = facts.downstream_log, group.target_committed or 0
    if facts.direction == "forward" or log is None:
        return 0
    return sum(
        end - max(start, log.start, been)
        for start, end in facts.losses.kept
        if max(log.start, been) < end <= resume
    )


def _without_waiting(
    row: PartitionMove, group: GroupPosition, found: Translation, log: Log
) -> PartitionMove:
    """Continue where the copy ends, if an open transaction is all that keeps it from continuing."""
    if found.offset is None or found.reached is None or found.reached < log.stable_end:
        return row
    again = group.facts.records_upstream(found.reached, found.reached + found.remaining)
    return replace(row, state="translated", resume=found.offset, remaining=0, re_read=again)


def _beside_theirs(row: PartitionMove, group: GroupPosition) -> PartitionMove:
    """Compare with what a consumer on the target has committed itself."""
    theirs, resume = group.target_committed, row.resume
    if theirs is None or resume is None or group.target_is_ours:
        return row
    if group.facts.never_copied:
        return replace(row, state="no-commit", resume=None)  # it knows better
    if theirs <= resume:
        return row
    # Past markers only, a further commit is the same place and stays as it is; past records,
    # applying would make the group read them again.
    again = group.facts.records_downstream(resume, theirs)
    if again > 0:
        return replace(row, state="conflict", re_read=again)
    return replace(row, resume=theirs)
