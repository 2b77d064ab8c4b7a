"""Ports of the engine; srm.kafka implements them, srm_lab.testing fakes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import (
    PartitionNotes,
    PartitionStatus,
    Pause,
    SlotReport,
    in_force,
)
from srm.domain.moves.routing import RedirectKind, RedirectOrder
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_loader import WantedOffsets
from srm.domain.offset_map.offset_map import OffsetMap, Position
from srm.domain.offset_map.runs import skip_ranges
from srm.engine.cluster_ports import Cluster
from srm.errors import UnavailableError


@dataclass(frozen=True)
class FlowMaps:
    """The offset maps of one flow, by partition of the source topic.

    ``errors`` has the reason of each unusable map, which ``maps`` omits. Offsets in the lost ranges
    that ``gaps`` describe cannot be translated. ``notes`` are about records that slots could not
    copy.
    """

    maps: Mapping[TopicPartition, OffsetMap]
    reports: tuple[SlotReport, ...] = ()
    statuses: Mapping[TopicPartition, PartitionStatus] = field(default_factory=dict)
    errors: Mapping[TopicPartition, str] = field(default_factory=dict)
    notes: Mapping[TopicPartition, tuple[PartitionNotes, ...]] = field(default_factory=dict)
    gaps: Mapping[TopicPartition, str] = field(default_factory=dict)

    def get(self, partition: TopicPartition) -> OffsetMap:
        return self.maps.get(partition, OffsetMap())

    def to_copy(self, partition: TopicPartition) -> Position | None:
        """Return the position to copy from, after what decisions leave on the source."""
        position, notes = self.get(partition).position, self.notes.get(partition)
        if position is None or not notes:
            return position
        ranges = (note.left_out for note in in_force(notes) if note.left_out)
        return replace(position, source_next=skip_ranges(position.source_next, ranges))


class MapReader(Protocol):
    """Reads the offset maps that a flow's replicator keeps on its target."""

    def load(self, topics: Collection[str], wanted: WantedOffsets | None = None) -> FlowMaps:
        """Load the maps of source topics, for their current ids, with statuses and notes.

        ``wanted``: offsets to translate by source partition; others may raise NotLoadedError, and
        other partitions have only their position. Without it maps are complete.
        """


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result of a call; ``said`` is one line for the operator."""

    done: bool
    said: str


class Caller(Protocol):
    """Notifies clients by other means than routing records: a webhook, a command."""

    @property
    def limit_s(self) -> float:
        """Time limit of a call in seconds, all its attempts included."""

    def call(self, order: RedirectOrder, cancelled: threading.Event) -> CallResult:
        """Deliver an order, with retries; the same order may be delivered again.

        Return soon after ``cancelled`` is set. It raises nothing; the result holds the error.
        """


class FlowSwitch(Protocol):
    """Pauses and resumes the copying of one flow, through its target alone.

    Calls may be repeated. UnavailableError: also if another writer takes over.
    """

    def pause(self, wanted: Pause, request: str | None = None) -> Pause | None:
        """Stop assigning partitions to slots until :meth:`resume`; join an existing pause.

        Return the pause before.
        ``request``: id of the pause to join; without it any pause, or a new one. ConflictError:
        that pause is over or replaced. NotFoundError: the flow has never copied anything.
        """

    def seal(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Fence all producers that may still write to copies, after :meth:`pause`.

        Return copies that could not be sealed, with the reason.
        """

    def resume(
        self, decided: Mapping[bytes, bytes] = MappingProxyType({}), request: str | None = None
    ) -> bool:
        """End the pause with this request, else any; return whether the flow was paused.

        ``decided``: records for the partition of commands, written in the same transaction, if
        paused. ConflictError: the flow is paused by another request.
        """

    def leave(self, move_id: str) -> None:
        """Release a move from the pause, and end it if no other move needs it."""


@dataclass(frozen=True)
class FlowContext:
    """One flow as the engine sees it: settings, both clusters, both maps, the clock (epoch ms).

    ``maps`` reads this flow's records on the target, ``reverse_maps`` the opposite flow's on the
    source. ``callers`` are the redirectors of moves in this direction, other than routing, that can
    be called. ``opposite`` are the settings of the opposite flow.
    """

    config: FlowConfig
    source: Cluster
    target: Cluster
    maps: MapReader
    reverse_maps: MapReader
    now_ms: Callable[[], int]
    callers: Mapping[RedirectKind, Caller] = field(default_factory=dict)
    switch: FlowSwitch | None = None
    opposite: FlowConfig | None = None

    @property
    def own_switch(self) -> FlowSwitch:
        """The switch of the flow; UnavailableError where it was opened without one."""
        if self.switch is None:
            raise UnavailableError(f"flow {self.config.flow} cannot be paused or resumed from here")
        return self.switch

    @property
    def backwards(self) -> FlowContext:
        """The same flow, with clusters and maps in each other's place."""
        source, target, maps = self.target, self.source, self.reverse_maps
        return replace(self, source=source, target=target, maps=maps, reverse_maps=self.maps)
