"""Tables of one cluster's moves and routes, and the changes that a step writes to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from srm.domain.moves.gate.presence import StampedAck
from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import WAIT_PREFIX, MoveProgress, WaitNote
from srm.domain.moves.report.revisions import KeptReport, newest, report_key
from srm.domain.moves.routing.routes import (
    Route,
    RouteState,
    acks_of,
    decode_route,
    fold_routes,
    is_ack,
    is_subject,
    merge_tables,
)
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster
from srm.engine.table_ports import Stamped
from srm.errors import IntegrityError

log = logging.getLogger(__name__)

_PROGRESS = "progress:"
_KEPT = ("plan:", "report:", "approval:", "outcome:")
_T = TypeVar("_T")
_Ranked = TypeVar("_Ranked", Route, MoveProgress)
Records = dict[bytes, bytes | None]


@dataclass(frozen=True)
class ControlChange:
    """Records to write on one cluster in one transaction; ``forget`` are keys of acks."""

    routes: Mapping[str, Route] = field(default_factory=dict)
    progress: Sequence[MoveProgress] = ()
    documents: Mapping[str, bytes] = field(default_factory=dict)
    forget: Sequence[bytes] = ()


@dataclass(frozen=True)
class ControlTables:
    """Control records of one cluster, the highest-ranked one of each subject and move.

    ``documents``: plans, approvals, outcomes and reports by key.
    ``acks``: broker's time of a client's acknowledgement by its key, epoch milliseconds.
    ``holds``: broker's time of the first hold still in the log, by move and attempt.
    ``notes``: notes of waiting processes, by move.
    """

    routes: Mapping[str, Route] = field(default_factory=dict)
    progress: Mapping[str, MoveProgress] = field(default_factory=dict)
    documents: Mapping[str, bytes] = field(default_factory=dict)
    acks: Mapping[bytes, int] = field(default_factory=dict)
    holds: Mapping[tuple[str, int], int] = field(default_factory=dict)
    notes: Mapping[str, WaitNote] = field(default_factory=dict)

    @classmethod
    def read(cls, cluster: Cluster) -> ControlTables:
        """Read the tables of a cluster; damaged records are skipped and logged."""
        moves = cluster.compacted_topic(internal_topics.MOVES).read_history()
        routing = cluster.compacted_topic(internal_topics.ROUTING).read_history()
        return cls(
            read_routes(cluster, routing),
            _progress(cluster, moves),
            _documents(moves),
            {key: rows[-1].timestamp_ms for key, rows in routing.items() if is_ack(key)},
            first_stamps(routing, "hold"),
        )

    @classmethod
    def read_moves(cls, cluster: Cluster) -> ControlTables:
        """Read moves alone, without routes."""
        moves = cluster.compacted_topic(internal_topics.MOVES).read_history()
        notes = {
            note.move_id: note
            for key, rows in moves.items()
            if key.startswith(WAIT_PREFIX.encode())
            and (note := decode_or_none(rows[-1].value, WaitNote.decode)) is not None
        }
        return cls(progress=_progress(cluster, moves), documents=_documents(moves), notes=notes)

    def over(self, change: ControlChange) -> dict[str, Records]:
        """Encode the new part of a change, by topic: a lower rank never follows a higher one.

        So the last record of a key has the highest rank, also after compaction.
        """
        moves: Records = {
            f"{_PROGRESS}{new.move_id}".encode(): new.value()
            for new in change.progress
            if _outranks(new, self.progress.get(new.move_id))
        }
        moves |= {
            key.encode(): value
            for key, value in change.documents.items()
            if self.documents.get(key) != value
        }
        routing: Records = {
            subject.encode(): route.value()
            for subject, route in change.routes.items()
            if _outranks(route, self.routes.get(subject))
        }
        routing |= dict.fromkeys(change.forget)
        return {internal_topics.MOVES: moves, internal_topics.ROUTING: routing}

    def after(self, change: ControlChange) -> ControlTables:
        """Return the tables as they are after a change was written."""
        progress = dict(self.progress)
        for new in change.progress:
            if _outranks(new, progress.get(new.move_id)):
                progress[new.move_id] = new
        return replace(
            self,
            routes=merge_tables([self.routes, change.routes]),
            progress=progress,
            documents={**self.documents, **change.documents},
        )

    def lacks(self, other: ControlTables, aliases: frozenset[str]) -> ControlChange:
        """Return what the other cluster of a pair has and this one has missed.

        Holds are left to the move itself: copying them could spread an expired hold.
        """
        moves = {
            plan.move_id
            for key, value in other.documents.items()
            if key.startswith("plan:") and (plan := _plan(value)) is not None
            if {plan.request.source, plan.request.target} == aliases
        }
        return ControlChange(
            {
                subject: route
                for subject, route in other.routes.items()
                if route.state == "go"
                and route.move_id in moves
                and _outranks(route, self.routes.get(subject))
            },
            tuple(
                progress
                for move_id, progress in other.progress.items()
                if move_id in moves
                and (progress.is_decided or progress.step == "released")
                and _outranks(progress, self.progress.get(move_id))
            ),
            {
                key: value
                for key, value in other.documents.items()
                if key.split(":")[1] in moves and _is_newer(key, value, self.documents.get(key))
            },
        )


def read_routes(cluster: Cluster, history: Mapping[bytes, Sequence[Stamped]]) -> dict[str, Route]:
    """Fold the routes of a cluster's routing topic; damaged records are skipped."""
    values = {key: [row.value for row in rows] for key, rows in history.items()}
    return fold_routes(values, lambda error: _say(cluster, error))


def first_stamps(
    history: Mapping[bytes, Sequence[Stamped]], state: RouteState
) -> dict[tuple[str, int], int]:
    """Return when the first route of a state was written, by move and generation.

    Epoch milliseconds by the broker's clock. Records that the broker did not stamp and damaged ones
    are left out; :func:`read_routes` logs the latter.
    """
    found: dict[tuple[str, int], int] = {}
    for key, rows in history.items():
        for row in rows if is_subject(key) else ():
            if row.by_broker and (route := _route(key, row)) and route.state == state:
                attempt = (route.move_id, route.generation)
                found[attempt] = min(found.get(attempt, row.timestamp_ms), row.timestamp_ms)
    return found


def _route(key: bytes, row: Stamped) -> Route | None:
    try:
        return decode_route(key, row.value)
    except IntegrityError:
        return None


def read_acks(
    cluster: Cluster, history: Mapping[bytes, Sequence[Stamped]]
) -> tuple[StampedAck, ...]:
    """Decode the acknowledgements in a cluster's routing topic; damaged ones are skipped."""
    found = []
    for key, rows in history.items():
        for ack in acks_of({key: rows[-1].value}, lambda error: _say(cluster, error)):
            if ack.key() == key:
                found.append(StampedAck(ack, rows[-1].timestamp_ms))
            else:
                _say(cluster, IntegrityError(f"routing record {key!r} names another client"))
    return tuple(sorted(found, key=lambda one: (one.ack.subject, one.ack.client)))


def _outranks(new: _Ranked, known: _Ranked | None) -> bool:
    return known is None or new.rank > known.rank


def _progress(
    cluster: Cluster, history: Mapping[bytes, Sequence[Stamped]]
) -> dict[str, MoveProgress]:
    found: dict[str, MoveProgress] = {}
    for key, rows in history.items():
        if not key.startswith(_PROGRESS.encode()):
            continue
        for row in rows:
            try:
                one = MoveProgress.decode(row.value)
            except IntegrityError as error:
                _say(cluster, error)
                continue
            if _outranks(one, found.get(one.move_id)):
                found[one.move_id] = one
    return found


def _documents(history: Mapping[bytes, Sequence[Stamped]]) -> dict[str, bytes]:
    return {
        key.decode(errors="replace"): rows[-1].value
        for key, rows in history.items()
        if key.startswith(tuple(prefix.encode() for prefix in _KEPT))
    }


def _is_newer(key: str, value: bytes, known: bytes | None) -> bool:
    """Return True if a document is missing on the cluster, or is a later revision of a report."""
    if known is None or not key.startswith(report_key("")):
        return known is None
    kept = read_report(known)
    return kept is None or newest((kept, read_report(value) or kept)) is not kept


def read_report(value: bytes | None) -> KeptReport | None:
    """Decode a report; None if it is missing or damaged, the latter is logged."""
    return decode_or_none(value, KeptReport.decode)


def decode_or_none(value: bytes | None, decode: Callable[[bytes], _T]) -> _T | None:
    """Decode a document; None if it is missing or damaged, the latter is logged."""
    try:
        return None if value is None else decode(value)
    except IntegrityError as error:
        log.error("%s; the record is skipped", error)  # noqa: TRY400 -- one line
        return None


def _plan(value: bytes) -> MovePlan | None:
    try:
        return MovePlan.decode(value)
    except IntegrityError:
        return None


def _say(cluster: Cluster, error: IntegrityError) -> None:
    log.error("on cluster %s: %s; the record is skipped", cluster.alias, error)
