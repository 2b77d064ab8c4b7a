"""What a restore works with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from srm.config.restoring import restoring
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.filters import NameFilter
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.recovery.restore import TopicPlan
from srm.engine.ports import FlowContext, FlowSwitch
from srm.errors import SrmError
from srm.replication.copy.slot import Predecessor
from srm.replication.report.reporting import Reporter
from srm.replication.resume.resume import Start
from srm.replication.takeover.sealing import Sealed


class Logs(Protocol):
    """Looks into logs, and claims them. Calls block; partitions come with the ids of topics.

    Every call raises UnavailableError or AuthorizationError as they occur.
    """

    def seal(
        self, flow: Flow, partitions: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Sealed]:
        """Claim copies of a flow on its target: see :func:`srm.replication.takeover.sealing.seal`.

        Raises:
            FencedError: somebody else does the same at this moment.
        """
        ...

    def begin_with_records(
        self, partitions: Mapping[TopicPartition, str]
    ) -> frozenset[TopicPartition]:
        """Return those originals that begin with a record, and not with the marker of a claim."""
        ...

    def first_record_in(
        self, partition: TopicPartition, topic_id: str, ranges: Iterable[tuple[int, int]]
    ) -> int | None:
        """Return the first offset of an original, in these ranges, at which a record stands."""
        ...


class Starts(Protocol):
    """Reads what the flow that goes on knows of partitions; see the slot's port."""

    def load(
        self, partitions: Sequence[AssignedPartition]
    ) -> Mapping[AssignedPartition, Start | SrmError]:
        """Return where each partition would start."""
        ...

    def predecessor(self, slot: str) -> Predecessor:
        """Return who was a slot of that name."""
        ...


@dataclass(frozen=True)
class RestoreContext:
    """Both flows, and what is done with them.

    Attributes:
        forward: the flow whose source was rebuilt, P->B.
        copying: the flow that brings the copies back.
        switch: pauses the forward flow, and lets it go on.
        own_switch: the same of the flow that brings the copies back.
        clusters: aliases of all clusters.
        logs: of both clusters.
        starts: of the forward flow.
        reporter: makes one that writes to the forward flow's state.
        copy: brings copies back, until all is there that they hold; takes their names.
        by: who restores, for people.
    """

    forward: FlowContext
    copying: FlowContext
    switch: FlowSwitch
    own_switch: FlowSwitch
    clusters: Collection[str]
    logs: Logs
    starts: Starts
    reporter: Callable[[], Reporter]
    copy: Callable[[Collection[str]], None]
    by: str

    def copying_only(self, plans: Iterable[TopicPlan]) -> FlowContext:
        """Return the flow that brings copies back, of these topics alone."""
        return replace(self.copying, config=restoring(self.copying.config, [p.copy for p in plans]))

    @property
    def chosen(self) -> NameFilter:
        """Which topics the forward flow copies."""
        config = self.forward.config
        return NameFilter(config.topics, config.topics_exclude)
