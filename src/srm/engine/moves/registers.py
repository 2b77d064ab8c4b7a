"""Registers in which a step of a move reads, checks and writes the control records.

The records survive a crash of the process that runs a move. Differences between the clusters, after
a crash or while one was unavailable, are resolved by rank (srm.domain.moves.progress,
srm.domain.moves.routing). The first step of a process opens the writer of each cluster. What it
reads after that is current until it is fenced, so a check and the write after it are atomic
(srm.engine.control.control_topics).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Final, TypeVar

from srm.domain.moves.line import MoveLine
from srm.domain.moves.routing import Route, is_subject, merge_tables
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster, CompactedTopic, ControlWriter, loudness
from srm.engine.control.control_topics import STEP_S, until_not_fenced
from srm.engine.moves.context import SIDES, MoveContext, Side, as_move, ensure_topics
from srm.engine.moves.losses import lost_routes, misses_routes
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import ControlChange, ControlTables, MoveRecords
from srm.engine.ports import FlowContext
from srm.errors import FencedError, UnavailableError

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_OTHER: Final[Mapping[Side, Side]] = {"target": "source", "source": "target"}


class Registers:
    """The control records of both clusters, as one step reads and writes them.

    When both are read, records of any move that a cluster missed while unavailable are added.
    """

    def __init__(self, context: MoveContext) -> None:
        self._clusters: dict[Side, Cluster] = {"target": context.target, "source": context.source}
        self._aliases = frozenset(cluster.alias for cluster in self._clusters.values())
        self._writers: dict[Side, ControlWriter] = {}
        self._tables: dict[Side, ControlTables] = {}
        self._away: dict[Side, UnavailableError] = {}
        self._unsure = 0
        self._now_ms = context.now_ms
        self._shared = context.writers

    def run(self, what: str, body: Callable[[], _T], limit_s: float = STEP_S) -> _T:
        """Open and read both clusters, and run a body that checks and writes; retry while fenced.

        A writer that the process has open already is used again. BusyError: other processes were
        first for ``limit_s`` seconds.
        """

        def attempt() -> _T:
            with self._shared.lock:
                try:
                    self._open()
                    return body()
                except UnavailableError as error:
                    self._drop()
                    if self._unsure != 1:
                        raise
                    self._unsure += 1  # once: the next open shows whether it was written
                    raise FencedError(f"the result of a write is unknown: {error}") from error
                except BaseException:
                    self._drop()
                    raise

        return until_not_fenced(what, attempt, limit_s, self._queue)

    def _queue(self) -> CompactedTopic:
        """Return the topic of the queue, the same for all moves between two clusters."""
        there = [self._clusters[side] for side in SIDES if self.there(side)]
        first = min(there or [self._clusters["target"]], key=lambda cluster: cluster.alias)
        return first.compacted_topic(internal_topics.MOVES)

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
        return MoveStore([self._tables[side].moves for side in SIDES if side in self._tables])

    def write(
        self, side: Side, change: ControlChange, before_commit: Callable[[], None] = lambda: None
    ) -> int | None:
        """Write the new part of a change to a cluster, in one transaction; return when.

        That is the broker's time of the routes, epoch milliseconds; None without routes or a stamp.
        """
        self.require(side)
        new = self._tables[side].new_part(change)
        known = self._tables[side]
        records = new.records(known.moves)
        if not any(records.values()):
            return None
        try:
            stamps = self._writers[side].write(records, before_commit)
        except UnavailableError:
            self._unsure += 1
            raise
        self._tables[side] = replace(
            known,
            routes={**known.routes, **new.routes},
            moves=known.moves.after(records[internal_topics.MOVES]),
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
        if not self._writers:  # not before: the queue is on a cluster that was there
            self._away.clear()
        there = [side for side in SIDES if self.there(side)]
        with ThreadPoolExecutor(len(SIDES)) as pool:
            for future in [pool.submit(self._open_one, side) for side in there]:
                future.result()
        if not self._writers:
            raise self._away["target"]
        if len(self._writers) == len(SIDES):
            self._level()

    def _open_one(self, side: Side) -> None:
        cluster = self._clusters[side]
        try:
            writer = self._shared.of(cluster)
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
        over = [line.end() for line in self.store.lines() if self._is_over(line)]
        for side in SIDES if over else ():
            self.write_if_there(side, ControlChange(lines=over))

    def restore(self) -> None:
        """Write the routes of decided moves that a cluster has lost, as with its topic."""
        for side, tables in [*self._tables.items()]:
            if lost := lost_routes(tables):
                log.warning("writing routes that %s lost again", self._clusters[side].alias)
                self.write_if_there(side, ControlChange(lost))

    def _is_over(self, line: MoveLine) -> bool:
        return line.ends == self._aliases and line.is_over(self._now_ms())

    def _drop(self) -> None:
        """Close what is open: the next attempt opens and reads again."""
        self._shared.close()
        self._writers.clear()
        self._tables.clear()


def transact(
    context: MoveContext, what: str, body: Callable[[Registers], _T], limit_s: float = STEP_S
) -> _T:
    registers = Registers(context)
    return registers.run(what, lambda: body(registers), limit_s)


def level(context: MoveContext) -> None:
    """Write to each cluster the routes and moves that it lacks; safe to repeat.

    Without them clients of a cluster that was lost, and the next move, follow outdated routes.
    """
    context = replace(context, only_look=False)  # moves end by a broker's clock
    ensure_topics(context)

    def body(registers: Registers) -> None:
        registers.require(*SIDES)
        registers.restore()

    with closing(context.writers):
        transact(context, "the routes of both clusters", body)


def record(context: MoveContext, change: ControlChange) -> None:
    """Write the same change to both clusters; an unavailable source gets it later."""
    transact(context, "writing the state of a move", lambda one: one.write_both(change))


def level_if_needed(context: FlowContext) -> None:
    """Write what a cluster of a flow lacks, opening writers only if needed."""
    sides = context.target, context.source
    rows = [one.compacted_topic(internal_topics.ROUTING).read() for one in sides]
    if misses_routes(MoveRecords.read(context.target), rows[0].keys()):
        level(as_move(context))
        return
    if not any(is_subject(key) for key, _ in rows[0].items() ^ rows[1].items()):
        return
    aliases = frozenset(cluster.alias for cluster in sides)

    def differ(read: Callable[[Cluster], ControlTables]) -> bool:
        one, other = map(read, sides)
        return bool(one.lacks(other, aliases).routes or other.lacks(one, aliases).routes)

    if differ(ControlTables.read_last) and differ(ControlTables.read):
        level(as_move(context))
