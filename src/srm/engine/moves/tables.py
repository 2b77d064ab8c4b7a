"""Control records of one cluster: what is stored, what is new, and what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeVar

from srm.domain.moves.disaster import OUTCOME_PREFIX
from srm.domain.moves.line import LINE_PREFIX, MoveLine
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import WAIT_PREFIX, MoveProgress, WaitNote
from srm.domain.moves.report import approval_key
from srm.domain.moves.revisions import KeptReport, newest, report_key
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.domain.text.documents import decode_or_none, document_of, join_one, split
from srm.engine.cluster_ports import Cluster, Stamped
from srm.engine.moves.history import RoutingHistory

_T = TypeVar("_T")

_PROGRESS: Final = "progress:"
_PLAN: Final = "plan:"


def accepted_key(move_id: str) -> str:
    """Return the key of the plan as *go* accepted it."""
    return f"accepted:{move_id}"


_BEFORE_END: Final = (_PLAN, accepted_key(""), approval_key(""), OUTCOME_PREFIX)
_KEPT: Final = (*_BEFORE_END, report_key(""))
_WHILE_ALIVE: Final = (*_BEFORE_END, _PROGRESS, WAIT_PREFIX)
"""Prefixes of the records of a move that are deleted when it has ended."""

_Ranked = TypeVar("_Ranked", Route, MoveProgress, MoveLine)


Records = dict[bytes, bytes | None]


class _Decoded(Mapping[str, _T]):
    """Documents of one kind by move, each decoded when it is wanted; damaged ones are logged."""

    def __init__(
        self, records: Mapping[bytes, bytes], prefix: str, decode: Callable[[bytes], _T], where: str
    ) -> None:
        self._records, self._prefix, self._where = records, prefix, where
        self._decode = decode
        self._known: dict[str, _T | None] = {}

    def __getitem__(self, name: str) -> _T:
        if name not in self._known:
            value = join_one(self._records, f"{self._prefix}{name}".encode())
            self._known[name] = decode_or_none(value, self._decode, self._where)
        if (found := self._known[name]) is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        for key in self._records:
            if key.startswith(self._prefix.encode()):
                name = key.decode(errors="replace").removeprefix(self._prefix)
                if name in self:
                    yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Values(Mapping[bytes, bytes]):
    """Values of rows, each unpacked when it is wanted."""

    def __init__(self, rows: Mapping[bytes, Stamped]) -> None:
        self._rows = rows

    def __getitem__(self, key: bytes) -> bytes:
        return self._rows[key].value

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True, eq=False)
class MoveRecords:
    """Records of ``__srm-moves`` of one cluster, as stored; ``where`` is for messages.

    A document is joined and decoded when its move is wanted, so that no other move costs anything.
    """

    rows: Mapping[bytes, Stamped] = field(default_factory=dict)
    where: str = ""

    @classmethod
    def read(cls, cluster: Cluster) -> MoveRecords:
        rows = cluster.compacted_topic(internal_topics.MOVES).read_stamped()
        return cls(rows, f"on cluster {cluster.alias}: ")

    def after(self, records: Records) -> MoveRecords:
        rows = {key: row for key, row in self.rows.items() if key not in records}
        new = {key: Stamped(value, 0) for key, value in records.items() if value is not None}
        return replace(self, rows=rows | new)

    @cached_property
    def values(self) -> Mapping[bytes, bytes]:
        return _Values(self.rows)

    @cached_property
    def lines(self) -> Mapping[str, MoveLine]:
        """The line of each move; of a plan without one, or with a damaged one, it is made."""
        found = dict(_Decoded(self.values, LINE_PREFIX, MoveLine.decode, self.where))
        for move_id in self.names(_PLAN) - found.keys():
            if (plan := self.plans.get(move_id)) is not None:
                found[move_id] = MoveLine.of(plan, self.progress.get(move_id))
        return found

    @cached_property
    def plans(self) -> Mapping[str, MovePlan]:
        return _Decoded(self.values, _PLAN, MovePlan.decode, self.where)

    @cached_property
    def progress(self) -> Mapping[str, MoveProgress]:
        return _Decoded(self.values, _PROGRESS, MoveProgress.decode, self.where)

    @cached_property
    def notes(self) -> Mapping[str, WaitNote]:
        return _Decoded(self.values, WAIT_PREFIX, WaitNote.decode, self.where)

    def of(self, lines: Iterable[MoveLine]) -> Iterator[tuple[MovePlan, MoveProgress]]:
        """Yield plan and progress of moves; those that lack one of them are skipped."""
        for line in lines:
            plan, progress = self.plans.get(line.move_id), self.progress.get(line.move_id)
            if plan is not None and progress is not None:
                yield plan, progress

    def names(self, *prefixes: str) -> set[str]:
        """Return the moves that have a document with one of the prefixes."""
        keys = [key.decode(errors="replace") for key in self.values]
        return {key.partition(":")[2] for key in keys if key.startswith(prefixes)}

    def document(self, key: str) -> bytes | None:
        return join_one(self.values, key.encode())

    def lacks(self, key: str, other: MoveRecords) -> bool:
        """Return True if a document of the other cluster is missing here, or a later report."""
        stored = key.encode()
        if stored not in self.values or not key.startswith(report_key("")):
            return stored not in self.values and other.document(key) is not None
        if self.values[stored] == other.values.get(stored):
            return False
        both = (decode_or_none(one.document(key), KeptReport.decode) for one in (self, other))
        known, new = both
        return new is not None and (known is None or newest((known, new)) is not known)

    def records_of(self, move_id: str) -> Iterator[bytes]:
        """Yield the keys of the records that a move needs until it has ended."""
        ours = {f"{prefix}{move_id}".encode() for prefix in _WHILE_ALIVE}
        yield from (key for key in self.values if document_of(key) in ours)


@dataclass(frozen=True)
class ControlChange:
    """Records to write on one cluster in one transaction.

    ``lines``: of moves that have ended, whose records are deleted but for their reports. The line
    of a move with a plan or progress here is written with it.
    """

    routes: Mapping[str, Route] = field(default_factory=dict)
    progress: Sequence[MoveProgress] = ()
    documents: Mapping[str, bytes] = field(default_factory=dict)
    lines: Sequence[MoveLine] = ()

    def records(self, known: MoveRecords | None = None) -> dict[str, Records]:
        """Return the records by topic; ``known``: those that the cluster has."""
        known = known or MoveRecords()
        texts = {f"{_PROGRESS}{one.move_id}": one.value() for one in self.progress}
        texts |= self.documents
        texts |= {line.key: line.value() for line in self._all_lines(known.lines)}
        moves: Records = {
            k: part for key, text in texts.items() for k, part in split(key.encode(), text).items()
        }
        for line in self.lines:
            moves |= dict.fromkeys(known.records_of(line.move_id))
        routing: Records = {subject.encode(): one.value() for subject, one in self.routes.items()}
        return {internal_topics.MOVES: moves, internal_topics.ROUTING: routing}

    def _all_lines(self, known: Mapping[str, MoveLine]) -> list[MoveLine]:
        found = dict(known)
        for key, text in self.documents.items():
            if key.startswith(_PLAN):
                move_id = key.removeprefix(_PLAN)
                at = found[move_id].progress if move_id in found else None
                if (plan := decode_or_none(text, MovePlan.decode, f"{key}: ")) is not None:
                    found[move_id] = MoveLine.of(plan, at)
        for one in self.progress:
            if one.move_id in found:
                found[one.move_id] = found[one.move_id].at(one)
        found |= {line.move_id: line for line in self.lines}
        return [line for move_id, line in found.items() if line is not known.get(move_id)]


@dataclass(frozen=True)
class ControlTables:
    """Control records of one cluster, the highest-ranked one of each subject and move."""

    routes: Mapping[str, Route] = field(default_factory=dict)
    moves: MoveRecords = field(default_factory=MoveRecords)
    routing: RoutingHistory = field(default_factory=lambda: RoutingHistory("", {}))

    @classmethod
    def read(cls, cluster: Cluster) -> ControlTables:
        """Read the tables of a cluster; damaged records are skipped and logged."""
        moves, routing = MoveRecords.read(cluster), RoutingHistory.read(cluster)
        return cls(routing.routes, moves, routing)

    @classmethod
    def read_last(cls, cluster: Cluster) -> ControlTables:
        """Read no history, only the last routes."""
        routing = cluster.compacted_topic(internal_topics.ROUTING).read_stamped()
        last = RoutingHistory(cluster.alias, {key: (row,) for key, row in routing.items()})
        return cls(last.routes, MoveRecords.read(cluster))

    def new_part(self, change: ControlChange) -> ControlChange:
        """Return the part of a change that is new here: a lower rank never follows a higher one.

        Nothing but a report follows the end of a move.
        """
        ended = {move_id for move_id, line in self.moves.lines.items() if line.ended}
        later = {line.move_id for line in change.lines} | ended
        known = self.moves.progress
        progress = sorted(change.progress, key=lambda one: one.rank)
        routes = {key: one.after(self.routes.get(key)) for key, one in change.routes.items()}
        return replace(
            change,
            routes={k: one for k, one in routes.items() if _outranks(one, self.routes.get(k))},
            progress=tuple(
                p for p in progress if p.move_id not in later and _outranks(p, known.get(p.move_id))
            ),
            documents={
                k: v
                for k, v in change.documents.items()
                if k.startswith(report_key("")) or k.partition(":")[2] not in later
                if self.moves.document(k) != v
            },
            lines=tuple(line for line in change.lines if line.move_id not in ended),
        )

    def lacks(self, other: ControlTables, aliases: frozenset[str]) -> ControlChange:
        """Return what the other cluster has and this one lacks, but holds, which may be expired.

        Of moves that both know alike it reads lines alone.
        """
        here, lines = self.moves.lines, other.moves.lines
        moves = {move_id for move_id, line in lines.items() if line.ends == aliases}
        routes = {
            subject: route
            for subject, newest in other.routes.items()
            for route in reversed(newest.each)
            if route.state == "go" and route.move_id in moves
        }
        ended = {move_id for move_id in moves if lines[move_id].ended}
        over = ended | {move_id for move_id in moves if move_id in here and here[move_id].ended}
        done = [
            at
            for at in (lines[move_id].progress for move_id in sorted(moves - over))
            if at.is_decided or at.step == "released"
            if at.move_id not in here or at.rank > here[at.move_id].progress.rank
        ]
        final = {move_id for move_id in ended if move_id in here and here[move_id].ended}
        wanted = {
            f"{prefix}{move_id}"
            for prefix in _KEPT
            for move_id in other.moves.names(prefix) & moves
            if move_id not in over or prefix == report_key("")
        }
        wanted -= {report_key(one) for one in final & self.moves.names(report_key(""))}
        missed = [key for key in sorted(wanted) if self.moves.lacks(key, other.moves)]
        documents = {key: other.moves.document(key) for key in missed}
        change = ControlChange(
            routes,
            [p for at in done if (p := other.moves.progress.get(at.move_id)) is not None],
            {key: text for key, text in documents.items() if text is not None},
            lines=[lines[move_id] for move_id in sorted(ended)],
        )
        return self.new_part(change)


def _outranks(new: _Ranked, known: _Ranked | None) -> bool:
    return known is None or new.rank > known.rank
