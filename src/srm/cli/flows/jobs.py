"""``srm metrics`` and ``srm verify``: windows and comparisons, in Spark where that is needed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from srm import telemetry
from srm.cli.console import Looked, WatchOption, show, topic_option
from srm.cli.flows.for_flows import FlowResults, Flows, OneFlow, print_table, progress, say
from srm.clock import now_ms
from srm.config.values import ClientProperties
from srm.domain.groups.proof import FlowProof
from srm.domain.metrics import Statistics, WindowMetric, latest, totals
from srm.domain.names.topics import Flow
from srm.domain.text.amount import ago, amount
from srm.domain.verification import verification
from srm.engine.groups.proving import read_proof
from srm.engine.metrics import aggregation
from srm.engine.metrics.aggregation import AggregationSummary, Silence
from srm.engine.metrics.metrics import WindowSpec, stored_windows
from srm.engine.ports import FlowContext
from srm.engine.verification import Comparer, VerificationRequest, carry_out, plan, progress_text
from srm.kafka.tables.topic_tail import read_raw_metrics
from srm.wiring import open_flow

MasterOption = Annotated[
    str | None, typer.Option(help="Spark master; default: two cores of this machine.")
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Spark Connect server, sc://host:port; default: $SPARK_REMOTE."
    ),
]


def aggregate(
    flows: Flows,
    *,
    look_back: Annotated[
        int, typer.Option(metavar="SECONDS", help="How far back windows are computed again.")
    ] = 900,
    spark: Annotated[
        bool, typer.Option("--spark", help="Use Spark even if one process is enough.")
    ] = False,
    master: MasterOption = None,
    remote: RemoteOption = None,
) -> None:
    spec = WindowSpec(look_back_ms=look_back * 1000)
    doing, span = "aggregating raw metrics", "metrics.aggregate"

    def consumer(context: FlowContext) -> ClientProperties:
        flow = context.config.flow
        return flows.settings.cluster_clients(flow.target, flow).consumer

    def here(context: FlowContext) -> AggregationSummary | Flow:
        """Aggregate, or return the flow if that is a job for Spark."""
        if spark:
            return context.config.flow
        read = partial(read_raw_metrics, context.config.flow, consumer(context))
        return aggregation.aggregate(context, read, spec) or context.config.flow

    looked = flows.each(doing, here, span=span)
    found = [one for one in looked.values if isinstance(one, AggregationSummary)]
    results = FlowResults(found, looked.failures)
    if large := [one for one in looked.values if isinstance(one, Flow)]:
        # Importing Spark takes longer than most other commands run.
        from srm.spark.jobs import aggregate as aggregate_in
        from srm.spark.session import file_settings, spark_session

        conf = file_settings(flows.settings.spark, master)
        with spark_session("srm-metrics", master, conf, remote) as session:
            in_spark = replace(flows, flow=large).each(
                doing, lambda one: aggregate_in(session, one, consumer(one), spec), span=span
            )
        results = FlowResults(found + in_spark.values, looked.failures + in_spark.failures)
    results.emit(flows.as_json, _render_summaries)


def show_windows(
    flows: Flows,
    *,
    topic: Annotated[str | None, topic_option("Only this source topic.")] = None,
    total: Annotated[
        bool, typer.Option("--total", help="Combine all stored windows, up to two hours.")
    ] = False,
    watch: WatchOption = None,
) -> None:
    pick = totals if total else latest

    def read(context: FlowContext) -> tuple[Flow, list[WindowMetric], FlowProof | None]:
        flow, target = context.config.flow, context.target
        return flow, list(pick(stored_windows(target, flow, topic))), read_proof(target, flow)

    def look() -> Looked:
        results = flows.each("reading windows", read, quietly=watch is not None, partial=True)
        if not results.values:
            results.raise_failures()
        windows = [window for _, found, _ in results.values for window in found]

        def render(console: Console) -> None:
            _render_windows(console, windows, tuple(flow for flow, *_ in results.values))
            for proof in (proof for *_, proof in results.values if proof is not None):
                text = f"{proof.flow} checkpoints: {proof.line(now_ms())}"
                say(console, text, "red" if proof.disproved else "")

        return Looked([json.loads(one.value()) for one in windows], render, results.raise_failures)

    show(look, watch, as_json=flows.as_json)


def _render_summaries(console: Console, summaries: Iterable[AggregationSummary]) -> None:
    for summary in summaries:
        by = "by Spark" if summary.engine == "spark" else "without Spark"
        written = f"{amount(summary.written, 'window')} written"
        news = written if summary.written else "already complete, nothing written"
        console.print(
            f"{summary.flow}: {amount(summary.raw_records, 'raw record')}, "
            f"{amount(summary.windows, 'window')} {by}, {news}, {summary.expired} expired"
        )
        if summary.silence is not None:
            say(console, _silence(summary.silence), "yellow")


def _silence(silence: Silence) -> str:
    lag = (
        "lag unknown: the source does not answer"
        if silence.lag_records is None
        else f"{amount(silence.lag_records, 'record')} behind"
    )
    heard = silence.source_heard_ms
    since = f"; the source last answered {ago(silence.time_ms - heard)}" if heard else ""
    return f"  no replicator runs ({silence.reason or 'no live slot'}): {lag}{since}"


def _render_windows(console: Console, windows: list[WindowMetric], flows: tuple[Flow, ...]) -> None:
    if not windows:
        names = " ".join(f"--flow '{flow}'" for flow in flows)
        console.print(f"no windows are stored: run srm metrics aggregate {names}")
        return
    numbers = (
        "window s",
        "ended",
        "records",
        "kB/s sum min avg max",
        "latency ms min avg max",
        "lag sum min avg max",
        "checkpoint ms min avg max",
    )
    time_ms = now_ms()
    rows = (
        (
            window.flow,
            window.topic or "(all)",
            f"{(window.end_ms - window.start_ms) / 1000:g}",
            ago(time_ms - window.end_ms),
            window.records,
            _spread(window.byte_rate.times(0.001), 1, of_partitions=True),
            _spread(window.replication_latency_ms),
            _spread(window.replication_records_lag, of_partitions=True),
            _spread(window.checkpoint_latency_ms),
        )
        for window in windows
    )
    print_table(console, ("flow", "topic", *numbers), rows, right=numbers, whole=True)


def _spread(values: Statistics, digits: int = 0, *, of_partitions: bool = False) -> str:
    if not values.count:
        return "-"
    whole = (values.sum,) if of_partitions else ()
    return "  ".join(f"{v:,.{digits}f}" for v in (*whole, values.min, values.avg, values.max))


_STYLES: dict[verification.Outcome, str] = {
    "equal": "green",
    "different": "bold red",
    "unverified": "yellow",
    "failed": "bold yellow",
}


def verify(
    only: OneFlow,
    *,
    topic: Annotated[
        list[str] | None, topic_option("Source topic; may be repeated. Default: all.")
    ] = None,
    max_records: Annotated[
        int | None,
        typer.Option(min=1, help="Compare only this number of the newest records of a partition."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compare again what was proven equal before.")
    ] = False,
    by_records: Annotated[
        bool,
        typer.Option(
            "--by-records", help="Read everything with ordinary consumers; takes far longer."
        ),
    ] = False,
    master: MasterOption = None,
) -> None:
    resolved, flow = only.settings, only.flow
    request = VerificationRequest(tuple(topic or ()), max_records, full=full, by_records=by_records)
    with ExitStack() as stack:
        opened = stack.enter_context(telemetry.span("verify", flow=str(flow)))
        context = stack.enter_context(open_flow(resolved, flow))
        report = stack.enter_context(progress("planning"))
        planned = plan(context, request)

        def comparer() -> Comparer:
            # Importing Spark takes longer than most other commands run.
            from srm.spark.session import file_settings, spark_session
            from srm.spark.verification import BothClusters, RangeComparer

            clusters = BothClusters.of(resolved, flow)
            report("starting Spark")
            conf = file_settings(resolved.spark, master)
            spark = stack.enter_context(spark_session("srm-verification", master, conf))
            report("comparing")
            return RangeComparer(clusters, spark, by_records=by_records)

        summary = carry_out(context, planned, comparer, lambda *seen: report(progress_text(*seen)))
        opened.result(summary)
    only.emit(summary, lambda console: _render(console, summary))
    failure = verification.verdict(summary)
    if failure is not None:
        raise failure


def _render(console: Console, summary: verification.VerificationSummary) -> None:
    if not summary.partitions:
        console.print(
            f"{summary.flow} copies no topics: "
            f"srm-control topics {summary.flow.options} --add TOPIC"
        )
        return
    numbers = ("source", "target", "foreign")
    rows = (
        (
            f"{result.topic}-{result.partition}",
            Text(result.outcome, _STYLES[result.outcome]),
            *(result.source_records, result.target_records, result.foreign, _remark(result)),
        )
        for result in summary.partitions
    )
    print_table(console, ("partition", "outcome", *numbers, ""), rows, right=numbers, whole=True)


def _remark(result: verification.PartitionVerification) -> str:
    difference = result.difference and f"first difference: {result.difference}"
    return "; ".join(text for text in (difference, result.reason, result.proof) if text)
