"""Routes and announcements of clients on one cluster, and on both, with their stamps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final, Self, TypeVar

from srm.domain.moves.announcements import StampedAck, decode_ack
from srm.domain.moves.gate import Presence
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import (
    Route,
    RouteState,
    decode_route,
    is_subject,
    merge_tables,
)
from srm.domain.moves.whereabouts import Whereabouts
from srm.domain.names import internal_topics
from srm.domain.text.documents import decode_or_none
from srm.engine.cluster_ports import Cluster, CompactedTopic, Stamped, tolerate
from srm.engine.moves.context import MoveContext

_T = TypeVar("_T")


@dataclass(frozen=True)
class _History:
    """All records of a topic of one cluster; a damaged one is logged, and stops no move."""

    alias: str
    records: Mapping[bytes, Sequence[Stamped]]

    @property
    def newest_ms(self) -> int:
        """The newest stamp of the brokers, a lower bound of their clock."""
        last = (rows[-1] for rows in self.records.values())
        return max((row.timestamp_ms for row in last if row.by_broker), default=0)

    def _decode(
        self, decode: Callable[[bytes, bytes], _T], records: Mapping[bytes, Sequence[Stamped]]
    ) -> Iterator[tuple[bytes, _T, Stamped]]:
        where = f"on cluster {self.alias}: "
        for key, rows in records.items():
            for row in rows:
                if (found := decode_or_none(row.value, partial(decode, key), where)) is not None:
                    yield key, found, row


class RoutingHistory(_History):
    """The routes of one cluster, and the clock record among them."""

    @classmethod
    def read(cls, cluster: Cluster) -> Self:
        return cls(cluster.alias, cluster.compacted_topic(internal_topics.ROUTING).read_history())

    @cached_property
    def _routes(self) -> tuple[tuple[bytes, Route, Stamped], ...]:
        rows = {key: rows for key, rows in self.records.items() if is_subject(key)}
        return tuple(self._decode(decode_route, rows))

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


class ClientsHistory(_History):
    """Announcements of clients on one cluster, in all partitions of the topic."""

    @classmethod
    def read(cls, cluster: Cluster) -> Self:
        """Read the last announcement of each client on each subject."""
        rows = (table.read_stamped().items() for table in cls._tables(cluster))
        return cls(cluster.alias, {key: (row,) for some in rows for key, row in some})

    @classmethod
    def read_all(cls, cluster: Cluster) -> Self:
        """Read the earlier announcements, too, that the topic still has."""
        rows = (table.read_history().items() for table in cls._tables(cluster))
        return cls(cluster.alias, {key: row for some in rows for key, row in some})

    @staticmethod
    def _tables(cluster: Cluster) -> list[CompactedTopic]:
        name = internal_topics.CLIENTS
        count = cluster.partition_counts([name]).get(name, 0)
        return [cluster.compacted_topic(name, number) for number in range(count)]

    def messages(self) -> Iterator[StampedAck]:
        """Yield all announcements, oldest first for each client."""
        yield from self._decode_acks(self.records)

    @cached_property
    def acks(self) -> tuple[StampedAck, ...]:
        """The last of each client on each subject, in this order of both."""
        last = self._decode_acks({key: rows[-1:] for key, rows in self.records.items()})
        return tuple(sorted(last, key=lambda one: (one.ack.subject, one.ack.client)))

    @property
    def acks_of_itself(self) -> tuple[StampedAck, ...]:
        """Those stored on the cluster that they concern, so that its clock stamps each."""
        return tuple(one for one in self.acks if one.ack.cluster == self.alias)

    def _decode_acks(self, records: Mapping[bytes, Sequence[Stamped]]) -> Iterator[StampedAck]:
        for _, ack, row in self._decode(decode_ack, records):
            yield StampedAck(ack, row.timestamp_ms, row.by_broker)


_ReadClients = Callable[[Cluster], ClientsHistory]
_NO_CLIENTS: Final = ClientsHistory("", {})


@dataclass(frozen=True)
class RoutingTables:
    """Routes and announcements on the target and on the source (None: unavailable).

    Each is stamped by its cluster's brokers; the target stamps those of an unavailable source.
    ``said_on_target``, ``said_on_source``: what clients announced on each.
    """

    target: RoutingHistory
    source: RoutingHistory | None = None
    said_on_target: ClientsHistory = _NO_CLIENTS
    said_on_source: ClientsHistory = _NO_CLIENTS
    now_ms: int = 0

    @classmethod
    def read(cls, context: MoveContext, said: _ReadClients = ClientsHistory.read) -> Self:
        """Read both clusters, with ``said`` for what clients announced.

        An unavailable source is skipped, which is logged.
        """
        one, source = cls.read_target(context, said), context.source
        trouble = f"routes of {source.alias} cannot be read"
        there = tolerate(lambda: (RoutingHistory.read(source), said(source)), trouble)
        return one if there is None else replace(one, source=there[0], said_on_source=there[1])

    @classmethod
    def read_target(cls, context: MoveContext, said: _ReadClients = ClientsHistory.read) -> Self:
        target = context.target
        routes, clients = RoutingHistory.read(target), said(target)
        return cls(routes, said_on_target=clients, now_ms=context.now_ms())

    @property
    def on_source(self) -> tuple[StampedAck, ...]:
        """Announcements of clients on the source; what the target has of all without it."""
        is_away = self.source is None
        return self.said_on_target.acks if is_away else self.said_on_source.acks_of_itself

    @property
    def presence(self) -> Presence:
        """Clients present during a hold, whose renewals keep the clock of their stamps current."""
        target = (self.target, self.said_on_target)
        read = target if self.source is None else (self.source, self.said_on_source)
        return Presence(self.on_source, max(one.newest_ms for one in read))

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
        return (*self.said_on_target.acks, *self.said_on_source.acks_of_itself)
