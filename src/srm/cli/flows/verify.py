"""``srm verify``: compare the copies of a flow's topics with their sources, record by record."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm import telemetry
from srm.cli.console import ConfigOption, FlowOption, JsonOption, emit, open_console, topic_option
from srm.cli.flows.metrics import MasterOption
from srm.config.loader import load_config
from srm.domain.text.amount import amount
from srm.domain.verification.verification import (
    Outcome,
    PartitionVerification,
    VerificationSummary,
    verdict,
)
from srm.engine.verification import Comparer, Progress, VerificationRequest, carry_out, plan
from srm.pages.tables import Listing
from srm.wiring import open_flow

_STYLES: dict[Outcome, str] = {
    "equal": "green",
    "different": "bold red",
    "unverified": "yellow",
    "failed": "bold yellow",
}


def verify(
    *,
    flow: FlowOption,
    config: ConfigOption = None,
    topic: Annotated[
        list[str] | None,
        topic_option("Source topic, may be given several times; without it all."),
    ] = None,
    max_records: Annotated[
        int | None,
        typer.Option(min=1, help="Only the newest copied records of each partition."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compare again what was proven equal before.")
    ] = False,
    by_records: Annotated[
        bool,
        typer.Option(
            "--by-records", help="Let ordinary consumers read everything: takes far longer."
        ),
    ] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare count, order and content of source and target in Spark tasks.

    It begins where former runs have proven everything equal; without news it starts no Spark.

    Exit code 0 where all that could be compared is equal, 8 where copies differ (the first
    difference is named), 6 where a partition could not be read.
    """
    resolved = load_config(config)
    request = VerificationRequest(tuple(topic or ()), max_records, full=full, by_records=by_records)
    with ExitStack() as stack:
        opened = stack.enter_context(telemetry.span("verify", flow=str(flow)))
        context = stack.enter_context(open_flow(resolved, flow))
        status = stack.enter_context(open_console(stderr=True).status("planning"))
        planned = plan(context, request)

        def comparer() -> Comparer:
            # Importing Spark takes longer than most other commands run.
            from srm.spark.session import file_settings, spark_session
            from srm.spark.verification import BothClusters, SparkComparer

            clusters = BothClusters.of(resolved, flow)
            status.update("starting Spark")
            conf = file_settings(resolved.spark, master)
            spark = stack.enter_context(spark_session("srm-verification", master, conf))
            status.update("comparing")
            return SparkComparer(spark, clusters, by_records=by_records)

        summary = carry_out(context, planned, comparer, lambda seen: status.update(_line(seen)))
        opened.result(summary)
    emit(summary, as_json, lambda console: _render(console, summary))
    failure = verdict(summary)
    if failure is not None:
        raise failure


def _line(progress: Progress) -> str:
    return f"{progress.records:,} of {amount(progress.of, 'record')} compared"


def _render(console: Console, summary: VerificationSummary) -> None:
    if not summary.partitions:
        console.print(
            f"{summary.flow} copies no topics: srm-control topics --source {summary.flow.source} "
            f"--target {summary.flow.target} --add TOPIC"
        )
        return
    numbers = ("source", "target", "foreign")
    table = Listing("partition", "outcome", *numbers, "", right=numbers)
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
    difference = result.difference and f"first difference: {result.difference}"
    return "; ".join(told for told in (difference, result.reason, result.proof) if told)
