"""Routing topic of one cluster, and of both: routes, announcements, and their stamps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self, TypeVar

from srm.domain.moves.gate import Presence
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import (
    Route,
    RouteState,
    StampedAck,
    decode_ack,
    decode_route,
    is_ack,
    is_subject,
    merge_tables,
)
from srm.domain.moves.whereabouts import Whereabouts
from srm.domain.names import internal_topics
from srm.domain.text.documents import decode_or_none
from srm.engine.cluster_ports import Cluster, Stamped, tolerate
from srm.engine.moves.context import MoveContext

_T = TypeVar("_T")


@dataclass(frozen=True)
class RoutingHistory:
    """The routing topic of one cluster; a damaged record is logged, and stops no move."""

    alias: str
    records: Mapping[bytes, Sequence[Stamped]]

    @classmethod
    def read(cls, cluster: Cluster) -> Self:
        return cls(cluster.alias, cluster.compacted_topic(internal_topics.ROUTING).read_history())

    @cached_property
    def _routes(self) -> tuple[tuple[bytes, Route, Stamped], ...]:
        return tuple(self._decode(is_subject, decode_route))

    @cached_property
    def routes(self) -> dict[str, Route]:
        """The route of the highest rank of each subject.

        The last record is not always the highest: another tool may have written without a fence.
        """
        return merge_tables({key.decode(): route} for key, route, _ in self._routes)

    def stamps(self, state: RouteState, progress: MoveProgress) -> tuple[int, int] | None:
        """Return when brokers stamped the first and the last route of a state of an attempt."""
        ours = (state, progress.attempt, progress.move_id)
        found = [
            row.timestamp_ms
            for _, route, row in self._routes
            if row.by_broker and (route.state, route.generation, route.move_id) == ours
        ]
        return (min(found), max(found)) if found else None

    def end_of_hold(self, request: MoveRequest, progress: MoveProgress, now_ms: int) -> str:
        """Say since when the hold of an attempt is over, by the beats here of the target."""
        return progress.end_of_hold(request, self.stamps("hold", progress), now_ms)

    def messages(self) -> Iterator[StampedAck]:
        """Yield all acknowledgements, oldest first for each client."""
        for _, ack, row in self._decode(is_ack, decode_ack):
            yield StampedAck(ack, row.timestamp_ms, row.by_broker)

    @cached_property
    def acks(self) -> tuple[StampedAck, ...]:
        last = replace(self, records={key: rows[-1:] for key, rows in self.records.items()})
        return tuple(sorted(last.messages(), key=lambda one: (one.ack.subject, one.ack.client)))

    @property
    def acks_of_itself(self) -> tuple[StampedAck, ...]:
        """Those stored on the cluster that they concern, so that one clock stamps each."""
        return tuple(one for one in self.acks if one.ack.cluster == self.alias)

    @property
    def newest_ms(self) -> int:
        """The newest stamp of the broker, a lower bound of its clock."""
        last = (rows[-1] for rows in self.records.values())
        return max((row.timestamp_ms for row in last if row.by_broker), default=0)

    def _decode(
        self, is_wanted: Callable[[bytes], bool], decode: Callable[[bytes, bytes], _T]
    ) -> Iterator[tuple[bytes, _T, Stamped]]:
        where = f"on cluster {self.alias}: "
        for key in filter(is_wanted, self.records):
            for row in self.records[key]:
                if (found := decode_or_none(row.value, partial(decode, key), where)) is not None:
                    yield key, found, row


@dataclass(frozen=True)
class RoutingTables:
    """The routing topics of the target and of the source (None: unavailable).

    Each is stamped by its cluster's broker; the target stamps those of an unavailable source.
    """

    target: RoutingHistory
    source: RoutingHistory | None = None
    now_ms: int = 0

    @classmethod
    def read(cls, context: MoveContext) -> RoutingTables:
        """Read both clusters; an unavailable source is skipped, which is logged."""
        target, source = RoutingHistory.read(context.target), context.source
        trouble = f"routes of {source.alias} cannot be read"
        found = tolerate(lambda: RoutingHistory.read(source), trouble)
        return cls(target, found, context.now_ms())

    @classmethod
    def read_target(cls, context: MoveContext) -> RoutingTables:
        return cls(RoutingHistory.read(context.target), None, context.now_ms())

    @property
    def on_source(self) -> tuple[StampedAck, ...]:
        """Acknowledgements of clients on the source; what the target has of all without it."""
        return self.target.acks if self.source is None else self.source.acks_of_itself

    @property
    def presence(self) -> Presence:
        """Clients present during a hold, whose renewals keep the clock of their stamps current."""
        return Presence(self.on_source, (self.source or self.target).newest_ms)

    @property
    def tables(self) -> tuple[Mapping[str, Route], ...]:
        return (self.target.routes, *([self.source.routes] if self.source else []))

    @cached_property
    def merge(self) -> dict[str, Route]:
        return merge_tables(self.tables)

    @cached_property
    def where(self) -> Whereabouts:
        return Whereabouts(self.tables, Presence(self._announcements, self.now_ms))

    @property
    def _announcements(self) -> tuple[StampedAck, ...]:
        """Those of all clusters: clients reach that of their work most surely."""
        return (*self.target.acks, *(self.source.acks_of_itself if self.source else ()))
