"""``srm init`` and ``srm config import``: a first properties file."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from srm.cli.console import JsonOption, YesOption, emit, require_terminal
from srm.config.importing import sections_of
from srm.config.loader import DEFAULT_FILE
from srm.config.new_file import PROTOCOLS, first_file, render, write_new
from srm.domain.names.policy import split_patterns
from srm.errors import UsageError


def init(
    *,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="File to write; it must not exist."),
    ] = Path(DEFAULT_FILE),
    clusters: Annotated[
        str, typer.Option("--clusters", metavar="A,B", help="Aliases of the clusters.")
    ] = "P,B",
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(
            "--bootstrap-servers",
            metavar="A=HOST:PORT",
            help="Address of a cluster, once for each.",
        ),
    ] = None,
    topics: Annotated[
        str, typer.Option("--topics", metavar="X,Y", help="Topics to copy: names or patterns.")
    ] = ".*",
    groups: Annotated[
        str, typer.Option("--groups", metavar="X,Y", help="Groups to translate.")
    ] = ".*",
    protocol: Annotated[
        str, typer.Option("--security-protocol", help=f"One of {', '.join(PROTOCOLS)}.")
    ] = "PLAINTEXT",
    mechanism: Annotated[
        str, typer.Option("--sasl-mechanism", help="For a protocol with SASL.")
    ] = "SCRAM-SHA-512",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented srm.properties after five questions; with --yes from options alone.

    Secrets are written as references to environment variables.
    """
    if output.exists():
        raise UsageError(f"{output} exists: name another file with --output")
    servers = dict(map(_address, bootstrap or ()))
    if not yes:
        require_terminal(as_json=as_json)
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
        protocol = typer.prompt(f"Security protocol ({', '.join(PROTOCOLS)})", default=protocol)
    in_order = {alias: servers[alias] for alias in aliases}
    sections = first_file(in_order, topics, groups, protocol.upper(), mechanism)
    text = render(sections, str(output))
    write_new(output, text)
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
    as_json: JsonOption = False,
) -> None:
    """Translate MirrorMaker 2 on Kafka Connect or Strimzi into a properties file.

    Takes MirrorSourceConnector, MirrorCheckpointConnector and MirrorHeartbeatConnector as JSON, one
    or a list, and KafkaMirrorMaker2 (v1, v1beta2) as YAML or JSON. Comments list what has no
    meaning here. Without --output nothing is written.
    """
    documents = [document for file in files for document in read_documents(file)]
    text = render(sections_of(documents, ", ".join(map(str, files))), str(output or files[0]))
    if output is None:
        emit({"text": text}, as_json, lambda _: typer.echo(text, nl=False))
        return
    write_new(output, text)
    _say_written(output, as_json=as_json)


def _say_written(path: Path, *, as_json: bool) -> None:
    line = f"{path}: written; next: srm config check --config {path}, then srm doctor"
    emit({"path": str(path)}, as_json, lambda _: typer.echo(line))


def _address(text: str) -> tuple[str, str]:
    alias, found, servers = text.partition("=")
    if not found or not servers:
        raise UsageError(f"--bootstrap-servers {text}: write it as ALIAS=HOST:PORT")
    return alias.strip(), servers.strip()


def read_documents(file: Path) -> list[dict[str, Any]]:
    """Return the documents of a JSON or YAML file, else UsageError."""
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from None
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = _read_yaml(file, text)
    items = found.get("items", [found]) if isinstance(found, dict) else found
    if not isinstance(items, Iterable) or isinstance(items, str):
        raise UsageError(f"{file} holds neither connectors nor a resource")
    return [item for item in items if isinstance(item, dict)]


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
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{file} is neither JSON nor YAML: {reason}") from None
