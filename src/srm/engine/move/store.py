"""State of moves on both clusters, for reading: what survives a crash of whatever runs a move.

What differs between the clusters after a crash or an absence is settled by rank
(srm.domain.move.progress, srm.domain.move.routes). Writing is srm.engine.move.registers.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from srm.domain import internal_topics
from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import MoveProgress, Observation
from srm.domain.move.report import MoveReport
from srm.engine.compacted import compacted_spec
from srm.engine.move.control import ControlTables
from srm.engine.ports import Cluster, FlowContext
from srm.errors import (
    AuthorizationError,
    IntegrityError,
    NotFoundError,
    UnavailableError,
    UsageError,
)

log = logging.getLogger(__name__)

_MOVES: Final = internal_topics.MOVES
# All that clients say, and every look at a move, is stamped by one clock, the broker's.
_STAMPED: Final = {"message.timestamp.type": "LogAppendTime"}
_CONFIGS: Final = {internal_topics.ROUTING: _STAMPED, internal_topics.MOVES: _STAMPED}
_T = TypeVar("_T")


def since_boot() -> float:
    """Return seconds by a clock that is never set, and runs on while the machine is suspended.

    Python's own monotonic clock stands still then, while clients elsewhere count their leases.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True)
class MoveContext:
    """Both flows between the clusters of a move: ``forward`` source to target, and ``reverse``.

    ``monotonic`` are seconds by a clock that is never set: leases are counted by it. ``host``
    is the machine whose clocks these are.
    """

    forward: FlowContext
    reverse: FlowContext
    monotonic: Callable[[], float] = since_boot
    host: str = field(default_factory=socket.gethostname)

    def __post_init__(self) -> None:
        if self.forward.config.flow.reversed != self.reverse.config.flow:
            raise UsageError(
                f"a move needs a flow and its opposite, not {self.forward.config.flow} and "
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


def ensure_topics(context: MoveContext) -> None:
    """Create the topics that a move writes on both clusters, where they are missing.

    Before anything is read: a client that has looked for a topic in vain may not see it for a
    while after it was created.
    """
    for cluster, config in (
        (context.target, context.forward.config),
        (context.source, context.reverse.config),
    ):
        existing = cluster.topics()
        specs = [
            replace(spec, configs={**spec.configs, **_CONFIGS.get(spec.name, {})})
            for spec in (
                compacted_spec(name, config.internal_replication_factor)
                for name in (internal_topics.MOVES, internal_topics.ROUTING, internal_topics.LEDGER)
            )
            if spec.name not in existing
        ]
        if specs:
            cluster.create_topics(specs)
        _repair_configs(cluster)


def _repair_configs(cluster: Cluster) -> None:
    """Give topics of an earlier version what they were not created with."""
    found = cluster.topic_configs(list(_CONFIGS))
    changes = {
        topic: {key: value for key, value in configs.items() if found[topic].get(key) != value}
        for topic, configs in _CONFIGS.items()
        if topic in found
    }
    for topic, some in changes.items():
        if some:
            try:
                cluster.alter_topic_configs({topic: dict(some)})
            except AuthorizationError as error:
                log.warning("topic %s keeps its settings: %s", topic, error)


@dataclass(frozen=True, slots=True)
class Remembered:
    """An observation, when it was written by the target's clock, and how far that is ahead.

    ``ahead_ms`` is the target's clock minus the source's: what the source has stamped is compared
    with what the target has by it.
    """

    observation: Observation
    stamp_ms: int = 0
    ahead_ms: int = 0


class MoveStore:
    """Plans, progress and reports of moves, by move id; each call reads both clusters."""

    def __init__(self, context: MoveContext) -> None:
        self._context = context

    def load(self, move_id: str) -> tuple[MovePlan, MoveProgress]:
        """Return the plan of a move and how far it is.

        Raises:
            NotFoundError: no cluster has a move of that id.
        """
        tables = self._tables()
        plan = newest_plan(tables, move_id)
        if plan is None:
            raise NotFoundError(
                f"move {move_id!r} is not known on {self._context.target.alias} or "
                f"{self._context.source.alias}: see 'srm failover status', or plan it"
            )
        return plan, furthest(tables, move_id)

    def plan(self, move_id: str) -> MovePlan:
        """Return a plan.

        Raises:
            NotFoundError: no cluster has a move of that id.
        """
        return self.load(move_id)[0]

    def find_plan(self, move_id: str) -> MovePlan | None:
        """Return a plan, None where there is none of that id."""
        return newest_plan(self._tables(), move_id)

    def progress(self, move_id: str) -> MoveProgress:
        """Return how far a move is; one that was only planned is at its first step."""
        return furthest(self._tables(), move_id)

    def observation(self, move_id: str) -> Remembered:
        """Return what the latest look remembered; an empty observation before the first one.

        The target is written first, so its record is the newest.
        """
        key = f"look:{move_id}".encode()
        found = read_both(self._context, lambda c: (c, c.compacted(_MOVES).read_stamped().get(key)))
        stamped = [(cluster, row) for cluster, row in found if row is not None]
        if not stamped:
            return Remembered(Observation(move_id, 0))
        newest = stamped[0][1]
        ahead = 0
        if len(stamped) == len(found) > 1 and newest.value == stamped[1][1].value:
            # Written to both within a moment.
            ahead = newest.timestamp_ms - stamped[1][1].timestamp_ms
        return Remembered(Observation.decode(newest.value), newest.timestamp_ms, ahead)

    def report(self, move_id: str) -> MoveReport | None:
        """Return the stored report of a move, None before there is one."""
        value = self._document(f"report:{move_id}")
        return None if value is None else MoveReport.decode(value)

    def move_ids(self) -> tuple[str, ...]:
        """Return the ids of all known moves, oldest plan first."""
        plans: dict[str, MovePlan] = {}
        for table in self._tables():
            for key, value in table.documents.items():
                if not key.startswith("plan:"):
                    continue
                try:
                    plan = MovePlan.decode(value)
                except IntegrityError as error:
                    log.error("%s is passed over: %s", key, error)  # noqa: TRY400 -- one line
                else:
                    plans[plan.move_id] = plan
        return tuple(sorted(plans, key=lambda move_id: (plans[move_id].created_ms, move_id)))

    def save_observation(self, observation: Observation) -> Observation:
        """Write what a look remembers; without a fence, since losing it only delays."""
        record = {f"look:{observation.move_id}".encode(): observation.value()}
        self._context.target.compacted(_MOVES).write(record)
        self._context.source.compacted(_MOVES).write(record)
        return observation

    def _document(self, key: str) -> bytes | None:
        found = [t.documents[key] for t in self._tables() if key in t.documents]
        return found[0] if found else None

    def _tables(self) -> list[ControlTables]:
        return read_both(self._context, ControlTables.read_moves)


def furthest(tables: Iterable[ControlTables], move_id: str) -> MoveProgress:
    """Return the progress of the highest rank that any of the tables has."""
    known = [table.progress[move_id] for table in tables if move_id in table.progress]
    return max(known, key=lambda one: one.rank, default=MoveProgress(move_id))


def newest_plan(tables: Iterable[ControlTables], move_id: str) -> MovePlan | None:
    """Return the plan of a move that was made last, None where no table has one."""
    key = f"plan:{move_id}"
    plans = [MovePlan.decode(table.documents[key]) for table in tables if key in table.documents]
    return max(plans, key=lambda plan: plan.created_ms, default=None)


def read_both(context: MoveContext, read: Callable[[Cluster], _T]) -> list[_T]:
    """Read target and source; one of them may be away.

    Raises:
        UnavailableError: neither cluster answers.
    """
    found: list[_T] = []
    missing: list[UnavailableError] = []
    for cluster in (context.target, context.source):
        try:
            found.append(read(cluster))
        except UnavailableError as error:
            missing.append(error)
    if not found:
        raise missing[0]
    return found
