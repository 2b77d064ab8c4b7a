"""``srm failover report`` and ``srm failover drill``: evidence of moves and rehearsals."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from srm import telemetry
from srm.cli.console import open_console, tidying_up, write_document, write_exact, write_line
from srm.cli.flows.for_flows import say
from srm.cli.moves.failover import AnyMoveArgument, TwoClusters, option
from srm.config.loader import find_config, load_config
from srm.config.model import read_public_key
from srm.domain.moves.revisions import KeptReport, PublicKey, Signed, chain_break, short
from srm.domain.text.amount import utc
from srm.engine.drill import read_drills, run_drill
from srm.engine.moves import verification
from srm.engine.moves.context import MoveContext
from srm.engine.moves.store import MoveStore
from srm.errors import (
    ConfigError,
    ConflictError,
    IntegrityError,
    NotFoundError,
    SrmError,
    UsageError,
)
from srm.files import is_file
from srm.pages.files import export_report, signature_file
from srm.pages.html import report_page
from srm.pages.moves import report_view
from srm.pages.reports import (
    drill_view,
    history_view,
    list_row,
    list_view,
    report_markdown,
    signature_text,
)

ReportFormat = Literal["text", "json", "html", "markdown"]
"""Format of a shown report; ``json`` is the stored and signed bytes."""


def show(
    move_id: AnyMoveArgument = None,
    *,
    pair: TwoClusters,
    list_: Annotated[
        bool, typer.Option("--list", help="List the reports of all moves between two clusters.")
    ] = False,
    format_: Annotated[
        ReportFormat,
        typer.Option("--format", help="Format to print; json prints the signed bytes."),
    ] = "text",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write JSON, page and signature here, of one move or with --list of all.",
        ),
    ] = None,
) -> None:
    if (move_id is None) != list_:
        raise UsageError("name one move, or give --list: srm failover report MOVE_ID")
    if move_id is None:
        with pair.open(only_look=True) as context:
            status = context.command("status")
            _list(pair, verification.kept_reports(context), output, status)
        return
    with pair.open_for(move_id) as context:
        kept = _look_again(context, move_id)
    _export([kept], output)
    _print(kept, "json" if pair.as_json else format_)


def verify(
    reports: Annotated[
        list[str],
        typer.Argument(metavar="FILE|MOVE_ID", help="Exported JSON, or the ID of a move."),
    ],
    pair: TwoClusters,
    *,
    public_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Key (PEM) to verify with; default: the signing key of the file."
        ),
    ] = None,
) -> None:
    key = _trusted_key(public_key, pair.config)
    found: list[KeptReport] = []
    for name in reports:
        signed = _read(name, pair)
        try:
            signed.check(key)
            kept = KeptReport.decode(signed.value())
            _require_chain(found, kept)
        except SrmError as error:
            raise type(error)(f"report {name}: {error}") from error
        found.append(kept)
    rows = [
        {**list_row(kept), "written_ms": kept.report.written_ms, "verified": True} for kept in found
    ]
    pair.emit(rows, lambda console: _say_right(console, found))


def _look_again(context: MoveContext, move_id: str) -> KeptReport:
    if MoveStore.read(context).progress(move_id).is_decided:
        verification.watch_residue(context, move_id)
    else:
        verification.report(context, move_id)
    return verification.kept_report(context, move_id)


def _list(
    pair: TwoClusters, reports: tuple[KeptReport, ...], output: Path | None, status: str
) -> None:
    _export(reports, output)
    none = f"No move has a report yet; {status} lists the moves"
    rows = [list_row(kept) for kept in reports]
    pair.emit(rows, lambda console: console.print(list_view(reports) if reports else none))


def _export(reports: Iterable[KeptReport], folder: Path | None) -> None:
    if folder is None:
        return
    for kept in reports:
        for file in export_report(kept, report_page(kept), folder):
            write_line(f"written: {file}", stderr=True)


def _print(kept: KeptReport, wanted: ReportFormat) -> None:
    if wanted == "text":
        _render(open_console(), kept)
    elif wanted == "json":
        # Not a byte more: what is redirected to a file can be checked as it is.
        write_document(kept.signed.document.decode() + ("\n" if sys.stdout.isatty() else ""))
    elif wanted == "html":
        write_exact(report_page(kept), sys.stdout)
    else:
        write_exact(report_markdown(kept.report, signature_text(kept)), sys.stdout)


def _render(console: Console, kept: KeptReport) -> None:
    console.print(report_view(kept.report))
    for approval in kept.report.approvals:
        say(console, f"approved: {approval.by}, {approval.how}, {utc(approval.time_ms)}")
    say(console, signature_text(kept))


def _trusted_key(public_key: Path | None, config: Path | None) -> PublicKey:
    if public_key is not None:
        return read_public_key(public_key)
    why = "report.signing.key.location is not set"
    try:
        found = load_config(find_config(config)).report_key.read()
    except ConfigError as error:
        found, why = None, str(error)
    if found is None:
        raise UsageError(f"no key to verify with ({why}): name one with --public-key FILE")
    return found.public


def _read(name: str, pair: TwoClusters) -> Signed:
    file = Path(name)
    if not is_file(file):
        if file.suffix == ".json" or len(file.parts) > 1:
            raise NotFoundError(f"report {name}: file not found")
        with pair.open(only_look=True) as context:
            kept = verification.kept_report(context, name)
        if kept.report.move_id != name:
            raise IntegrityError(f"report {name}: the stored one is of {kept.report.move_id}")
        return kept.signed
    if file.suffix in {".html", ".sig"}:
        json = file.with_suffix("" if file.suffix == ".sig" else ".json")
        raise UsageError(f"report {name}: the signature is for the JSON file: check {json}")
    try:
        content = file.read_bytes()
        beside = signature_file(file)
        return Signed.beside(content, beside.read_bytes() if beside.is_file() else None)
    except OSError as error:
        raise UsageError(f"report {name}: {error.strerror}") from None


def _require_chain(found: Iterable[KeptReport], kept: KeptReport) -> None:
    for other in found:
        if other.report.move_id != kept.report.move_id:
            continue
        older, newer = sorted((other, kept), key=lambda one: one.report.revision)
        broken = chain_break(older, newer)
        if broken is not None:
            raise IntegrityError(broken)


def _say_right(console: Console, found: Iterable[KeptReport]) -> None:
    for kept in found:
        report, signature = kept.report, kept.signed.signature
        by = "" if signature is None else f" with key {short(signature.key_id)}"
        earlier = ", ".join(str(one.revision) for one in report.previous)
        after = f", after {earlier}" if earlier else ""
        say(
            console,
            f"{report.move_id}: revision {report.revision}{after} of {utc(report.written_ms)} is "
            f"exactly what was signed{by}; {report.operation} {report.source}->{report.target}, "
            f"{report.result.verdict}",
        )


def drill(
    pair: TwoClusters,
    *,
    topics: Annotated[list[str] | None, option("topics")] = None,
    groups: Annotated[list[str] | None, option("groups")] = None,
    exclude_groups: Annotated[list[str] | None, option("exclude_groups")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Show earlier drills: RPO, RTO and proof over time.")
    ] = False,
) -> None:
    if history:
        with pair.open(only_look=True) as context:
            flow = context.forward.config.flow
            found = read_drills(context.target, str(flow))
        pair.emit(found, lambda console: console.print(history_view(found, flow)))
        return
    progress = open_console(stderr=True)
    with (
        tidying_up(),
        pair.open() as context,
        progress.status("rehearsing a failover") as status,
        telemetry.span("drill", flow=str(context.forward.config.flow)) as opened,
    ):
        result = run_drill(
            context,
            topics or (),
            groups or (),
            lambda step: status.update(f"drill: {step}"),
            exclude_groups=exclude_groups or (),
        )
        opened.result(result)
    pair.emit(result, lambda console: console.print(drill_view(result)))
    if not result.ok:
        first = next(iter(result.all_problems), "see the table")
        raise ConflictError(
            f"drill {result.drill_id}: {result.proven} of {len(result.groups)} groups proven; "
            f"{first}"
        )
