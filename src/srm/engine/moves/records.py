"""State of moves on both clusters, and the registers in which a step reads, checks and writes it.

It survives a crash of the process that runs a move. Differences between the clusters, after a crash
or while one was unavailable, are resolved by rank (srm.domain.moves.progress,
srm.domain.moves.routing). A step first opens the writer of each cluster. Until it is fenced its
reads stay current, so a check and the write after it are atomic
(srm.engine.control.control_topics).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, Literal, Self, TypeVar

from srm.clock import now_s
from srm.domain.flow_state.replication_records import Pause
from srm.domain.moves.disaster import OUTCOME_PREFIX, Outcome
from srm.domain.moves.gate import Presence
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import (
    WAIT_PREFIX,
    Carrier,
    MoveProgress,
    Observation,
    WaitNote,
    run_again,
)
from srm.domain.moves.report import Approval, approval_key, decode_approvals, join_approvals
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.revisions import KeptReport, SigningKey, newest, report_key
from srm.domain.moves.routing import (
    CLOCK_KEY,
    LEASE_MS,
    Ack,
    CallStep,
    Route,
    RouteState,
    StampedAck,
    cluster_of,
    decode_ack,
    decode_route,
    home_subject,
    is_ack,
    is_subject,
    merge_tables,
)
from srm.domain.names import internal_topics
from srm.domain.text.documents import decode_or_none, join, split
from srm.engine.cluster_ports import (
    Cluster,
    ControlWriter,
    Stamped,
    away_cluster,
    loudness,
    tolerate,
)
from srm.engine.control.control_topics import (
    CONTROL_ID,
    create_control_topics,
    repair_control_topics,
    until_not_fenced,
)
from srm.engine.ports import FlowContext
from srm.errors import (
    AuthorizationError,
    FencedError,
    NotFoundError,
    SrmError,
    UnavailableError,
    UsageError,
)

log = logging.getLogger(__name__)

Side = Literal["target", "source"]
SIDES: tuple[Side, ...] = ("target", "source")
_OTHER: Final[Mapping[Side, Side]] = {"target": "source", "source": "target"}
_PROGRESS = b"progress:"
_KEPT = (b"plan:", b"report:", b"approval:", b"outcome:")
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

    ``documents``: plans, approvals, outcomes and reports by key.
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


def _outranks(new: _Ranked, known: _Ranked | None) -> bool:
    return known is None or new.rank > known.rank


def _is_newer(key: str, value: bytes, known: bytes | None) -> bool:
    """Return True if a document is missing on the cluster, or is a later revision of a report."""
    if known is None or not key.startswith(report_key("")):
        return known is None
    kept, other = (decode_or_none(each, KeptReport.decode) for each in (known, value))
    return kept is None or newest((kept, other or kept)) is not kept


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


@dataclass
class BrokersClock:
    """The clock that stamps what clients announce on a cluster, in epoch ms; hosts may be wrong.

    The first call writes a record to the first of the clusters that answers. From then on the
    monotonic clock carries the time on. Without a stamp it is the host's, ``host_ms``.
    """

    clusters: Sequence[Cluster]
    host_ms: Callable[[], int]
    monotonic: Callable[[], float]
    _zero_ms: float | None = None

    def __call__(self) -> int:
        if self._zero_ms is None:
            self._zero_ms = self._read() - self.monotonic() * 1000
        return round(self._zero_ms + self.monotonic() * 1000)

    def _read(self) -> int:
        for cluster in self.clusters:
            try:
                stamp = cluster.compacted_topic(internal_topics.ROUTING).write({CLOCK_KEY: b"{}"})
            except SrmError as error:
                may_look = isinstance(error, AuthorizationError)  # all that some operators may
                level = logging.DEBUG if may_look else loudness(error)
                log.log(level, "the clock of cluster %s is not known: %s", cluster.alias, error)
                continue
            if stamp is not None:
                return stamp
        return self.host_ms()


@dataclass(frozen=True)
class MoveContext:
    """Both flows between the clusters of a move: ``forward`` source to target, and ``reverse``.

    ``condemned``: source of an unplanned move for best-effort calls; its ``source`` never answers.
    ``observations``: observations of the source by this process, by move.
    ``only_look``: nothing may be written, so the clock is the host's; else it is a broker's.
    """

    forward: FlowContext
    reverse: FlowContext
    monotonic: Callable[[], float] = now_s
    host: str = field(default_factory=socket.gethostname)
    condemned: Cluster | None = None
    notary: Notary = field(default_factory=Notary)
    pause: Callable[[float], None] = time.sleep
    observations: dict[str, Observation] = field(default_factory=dict)
    only_look: bool = False

    def __post_init__(self) -> None:
        known = self.forward.now_ms
        clock: Callable[[], int] = known
        if self.only_look:
            clock = known.host_ms if isinstance(known, BrokersClock) else known
        elif not isinstance(known, BrokersClock):
            clock = BrokersClock((self.target, self.source), known, self.monotonic)
        for name in ("forward", "reverse"):
            object.__setattr__(self, name, replace(getattr(self, name), now_ms=clock))

    def command(self, words: str) -> str:
        """Return a command about a move between the two clusters."""
        return f"srm failover {words} {self.forward.config.flow.options}"

    def hold_again(self, move_id: str) -> str:
        """Return how an operator holds a move again."""
        return f"hold it again ('{run_again(self.forward.config.flow, move_id)}')"

    @property
    def process(self) -> str:
        return f"process {os.getpid()} on {self.host}"

    @property
    def now_ms(self) -> Callable[[], int]:
        """The one clock of all that is done with this context, epoch ms."""
        return self.forward.now_ms

    @property
    def source(self) -> Cluster:
        return self.forward.source

    @property
    def target(self) -> Cluster:
        return self.forward.target


def write_note(context: MoveContext, note: WaitNote) -> None:
    """Write the note of a waiting process; not fenced, as its loss only delays."""
    context.target.compacted_topic(internal_topics.MOVES).write({note.key(): note.value()})


def ensure_topics(context: MoveContext, *, unplanned: bool = False) -> None:
    """Create the missing control topics on both clusters; on the target only if ``unplanned``.

    Call it before any read: a client that looked up a missing topic may not see it for a while.
    """
    sides = ((context.target, context.forward.config), (context.source, context.reverse.config))
    for cluster, config in sides[:1] if unplanned else sides:
        create_control_topics(cluster, config.internal_replication_factor)
        repair_control_topics(cluster)


@dataclass(frozen=True)
class MoveStore:
    """Records of moves by move id: of those of both clusters the furthest, or newest, counts."""

    tables: Sequence[ControlTables]
    where: str = ""
    missing: Sequence[UnavailableError] = ()
    status: str = "srm failover status"

    @classmethod
    def read(cls, context: MoveContext) -> Self:
        """Read both clusters; one of them may be unavailable."""
        where = f"{context.target.alias} or {context.source.alias}"
        found, missing = read_both(context, ControlTables.read_moves)
        known = missing if context.condemned is None else ()
        return cls(found, where, known, context.command("status"))

    def load(self, move_id: str) -> tuple[MovePlan, MoveProgress]:
        if (plan := self.plan(move_id)) is None:
            what = f"move {move_id!r} is not known on {self.where}"
            for error in self.missing:
                raise UnavailableError(f"{what}: {error.what}", error.action)
            raise NotFoundError(what, f"see '{self.status}', or plan it")
        return plan, self.progress(move_id)

    def plan(self, move_id: str) -> MovePlan | None:
        plans = map(MovePlan.decode, self._documents(f"plan:{move_id}"))
        return max(plans, key=lambda plan: plan.created_ms, default=None)

    def progress(self, move_id: str) -> MoveProgress:
        """Return the progress of a move; one that was only planned is at its first step."""
        known = [table.progress[move_id] for table in self.tables if move_id in table.progress]
        return max(known, key=lambda one: one.rank, default=MoveProgress(move_id))

    def carrier(self, move_id: str, now_ms: int) -> Carrier | None:
        """Return the process that carries a move; None if its notes are not known now."""
        notes = [table.notes[move_id] for table in self.tables if move_id in table.notes]
        last = max(notes, key=lambda note: note.time_ms, default=None)
        is_known = last is not None or not self.missing
        return self.progress(move_id).last_carrier(last, now_ms) if is_known else None

    def moves(self) -> tuple[tuple[MovePlan, MoveProgress], ...]:
        """Return all known moves with their progress, the oldest plan first."""
        plans: dict[str, MovePlan] = {}
        for plan in (plan for table in self.tables for plan in table.plans()):
            known = plans.get(plan.move_id, plan)
            plans[plan.move_id] = max(known, plan, key=lambda one: one.created_ms)
        in_order = sorted(plans.values(), key=lambda plan: (plan.created_ms, plan.move_id))
        return tuple((plan, self.progress(plan.move_id)) for plan in in_order)

    def report(self, move_id: str) -> KeptReport | None:
        values = self._documents(report_key(move_id))
        found = (decode_or_none(value, KeptReport.decode) for value in values)
        return newest(kept for kept in found if kept is not None)

    def outcome(self, move_id: str) -> Outcome | None:
        values = self._documents(f"{OUTCOME_PREFIX}{move_id}")
        found = [decode_or_none(value, Outcome.decode) for value in values]
        return max(filter(None, found), key=lambda outcome: outcome.time_ms, default=None)

    def approvals(self, move_id: str) -> tuple[Approval, ...]:
        """Return the approvals of a move, the oldest first; damaged ones are logged."""
        values = self._documents(approval_key(move_id))
        return join_approvals(*(decode_or_none(one, decode_approvals) or () for one in values))

    def _documents(self, key: str) -> list[bytes]:
        return [table.documents[key] for table in self.tables if key in table.documents]


def read_both(
    context: MoveContext, read: Callable[[Cluster], _T]
) -> tuple[list[_T], list[UnavailableError]]:
    """Read target and source concurrently; one of them may be unavailable, as the error says."""
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
    return found, missing


def without_source(context: FlowContext) -> MoveContext:
    """Return the flow and its opposite for an unplanned move, with an abandoned source."""
    return as_move(replace(context, source=away_cluster(context.config.flow.source)))


def undecided_moves(context: FlowContext, pause: Pause) -> Iterator[MoveProgress]:
    """Yield the known moves of a pause that the flow's target has not decided."""
    store = MoveStore.read(without_source(context))
    known = (store.progress(move_id) for move_id in pause.moves if store.plan(move_id))
    return (progress for progress in known if not progress.is_decided)


def abandoned_ms(context: FlowContext, pause: Pause) -> dict[str, int]:
    """Return when the moves of a pause abandoned each topic: those that joined it came later."""
    store = MoveStore.read(without_source(context))
    plans = [plan for move_id in reversed(pause.moves) if (plan := store.plan(move_id))]
    return {
        topic: store.progress(plan.move_id).times_ms.get("holding", pause.time_ms)
        for plan in plans
        for topic in plan.topics
    }


def as_move(context: FlowContext) -> MoveContext:
    opposite = context.opposite or replace(context.config, flow=context.config.flow.reverse)
    back = replace(context.backwards, config=opposite, switch=None, opposite=context.config)
    return MoveContext(context, back, only_look=True)


def sides_of(request: MoveRequest) -> tuple[Side, ...]:
    """Return the clusters that a move writes, in order; an abandoned source is not written."""
    return SIDES[:1] if request.is_unplanned else SIDES


class Registers:
    """The control records of both clusters, opened by one step.

    When both are opened, records of any move that a cluster missed while unavailable are added.
    """

    def __init__(self, context: MoveContext) -> None:
        self._clusters: dict[Side, Cluster] = {"target": context.target, "source": context.source}
        self._aliases = frozenset(cluster.alias for cluster in self._clusters.values())
        self._writers: dict[Side, ControlWriter] = {}
        self._tables: dict[Side, ControlTables] = {}
        self._away: dict[Side, UnavailableError] = {}
        self._unsure = 0

    def run(self, what: str, body: Callable[[], _T]) -> _T:
        """Open both clusters and run a body that checks and writes; retry while it is fenced."""

        def attempt() -> _T:
            try:
                self._open()
                return body()
            except UnavailableError as error:
                self.close()
                if self._unsure != 1:
                    raise
                self._unsure += 1  # once: the next open shows whether it was written
                raise FencedError(f"the result of a write is unknown: {error}") from error
            except BaseException:
                self.close()
                raise

        return until_not_fenced(what, attempt)

    def there(self, side: Side) -> bool:
        return side not in self._away

    def require(self, *sides: Side) -> None:
        """Raise the UnavailableError of the first of these clusters that is unavailable."""
        for side in sides:
            if side in self._away:
                raise self._away[side]

    def tables(self, side: Side) -> ControlTables:
        """Return the tables of a cluster; empty if it is unavailable."""
        return self._tables.get(side, ControlTables())

    @property
    def routes(self) -> dict[str, Route]:
        return merge_tables([table.routes for table in self._tables.values()])

    @property
    def store(self) -> MoveStore:
        return MoveStore([*self._tables.values()])

    def write(
        self, side: Side, change: ControlChange, before_commit: Callable[[], None] = lambda: None
    ) -> int | None:
        """Write the new part of a change to a cluster, in one transaction; return when.

        That is the broker's time of the routes, epoch milliseconds; None without routes or a stamp.
        """
        self.require(side)
        new = self._tables[side].new_part(change)
        records = new.records()
        if not any(records.values()):
            return None
        try:
            stamps = self._writers[side].write(records, before_commit)
        except UnavailableError:
            self._unsure += 1
            raise
        known = self._tables[side]
        self._tables[side] = replace(
            known,
            routes={**known.routes, **new.routes},
            progress={**known.progress, **{one.move_id: one for one in new.progress}},
            documents={**known.documents, **new.documents},
        )
        return stamps.get(internal_topics.ROUTING)

    def write_if_there(self, side: Side, change: ControlChange) -> None:
        """Write to a cluster; if it is unavailable, the next step that reaches it adds it."""
        try:
            self.write(side, change)
        except UnavailableError as error:
            other = self._clusters[_OTHER[side]].alias
            log.log(loudness(error), "kept on %s only for now: %s", other, error)
            self._away[side] = error

    def write_both(self, change: ControlChange) -> None:
        """Write the same change to both clusters, the target first; the source may get it later."""
        self.write("target", change)
        self.write_if_there("source", change)

    def _open(self) -> None:
        missing = [side for side in SIDES if side not in self._writers and self.there(side)]
        if missing:
            with ThreadPoolExecutor(len(missing)) as pool:
                for future in [pool.submit(self._open_one, side) for side in missing]:
                    future.result()
        if not self._writers:
            raise self._away["target"]
        if len(self._writers) == len(SIDES) and missing:
            self._level()

    def _open_one(self, side: Side) -> None:
        cluster = self._clusters[side]
        try:
            writer = cluster.control_writer(CONTROL_ID)
            self._tables[side] = ControlTables.read(cluster)
            self._writers[side] = writer
        except UnavailableError as error:
            self._away[side] = error

    def _level(self) -> None:
        """Write to each cluster what it lacks; decisions to the target first."""
        for side in SIDES:
            other = self.tables(_OTHER[side])
            lacking = self._tables[side].lacks(other, self._aliases)
            if lacking != ControlChange():
                log.info("adding records that %s missed", self._clusters[side].alias)
                self.write_if_there(side, lacking)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        self._tables.clear()
        self._away.clear()


def transact(context: MoveContext, what: str, body: Callable[[Registers], _T]) -> _T:
    with closing(Registers(context)) as registers:
        return registers.run(what, lambda: body(registers))


def level(context: MoveContext) -> None:
    """Write to each cluster the routes and moves that it lacks; safe to repeat.

    Without them clients of a cluster that was lost, and the next move, follow outdated routes.
    """
    ensure_topics(context)
    transact(context, "the routes of both clusters", lambda registers: registers.require(*SIDES))


def record(context: MoveContext, change: ControlChange) -> None:
    """Write the same change to both clusters; an unavailable source gets it later."""
    transact(context, "writing the state of a move", lambda one: one.write_both(change))


def level_if_needed(context: FlowContext) -> None:
    """Write what a cluster of a flow lacks, opening writers only if needed."""
    sides = context.target, context.source
    rows = [one.compacted_topic(internal_topics.ROUTING).read().items() for one in sides]
    if not any(is_subject(key) for key, _ in rows[0] ^ rows[1]):
        return
    aliases = frozenset(cluster.alias for cluster in sides)

    def differ(read: Callable[[Cluster], ControlTables]) -> bool:
        one, other = map(read, sides)
        return bool(one.lacks(other, aliases).routes or other.lacks(one, aliases).routes)

    if differ(ControlTables.read_last) and differ(ControlTables.read):
        level(as_move(context))


@dataclass(frozen=True)
class RoutingTables:
    """The routing topics of the target and of the source (None: unavailable).

    Each is stamped by its cluster's broker; the target stamps those of an unavailable source.
    """

    target: RoutingHistory
    source: RoutingHistory | None = None

    @classmethod
    def read(cls, context: MoveContext) -> RoutingTables:
        """Read both clusters; an unavailable source is skipped, which is logged."""
        target, source = RoutingHistory.read(context.target), context.source
        trouble = f"routes of {source.alias} cannot be read"
        return cls(target, tolerate(lambda: RoutingHistory.read(source), trouble))

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

    def cluster_of(self, subject: str, of: str) -> str:
        return cluster_of(self.merge, subject, of)


@dataclass(frozen=True, slots=True)
class InForce:
    """Instructions in force, None before a hold; ``later``: the move that some subjects follow.

    ``away``: those of them that it has not led back to the source of this move, or not yet.
    ``returned``: those that have been on the source since, which one that leads to the target left.
    """

    attempt: int
    step: CallStep | None
    later: Mapping[str, str]
    away: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()

    @property
    def moves(self) -> tuple[str, ...]:
        return tuple(sorted({*self.later.values()}))

    def leads(self, subject: str) -> bool:
        """Return True if this move still holds the clients of a subject or has redirected them."""
        return self.step in {"hold", "go"} and subject not in self.later

    @classmethod
    def read(cls, context: MoveContext, plan: MovePlan) -> Self:
        """Read the current state; one cluster is enough."""
        progress = MoveStore.read(context).progress(plan.move_id)
        routes = merge_tables([one.routes for one in read_both(context, RoutingHistory.read)[0]])
        return cls.of(plan, progress, routes)

    @classmethod
    def of(cls, plan: MovePlan, progress: MoveProgress, routes: Mapping[str, Route]) -> Self:
        """Return the state; a later move that was released has led its clients nowhere."""
        source, target = plan.request.source, plan.request.target
        later = {
            subject: route
            for subject in plan.subjects
            if (route := routes.get(subject)) is not None
            and plan.move_id not in {one.move_id for one in route.each}
            and route.generation >= progress.attempt
            and (route.phase, route.cluster) != (1, target)  # released
        }
        moves = {subject: route.move_id for subject, route in later.items()}
        away = frozenset(one for one, route in later.items() if route.cluster != source)
        led = {one for one in away if (later[one].phase, later[one].cluster) == (2, target)}
        returned = led | (later.keys() - away)
        return cls(progress.attempt, progress.order_in_force, moves, away, frozenset(returned))


def bring_about(context: MoveContext, plan: MovePlan, make: Callable[[InForce], None]) -> InForce:
    """Call ``make``, which acts outside the control records, until its input is still in force.

    No broker fences such an effect: a process that was stopped right before it may cause it after
    any number of later moves. So ``make`` is called again with the state read after it, and acts on
    that state regardless of earlier calls. Returns the final state.
    """
    now = InForce.read(context, plan)
    while True:
        make(now)
        if (after := InForce.read(context, plan)) == now:
            return now
        now = after


def between_same(context: MoveContext, plan: MovePlan) -> MoveContext | None:
    """Return the context for another move's plan, None if it is not between these two clusters."""
    both = (context, replace(context, forward=context.reverse, reverse=context.forward))
    return next((one for one in both if one.forward.config.flow == plan.request.flow), None)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt of a move's progress, and the routes that its steps write."""

    plan: MovePlan
    progress: MoveProgress

    def hold(self, beat: int, now_ms: int) -> dict[str, Route]:
        return self._routes("source", "hold", now_ms, lease_ms=LEASE_MS, beat=beat)

    def release(self, now_ms: int) -> dict[str, Route]:
        return self._routes("source", "go", now_ms)

    def go(self, now_ms: int) -> dict[str, Route]:
        left = self.plan.request.source
        return self._routes("target", "go", now_ms, decided=True, left=left)

    def is_held_by(self, route: Route | None) -> bool:
        ours = (self.progress.attempt, self.plan.move_id)
        return route is not None and (route.state, route.attempt) == ("hold", ours)

    def _routes(self, side: Side, state: RouteState, now_ms: int, **given: Any) -> dict[str, Route]:
        cluster, move_id = getattr(self.plan.request, side), self.plan.move_id
        route = Route(self.progress.attempt, cluster, state, move_id, now_ms, **given)
        led = self.progress.homes
        shared = {homes: replace(route, homes=homes) for homes in {*led.values()}}
        routes = {subject: shared[homes] for subject, homes in led.items()}
        for home in self.plan.homes if route.decided else ():
            left = home if home == route.left else ""  # others have come by a route of their own
            routes[home_subject(home)] = replace(route, homes=(home,), left=left)
        return routes


def homes_on_source(
    plan: MovePlan, routes: Mapping[str, Route], acks: Iterable[Ack]
) -> dict[str, tuple[str, ...]]:
    """Return the homes of the clients on the source, by subject: itself, and of those led there.

    The route that led them names them. Where a lost source has kept it, they report to the target.
    """
    request = plan.request
    found = {subject: {request.source} for subject in plan.subjects}
    for ack in acks:
        if ack.cluster == request.source and ack.home and ack.subject in found:
            found[ack.subject].add(ack.home)
    for subject, homes in found.items():
        led = routes[subject].about(request.source) if subject in routes else None
        if led is not None and led.cluster == request.source:
            there = routes[subject].homes_on(request.source)
            found[subject] = homes - {request.source} | {*there} if there else set()
        elif led is not None and request.reroute:
            found[subject] = homes | {*led.homes} if led.homes else set()
    return {subject: tuple(sorted(homes)) for subject, homes in found.items()}


def homes_to_move(request: MoveRequest, routes: Mapping[str, Route]) -> tuple[str, ...]:
    """Return the clusters whose unnamed clients a move of everything sends to its target.

    An unplanned move redirects all clients of the lost source. A planned one only brings back those
    whose home is its target: no gate has checked topics and groups of others.
    """
    prefix, ends = home_subject(""), {request.source, request.target}
    there = {
        subject.removeprefix(prefix)
        for subject, route in routes.items()
        if subject.startswith(prefix) and route.cluster == request.source
    }
    return tuple(sorted(there | ends if request.is_unplanned else there & {request.target}))
