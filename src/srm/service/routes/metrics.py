"""SRM's metrics routes, and ``/metrics`` for Prometheus.

Paths of ``/v2`` are Cloudera's; its answers are not published in full, so the shapes are srm's own.
"""

from __future__ import annotations

import gzip
import re
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from srm.clock import now_ms
from srm.domain.names.topics import Flow
from srm.errors import NotFoundError
from srm.service.federation.merged_lists import whole_cluster
from srm.service.prometheus.exposition import Exposition
from srm.service.views.documents import ClusterInfo, MetricSeries
from srm.service.views.responses import (
    PROBLEMS,
    FlowDep,
    Metric,
    Target,
    ViewsDep,
    answer,
    time_range,
)
from srm.service.views.views import Views

router = APIRouter(prefix="/v2", tags=["metrics"], responses=PROBLEMS)

_MOST_MS = 1 << 53
Since = Annotated[
    int | None,
    Query(ge=0, le=_MOST_MS, description="Start, epoch ms; default: two hours before the end."),
]
Until = Annotated[int | None, Query(ge=0, le=_MOST_MS, description="End, epoch ms; default: now.")]


def _times(from_ms: Since = None, to_ms: Until = None) -> tuple[int, int]:
    return time_range(now_ms(), from_ms, to_ms)


Times = Annotated[tuple[int, int], Depends(_times)]
Upstream = Annotated[str, Path(description="Topic on the source.", examples=["orders"])]
Downstream = Annotated[str, Path(description="Topic on the target.", examples=["P.orders"])]


@router.get(
    "/cluster-info/{kafka_cluster_id}", response_model=ClusterInfo, summary="One Kafka cluster"
)
async def cluster_info(request: Request, views: ViewsDep, kafka_cluster_id: str) -> Response:
    """Return the flows into and out of a cluster, named by its Kafka id or alias."""
    return answer(request, await whole_cluster(request, views, kafka_cluster_id))


@router.get(
    "/topic-metrics/{source}/{target}/{upstream_topic}/{metric}",
    response_model=MetricSeries,
    summary="One metric of a topic, by its name on the source",
)
async def topic_metrics(
    request: Request,
    views: ViewsDep,
    flow: FlowDep,
    upstream_topic: Upstream,
    metric: Metric,
    times: Times,
) -> Response:
    """Return the windows of a metric, by default of the last two hours."""
    return answer(request, views.metric(flow, upstream_topic, metric, *times))


@router.get(
    "/topic-metrics/{target}/{downstream_topic}/{metric}",
    response_model=MetricSeries,
    summary="One metric of a topic, by its name on the target",
)
async def downstream_topic_metrics(
    request: Request,
    views: ViewsDep,
    target: Target,
    downstream_topic: Downstream,
    metric: Metric,
    times: Times,
) -> Response:
    """Return the windows of a metric; not for a remote topic that several flows write."""
    flow = _flow_of_copy(views, target, downstream_topic)
    return answer(request, views.metric(flow, downstream_topic, metric, *times))


def _flow_of_copy(views: Views, target: str, copy: str) -> Flow:
    views.series(target)  # raises if another service watches it
    rows = views.remote_topics()
    found = [row.flow for row in rows if (row.target, row.remote_topic) == (target, copy)]
    if len(found) == 1:
        return found[0]
    for look in views.looks():
        if look.flow.target == target:
            views.last_look(look.flow)  # raises while it is not known what the flow copies
    writers = ", ".join(map(str, found)) or "no flow"
    raise NotFoundError(
        f"topic {copy!r} on {target} is written by {writers}: "
        f"use /v2/topic-metrics/SOURCE/{target}/TOPIC/METRIC"
    )


@router.get(
    "/cluster-metrics/{source}/{target}/{metric}",
    response_model=MetricSeries,
    summary="One metric of a whole flow",
)
async def cluster_metrics(
    request: Request, views: ViewsDep, flow: FlowDep, metric: Metric, times: Times
) -> Response:
    """Return the windows of a metric over all topics of a flow."""
    views.look(flow)
    return answer(request, views.metric(flow, "", metric, *times))


prometheus_router = APIRouter(tags=["service"])

_GZIP: Final = re.compile(r"\s*gzip\s*(?!;\s*q\s*=\s*0(\.0*)?\s*$)(;.*)?", re.IGNORECASE)


# Not async: FastAPI then calls it in a thread, and does not block the event loop.
@prometheus_router.get(
    "/metrics",
    response_class=Response,
    summary="All metrics for Prometheus",
    responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
)
def scrape(request: Request) -> Response:
    """Return all metrics in Prometheus' text format, or as OpenMetrics if that is accepted."""
    exposition: Exposition = request.app.state.exposition
    body, content_type = exposition.scrape(request.headers.get("Accept", ""))
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    codings = request.headers.get("Accept-Encoding", "").split(",")
    if any(map(_GZIP.fullmatch, codings)):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=1, mtime=0)
    return Response(body, headers=headers)
