"""Both clusters of a move as registers that one step at a time reads, checks and writes.

A step first opens the writer of each cluster. Until it is fenced its reads stay current, so a check
and the write after it are atomic (srm.engine.control.control_records).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import MoveProgress
from srm.domain.moves.records.request import MoveRequest
from srm.domain.moves.routing.routes import Route, merge_tables
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster
from srm.engine.control.control_records import CONTROL_ID, until_not_fenced
from srm.engine.flows.cluster_absence import loudness
from srm.engine.moves.control.move_records import (
    ControlChange,
    ControlTables,
    MoveContext,
    as_move,
    ensure_topics,
    furthest,
    newest_plan,
    read_routes,
)
from srm.engine.ports import FlowContext
from srm.engine.table_ports import ControlWriter
from srm.errors import FencedError, SrmError, UnavailableError

log = logging.getLogger(__name__)

Side = Literal["target", "source"]
SIDES: tuple[Side, ...] = ("target", "source")
_OTHER: Final[Mapping[Side, Side]] = {"target": "source", "source": "target"}
_T = TypeVar("_T")


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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def run(self, what: str, body: Callable[[], _T]) -> _T:
        """Open both clusters and run a body that checks and writes; retry while it is fenced."""

        def attempt() -> _T:
            try:
                self._open()
                return body()
            except UnavailableError as error:
                self._close()
                if self._unsure != 1:
                    raise
                self._unsure += 1  # once: the next open shows whether it was written
                raise FencedError(f"the result of a write is unknown: {error}") from error
            except BaseException:
                self._close()
                raise

        return until_not_fenced(what, attempt)

    def there(self, side: Side) -> bool:
        """Return True if a cluster answered."""
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
        """Routes as clients see them."""
        return merge_tables([table.routes for table in self._tables.values()])

    def progress(self, move_id: str) -> MoveProgress:
        """Return the progress of a move."""
        return furthest(self._tables.values(), move_id)

    def plan(self, move_id: str) -> MovePlan | None:
        """Return the plan of a move, None before there is one."""
        return newest_plan(self._tables.values(), move_id)

    def write(
        self, side: Side, change: ControlChange, before_commit: Callable[[], None] = lambda: None
    ) -> int | None:
        """Write the new part of a change to a cluster, in one transaction; return when.

        The time of the routes by the broker's clock, in epoch milliseconds. None if no routes were
        written, or their topic has no LogAppendTime.
        """
        self.require(side)
        records = self._tables[side].over(change)
        if not any(records.values()):
            return None
        try:
            stamps = self._writers[side].write(records, before_commit)
        except UnavailableError:
            self._unsure += 1
            raise
        self._tables[side] = self._tables[side].after(change)
        return stamps.get(internal_topics.ROUTING)

    def write_if_there(self, side: Side, change: ControlChange) -> None:
        """Write to a cluster; if it is unavailable, the next step that reaches it adds it."""
        try:
            self.write(side, change)
        except UnavailableError as error:
            log.log(
                loudness(error),
                "kept on %s only for now: %s",
                self._clusters[_OTHER[side]].alias,
                error,
            )
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

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        self._tables.clear()
        self._away.clear()


def level(context: MoveContext) -> None:
    """Write to each cluster the routes and moves that it lacks; safe to repeat.

    A cluster that was lost has missed the moves since then. Without them its clients, and the next
    move that reads it alone, follow outdated routes.
    """
    ensure_topics(context)
    with Registers(context) as registers:
        registers.run("the routes of both clusters", lambda: registers.require(*SIDES))


def record(context: MoveContext, change: ControlChange) -> None:
    """Write the same change to both clusters; an unavailable source gets it later."""
    with Registers(context) as registers:
        registers.run("writing the state of a move", lambda: registers.write_both(change))


def try_to_level(context: FlowContext) -> None:
    """Write what a cluster of a flow lacks, opening writers only if needed; log a failure."""
    sides = context.target, context.source
    try:
        target, source = (_routes(cluster) for cluster in sides)
        if target == source:
            return
        tables = [ControlTables.read(cluster) for cluster in sides]
        aliases = frozenset(cluster.alias for cluster in sides)
        if any(one.lacks(other, aliases).routes for one, other in (tables, reversed(tables))):
            level(as_move(context))
    except SrmError as error:
        log.warning("%s: the routes of both clusters: %s", context.config.flow, error)


def _routes(cluster: Cluster) -> dict[str, Route]:
    return read_routes(cluster, cluster.compacted_topic(internal_topics.ROUTING).read_history())
