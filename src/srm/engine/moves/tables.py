"""Control records of one cluster: what is stored, what is new, and what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import WAIT_PREFIX, MoveProgress, WaitNote
from srm.domain.moves.revisions import KeptReport, newest, report_key
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.domain.text.documents import decode_or_none, join, split
from srm.engine.cluster_ports import Cluster
from srm.engine.moves.history import RoutingHistory

_T = TypeVar("_T")

_PROGRESS = b"progress:"


_KEPT = (b"plan:", b"accepted:", b"report:", b"approval:", b"outcome:")


_Ranked = TypeVar("_Ranked", Route, MoveProgress)


Records = dict[bytes, bytes | None]


@dataclass(frozen=True)
class ControlChange:
    """Records to write on one cluster in one transaction; ``forget`` are keys of acks."""

    routes: Mapping[str, Route] = field(default_factory=dict)
    progress: Sequence[MoveProgress] = ()
    documents: Mapping[str, bytes] = field(default_factory=dict)
    forget: Sequence[bytes] = ()

    def records(self) -> dict[str, Records]:
        texts = {_PROGRESS + one.move_id.encode(): one.value() for one in self.progress}
        texts |= {key.encode(): text for key, text in self.documents.items()}
        moves: Records = {k: part for key in texts for k, part in split(key, texts[key]).items()}
        routing: Records = {subject.encode(): one.value() for subject, one in self.routes.items()}
        routing |= dict.fromkeys(self.forget)
        return {internal_topics.MOVES: moves, internal_topics.ROUTING: routing}


@dataclass(frozen=True)
class ControlTables:
    """Control records of one cluster, the highest-ranked one of each subject and move.

    ``documents``: plans, as planned and as accepted by go, approvals, outcomes, reports.
    ``notes``: notes of waiting processes, by move.
    """

    routes: Mapping[str, Route] = field(default_factory=dict)
    progress: Mapping[str, MoveProgress] = field(default_factory=dict)
    documents: Mapping[str, bytes] = field(default_factory=dict)
    routing: RoutingHistory = field(default_factory=lambda: RoutingHistory("", {}))
    notes: Mapping[str, WaitNote] = field(default_factory=dict)

    @classmethod
    def read(cls, cluster: Cluster) -> ControlTables:
        """Read the tables of a cluster; damaged records are skipped and logged."""
        moves, routing = cls.read_moves(cluster), RoutingHistory.read(cluster)
        return replace(moves, routes=routing.routes, routing=routing)

    @classmethod
    def read_moves(cls, cluster: Cluster) -> ControlTables:
        moves = join(cluster.compacted_topic(internal_topics.MOVES).read())
        where = f"on cluster {cluster.alias}: "

        def decode_all(prefix: bytes, decode: Callable[[bytes], _T]) -> Iterator[_T]:
            values = [value for key, value in moves.items() if key.startswith(prefix)]
            return filter(None, (decode_or_none(value, decode, where) for value in values))

        return cls(
            progress={one.move_id: one for one in decode_all(_PROGRESS, MoveProgress.decode)},
            documents={
                key.decode(errors="replace"): value
                for key, value in moves.items()
                if key.startswith(_KEPT)
            },
            notes={one.move_id: one for one in decode_all(WAIT_PREFIX.encode(), WaitNote.decode)},
        )

    @classmethod
    def read_last(cls, cluster: Cluster) -> ControlTables:
        """Read no history: the last routes, and only the plans that they follow."""
        routing = cluster.compacted_topic(internal_topics.ROUTING).read_stamped()
        moves = join(cluster.compacted_topic(internal_topics.MOVES).read())
        routes = RoutingHistory(cluster.alias, {key: (row,) for key, row in routing.items()}).routes
        each = (one for route in routes.values() for one in route.each if one.state == "go")
        plans = {f"plan:{one.move_id}".encode() for one in each} & moves.keys()
        return cls(routes, documents={key.decode(): moves[key] for key in plans})

    def plans(self) -> Iterator[MovePlan]:
        """Yield the plans; a damaged one is skipped and logged."""
        stored = ((k, value) for k, value in self.documents.items() if k.startswith("plan:"))
        for key, value in stored:
            if (plan := decode_or_none(value, MovePlan.decode, f"{key}: ")) is not None:
                yield plan

    def new_part(self, change: ControlChange) -> ControlChange:
        """Return the part of a change that is new here: a lower rank never follows a higher one."""
        progress = sorted(change.progress, key=lambda one: one.rank)
        routes = {key: one.after(self.routes.get(key)) for key, one in change.routes.items()}
        return replace(
            change,
            routes={k: one for k, one in routes.items() if _outranks(one, self.routes.get(k))},
            progress=tuple(p for p in progress if _outranks(p, self.progress.get(p.move_id))),
            documents={k: v for k, v in change.documents.items() if self.documents.get(k) != v},
        )

    def lacks(self, other: ControlTables, aliases: frozenset[str]) -> ControlChange:
        """Return what the other cluster has and this one lacks, but holds, which may be expired."""
        moves = {
            plan.move_id
            for plan in other.plans()
            if {plan.request.source, plan.request.target} == aliases
        }
        routes = {
            subject: route
            for subject, newest in other.routes.items()
            for route in reversed(newest.each)
            if route.state == "go" and route.move_id in moves
        }
        ended = [one for one in other.progress.values() if one.is_decided or one.step == "released"]

        documents = {
            key: text
            for key, text in other.documents.items()
            if key.partition(":")[2] in moves and _is_newer(key, text, self.documents.get(key))
        }
        progress = [one for one in ended if one.move_id in moves]
        return self.new_part(ControlChange(routes, progress, documents))


def _outranks(new: _Ranked, known: _Ranked | None) -> bool:
    return known is None or new.rank > known.rank


def _is_newer(key: str, value: bytes, known: bytes | None) -> bool:
    """Return True if a document is missing on the cluster, or is a later revision of a report."""
    if known is None or not key.startswith(report_key("")):
        return known is None
    kept, other = (decode_or_none(each, KeptReport.decode) for each in (known, value))
    return kept is None or newest((kept, other or kept)) is not kept
