"""State of moves on both clusters, and the changes that a step writes to each.

It survives a crash of the process that runs a move. Differences between the clusters, after a crash
or while one was unavailable, are resolved by rank (srm.domain.moves.progress,
srm.domain.moves.routing). srm.engine.moves.registers writes the state.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final, Self, TypeVar

from srm.clock import now_s
from srm.domain.moves.gate import StampedAck
from srm.domain.moves.plan import MovePlan, fingerprint
from srm.domain.moves.progress import WAIT_PREFIX, MoveProgress, Observation, WaitNote
from srm.domain.moves.revisions import KeptReport, SigningKey, newest, report_key
from srm.domain.moves.routing import (
    Ack,
    Route,
    RouteState,
    decode_ack,
    decode_route,
    is_ack,
    is_subject,
    merge_tables,
)
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster, Stamped
from srm.engine.control.control_topics import create_control_topics, repair_control_topics
from srm.engine.flows.cluster_absence import away_cluster
from srm.engine.ports import FlowContext
from srm.errors import IntegrityError, NotFoundError, UnavailableError, UsageError

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
        routing = RoutingHistory.read(cluster)
        return cls(
            routing.routes,
            _progress(cluster, moves),
            _documents(moves),
            {key: rows[-1].timestamp_ms for key, rows in routing.records.items() if is_ack(key)},
            routing.first_stamps("hold"),
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

    def _new_part(self, change: ControlChange) -> ControlChange:
        """Return the part of a change that is new here: a lower rank never follows a higher one."""
        routes, progress = change.routes.items(), sorted(change.progress, key=lambda one: one.rank)
        return replace(
            change,
            routes={key: one for key, one in routes if _outranks(one, self.routes.get(key))},
            progress=tuple(p for p in progress if _outranks(p, self.progress.get(p.move_id))),
            documents={k: v for k, v in change.documents.items() if self.documents.get(k) != v},
        )

    def over(self, change: ControlChange) -> dict[str, Records]:
        """Encode the new part of a change, by topic."""
        new = self._new_part(change)
        moves: Records = {f"{_PROGRESS}{p.move_id}".encode(): p.value() for p in new.progress}
        moves |= {key.encode(): value for key, value in new.documents.items()}
        routing: Records = {subject.encode(): one.value() for subject, one in new.routes.items()}
        routing |= dict.fromkeys(new.forget)
        return {internal_topics.MOVES: moves, internal_topics.ROUTING: routing}

    def after(self, change: ControlChange) -> ControlTables:
        """Return the tables as they are after a change was written."""
        new = self._new_part(change)
        return replace(
            self,
            routes={**self.routes, **new.routes},
            progress={**self.progress, **{one.move_id: one for one in new.progress}},
            documents={**self.documents, **new.documents},
        )

    def lacks(self, other: ControlTables, aliases: frozenset[str]) -> ControlChange:
        """Return what the other cluster has and this one lacks, but holds, which may be expired."""
        moves = {
            plan.move_id
            for key, value in other.documents.items()
            if key.startswith("plan:") and (plan := _plan(value)) is not None
            if {plan.request.source, plan.request.target} == aliases
        }
        routes = {s: r for s, r in other.routes.items() if r.state == "go" and r.move_id in moves}
        ended = [one for one in other.progress.values() if one.is_decided or one.step == "released"]
        documents = {
            key: value
            for key, value in other.documents.items()
            if key.split(":")[1] in moves and _is_newer(key, value, self.documents.get(key))
        }
        progress = [one for one in ended if one.move_id in moves]
        return self._new_part(ControlChange(routes, progress, documents))


@dataclass(frozen=True)
class RoutingHistory:
    """The routing topic of one cluster; a damaged record is logged, and stops no move."""

    alias: str
    records: Mapping[bytes, Sequence[Stamped]] = field(default_factory=dict)

    @classmethod
    def read(cls, cluster: Cluster) -> Self:
        """Read all values that the log still holds."""
        return cls(cluster.alias, cluster.compacted_topic(internal_topics.ROUTING).read_history())

    @cached_property
    def _routes(self) -> tuple[tuple[str, Route, Stamped], ...]:
        return tuple(
            (key.decode(), route, row)
            for key, rows in self.records.items()
            for row in (rows if is_subject(key) else ())
            if (route := self._decode(decode_route, key, row)) is not None
        )

    @property
    def routes(self) -> dict[str, Route]:
        """The route of the highest rank of each subject.

        The last record is not always the highest: another tool may have written without a fence.
        """
        return merge_tables({subject: route} for subject, route, _ in self._routes)

    def first_stamps(self, state: RouteState) -> dict[tuple[str, int], int]:
        """Return when brokers stamped the first route of a state, by move and generation."""
        found: dict[tuple[str, int], int] = {}
        for _, route, row in self._routes:
            if row.by_broker and route.state == state:
                attempt = (route.move_id, route.generation)
                found[attempt] = min(found.get(attempt, row.timestamp_ms), row.timestamp_ms)
        return found

    def messages(self) -> Iterator[tuple[Ack, Stamped]]:
        """Yield all acknowledgements, oldest first for each client."""
        for key, rows in self.records.items():
            for row in rows if is_ack(key) else ():
                if (ack := self._decode(decode_ack, key, row)) is not None:
                    yield ack, row

    @property
    def acks(self) -> tuple[StampedAck, ...]:
        """The last acknowledgement of each client."""
        last = replace(self, records={key: rows[-1:] for key, rows in self.records.items()})
        found = (StampedAck(ack, row.timestamp_ms) for ack, row in last.messages())
        return tuple(sorted(found, key=lambda one: (one.ack.subject, one.ack.client)))

    @property
    def newest_ms(self) -> int:
        """The newest stamp of the broker, a lower bound of its clock."""
        last = (rows[-1] for rows in self.records.values())
        return max((row.timestamp_ms for row in last if row.by_broker), default=0)

    def _decode(self, decode: Callable[[bytes, bytes], _T], key: bytes, row: Stamped) -> _T | None:
        return decode_or_none(row.value, partial(decode, key), f"on cluster {self.alias}: ")


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
            one = decode_or_none(row.value, MoveProgress.decode, f"on cluster {cluster.alias}: ")
            if one is not None and _outranks(one, found.get(one.move_id)):
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


def decode_or_none(
    value: bytes | None, decode: Callable[[bytes], _T], where: str = ""
) -> _T | None:
    """Decode a document; None if it is missing or damaged, the latter is logged."""
    try:
        return None if value is None else decode(value)
    except IntegrityError as error:
        log.error("%s%s; the record is skipped", where, error)  # noqa: TRY400 -- one line
        return None


def _plan(value: bytes) -> MovePlan | None:
    try:
        return MovePlan.decode(value)
    except IntegrityError:
        return None


@dataclass(frozen=True)
class Notary:
    """Versions and configuration of the move's programs; ``read_key`` returns the key or None."""

    read_key: Callable[[], SigningKey | None] = lambda: None
    versions: Mapping[str, str] = field(default_factory=dict)
    config_sha256: str = ""

    def key(self) -> SigningKey | None:
        """Return the key; None if it cannot be read: the next call with it signs the report."""
        try:
            return self.read_key()
        except UsageError as error:
            log.error("the report is not signed: %s", error)  # noqa: TRY400 -- one line
            return None


_MOVES: Final = internal_topics.MOVES


@dataclass(frozen=True)
class MoveContext:
    """Both flows between the clusters of a move: ``forward`` source to target, and ``reverse``.

    ``condemned``: source of an unplanned move for best-effort calls; its ``source`` never answers.
    ``observations``: observations of the source by this process, by move.
    """

    forward: FlowContext
    reverse: FlowContext
    monotonic: Callable[[], float] = now_s
    host: str = field(default_factory=socket.gethostname)
    condemned: Cluster | None = None
    notary: Notary = field(default_factory=Notary)
    pause: Callable[[float], None] = time.sleep
    observations: dict[str, Observation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.forward.config.flow.reverse != self.reverse.config.flow:
            raise UsageError(
                f"a move needs a flow and its reverse, not {self.forward.config.flow} and "
                f"{self.reverse.config.flow}"
            )

    @property
    def source(self) -> Cluster:
        """The cluster that clients leave."""
        return self.forward.source

    @property
    def target(self) -> Cluster:
        """The cluster that clients go to."""
        return self.forward.target

    @property
    def now_ms(self) -> Callable[[], int]:
        """The clock, epoch milliseconds."""
        return self.forward.now_ms


def ensure_topics(context: MoveContext, *, unplanned: bool = False) -> None:
    """Create the missing control topics on both clusters; on the target only if ``unplanned``.

    Call it before any read: a client that has looked up a missing topic may not see it for a while
    after its creation.
    """
    sides = ((context.target, context.forward.config), (context.source, context.reverse.config))
    for cluster, config in sides[:1] if unplanned else sides:
        create_control_topics(cluster, config.internal_replication_factor)
        repair_control_topics(cluster)


class MoveStore:
    """Plans and progress of moves, by move id; each call reads both clusters."""

    def __init__(self, context: MoveContext) -> None:
        self._context = context

    def load(self, move_id: str) -> tuple[MovePlan, MoveProgress]:
        """Return the plan and the progress of a move."""
        tables = read_both(self._context, ControlTables.read_moves)
        plan = newest_plan(tables, move_id)
        if plan is None:
            raise NotFoundError(
                f"move {move_id!r} is not known on {self._context.target.alias} or "
                f"{self._context.source.alias}; see 'srm failover status', or plan it"
            )
        return plan, furthest(tables, move_id)

    def plan(self, move_id: str) -> MovePlan:
        """Return a plan."""
        return self.load(move_id)[0]

    def find_plan(self, move_id: str) -> MovePlan | None:
        """Return a plan, None if no cluster has one of that id."""
        return newest_plan(read_both(self._context, ControlTables.read_moves), move_id)

    def progress(self, move_id: str) -> MoveProgress:
        """Return the progress of a move; one that was only planned is at its first step."""
        return furthest(read_both(self._context, ControlTables.read_moves), move_id)

    def note(self, move_id: str) -> WaitNote | None:
        """Return the note of a waiting process on the target, None without one."""
        rows = self._context.target.compacted_topic(_MOVES).read()
        return decode_or_none(rows.get(f"{WAIT_PREFIX}{move_id}".encode()), WaitNote.decode)

    def moves(self) -> tuple[tuple[MovePlan, MoveProgress], ...]:
        """Return all known moves with their progress, the oldest plan first; reads once."""
        tables = read_both(self._context, ControlTables.read_moves)
        plans: dict[str, MovePlan] = {}
        documents = [item for table in tables for item in table.documents.items()]
        for key, value in documents:
            is_plan = key.startswith("plan:")
            plan = decode_or_none(value, MovePlan.decode, f"{key}: ") if is_plan else None
            if plan is not None:
                known = plans.get(plan.move_id, plan)
                plans[plan.move_id] = max(known, plan, key=lambda one: one.created_ms)
        in_order = sorted(plans.values(), key=lambda plan: (plan.created_ms, plan.move_id))
        return tuple((plan, furthest(tables, plan.move_id)) for plan in in_order)

    def save_note(self, note: WaitNote) -> None:
        """Write a note on the target; not fenced, since losing it only delays."""
        key = f"{WAIT_PREFIX}{note.move_id}".encode()
        self._context.target.compacted_topic(_MOVES).write({key: note.value()})


def config_fingerprint(context: MoveContext) -> str:
    """Identify the settings of both flows."""
    return fingerprint(context.forward.config, context.reverse.config)


def furthest(tables: Iterable[ControlTables], move_id: str) -> MoveProgress:
    """Return the progress of the highest rank that any of the tables has."""
    known = [table.progress[move_id] for table in tables if move_id in table.progress]
    return max(known, key=lambda one: one.rank, default=MoveProgress(move_id))


def newest_plan(tables: Iterable[ControlTables], move_id: str) -> MovePlan | None:
    """Return the newest plan of a move, None if no table has one."""
    key = f"plan:{move_id}"
    plans = [MovePlan.decode(table.documents[key]) for table in tables if key in table.documents]
    return max(plans, key=lambda plan: plan.created_ms, default=None)


def read_both(context: MoveContext, read: Callable[[Cluster], _T]) -> list[_T]:
    """Read target and source concurrently; one of them may be unavailable."""
    found: list[_T] = []
    missing: list[UnavailableError] = []
    with ThreadPoolExecutor(2, thread_name_prefix="srm-moves") as pool:
        for future in [pool.submit(read, one) for one in (context.target, context.source)]:
            try:
                found.append(future.result())
            except UnavailableError as error:
                missing.append(error)
    if not found:
        raise missing[0]
    return found


def without_source(context: FlowContext) -> MoveContext:
    """Return the flow and its opposite for an unplanned move, with an abandoned source."""
    return as_move(replace(context, source=away_cluster(context.config.flow.source)))


def as_move(context: FlowContext) -> MoveContext:
    """Return a flow and its opposite for a move along it."""
    opposite = context.opposite or replace(context.config, flow=context.config.flow.reverse)
    back = replace(
        context,
        config=opposite,
        source=context.target,
        target=context.source,
        maps=context.reverse_maps,
        reverse_maps=context.maps,
        switch=None,
        opposite=context.config,
    )
    return MoveContext(context, back)
