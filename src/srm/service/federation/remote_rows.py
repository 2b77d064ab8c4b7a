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
class Told(Generic[_T]):
    """A type of row from another service.

    ``of``: class of the row.
    ``flow``: returns the flow of a row; raises UsageError if it names none, or two.
    ``tellers``: returns the targets whose services may report a flow.
    """

    of: type[_T]
    flow: Callable[[_T], Flow]
    tellers: Callable[[Flow], tuple[str, ...]] = lambda flow: (flow.target,)

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


FLOWS: Final = Told(FlowSummary, _flow_of)
REMOTE_TOPICS: Final = Told(RemoteTopic, _between)
MOVES: Final = Told(MoveRow, _between, lambda flow: (flow.source, flow.target))
DRILLS: Final = Told(DrillRow, lambda row: Flow.parse(row.flow))
SERIES: Final = Told(MetricSeries, _between)
