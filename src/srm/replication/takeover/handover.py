"""Give a partition the map and the position of somebody else's work: a slot goes on from there.

It is what a slot writes when it has walked the logs, only that the runs are known already. So it
may be killed anywhere, and what the next one finds is the beginning of a map, from where it goes
on; a position is written last, and tells that the map is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.offset_map import Position
from srm.domain.offset_map.runs import Runs
from srm.domain.recovery.restore import runs_from
from srm.errors import UnavailableError
from srm.replication.copy.partition import PartitionCopy
from srm.replication.report.reporting import Reporter
from srm.replication.resume.resume import Resumed, Start, Walked
from srm.replication.resume.walk import Settled
from srm.replication.takeover.sealing import Sealed

RUNS_AT_ONCE: Final = 1 << 12
RUNS_PER_REPORT: Final = 1 << 16
_TRIES: Final = 15
"""Reports until something is not to be had: each waits some seconds for its acknowledgement."""


@dataclass(frozen=True, slots=True)
class Handover:
    """One partition: what is known of it, all that was copied, and how far that is.

    ``sealed`` is our claim on the target partition.
    """

    assigned: AssignedPartition
    start: Start | None
    runs: Runs
    position: Position
    sealed: Sealed


def hand_over(handovers: Sequence[Handover], reporter: Reporter) -> None:
    """Write maps, then positions; safe to repeat.

    Raises:
        UnavailableError: the topics with the state cannot be written.
    """
    copies = [_stand(each, reporter) for each in handovers]
    for copy in copies:
        copy.leave()
    leaving: Sequence[PartitionCopy] = copies
    for _ in range(_TRIES):
        reporter.prepare((), leaving)()
        leaving = ()
        if reporter.has_told_all:
            return
    raise UnavailableError("the offset map or the positions are not acknowledged in time; retry")


def _stand(handover: Handover, reporter: Reporter) -> PartitionCopy:
    """Return a copy that stands at the end, with the runs that are not written yet."""
    known = handover.start
    if known is None or known.tree.last is None:
        ids = known.producer_ids if known else frozenset()
        garbage = known.garbage if known else ()
        known = Start(0, 0, ids, fresh=True, garbage=garbage)
    known = replace(known, at_rest=None)  # it stands where it shall: there is no trouble any more
    sealed, copy = handover.sealed, PartitionCopy(handover.assigned, known)
    copy.begin_claiming()
    end = sealed.marker + 1
    written = 0
    for piece in _pieces(runs_from(handover.runs, known.source_next)):
        last = piece[-1]
        settled = Settled(tuple(piece), last.source_end, last.target_end, -1)
        copy.note_walk(sealed.claim, Walked(last.target_end, end, settled, sealed.leader_epoch))
        written += len(piece)
        if written >= RUNS_PER_REPORT:
            _report(copy, reporter)
            written = 0
    position = handover.position
    copy.begin_copying(
        sealed.claim,
        Resumed(position.source_next, position.target_next, (), (), -1, sealed.leader_epoch),
    )
    return copy


def _pieces(runs: Runs) -> Iterable[Runs]:
    return (runs[at : at + RUNS_AT_ONCE] for at in range(0, len(runs), RUNS_AT_ONCE))


def _report(copy: PartitionCopy, reporter: Reporter) -> None:
    for _ in range(_TRIES):
        reporter.prepare((copy,))()
        if reporter.is_written(copy.assigned):
            return
    raise UnavailableError(f"the offset map of {copy.source} is not acknowledged in time; retry")
