"""``/v2/remote-topics``, and SRM's version 1 routes such as ``/remote-topics``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from srm.clock import now_ms
from srm.service.federation.merged_lists import all_series, everywhere
from srm.service.federation.remote_rows import REMOTE_TOPICS
from srm.service.views.documents import MetricSeries, Page, RemoteTopic
from srm.service.views.responses import (
    PROBLEMS,
    Metric,
    Search,
    SliceDep,
    ViewsDep,
    answer,
    containing,
    time_range,
)

router = APIRouter(responses=PROBLEMS)


@router.get(
    "/v2/remote-topics",
    response_model=Page[RemoteTopic],
    tags=["topics"],
    summary="Topics that have copies",
)
@router.get(
    "/remote-topics",
    response_model=Page[RemoteTopic],
    tags=["v1"],
    summary="Topics that have copies",
)
async def remote_topics(
    request: Request,
    views: ViewsDep,
    part: SliceDep,
    search: Search = "",
    source: str = "",
    target: str = "",
) -> Response:
    """Return the topics of all flows with the names of their remote topics."""
    found = [
        row
        for row in containing(
            views.remote_topics(), search, lambda row: row.topic, lambda row: row.remote_topic
        )
        if source in {"", row.source} and target in {"", row.target}
    ]
    rows = await everywhere(request, found, REMOTE_TOPICS, part)
    return answer(request, rows, Page[RemoteTopic])


@router.get(
    "/cluster-metrics/{cluster}/{metric}",
    response_model=list[MetricSeries],
    tags=["v1"],
    summary="One metric of all flows from a cluster",
)
async def cluster_metrics(
    request: Request, views: ViewsDep, cluster: str, metric: Metric
) -> Response:
    """Return the windows of two hours of each flow from the cluster."""
    times = time_range(now_ms(), None, None)
    flows = [look.flow for look in views.looks() if look.flow.source == cluster]
    series = [views.metric(flow, "", metric, *times) for flow in flows]
    return await all_series(request, series)


@router.get(
    "/topic-metrics/{topic}/{metric}",
    response_model=list[MetricSeries],
    tags=["v1"],
    summary="One metric of a topic, by its name on the target",
)
async def topic_metrics(request: Request, views: ViewsDep, topic: str, metric: Metric) -> Response:
    """Return the windows of two hours of each remote topic with this name."""
    times = time_range(now_ms(), None, None)
    flows = [row for row in views.remote_topics() if topic == row.remote_topic]
    series = [views.metric(row.flow, row.topic, metric, *times) for row in flows]
    return await all_series(request, series)
