"""The residue of a flow for display: undecided ranges, and ranges that were left on the source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from srm.domain.flow_state.anomalies import in_force
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.offset_ranges import OffsetRange
from srm.domain.recovery.residue import Counting, ResidueRecord, Wanted
from srm.engine.flows.supervision import pause_in_force
from srm.engine.ports import FlowContext
from srm.engine.recovery.look import ReturnedLogs, Show, count, look_at_source
from srm.replication.ports import DecodedRecord
from srm.replication.restore.flow_state import RestoreState

ResidueState = Literal["undecided", "kept", "discarded"]


@dataclass(frozen=True, slots=True)
class ResidueRange:
    """Records that only the source has; source offsets [from, to), times epoch ms.

    ``note`` names who decided, if it is decided.
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
    def request(self) -> Wanted:
        """The range as :meth:`.ReturnedLogs.read` takes it."""
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

    Undecided ranges exist only while the flow is paused: otherwise they are about to be copied.

    Raises:
        NotFoundError: the flow does not copy a topic.
    """
    undecided: list[ResidueRange] = []
    if pause_in_force(context) is not None:
        found = look_at_source(context, logs, show, topics, groups=False)
        undecided = [
            ResidueRange(
                *(entry.topic, entry.partition, topic.topic_id, "undecided"),
                *entry.residue,
                records=entry.records,
                first_ms=entry.first_ms,
                last_ms=entry.last_ms,
            )
            for topic in found.topics
            for entry in topic.partitions
            if entry.residue is not None
        ]
    left = _decided_ranges(context, topics)
    show(f"counting {len(left):,} ranges that were left")
    counts = count(logs, [one.request for one in left], [Counting() for _ in left], show)
    counted = (
        replace(one, records=found.records, first_ms=found.first_ms, last_ms=found.last_ms)
        for one, found in zip(left, counts, strict=True)
        if found.records
    )
    ranges = [*undecided, *counted]
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
    """Pass the records of ranges to ``visit`` in order, until it returns False."""
    reads_on = True

    def take(index: int, records: Sequence[DecodedRecord]) -> bool:
        nonlocal reads_on
        one = ranges[index]
        reads_on = reads_on and visit(one, [_whole(one, record) for record in records])
        return reads_on

    logs.read([one.request for one in ranges], take, at_once=1)


def _whole(of: ResidueRange, record: DecodedRecord) -> ResidueRecord:
    return ResidueRecord(
        *(of.topic, of.partition, record.offset, record.timestamp),
        None if record.key is None else bytes(record.key),
        None if record.value is None else bytes(record.value),
        list(record.headers),
    )


def _decided_ranges(context: FlowContext, topics: Collection[str]) -> list[ResidueRange]:
    """Return ranges of existing topics that earlier decisions left on the source."""
    state = RestoreState.read(context.target, context.config.flow).state
    ids = {name: topic.topic_id for name, topic in context.source.topics().items()}
    return [
        ResidueRange(
            *(note.topic, note.partition, note.topic_id),
            "kept" if note.decision == "keep" else "discarded",
            *note.left_out,
            note=note.loss,
        )
        for place, notes in state.notes_of(ids).items()
        if not topics or place.topic in topics
        for note in in_force(notes)
        if note.left_out is not None
    ]
