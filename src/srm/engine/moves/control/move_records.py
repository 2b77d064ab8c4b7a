"""State of moves on both clusters, read-only; it survives a crash of the process that runs a move.

Differences between the clusters, after a crash or while one was unavailable, are resolved by rank
(srm.domain.moves.records.progress, srm.domain.moves.routing.routes).
srm.engine.moves.control.registers writes the state.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from srm.clock import now_s
from srm.domain.moves.records.plan import MovePlan, fingerprint
from srm.domain.moves.records.progress import WAIT_PREFIX, MoveProgress, Observation, WaitNote
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster
from srm.engine.control.control_topics import create_control_topics, repair_control_topics
from srm.engine.flows.cluster_absence import away_cluster
from srm.engine.moves.control.control import ControlTables, decode_or_none
from srm.engine.moves.control.report_signing import Notary
from srm.engine.ports import FlowContext
from srm.errors import (
    IntegrityError,
    NotFoundError,
    UnavailableError,
    UsageError,
)

log = logging.getLogger(__name__)

_MOVES: Final = internal_topics.MOVES
_T = TypeVar("_T")


@dataclass(frozen=True)
class MoveContext:
    """Both flows between the clusters of a move: ``forward`` source to target, and ``reverse``.

    ``monotonic``: seconds of a monotonic clock, which leases are counted by; ``pause`` sleeps.
    ``host``: this machine.
    ``condemned``: source of an unplanned move for best-effort calls; its ``source`` never answers.
    ``notary``: signs the reports.
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
    sides = (
        (context.target, context.forward.config),
        (context.source, context.reverse.config),
    )
    for cluster, config in sides[:1] if unplanned else sides:
        create_control_topics(cluster, config.internal_replication_factor)
        repair_control_topics(cluster)


class MoveStore:
    """Plans and progress of moves, by move id; each call reads both clusters."""

    def __init__(self, context: MoveContext) -> None:
        self._context = context

    def load(self, move_id: str) -> tuple[MovePlan, MoveProgress]:
        """Return the plan and the progress of a move."""
        tables = self._tables()
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
        return newest_plan(self._tables(), move_id)

    def progress(self, move_id: str) -> MoveProgress:
        """Return the progress of a move; one that was only planned is at its first step."""
        return furthest(self._tables(), move_id)

    def note(self, move_id: str) -> WaitNote | None:
        """Return the note of a waiting process on the target, None without one."""
        rows = self._context.target.compacted_topic(_MOVES).read()
        return decode_or_none(rows.get(f"{WAIT_PREFIX}{move_id}".encode()), WaitNote.decode)

    def moves(self) -> tuple[tuple[MovePlan, MoveProgress], ...]:
        """Return all known moves with their progress, the oldest plan first; reads once."""
        tables = self._tables()
        plans: dict[str, MovePlan] = {}
        for table in tables:
            for key, value in table.documents.items():
                if not key.startswith("plan:"):
                    continue
                try:
                    plan = MovePlan.decode(value)
                except IntegrityError as error:
                    log.error("%s is skipped: %s", key, error)  # noqa: TRY400 -- one line
                else:
                    known = plans.setdefault(plan.move_id, plan)
                    if plan.created_ms > known.created_ms:
                        plans[plan.move_id] = plan
        in_order = sorted(plans.values(), key=lambda plan: (plan.created_ms, plan.move_id))
        return tuple((plan, furthest(tables, plan.move_id)) for plan in in_order)

    def save_note(self, note: WaitNote) -> None:
        """Write a note on the target; not fenced, since losing it only delays."""
        key = f"{WAIT_PREFIX}{note.move_id}".encode()
        self._context.target.compacted_topic(_MOVES).write({key: note.value()})

    def _tables(self) -> list[ControlTables]:
        return read_both(self._context, ControlTables.read_moves)


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
