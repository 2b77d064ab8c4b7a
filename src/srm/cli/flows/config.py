"""``srm config``: what the properties file says, and which line of it decided a value."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli import completing
from srm.cli.console import ConfigOption, JsonOption, emit
from srm.cli.flows.findings import Check, Checks, check_clusters, render
from srm.config.client_file import client_file
from srm.config.hierarchy import Candidate, Resolved, resolve_client
from srm.config.keys.keys import CLIENT_KEYS, KEYS
from srm.config.loader import CLIENT_KINDS, SettingsFile, build_config, read_settings
from srm.config.model import Config, FlowConfig
from srm.config.secrets import shown
from srm.domain.names.topics import Flow
from srm.errors import ConfigError, StackError, UsageError
from srm.files import write_atomically
from srm.kafka.wire.security import read_security
from srm.pages.tables import Listing

_FlowToExplain = Annotated[
    Flow | None,
    typer.Option(
        "--flow",
        "-f",
        metavar="A:B",
        parser=Flow.parse,
        help="Only for this flow.",
        autocompletion=completing.flows,
    ),
]


@dataclass(frozen=True)
class CheckReport:
    """The contents of a properties file; ``notes`` say where nothing would be copied.

    ``sha256`` is its hash in reports of moves, ``report_key_id`` that of their key, or None.
    """

    path: str
    clusters: Mapping[str, str]
    flows: Mapping[str, Mapping[str, object]]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    sha256: str
    report_key_id: str | None
    findings: tuple[Check, ...]


@dataclass(frozen=True)
class Explanation:
    """A value for one flow or one client, with every line that was considered, weak to strong."""

    key: str
    subject: str
    value: str | None
    trace: tuple[Candidate, ...]


def check(
    *,
    config: ConfigOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Take every unknown key for an error.")
    ] = False,
    online: Annotated[
        bool, typer.Option("--online", help="Also look at the clusters, as srm doctor does.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read the file and report its clusters, flows and warnings; exit 2 where it has an error.

    With --online also what srm doctor finds on the clusters, with its exit codes: 6 for a cluster
    that is unavailable, 9 for a missing right. Warnings do not change the exit code.
    """
    resolved = build_config(read_settings(config, strict=strict))
    check_connections(resolved)
    checks = Checks()
    if online:
        check_clusters(resolved, checks)
    report = _report(resolved, checks)
    emit(report, as_json, lambda console: _show_report(console, report, resolved))
    checks.raise_problems()


def explain(
    *,
    key: Annotated[str, typer.Argument(help="A key or client setting, without prefix.")],
    config: ConfigOption = None,
    flow: _FlowToExplain = None,
    as_json: JsonOption = False,
) -> None:
    """Show the value of a key for each flow (or client), and the lines it came from."""
    file = read_settings(config)
    explanations = tuple(_explain(key, file, flow))
    emit(explanations, as_json, lambda console: _show_explanations(console, explanations, file))


def check_connections(config: Config) -> None:
    """Refuse what would only fail when something connects; nothing connects here."""
    clients = [(alias, client) for (alias, _), client in config.clients.items()]
    clients += [(alias, client) for (_, alias, _), client in config.flow_clients.items()]
    for alias, client in clients:
        try:
            read_security(alias, client)
        except ConfigError as error:
            raise ConfigError(f"{config.path}: {error}") from None


def _report(config: Config, checks: Checks) -> CheckReport:
    key = config.report_key.read()
    return CheckReport(
        path=config.path,
        clusters={
            alias: config.client(alias, "admin")["bootstrap.servers"] for alias in config.clusters
        },
        flows={str(flow): _flow_summary(flow_config) for flow, flow_config in _flows(config)},
        warnings=config.warnings,
        notes=tuple(_notes(config)),
        sha256=config.sha256,
        report_key_id=None if key is None else key.public.key_id,
        findings=tuple(checks),
    )


def _flows(config: Config) -> list[tuple[Flow, FlowConfig]]:
    return sorted(config.flow_configs.items())


def _flow_summary(flow_config: FlowConfig) -> dict[str, object]:
    summary = asdict(flow_config)
    for name in ("flow", "back", "recorded"):
        del summary[name]
    summary["policy"] = type(flow_config.policy).__name__
    summary["separator"] = flow_config.policy.separator
    redirect = summary.pop("redirect")
    del redirect["webhook_url"], redirect["webhook_secret"]  # some addresses are secrets themselves
    return {name: _plain(value) for name, value in summary.items()} | {
        f"failover_{name}": _plain(value) for name, value in redirect.items()
    }


def _plain(value: object) -> object:
    if isinstance(value, type):
        return f"{value.__module__}:{value.__qualname__}"
    return value.total_seconds() if isinstance(value, timedelta) else value


def _notes(config: Config) -> Iterator[str]:
    if not config.flows:
        yield "no flow is enabled, and nothing is copied; set A->B.enabled = true"
    for flow in config.flows:
        for what in ("topics", "groups"):
            if not getattr(config.flow(flow), what):
                yield (
                    f"{flow} selects no {what} in this file; set {flow}.{what} = .* for all, the "
                    f"default of MirrorMaker 2, or select some with: srm-control {what} "
                    f"--source {flow.source} --target {flow.target} --add ..."
                )


def _show_report(console: Console, report: CheckReport, config: Config) -> None:
    console.print(f"{report.path}: clusters {', '.join(report.clusters)}", highlight=False)
    table = Listing("flow", "enabled", "topics", "groups", "reverse", pad_edge=False)
    for flow, flow_config in _flows(config):
        table.add_row(
            str(flow),
            "yes" if flow_config.enabled else "no",
            escape(", ".join(flow_config.topics) or "-"),
            escape(", ".join(flow_config.groups) or "-"),
            "yes" if flow_config.reverse_checkpointing_enabled else "no",
        )
    console.print(table)
    signed = "not signed" if report.report_key_id is None else f"signed: {report.report_key_id}"
    console.print(f"settings sha256 {report.sha256}; reports of moves {signed}", soft_wrap=True)
    for text in report.warnings:
        console.print(f"warning: {text}", soft_wrap=True, highlight=False, markup=False)
    for text in report.notes:
        console.print(f"note: {text}", soft_wrap=True, highlight=False, markup=False)
    render(console, report.findings)


def _explain(key: str, file: SettingsFile, flow: Flow | None) -> Iterator[Explanation]:
    if flow is not None and flow not in file.flows:
        raise UsageError(
            f"flow {flow} is unknown: {file.path} lists the clusters {', '.join(file.clusters)}"
        )
    if key in KEYS:
        for each in [flow] if flow is not None else file.flows:
            yield _explanation(file.resolve(key, each), str(each))
    elif key in CLIENT_KEYS:
        yield from _explain_client(key, file, flow)
    else:
        near = difflib.get_close_matches(key, [*KEYS, *CLIENT_KEYS], n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/configuration.md lists all keys"
        raise UsageError(f"unknown key {key}; give it without prefix; {hint}")


def _explain_client(key: str, file: SettingsFile, flow: Flow | None) -> Iterator[Explanation]:
    for alias in (flow.source, flow.target) if flow is not None else file.clusters:
        for kind in CLIENT_KINDS:
            found = resolve_client(alias, kind, file.settings, flow).get(key)
            yield _explanation(found or Resolved(key, ()), f"{alias} {kind}")


def _explanation(resolved: Resolved, subject: str) -> Explanation:
    trace = tuple(
        replace(candidate, value=shown(resolved.name, candidate.value))
        for candidate in resolved.trace
    )
    value = trace[-1].value if trace else None
    return Explanation(resolved.name, subject, value, trace)


def _show_explanations(
    console: Console, explanations: tuple[Explanation, ...], file: SettingsFile
) -> None:
    def line(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    for explanation in explanations:
        value = "(not set)" if explanation.value is None else explanation.value or "(empty)"
        line(f"{explanation.subject}  {explanation.key} = {value}")
        for number, candidate in enumerate(reversed(explanation.trace)):
            where = f"{file.path} line {candidate.line}" if candidate.line else ""
            verdict = "from" if number == 0 else "overruled:"
            said = "" if number == 0 else f" = {candidate.value}"
            line(f"    {verdict} {candidate.level}: {candidate.key}{said}  {where}".rstrip())


def client(
    *,
    config: ConfigOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file, not to stdout."),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Add a line, e.g. P.sasl.username=app."),
    ] = None,
) -> None:
    """Write the file that applications need: clusters, addresses, and no secrets of this one."""
    text = client_file(read_settings(config), dict(map(_assignment, add or ())))
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_atomically(output, text.encode())  # only its owner may read it
    except StackError as error:
        raise UsageError(str(error)) from None
    typer.echo(f"{output}: written; name it with clusters= or $SRM_CLIENT_CONFIG")


def _assignment(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise UsageError(f"--set {text}: write it as KEY=VALUE")
    return key.strip(), value.strip()
