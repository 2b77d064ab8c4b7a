"""``srm metrics``: compute the windows of a flow's metrics, and show them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm import telemetry
from srm.cli.output import ConfigOption, FlowsOption, JsonOption, emit
from srm.cli.watching import Looked, WatchCommand, WatchOption, show
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.metrics import Statistics, WindowMetric, latest, totals
from srm.domain.proof_records import FlowProof
from srm.domain.topics import Flow
from srm.engine.metrics import AggregationSummary, WindowSpec, stored_windows
from srm.engine.proving import read_proof
from srm.pages.tables import Listing
from srm.wiring import now_ms, open_cluster, open_flow

_Pick = Callable[[tuple[WindowMetric, ...]], tuple[WindowMetric, ...]]

app = typer.Typer(
    help="Windowed metrics: byte rate, replication latency, record lag.", no_args_is_help=True
)

MasterOption = Annotated[
    str | None, typer.Option(help="Spark master; without it two cores of this machine.")
]


@app.command()
def aggregate(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    look_back: Annotated[
        int, typer.Option(metavar="SECONDS", help="Compute the windows of this long a time again.")
    ] = 900,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the windows of the last minutes from the raw metrics; again is harmless."""
    # Importing Spark takes longer than most other commands run.
    from srm.spark.aggregation import aggregate as aggregate_flow  # noqa: PLC0415
    from srm.spark.session import spark_session  # noqa: PLC0415

    resolved = load_config(config)
    spec = WindowSpec(look_back_ms=look_back * 1000)
    summaries: list[AggregationSummary] = []
    with spark_session("srm-metrics", master) as spark:
        for one in flow or resolved.flows:
            with (
                telemetry.span("metrics.aggregate", flow=str(one)) as opened,
                open_flow(resolved, one) as context,
            ):
                consumer = resolved.cluster_clients(one.target, one).consumer
                summaries.append(aggregate_flow(spark, context, consumer, spec))
                opened.result(summaries[-1])
    emit(tuple(summaries), as_json, lambda console: _render_summaries(console, summaries))


@app.command(name="show", cls=WatchCommand)
def show_windows(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only this source topic.")
    ] = None,
    total: Annotated[
        bool, typer.Option("--total", help="All stored windows together, up to two hours.")
    ] = False,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest window of each topic and flow, or with --total all of them together."""
    resolved = load_config(config)
    wanted = tuple(flow or resolved.flows)
    pick: _Pick = totals if total else latest

    def look() -> Looked:
        windows, proofs = _stored(resolved, wanted, topic, pick)
        stored = [json.loads(window.value()) for window in windows]
        return Looked(stored, lambda console: _render_stored(console, windows, proofs, wanted))

    show(look, watch, as_json=as_json)


def _stored(
    resolved: Config, flows: tuple[Flow, ...], topic: str | None, pick: _Pick
) -> tuple[list[WindowMetric], list[FlowProof]]:
    """Read the windows of some flows, and what was last proven of their checkpoints."""
    windows: list[WindowMetric] = []
    proofs: list[FlowProof] = []
    for one in flows:
        with open_cluster(resolved, one.target) as cluster:
            windows.extend(pick(stored_windows(cluster, one, topic)))
            if (proof := read_proof(cluster, one)) is not None:
                proofs.append(proof)
    return windows, proofs


def _render_stored(
    console: Console,
    windows: list[WindowMetric],
    proofs: list[FlowProof],
    flows: tuple[Flow, ...],
) -> None:
    _render_windows(console, windows, flows)
    for proof in proofs:
        colour = "red" if proof.disproved else "default"
        text = f"{proof.flow} checkpoints: {proof.line(now_ms())}"
        console.print(f"[{colour}]{escape(text)}[/{colour}]", soft_wrap=True)


def _render_summaries(console: Console, summaries: list[AggregationSummary]) -> None:
    for summary in summaries:
        console.print(
            f"{summary.flow}: {summary.raw_records} raw records, {summary.windows} windows, "
            f"{summary.written} written, {summary.expired} expired"
        )


def _render_windows(console: Console, windows: list[WindowMetric], flows: tuple[Flow, ...]) -> None:
    if not windows:
        names = " ".join(f"--flow '{flow}'" for flow in flows)
        console.print(f"no windows are stored: run srm metrics aggregate {names}")
        return
    table = Listing()
    table.add_column("flow")
    table.add_column("topic")
    for name in ("window s", "records", "kB/s min avg max", "latency ms min avg max"):
        table.add_column(name, justify="right")
    table.add_column("lag min avg max", justify="right")
    for window in windows:
        table.add_row(
            str(window.flow),
            window.topic or "(all)",
            f"{(window.end_ms - window.start_ms) / 1000:g}",
            f"{window.records:,}",
            _spread(window.byte_rate, 1000, 1),
            _spread(window.replication_latency_ms, 1, 0),
            _spread(window.replication_records_lag, 1, 0),
        )
    console.print(table)


def _spread(values: Statistics, unit: int, digits: int) -> str:
    if not values.count:
        return "-"
    return "  ".join(f"{v / unit:,.{digits}f}" for v in (values.min, values.avg, values.max))
