"""Rows that another service tells: only well-formed ones, and only of the target that it watches.

Whoever may write to one cluster can announce a service for it, so what that one tells of any other
cluster counts for nothing, and nothing it sends may take an answer away from those of others.
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

STRANGE: Final = "its service answers in another form: is it of another version?"
_TOLD: Final = 200
"""Characters that are told of what nobody can read."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Told(Generic[_T]):
    """What kind of row is told.

    ``flow`` is that of a row; it raises UsageError where a row names none, or two. ``tellers`` are
    the targets whose services may tell of a flow.
    """

    of: type[_T]
    flow: Callable[[_T], Flow]
    tellers: Callable[[Flow], tuple[str, ...]] = lambda flow: (flow.target,)

    def page(self, body: bytes, offset: int, limit: int) -> Page[_T]:
        """Read a part of a list, as it was asked for.

        Raises:
            UnavailableError: it is none, or has more rows than were asked for, or than it says.
        """
        found: Page[_T] = read(Page[self.of], body)  # type: ignore[name-defined]
        count = len(found.items)
        if count > limit:
            raise UnavailableError(f"its service answers with {count} rows, asked for {limit}")
        if count and found.total < offset + count:
            raise UnavailableError(f"its service has row {offset + count} of {found.total}")
        return found

    def rows(self, body: bytes) -> tuple[_T, ...]:
        """Read a whole list.

        Raises:
            UnavailableError: it is none.
        """
        return tuple(read(list[self.of], body))  # type: ignore[name-defined]

    def about(self, target: str, rows: Iterable[_T]) -> tuple[_T, ...]:
        """Return the rows that the services of a target may tell.

        Raises:
            UnavailableError: a row is of no flow.
        """
        try:
            return tuple(row for row in rows if target in self.tellers(self.flow(row)))
        except UsageError as error:
            told = str(error)[:_TOLD]
            raise UnavailableError(f"its service answers with a row of no flow: {told}") from None


def cluster_of(body: bytes) -> tuple[str, ...]:
    """Return which cluster is described.

    Raises:
        UnavailableError: no cluster is.
    """
    return (read(ClusterInfo, body).alias,)


def ends_of(body: bytes) -> tuple[Any, ...]:
    """Return the two clusters of a move that is described, or whose report it is, in any version.

    Raises:
        UnavailableError: it is no document.
    """
    found = read(dict[str, Any], body)
    move = found.get("row", found)
    return (move.get("source"), move.get("target")) if isinstance(move, dict) else ()


def read(of: Any, body: bytes) -> Any:
    """Read a document of another service.

    Raises:
        UnavailableError: it is something else, or nobody could count with its numbers.
    """
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
