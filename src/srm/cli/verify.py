"""``srm verify``: compare the copies of a flow's topics with their sources, record by record."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm import telemetry
from srm.cli.metrics import MasterOption
from srm.cli.output import ConfigOption, FlowOption, JsonOption, emit
from srm.config.loader import load_config
from srm.domain.verification import Outcome, PartitionVerification, VerificationSummary, verdict
from srm.pages.tables import Listing
from srm.wiring import open_flow

_STYLES: dict[Outcome, str] = {
    "equal": "green",
    "different": "bold red",
    "unverified": "yellow",
    "failed": "bold yellow",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)


def verify(
    *,
    flow: FlowOption,
    config: ConfigOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", help="Source topic, may be given several times; without it all."
        ),
    ] = None,
    max_records: Annotated[
        int | None,
        typer.Option(min=1, help="Only the newest copied records of each partition."),
    ] = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare count, order and content of source and target in Spark tasks.

    Exit code 0 where all that could be compared is equal, 8 where copies differ (the first
    difference is named), 6 where a partition could not be read.
    """
    # Importing Spark takes longer than most other commands run.
    from srm.spark.session import spark_session  # noqa: PLC0415
    from srm.spark.verification import BothClusters, VerificationRequest  # noqa: PLC0415
    from srm.spark.verification import verify as verify_flow  # noqa: PLC0415

    resolved = load_config(config)
    request = VerificationRequest(tuple(topic or ()), max_records)
    clusters = BothClusters.of(resolved, flow)
    with (
        telemetry.span("verify", flow=str(flow)) as opened,
        spark_session("srm-verification", master) as spark,
        open_flow(resolved, flow) as context,
    ):
        summary = verify_flow(spark, context, clusters, request)
        opened.result(summary)
    emit(summary, as_json, lambda console: _render(console, summary))
    failure = verdict(summary)
    if failure is not None:
        raise failure


def _render(console: Console, summary: VerificationSummary) -> None:
    if not summary.partitions:
        console.print(
            f"{summary.flow} copies no topics: srm-control topics --source {summary.flow.source} "
            f"--target {summary.flow.target} --add TOPIC"
        )
        return
    table = Listing()
    for name in ("partition", "outcome"):
        table.add_column(name)
    for name in ("source", "target", "foreign"):
        table.add_column(name, justify="right")
    table.add_column("")
    for result in summary.partitions:
        table.add_row(
            f"{result.topic}-{result.partition}",
            f"[{_STYLES[result.outcome]}]{result.outcome}[/]",
            f"{result.source_records:,}",
            f"{result.target_records:,}",
            f"{result.foreign:,}",
            escape(_remark(result)),
        )
    console.print(table)


def _remark(result: PartitionVerification) -> str:
    if result.difference is None:
        return result.reason
    return f"first difference: {result.difference}"
