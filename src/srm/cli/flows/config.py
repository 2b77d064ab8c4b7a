"""``srm init`` and ``srm config``: write a properties file, check it and explain its values."""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from srm.cli.console import (
    Common,
    ConfigOption,
    JsonOption,
    YesOption,
    emit,
    flow_option,
    name_file,
    remember_file,
    require_terminal,
)
from srm.cli.flows.doctor import Check, Checks, check_clusters, check_file, render_checks
from srm.cli.flows.for_flows import print_table, say
from srm.config import new_file
from srm.config.keys import CLIENT_KEYS, KEYS
from srm.config.lines import Candidate, Resolved, resolve_client
from srm.config.loader import DEFAULT_FILE, SettingsFile, read_settings, settings_sha256
from srm.config.model import CLIENT_KINDS, REDIRECT_SECRETS, Config, FlowConfig, plain_value
from srm.config.values import shown
from srm.domain.names.policy import split_patterns
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount
from srm.errors import ConfigError, UsageError
from srm.files import is_file, read_text


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
    common: Common,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    online: Annotated[
        bool, typer.Option("--online", help="Also check the clusters, as srm doctor does.")
    ] = False,
) -> None:
    checks = Checks()
    file, resolved = check_file(common.config, checks, strict=strict)
    if online and resolved is not None:
        check_clusters(resolved, checks)
    report = _report(file, resolved, checks)
    common.emit(report, lambda console: _show_report(console, report, resolved))
    checks.raise_problems()
    if strict and report.warnings:
        number = amount(len(report.warnings), "warning")
        raise ConfigError(f"{number}, first {report.warnings[0]}", "correct them, or omit --strict")


def explain(
    common: Common,
    *,
    key: Annotated[str, typer.Argument(help="A key or client setting, or a line of the file.")],
    flow: Annotated[Flow | None, flow_option("Only for this flow.")] = None,
) -> None:
    file = read_settings(common.config)
    name, of = _without_prefix(key, file)
    explanations = tuple(_explain(name, file, flow or of))
    common.emit(explanations, lambda console: _show_explanations(console, explanations, file))


def _report(file: SettingsFile, config: Config | None, checks: Checks) -> CheckReport:
    if config is None:
        found = tuple(checks)
        clusters = dict.fromkeys(file.clusters, "")
        return CheckReport(
            file.path, clusters, {}, file.warnings, (), settings_sha256(file), None, found
        )
    key = config.report_key.read()
    return CheckReport(
        path=config.path,
        clusters={
            alias: config.client(alias, "admin")["bootstrap.servers"] for alias in config.clusters
        },
        flows={str(flow): _flow_summary(one) for flow, one in sorted(config.flow_configs.items())},
        warnings=config.warnings,
        notes=tuple(_notes(config)),
        sha256=config.sha256,
        report_key_id=None if key is None else key.public.key_id,
        findings=tuple(checks),
    )


def _flow_summary(flow_config: FlowConfig) -> dict[str, object]:
    summary = asdict(flow_config)
    for name in ("flow", "back", "recorded"):
        del summary[name]
    summary["policy"] = type(flow_config.policy).__name__
    summary["separator"] = flow_config.policy.separator
    redirect = summary.pop("redirect")
    for name in REDIRECT_SECRETS:
        del redirect[name]
    return {name: plain_value(value) for name, value in summary.items()} | {
        f"failover_{name}": plain_value(value) for name, value in redirect.items()
    }


def _notes(config: Config) -> Iterator[str]:
    if not config.flows:
        yield "no flow is enabled, and nothing is copied; set A->B.enabled = true"
    for flow in config.flows:
        for what in ("topics", "groups"):
            if not getattr(config.flow(flow), what):
                yield (
                    f"{flow} selects no {what} in this file; set {flow}.{what} = .* for all, the "
                    f"default of MirrorMaker 2, or select some with: srm-control {what} "
                    f"{flow.options} --add ..."
                )


def _show_report(console: Console, report: CheckReport, config: Config | None) -> None:
    console.print(f"{report.path}: clusters {', '.join(report.clusters)}", highlight=False)
    if config is not None:
        _show_flows(console, report, config)
    for text in report.warnings:
        say(console, f"warning: {text}")
    for text in report.notes:
        say(console, f"note: {text}")
    render_checks(console, report.findings)


def _show_flows(console: Console, report: CheckReport, config: Config) -> None:
    rows = (
        (
            *(flow, "yes" if one.enabled else "no"),
            *(", ".join(one.topics) or "-", ", ".join(one.groups) or "-"),
            "yes" if one.reverse_checkpointing_enabled else "no",
        )
        for flow, one in sorted(config.flow_configs.items())
    )
    print_table(console, ("flow", "enabled", "topics", "groups", "reverse"), rows)
    signed = "not signed" if report.report_key_id is None else f"signed: {report.report_key_id}"
    console.print(f"settings sha256 {report.sha256}; reports of moves {signed}", soft_wrap=True)


def _without_prefix(line: str, file: SettingsFile) -> tuple[str, Flow | None]:
    """Return the key of a line like ``P->B.topics = a, b``, and the flow that it names."""
    key, flow = line.partition("=")[0].strip(), None
    for prefix in (*file.flows, *file.clusters, *CLIENT_KINDS, "override"):
        rest = key.removeprefix(f"{prefix}.")
        if rest != key and key not in KEYS and key not in CLIENT_KEYS:
            key, flow = rest, prefix if isinstance(prefix, Flow) else flow
    return key, flow


def _explain(key: str, file: SettingsFile, flow: Flow | None) -> Iterator[Explanation]:
    if flow is not None and flow not in file.flows:
        raise UsageError(
            f"flow {flow} is unknown: {file.path} lists the clusters {', '.join(file.clusters)}"
        )
    if key in KEYS:
        for each in [flow] if flow is not None else file.flows:
            yield _explanation(file.resolve(key, each), str(each))
    elif key in CLIENT_KEYS:
        for alias in (flow.source, flow.target) if flow is not None else file.clusters:
            for kind in CLIENT_KINDS:
                found = resolve_client(alias, kind, file.settings, flow).get(key)
                yield _explanation(found or Resolved(key, ()), f"{alias} {kind}")
    else:
        near = difflib.get_close_matches(key, [*KEYS, *CLIENT_KEYS], n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/configuration.md lists all keys"
        raise UsageError(f"unknown key {key}; {hint}")


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
    for explanation in explanations:
        value = "(not set)" if explanation.value is None else explanation.value or "(empty)"
        say(console, f"{explanation.subject}  {explanation.key} = {value}")
        for number, candidate in enumerate(reversed(explanation.trace)):
            where = f"{file.path} line {candidate.line}" if candidate.line else ""
            verdict = "from" if number == 0 else "overruled:"
            said = "" if number == 0 else f" = {candidate.value}"
            say(
                console, f"    {verdict} {candidate.level}: {candidate.key}{said}  {where}".rstrip()
            )


def client(
    *,
    config: ConfigOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file, not to stdout."),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Line to add; may be repeated."),
    ] = None,
) -> None:
    text = new_file.client_file(read_settings(config), dict(map(_assignment, add or ())))
    if output is None:
        typer.echo(text, nl=False)
        return
    new_file.write_client_file(output, text)
    typer.echo(f"{output}: written; name it with clusters= or $SRM_CLIENT_CONFIG")


def _assignment(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise UsageError(f"invalid --set {text}; use KEY=VALUE")
    return key.strip(), value.strip()


def init(
    *,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="File to write; it must not exist."),
    ] = Path(DEFAULT_FILE),
    clusters: Annotated[str, typer.Option(metavar="A,B", help="Aliases of the clusters.")] = "P,B",
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(
            "--bootstrap-servers",
            metavar="A=HOST:PORT",
            help="Address of a cluster; repeat it for each.",
        ),
    ] = None,
    topics: Annotated[
        str, typer.Option(metavar="X,Y", help="Topics to copy: names or patterns.")
    ] = ".*",
    groups: Annotated[str, typer.Option(metavar="X,Y", help="Groups to translate.")] = ".*",
    protocol: Annotated[
        str, typer.Option("--security-protocol", help=f"One of {', '.join(new_file.PROTOCOLS)}.")
    ] = "PLAINTEXT",
    mechanism: Annotated[
        str, typer.Option("--sasl-mechanism", help="Mechanism, if the protocol uses SASL.")
    ] = "SCRAM-SHA-512",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    if is_file(output):
        raise UsageError(f"{output} exists: name another file with --output")
    servers = dict(map(_address, bootstrap or ()))
    if not yes:
        servers_of = "--bootstrap-servers A=HOST:PORT for each cluster"
        require_terminal(as_json=as_json, instead=f"give {servers_of}, and --yes")
        clusters = typer.prompt("Aliases of the clusters", default=clusters)
    aliases = split_patterns(clusters)
    if unknown := sorted({*servers} - {*aliases}):
        raise UsageError(f"--bootstrap-servers {unknown[0]}=...: the clusters are {clusters}")
    for alias in aliases:
        if alias not in servers:
            if yes:
                raise UsageError(f"--bootstrap-servers {alias}=HOST:PORT is missing")
            servers[alias] = typer.prompt(f"Bootstrap servers of {alias} (HOST:PORT)")
    if not yes:
        topics = typer.prompt("Topics to copy (names or patterns)", default=topics)
        groups = typer.prompt("Groups to translate", default=groups)
        protocol = typer.prompt(
            f"Security protocol ({', '.join(new_file.PROTOCOLS)})", default=protocol
        )
    in_order = {alias: servers[alias] for alias in aliases}
    sections = new_file.first_file(in_order, topics, groups, protocol.upper(), mechanism.upper())
    text = new_file.render(sections, str(output))
    new_file.write_new(output, text)
    _say_written(output, as_json=as_json)


def import_file(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Connectors as JSON, or a Strimzi resource."),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this new file, not to stdout."
        ),
    ] = None,
    without_transforms: Annotated[
        bool,
        typer.Option(
            "--without-transforms",
            help="Leave out transforms that no policy can replace, and predicates.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    documents = [document for file in files for document in read_documents(file)]
    origin = ", ".join(map(str, files))
    sections = new_file.sections_of(documents, origin, without_transforms=without_transforms)
    text = new_file.render(sections, origin)
    if output is None:
        emit({"text": text}, as_json, lambda _: typer.echo(text, nl=False))
        return
    new_file.write_new(output, text)
    _say_written(output, as_json=as_json)


def _say_written(path: Path, *, as_json: bool) -> None:
    remember_file(path)
    commands = name_file("srm config check, then srm doctor")
    emit({"path": str(path)}, as_json, lambda _: typer.echo(f"{path}: written; next: {commands}"))


def _address(text: str) -> tuple[str, str]:
    alias, found, servers = text.partition("=")
    if not found or not servers:
        raise UsageError(f"invalid --bootstrap-servers {text}; use ALIAS=HOST:PORT")
    return alias.strip(), servers.strip()


def read_documents(file: Path) -> list[dict[str, Any]]:
    """Return the documents of a JSON or YAML file and of its lists, else UsageError."""
    text = read_text(file)
    try:
        return [*_documents(json.loads(text))]
    except ValueError:
        return [*_documents(_read_yaml(file, text))]


def _documents(found: Any) -> Iterator[dict[str, Any]]:
    items = found.get("items") if isinstance(found, dict) else found
    if isinstance(items, list):  # kubectl prints several resources as one
        for item in items:
            yield from _documents(item)
    elif isinstance(found, dict):
        yield found


def _read_yaml(file: Path, text: str) -> list[Any]:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ModuleNotFoundError:
        raise UsageError(
            f"{file} is not JSON, and YAML needs the package PyYAML",
            "pip install pyyaml, or kubectl get kafkamirrormaker2 NAME -o json",
        ) from None
    try:
        return list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError) as error:  # a date that is none, for example
        reason = " ".join(str(error).split())
        raise UsageError(f"{file} is neither JSON nor YAML: {reason}") from None
