"""Routes of flows (topics, partitions, groups, checkpoints, events), moves, drills and why.

SRM's version 1 routes, such as ``/remote-topics``, are here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Literal

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request, Response

from srm import patience
from srm.clock import now_ms
from srm.config.model import Config
from srm.domain.moves.report import MoveReport
from srm.domain.names.topics import Flow
from srm.engine.status.status import PartitionRow
from srm.engine.why import Kind, Why, explain, in_order, not_found
from srm.errors import NotFoundError, SrmError
from srm.service.access.access import AT_ONCE, ConcurrencyLimit
from srm.service.federation.federation import DRILLS, FLOWS, MOVES, REMOTE_TOPICS
from srm.service.federation.merged_lists import all_series, everywhere
from srm.service.views import flow_rows
from srm.service.views.documents import (
    CheckpointRow,
    DrillRow,
    Event,
    FlowSummary,
    GroupDetail,
    GroupRow,
    MetricSeries,
    MoveDetail,
    MoveRow,
    Page,
    RemoteTopic,
    TopicRow,
)
from srm.service.views.flow_rows import is_running
from srm.service.views.responses import (
    MOST_OF_A_NAME,
    PROBLEMS,
    DetailDep,
    FlowDep,
    Group,
    Metric,
    Search,
    SliceDep,
    ViewsDep,
    answer,
    containing,
    time_range,
)
from srm.service.views.series import METRICS
from srm.wiring import open_flow

router = APIRouter(prefix="/v2/flows", tags=["flows"], responses=PROBLEMS)

Topic = Annotated[str, Path(description="Name on either side.", examples=["orders"])]
Sort = Literal["topic", "lag", "byte-rate", "replication-latency-ms"]
Order = Annotated[Literal["asc", "desc"], Query(description="desc: the largest first.")]


@router.get("", response_model=Page[FlowSummary], summary="All flows")
async def flows(request: Request, views: ViewsDep, part: SliceDep) -> Response:
    """Return state, lag and loss forecast of each flow."""
    return answer(request, await everywhere(request, views.flows(), FLOWS, part))


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
    return answer(request, part.page(found))


def _rank(row: TopicRow, sort: Sort) -> tuple[float, str]:
    if sort == "topic":
        return 0.0, row.topic
    if sort == "lag":
        return row.lag, row.topic
    return flow_rows.figure(row, sort, METRICS[sort].whole), row.topic


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
    rows = views.last_look(flow)[1].partitions.get(views.topic(flow, topic).topic, ())
    return answer(request, part.page(rows))


@router.get("/{source}/{target}/groups", response_model=Page[GroupRow], summary="Groups of a flow")
async def groups(
    request: Request, views: ViewsDep, flow: FlowDep, part: SliceDep, search: Search = ""
) -> Response:
    """Return the groups with a checkpoint: whether they could resume, and records read again."""
    found = containing(views.groups(flow), search, lambda row: row.group)
    return answer(request, part.page(found))


@router.get(
    "/{source}/{target}/groups/{group:path}", response_model=GroupDetail, summary="One group"
)
async def group(request: Request, flow: FlowDep, group: Group, found: DetailDep) -> Response:
    """Return a group's positions on both sides, and where it would resume, by partition.

    Both clusters are queried for its offsets, for a few seconds at most.
    """
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
    return answer(request, part.page(found))


@router.get("/{source}/{target}/events", response_model=Page[Event], summary="Events")
async def events(request: Request, views: ViewsDep, flow: FlowDep, part: SliceDep) -> Response:
    """Return losses, re-created topics, stops, decisions, moves and drills, the newest first."""
    return answer(request, part.page(views.events(flow)))


@router.get("/{source}/{target}/forecast", summary="Loss if the source failed now")
async def forecast(request: Request, views: ViewsDep, flow: FlowDep) -> Response:
    """Return the current forecast in full: by topic and group, with the unknown parts."""
    current = views.last_look(flow)[1].status.standing
    if current is None:
        raise NotFoundError(f"flow {flow} has no forecast: it is paused")
    return answer(request, current.forecast)


moves_router = APIRouter(prefix="/v2", tags=["moves"], responses=PROBLEMS)

_WHICH = "Moves to return; a planned move is neither running nor ended."


@moves_router.get("/moves", response_model=Page[MoveRow], summary="All moves, the newest first")
async def moves(
    request: Request,
    views: ViewsDep,
    part: SliceDep,
    which: Annotated[Literal["all", "running", "ended"], Query(description=_WHICH)] = "all",
) -> Response:
    """Return the moves with their step, lost records (RPO) and time without service (RTO)."""
    wanted: dict[str, Callable[[MoveRow], bool]] = {
        "all": lambda _: True,
        "running": is_running,
        "ended": lambda row: row.ended,
    }
    found = await everywhere(request, views.moves(), MOVES, part, wanted[which])
    return answer(request, found)


@moves_router.get("/moves/{move_id}", response_model=MoveDetail, summary="One move")
async def move(request: Request, views: ViewsDep, move_id: str) -> Response:
    """Return a move with its steps and their times."""
    return answer(request, flow_rows.move_detail(views.move(move_id)))


@moves_router.get("/moves/{move_id}/report", response_model=MoveReport, summary="Report of a move")
async def report(request: Request, views: ViewsDep, move_id: str) -> Response:
    """Return the stored report of a move (docs/formats.md)."""
    return answer(request, views.report(move_id).report)


@moves_router.get("/drills", response_model=Page[DrillRow], summary="All drills, the newest first")
async def drills(request: Request, views: ViewsDep, part: SliceDep) -> Response:
    """Return rehearsals of failovers with their results."""
    return answer(request, await everywhere(request, views.drills(), DRILLS, part))


topics_router = APIRouter(responses=PROBLEMS)


@topics_router.get(
    "/v2/remote-topics",
    response_model=Page[RemoteTopic],
    tags=["topics"],
    summary="Topics that have copies",
)
@topics_router.get(
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
    return answer(request, await everywhere(request, found, REMOTE_TOPICS, part))


@topics_router.get(
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


@topics_router.get(
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


why_router = APIRouter(prefix="/v2", tags=["why"], responses=PROBLEMS)


@why_router.get("/why/{kind}/{name:path}", response_model=list[Why], summary="Reasons for a state")
async def why(
    request: Request,
    views: ViewsDep,
    kind: Kind,
    name: Annotated[
        str, Path(description="Topic on either side, or group.", max_length=MOST_OF_A_NAME)
    ],
    flow: Annotated[
        str, Query(description="Only this flow, as `A->B`; default: all.", examples=["P->B"])
    ] = "",
) -> Response:
    """Query both clusters of each flow for list, filter, state and rights, and name the remedy.

    The request takes as long as the clusters do. The answer has an item for each flow that knows
    the name, then one with `known` false and the reason for each flow whose target did not answer.
    """
    wanted = [views.look(Flow.parse(flow))] if flow else views.looks()
    flows = [look.flow for look in wanted]
    explaining: Explaining = request.app.state.explaining
    return answer(request, await explaining.why(flows, kind, name))


WhyQuery = Callable[[Config, Flow, str, Collection[Kind]], tuple[Why, ...]]


def query_why(config: Config, flow: Flow, name: str, kinds: Collection[Kind]) -> tuple[Why, ...]:
    with patience.limit(patience.DEFAULT_S), open_flow(config, flow, partial=True) as context:
        return explain(context, name, kinds)


class Explaining:
    """Answers why queries, a few at the same time; ``query`` reads one flow."""

    def __init__(self, config: Config, query: WhyQuery = query_why) -> None:
        self._config = config
        self._query = query
        self._turns = ConcurrencyLimit()
        self._limit = anyio.CapacityLimiter(AT_ONCE)

    async def why(self, flows: Collection[Flow], kind: Kind, name: str) -> list[Why]:
        """Query some flows; omit those that do not know the name, silent targets come last.

        NotFoundError: no flow knows the name; the error suggests similar names. SrmError: none of
        those that answered knows it, or too many queries are waiting.
        """
        found: list[Why] = []
        failures: dict[Flow, SrmError] = {}

        async def one(flow: Flow) -> None:
            try:
                place = self._config, flow, name, [kind]
                answers = await run_sync(self._query, *place, limiter=self._limit)
            except SrmError as error:
                failures[flow] = error
            else:
                found.extend(answers)

        async with self._turns.turn(), anyio.create_task_group() as group:
            for flow in flows:
                group.start_soon(one, flow)
        known = in_order(why for why in found if why.known)
        if not known:
            if not failures:
                raise not_found(name, found)
            texts = (f"{flow}: {failures[flow]}" for flow in sorted(failures))
            raise type(failures[min(failures)])("; ".join(texts))
        return known + [
            Why(flow, kind, name, False, None, f"not known: {failures[flow]}", ())  # noqa: FBT003
            for flow in sorted(failures)
        ]
