"""The engine's use cases as tasks call them: flow by name in, JSON out, errors as Airflow's.

Each call opens its own clients and closes them, so a task may be repeated at any time. What a call
needs is imported by the call: DAG files import this, are parsed all the time, and call nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from srm import telemetry
from srm.config.loader import load_config
from srm.domain.names.topics import Flow
from srm.errors import SrmError, UnavailableError
from srm_airflow import move_form
from srm_airflow.compat import AirflowFailException
from srm_airflow.outcome import as_json, engine_errors
from srm_airflow.settings import config_path

if TYPE_CHECKING:
    from srm.engine.moves.context import MoveContext
    from srm.engine.ports import FlowContext

logger = logging.getLogger(__name__)


@contextmanager
def flow_context(flow: str, doing: str) -> Iterator[tuple[FlowContext, telemetry.Notes]]:
    """Open one flow of the configuration, with srm's errors turned into Airflow's.

    ``doing``: what a trace shows, in which the second value notes more.
    """
    from srm.wiring import open_flow  # noqa: PLC0415 - not for parsing

    with (
        telemetry.span(doing, flow=flow) as span,
        engine_errors(),
        open_flow(load_config(config_path()), Flow.parse(flow)) as context,
    ):
        yield context, span


@contextmanager
def opened_move(
    source: str,
    target: str,
    config: str | None = None,
    *,
    unplanned: bool = False,
    shared: bool = False,
) -> Iterator[MoveContext]:
    """Open both flows between the clusters of a move; an unplanned one does not contact its source.

    ``shared``: use the clients of the other moves that wait in this process.
    """
    from srm.wiring import OPEN_PAIR, open_move  # noqa: PLC0415 - not for parsing
    from srm_airflow.clusters import CLUSTERS  # noqa: PLC0415 - as above

    resolved = load_config(config or config_path())
    opened_by = CLUSTERS.open if shared else OPEN_PAIR
    with open_move(resolved, source, target, unplanned=unplanned, opened_by=opened_by) as context:
        yield context


def emit_checkpoints(flow: str) -> dict[str, Any]:
    """Write forward and reverse checkpoints of all selected groups of a flow; sum it up."""
    from srm.engine import emission  # noqa: PLC0415 - not for parsing

    with flow_context(flow, "checkpoints.emit") as (context, span):
        summary = emission.emit(context)
        span.result(summary)
        _require_some(summary.errors, done=summary.groups)
    return _counts(summary, details="outcomes")


def sync_group_offsets(flow: str) -> dict[str, Any]:
    """Write translated offsets of the idle groups of a flow on its target; sum it up."""
    from srm.engine.groups import group_sync  # noqa: PLC0415 - not for parsing

    with flow_context(flow, "groups.sync") as (context, span):
        summary = group_sync.sync(context)
        span.result(summary)
        _require_some(summary.errors, done=len(summary.decisions))
    for decision in summary.decisions:
        logger.debug("%s", decision)
    return _counts(summary, details="decisions")


def rehearse(flow: str) -> dict[str, Any]:
    """Carry out a drill of a flow; AirflowFailException: something prevents a failover."""
    from srm.engine.drill import run_drill  # noqa: PLC0415 - not for parsing
    from srm.pages.reports import drill_line  # noqa: PLC0415 - not for parsing

    pair = Flow.parse(flow)
    with (
        telemetry.span("drill", flow=flow) as span,
        engine_errors(),
        opened_move(pair.source, pair.target) as context,
    ):
        result = run_drill(context, show=lambda step: logger.info("drill: %s", step))
        span.result(result)
    for warning in result.warnings:
        logger.warning("%s", warning)
    logger.info("%s", drill_line(result))
    if not result.ok:
        first = next(iter(result.all_problems), "")
        raise AirflowFailException(f"{drill_line(result)}: {first}")
    return _counts(result, details="groups")


def flows_of_events(events: Mapping[Any, Sequence[Any]] | None) -> list[str]:
    """Return the flows whose checkpoints assets started a run, none for a run by hand."""
    found = (event.extra.get("flow") for many in (events or {}).values() for event in many)
    return sorted({flow for flow in found if flow})


def sync_flows(flows: Sequence[str]) -> dict[str, Any]:
    """Sync group offsets of several flows; raise the first failure after all had their turn."""
    return _in_turn(flows, sync_group_offsets)


def aggregate_metrics(flows: Sequence[str]) -> dict[str, Any]:
    """Store the metrics' windows of several flows that are not stored yet; sum it up by flow.

    None for a flow with more raw metrics than this process should count. Raises as
    :func:`sync_flows`.
    """
    return _in_turn(flows, _aggregate)


def _aggregate(flow: str) -> dict[str, Any] | None:
    from srm.engine.metrics.aggregation import aggregate  # noqa: PLC0415 - not for parsing
    from srm.kafka.tables.topic_tail import read_raw_metrics  # noqa: PLC0415 - not for parsing

    pair = Flow.parse(flow)
    consumer = load_config(config_path()).cluster_clients(pair.target, pair).consumer
    with flow_context(flow, "metrics.aggregate") as (context, span):
        summary = aggregate(context, partial(read_raw_metrics, pair, consumer))
        span.result(summary)
    if summary is None:
        logger.info("%s: left to Spark, too many raw metrics", flow)
        return None
    logger.info("%s: %d windows, %d of them written", flow, summary.windows, summary.written)
    if summary.silence is not None:
        logger.warning(
            "%s: no replicator runs, %s: lag %s records",
            flow,
            summary.silence.reason,
            summary.silence.lag_records,
        )
    return dict(as_json(summary))


def verify_little(flows: Sequence[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """Verify the flows with few unverified records; count the outcomes of each.

    None leaves a flow to Spark: it has too much to compare for this process, or cannot be planned.
    """
    return {flow: _verify_little(flow, params) for flow in flows}


def _verify_little(flow: str, params: Mapping[str, Any]) -> dict[str, int] | None:
    from srm.domain.verification.verification import verdict  # noqa: PLC0415 - not for parsing
    from srm.engine.verification import (  # noqa: PLC0415 - as above
        VerificationRequest,
        carry_out_little,
        plan,
    )
    from srm.spark.verification import BothClusters, RangeComparer  # noqa: PLC0415 - as above

    topics = tuple(params["topics"] or ())
    request = VerificationRequest(topics, params["records"], full=params["full"])
    clusters = BothClusters.of(load_config(config_path()), Flow.parse(flow))
    try:
        with flow_context(flow, "verify") as (context, span):
            planned = plan(context, request)
            summary = carry_out_little(context, planned, lambda: RangeComparer(clusters))
            failure = verdict(summary) if summary is not None else None
            if failure is not None:
                raise failure
            span.result(summary)
    except (SrmError, AirflowFailException) as error:
        logger.warning("%s: left to Spark: %s", flow, error)
        return None
    if summary is None:
        logger.info("%s: left to Spark, too many records to compare", flow)
        return None
    counts = dict(Counter(str(partition.outcome) for partition in summary.partitions))
    logger.info("%s: %s, compared without Spark", flow, counts)
    return counts


def _in_turn(flows: Sequence[str], call: Callable[[str], Any]) -> dict[str, Any]:
    """Call for each flow; raise the first failure after all flows had their turn."""
    summaries: dict[str, Any] = {}
    failures: list[Exception] = []
    for flow in flows:
        try:
            summaries[flow] = call(flow)
        except (SrmError, AirflowFailException) as error:
            logger.error("%s: %s", flow, error)  # noqa: TRY400 - the message says it all
            failures.append(error)
    if failures:
        raise failures[0]
    return summaries


def sync_topics(flow: str) -> dict[str, Any]:
    """Create and grow the remote topics of a flow; note what the forms of its moves offer."""
    from srm.engine.control import topic_sync  # noqa: PLC0415 - not for parsing

    with flow_context(flow, "topics.sync") as (context, span):
        plan = topic_sync.sync(context)
        span.result(plan)
        move_form.note(context)
    return as_json(plan)


def _require_some(errors: Mapping[str, str], done: int) -> None:
    """Let a bad group not hide the good ones, and a run in which nothing worked not look good."""
    for group, reason in errors.items():
        logger.warning("group %s: %s", group, reason)
    if errors and not done:
        group, reason = next(iter(errors.items()))
        raise UnavailableError(f"none of {len(errors)} groups could be read; {group}: {reason}")


def _counts(summary: Any, details: str) -> dict[str, Any]:
    """Leave out what grows with groups and partitions: XCom and asset events are read by people."""
    return {key: value for key, value in as_json(summary).items() if key != details}


def is_copied(flow: str, since_s: float) -> bool:
    """Return whether the target has each record that the source had at a time (epoch seconds)."""
    from srm.clock import now_ms  # noqa: PLC0415 - not for parsing
    from srm.engine.status.observing import read_forecast  # noqa: PLC0415 - as above

    with flow_context(flow, "rpo") as (context, _):
        current = read_forecast(context)
    limit = now_ms() / 1000 - since_s
    logger.info("%s", current.line)
    return all(
        not topic.unknown
        and topic.seconds is not None
        and topic.age_ms is not None
        and topic.seconds + topic.age_ms / 1000 <= limit
        for topic in current.forecast.topics
    )
