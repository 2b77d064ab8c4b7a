"""Request parameters that routes share: the views, a flow of the path, a metric."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Depends, Path, Request

from srm.domain.names.topics import Flow
from srm.errors import UsageError
from srm.service.views.views import Views

Metric = Literal[
    "byte-rate", "replication-latency-ms", "checkpoint-latency-ms", "replication-records-lag"
]
INTERNAL_MARK: Final = "internal"
TARGET_HEADER: Final = "X-SRM-Target"
"""Names the only target that another service may report in its answer."""
HOURS: Final = 2
"""Default time range, as in SRM."""


def is_internal(request: Request) -> bool:
    """Return whether another service sent the request; to avoid a loop, it is not forwarded."""
    return getattr(request.state, INTERNAL_MARK, False)


def views_of(request: Request) -> Views:
    """Return the application's views, only of one target if another service requests it."""
    found: Views = request.app.state.views
    target = request.headers.get(TARGET_HEADER) if is_internal(request) else None
    return found if target is None else found.only(target)


ViewsDep = Annotated[Views, Depends(views_of)]
Source = Annotated[str, Path(description="Alias of the source.", examples=["P"], max_length=249)]
Target = Annotated[str, Path(description="Alias of the target.", examples=["B"], max_length=249)]


def flow_of(source: Source, target: Target) -> Flow:
    """Read a flow from the path."""
    return Flow.parse(f"{source}->{target}")


FlowDep = Annotated[Flow, Depends(flow_of)]


def time_range(now_ms: int, from_ms: int | None, to_ms: int | None) -> tuple[int, int]:
    """Return the time range of a chart, by default the last two hours."""
    end = now_ms + 1 if to_ms is None else to_ms
    begin = end - HOURS * 3_600_000 if from_ms is None else from_ms
    if begin > end:
        raise UsageError(f"from_ms {begin} is after to_ms {end}")
    return begin, end
