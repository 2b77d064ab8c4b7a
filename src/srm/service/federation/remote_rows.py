"""Rows from another service: only well-formed ones of the target that it watches are accepted.

Any client with write access to a cluster can announce a service for it. Rows of other clusters are
therefore ignored, and no answer of one service may suppress the answers of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from srm.domain.names.topics import Flow
from srm.domain.text.documents import adapter, read_json
from srm.errors import IntegrityError, UnavailableError, UsageError
from srm.service.views.documents import (
    ClusterInfo,
    DrillRow,
    FlowSummary,
    MetricSeries,
    MoveRow,
    Page,
    RemoteTopic,
)

STRANGE: Final = "its service answers in an unknown format: check its version"
_TOLD: Final = 200
"""Characters of an unreadable row that an error message quotes."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Listed(Generic[_T]):
    """A type of row of several services, and the rules that merge its rows into one list.

    ``flow``: returns the flow of a row; raises UsageError if it names none, or two.
    ``order``: the sort key of rows.
    ``identity``: equal for duplicates. Own rows and rows from their ``home`` target take
    precedence; among those, or else among all, the highest ``rank`` wins.
    ``tellers``: returns the targets whose services may report a flow.
    ``whole``: the path of a list that is always read completely, as targets share its rows.
    """

    of: type[_T]
    flow: Callable[[_T], Flow]
    order: Callable[[_T], Any]
    identity: Callable[[_T], object]
    tellers: Callable[[Flow], tuple[str, ...]] = lambda flow: (flow.target,)
    rank: Callable[[_T], Any] = lambda _: 0
    home: Callable[[_T], str] = lambda _: ""
    whole: str = ""

    def page(self, body: bytes, offset: int, limit: int) -> Page[_T]:
        """Read the requested part of a list."""
        found: Page[_T] = read(Page[self.of], body)  # type: ignore[name-defined]
        count = len(found.items)
        if count > limit:
            raise UnavailableError(f"its service answers with {count} rows, maximum {limit}")
        if count and found.total < offset + count:
            raise UnavailableError(f"its service has row {offset + count} of {found.total}")
        return found

    def rows(self, body: bytes) -> tuple[_T, ...]:
        """Read a whole list."""
        return tuple(read(list[self.of], body))  # type: ignore[name-defined]

    def about(self, target: str, rows: Iterable[_T]) -> tuple[_T, ...]:
        """Return the rows that the services of a target may report."""
        try:
            return tuple(row for row in rows if target in self.tellers(self.flow(row)))
        except UsageError as error:
            told = str(error)[:_TOLD]
            raise UnavailableError(f"its service answers with an invalid row: {told}") from None


def cluster_of(body: bytes) -> tuple[str, ...]:
    """Return the cluster that a body describes."""
    return (read(ClusterInfo, body).alias,)


def ends_of(body: bytes) -> tuple[Any, ...]:
    """Return the two clusters of a move from its description or its report, in any version."""
    found = read(dict[str, Any], body)
    move = found.get("row", found)
    return (move.get("source"), move.get("target")) if isinstance(move, dict) else ()


def read(of: Any, body: bytes) -> Any:
    """Read a document of another service."""
    try:
        return adapter(of).validate_python(read_json("answer", body))
    except (ValidationError, IntegrityError):
        raise UnavailableError(STRANGE) from None


def _flow_of(row: FlowSummary) -> Flow:
    flow = _between(row)
    if row.flow != str(flow):
        raise UsageError(f"{row.flow!r} is not {flow}")
    return flow


def _between(row: FlowSummary | RemoteTopic | MoveRow | MetricSeries) -> Flow:
    return Flow.parse(f"{row.source}->{row.target}")


def _names(row: RemoteTopic | MetricSeries) -> tuple[str, str, str]:
    return row.source, row.target, row.topic


FLOWS: Final = Listed(
    FlowSummary, _flow_of, order=lambda r: (r.source, r.target), identity=lambda r: r.flow
)
REMOTE_TOPICS: Final = Listed(RemoteTopic, _between, order=_names, identity=_names)
MOVES: Final = Listed(
    MoveRow,
    _between,
    order=lambda r: (-r.created_ms, r.move_id),
    identity=lambda r: r.move_id,
    tellers=lambda flow: (flow.source, flow.target),
    rank=lambda r: (r.ended, r.ok is not None),
    home=lambda r: r.target,  # the decision of a move is there
    whole="/v2/moves",
)
DRILLS: Final = Listed(
    DrillRow,
    lambda row: Flow.parse(row.flow),
    order=lambda r: (-r.time_ms, r.drill_id),
    identity=lambda r: (r.flow, r.drill_id),
)
SERIES: Final = Listed(MetricSeries, _between, order=_names, identity=_names)
