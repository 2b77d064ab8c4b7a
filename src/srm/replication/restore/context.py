"""Flows, ports and settings of a restore."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.ports import FlowContext, FlowSwitch
from srm.replication.log_reader import Connect, of_each_log
from srm.replication.mapping.start_reader import StartReader
from srm.replication.report.reporting import Reporter
from srm.replication.takeover.sealing import Sealed, begins_with_records, first_record_in, seal


class RestoreLogs:
    """Looks into logs of both clusters, and claims them. Calls block; topics come with their ids.

    Raises UnavailableError or AuthorizationError. ``connect`` connects as a producer does.
    """

    def __init__(self, connect: Connect, rebuilt: str) -> None:
        self._connect = connect
        self._rebuilt = rebuilt

    def seal(
        self, flow: Flow, partitions: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Sealed]:
        """Claim copies of a flow, as :func:`srm.replication.takeover.sealing.seal` does."""
        return of_each_log(self._connect(flow.target), partitions, lambda log: seal(log, flow))

    def begin_with_records(
        self, partitions: Mapping[TopicPartition, str]
    ) -> frozenset[TopicPartition]:
        """Return those originals that begin with a record, and not with the marker of a claim."""
        found = of_each_log(self._connect(self._rebuilt), partitions, begins_with_records)
        return frozenset(place for place, begins in found.items() if begins)

    def first_record_in(
        self, partition: TopicPartition, topic_id: str, ranges: Iterable[tuple[int, int]]
    ) -> int | None:
        """Return the offset of the first record in these ranges of an original."""
        found = of_each_log(
            self._connect(self._rebuilt),
            {partition: topic_id},
            lambda log: first_record_in(log, ranges),
        )
        return found[partition]


@dataclass(frozen=True)
class RestoreContext:
    """Both flows, and the operations on them.

    Attributes:
        forward: the flow whose source was rebuilt, P->B.
        copying: the flow that brings the copies back.
        switch: pauses and resumes the forward flow.
        copy: brings all records of copies back; takes the names of the copies.
    """

    forward: FlowContext
    copying: FlowContext
    switch: FlowSwitch
    own_switch: FlowSwitch
    clusters: Collection[str]
    logs: RestoreLogs
    starts: StartReader
    reporter: Callable[[], Reporter]
    copy: Callable[[Collection[str]], None]
    by: str
