"""The residue of a flow as people read it: what is undecided, and what was left on the source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.recovery.residue import Counting, ResidueRecord
from srm.domain.verification.offset_ranges import OffsetRange
from srm.engine.flows.supervision import standing_pause
from srm.engine.ports import FlowContext
from srm.engine.recovery.look import Show, left_ranges, look_at_source
from srm.engine.recovery.ports import ReturnedLogs

ResidueState = Literal["undecided", "kept", "discarded"]


@dataclass(frozen=True, slots=True)
class ResidueRange:
    """Records that only the source has; offsets [from, to) are its own, times epoch ms.

    ``note`` says who decided, if it is decided.
    """

    topic: str
    partition: int
    topic_id: str
    state: ResidueState
    offset_from: int
    offset_to: int
    records: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    note: str = ""

    @property
    def wanted(self) -> tuple[AssignedPartition, OffsetRange]:
        """The range as logs are asked for it."""
        return (
            AssignedPartition(self.topic, self.partition, self.topic_id, "", ""),
            OffsetRange(self.topic, self.partition, self.offset_from, self.offset_to),
        )


def residue_ranges(
    context: FlowContext,
    logs: ReturnedLogs,
    topics: Collection[str] = (),
    partition: int | None = None,
    show: Show = lambda _: None,
) -> tuple[ResidueRange, ...]:
    """Return the ranges of the residue that hold records, by topic, partition and offset.

    What is undecided exists only while the flow is paused: else it is about to be copied.

    Raises:
        NotFoundError: the flow does not copy a topic.
        SrmError: a cluster does not answer.
    """
    undecided: list[ResidueRange] = []
    if standing_pause(context) is not None:
        found = look_at_source(context, logs, show, topics, groups=False)
        undecided = [
            ResidueRange(
                entry.topic,
                entry.partition,
                topic.topic_id,
                "undecided",
                *entry.residue,
                entry.records,
                entry.first_ms,
                entry.last_ms,
            )
            for topic in found.topics
            for entry in topic.partitions
            if entry.residue is not None
        ]
    left = [
        ResidueRange(
            note.topic,
            note.partition,
            note.topic_id,
            "kept" if note.decision == "keep" else "discarded",
            *(note.left_out or (0, 0)),
            note=note.loss,
        )
        for _, note in left_ranges(context, topics)
    ]
    ranges = [*undecided, *(one for one in _counted(logs, left, show) if one.records)]
    return tuple(
        sorted(
            (one for one in ranges if partition is None or one.partition == partition),
            key=lambda one: (one.topic, one.partition, one.offset_from),
        )
    )


def read_residue(
    logs: ReturnedLogs,
    ranges: Sequence[ResidueRange],
    visit: Callable[[ResidueRange, Sequence[ResidueRecord]], bool],
) -> None:
    """Show the records of ranges, in order; what ``visit`` returns says whether to read on.

    Raises:
        SrmError: a partition cannot be read.
    """
    reads_on = True

    def take(index: int, records: Sequence[ResidueRecord]) -> bool:
        nonlocal reads_on
        reads_on = reads_on and visit(ranges[index], records)
        return reads_on

    logs.read([one.wanted for one in ranges], take)


def _counted(
    logs: ReturnedLogs, ranges: Sequence[ResidueRange], show: Show
) -> tuple[ResidueRange, ...]:
    counts = [Counting() for _ in ranges]
    show(f"counting {len(ranges):,} ranges that were left")
    logs.count(
        [one.wanted for one in ranges],
        lambda index, offsets, times: counts[index].take(offsets, times),
    )
    return tuple(
        replace(
            one,
            records=counting.found.records,
            first_ms=counting.found.first_ms,
            last_ms=counting.found.last_ms,
        )
        for one, counting in zip(ranges, counts, strict=True)
    )
