"""``/v2/flows``: flows, their topics, partitions, groups, checkpoints and events."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from srm.clock import now_ms
from srm.errors import NotFoundError
from srm.service.federation.merged_lists import everywhere
from srm.service.federation.remote_rows import FLOWS
from srm.service.views import flow_rows
from srm.service.views.committed import CommitsDep, Group
from srm.service.views.documents import (
    CheckpointRow,
    Event,
    FlowSummary,
    GroupDetail,
    GroupRow,
    Page,
    PartitionRow,
    TopicRow,
)
from srm.service.views.responses import (
    PROBLEMS,
    FlowDep,
    Search,
    SliceDep,
    ViewsDep,
    answer,
    containing,
)
from srm.service.views.series import WHOLE

router = APIRouter(prefix="/v2/flows", tags=["flows"], responses=PROBLEMS)

Topic = Annotated[str, Path(description="Name on either side.", examples=["orders"])]
Sort = Literal["topic", "lag", "byte-rate", "replication-latency-ms"]
Order = Annotated[Literal["asc", "desc"], Query(description="desc: the largest first.")]


@router.get("", response_model=Page[FlowSummary], summary="All flows")
async def flows(request: Request, views: ViewsDep, part: SliceDep) -> Response:
    """Return state, lag and loss forecast of each flow."""
    found = await everywhere(request, views.flows(), FLOWS, part)
    return answer(request, found, Page[FlowSummary])


@router.get("/{source}/{target}", response_model=FlowSummary, summary="One flow")
async def flow(request: Request, views: ViewsDep, flow: FlowDep) -> Response:
    """Return one flow as in the list."""
    return answer(request, flow_rows.summary(views.look(flow)))


@router.get("/{source}/{target}/topics", response_model=Page[TopicRow], summary="Topics of a flow")
async def topics(
    request: Request,
    views: ViewsDep,
    flow: FlowDep,
    part: SliceDep,
    search: Search = "",
    state: Annotated[str, Query(description="Only those in this state.")] = "",
    sort: Sort = "topic",
    order: Order = "asc",
) -> Response:
    """Return the topics with state, lag and the newest window of the last five minutes."""
    every = flow_rows.as_of(views.topics(flow), now_ms())
    found = containing(every, search, lambda t: t.topic, lambda t: t.remote_topic)
    if state:
        found = [row for row in found if row.state == state.upper()]
    found.sort(key=lambda row: _rank(row, sort), reverse=order == "desc")
    return answer(request, part.page(found), Page[TopicRow])


def _rank(row: TopicRow, sort: Sort) -> tuple[float, str]:
    if sort == "topic":
        return 0.0, row.topic
    if sort == "lag":
        return row.lag, row.topic
    return flow_rows.figure(row, sort, WHOLE[sort]), row.topic


@router.get("/{source}/{target}/topics/{topic}", response_model=TopicRow, summary="One topic")
async def topic(request: Request, views: ViewsDep, flow: FlowDep, topic: Topic) -> Response:
    """Return one topic as in the list."""
    [row] = flow_rows.as_of([views.topic(flow, topic)], now_ms())
    return answer(request, row)


@router.get(
    "/{source}/{target}/topics/{topic}/partitions",
    response_model=Page[PartitionRow],
    summary="Partitions of a topic",
)
async def partitions(
    request: Request, views: ViewsDep, flow: FlowDep, topic: Topic, part: SliceDep
) -> Response:
    """Return the partitions with positions on both sides, lag, state, its start and its reason."""
    rows = flow_rows.partition_rows(views.last_look(flow)[1], views.topic(flow, topic).topic)
    return answer(request, part.page(rows), Page[PartitionRow])


@router.get("/{source}/{target}/groups", response_model=Page[GroupRow], summary="Groups of a flow")
async def groups(
    request: Request, views: ViewsDep, flow: FlowDep, part: SliceDep, search: Search = ""
) -> Response:
    """Return the groups with a checkpoint: whether they could resume, and records read again."""
    found = containing(views.groups(flow), search, lambda row: row.group)
    return answer(request, part.page(found), Page[GroupRow])


@router.get(
    "/{source}/{target}/groups/{group:path}", response_model=GroupDetail, summary="One group"
)
async def group(
    request: Request, views: ViewsDep, flow: FlowDep, group: Group, commits: CommitsDep
) -> Response:
    """Return a group's positions on both sides, and where it would resume, by partition.

    Both clusters are queried for its offsets, for a few seconds at most.
    """
    found = flow_rows.group_detail(views.last_look(flow)[0], group, commits, views.opposite(flow))
    if found is None:
        raise NotFoundError(f"group {group!r} has no checkpoint of {flow}")
    return answer(request, found)


@router.get(
    "/{source}/{target}/checkpoints", response_model=Page[CheckpointRow], summary="Checkpoints"
)
async def checkpoints(
    request: Request,
    views: ViewsDep,
    flow: FlowDep,
    part: SliceDep,
    group: Annotated[str, Query(description="Only those of this group.")] = "",
    topic: Annotated[str, Query(description="Only those in this source topic.")] = "",
) -> Response:
    """Return the checkpoints on the target."""
    found = [
        row
        for row in flow_rows.checkpoint_rows(views.last_look(flow)[0])
        if group in {"", row.group} and topic in {"", row.topic}
    ]
    return answer(request, part.page(found), Page[CheckpointRow])


@router.get("/{source}/{target}/events", response_model=Page[Event], summary="Events")
async def events(request: Request, views: ViewsDep, flow: FlowDep, part: SliceDep) -> Response:
    """Return losses, re-created topics, stops, decisions, moves and drills, the newest first."""
    return answer(request, part.page(views.events(flow)), Page[Event])


@router.get("/{source}/{target}/forecast", summary="Loss if the source failed now")
async def forecast(request: Request, views: ViewsDep, flow: FlowDep) -> Response:
    """Return the current forecast in full: by topic and group, with the unknown parts."""
    standing = views.last_look(flow)[1].status.standing
    if standing is None:
        raise NotFoundError(f"flow {flow} has no forecast: it is paused")
    return answer(request, standing.forecast)
