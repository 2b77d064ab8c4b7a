"""``srm-control``: topics and groups that a flow takes along, with the options of SRM's tool.

The lists of a flow are kept on its target, so commands for P->B work while P is down.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Self

import typer

from srm.cli import completing
from srm.cli.console import ConnectionOptions, JsonOption, emit, write_exact, write_line
from srm.clock import now_ms
from srm.config.loader import CONFIG_VARIABLE, DEFAULT_FILE, find_config, load_config, target_only
from srm.config.model import Config
from srm.config.properties import read_properties, with_overrides
from srm.config.values import shown
from srm.domain.names.policy import split_patterns
from srm.domain.names.topics import Flow
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ChangeSummary, ListChange, ListName, ListPair
from srm.engine.groups import offsets_export
from srm.errors import UsageError
from srm.files import require_writable, user_file
from srm.wiring import open_cluster

_NAME: Final = re.compile(r"[A-Za-z0-9_\-]+(?:\\?\.[A-Za-z0-9_\-]+)*")


@dataclass(frozen=True, kw_only=True)
class ControlOptions(ConnectionOptions):
    """Options of a command of srm-control."""

    source: Annotated[
        str | None,
        typer.Option(
            metavar="ALIAS",
            help="Source of the flow; default: that of the only enabled flow.",
            autocompletion=completing.clusters,
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(metavar="ALIAS", help="Its target.", autocompletion=completing.clusters),
    ] = None
    consumer_props: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Setting of consumers.")
    ] = field(default=None, repr=False)

    def over(self, weaker: ConnectionOptions) -> Self:
        """Put these options over those that were given before the subcommand."""
        return replace(
            self,
            config=self.config or weaker.config,
            bootstrap_servers=self.bootstrap_servers or weaker.bootstrap_servers,
            props=[*(weaker.props or ()), *(self.props or ())],
        )

    def lines(self, alias: str) -> dict[str, str]:
        """Return the settings of a cluster's clients as lines of a properties file."""
        lines = {
            **_settings(f"{alias}.", self.props, "--props"),
            **_settings(f"{alias}.consumer.", self.consumer_props, "--consumer-props"),
        }
        if self.bootstrap_servers is not None:
            lines[f"{alias}.bootstrap.servers"] = self.bootstrap_servers
        return lines


@dataclass(frozen=True, kw_only=True)
class WritingOptions(ControlOptions):
    """Options of a command that may write to the target."""

    producer_props: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Setting of producers.")
    ] = field(default=None, repr=False)

    def lines(self, alias: str) -> dict[str, str]:
        own = _settings(f"{alias}.producer.", self.producer_props, "--producer-props")
        return {**super().lines(alias), **own}


def _list_command(name: ListName) -> Callable[..., None]:
    def command(
        context: typer.Context,
        options: WritingOptions,
        *,
        add: Annotated[
            list[str] | None, typer.Option(metavar="X,Y", help="Add to the allowlist.")
        ] = None,
        remove: Annotated[
            list[str] | None, typer.Option(metavar="X,Y", help="Remove from the allowlist.")
        ] = None,
        add_deny: Annotated[
            list[str] | None,
            typer.Option(
                "--add-blacklist", "--add-denylist", metavar="X,Y", help="Add to the denylist."
            ),
        ] = None,
        remove_deny: Annotated[
            list[str] | None,
            typer.Option(
                "--remove-blacklist",
                "--remove-denylist",
                metavar="X,Y",
                help="Remove from the denylist.",
            ),
        ] = None,
        show: Annotated[bool, typer.Option("--list", help="Print both lists.")] = False,
        as_json: JsonOption = False,
    ) -> None:
        changes = ListChange(_split(add), _split(remove), _split(add_deny), _split(remove_deny))
        if changes.is_empty and not show:
            raise UsageError("nothing to do: give --list, or --add, --remove, --add-blacklist ...")
        found = find_target(options.over(context.obj))
        _run_list(name, found, changes, show=show, as_json=as_json)

    return command


topics = _list_command("topics")
groups = _list_command("groups")
reverse_checkpointed_topics = _list_command("reverse-checkpointed-topics")


def offsets(
    context: typer.Context,
    options: ControlOptions,
    *,
    export: Annotated[
        bool, typer.Option("--export", help="Print CSV for kafka-consumer-groups --from-file.")
    ] = False,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Only this group, without the group column.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", "--to", metavar="FILE", help="Write to this file, not to stdout."
        ),
    ] = None,
) -> None:
    if not export:
        raise UsageError("nothing to do: give --export")
    if output is not None:
        require_writable(output)
    found = find_target(options.over(context.obj))
    with open_cluster(found.config, found.flow.target) as cluster:
        chosen = offsets_export.checkpoints(cluster, found.flow, group, found.separator)
    text = offsets_export.to_csv(chosen, with_group=group is None)
    if output is None:
        write_exact(text, sys.stdout)
        return
    with user_file(output, "written"):
        output.write_text(text, "utf-8")


def _split(texts: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(pattern for text in texts or () for pattern in split_patterns(text))


def _run_list(
    name: ListName, found: Target, changes: ListChange, *, show: bool, as_json: bool
) -> None:
    flow = found.flow
    with open_cluster(found.config, flow.target) as cluster:
        if changes.is_empty:
            lists = control_lists.load(cluster, flow).pair(name)
        else:
            replicas = found.replication_factor
            summary = control_lists.change(cluster, flow, name, changes, now_ms(), replicas)
            lists = summary.lists
            for text in (*_advice(name, found, changes), *_surprises(name, summary)):
                write_line(f"warning: {text}", stderr=True)
    text = "\n".join(_report(lists, show=show))
    emit(lists, as_json, lambda _: write_line(text))


def _report(lists: ListPair, *, show: bool) -> Iterator[str]:
    if show:
        yield "Current whitelist:"
        yield from lists.allow
        yield "Current blacklist:"
        yield from lists.deny
    yield "Done."


def read_list(text: str) -> ListPair:
    """Read both lists of a flow from what ``--list`` prints; UsageError: it is not that."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    heads = [line for line in lines if line.startswith("Current ")]
    if heads != ["Current whitelist:", "Current blacklist:"] or lines[0] != heads[0]:
        raise UsageError("not the output of srm-control --list: it begins with Current whitelist:")
    middle, end = lines.index(heads[1]), len(lines) - (lines[-1] == "Done.")
    return ListPair(tuple(lines[1:middle]), tuple(lines[middle + 1 : end]))


def _surprises(name: ListName, summary: ChangeSummary) -> Iterator[str]:
    for pattern in summary.absent:
        yield f"{pattern} was not in the {name} list"
    for pattern in summary.already:
        yield f"{pattern} was in the {name} list already"


def _advice(name: ListName, found: Target, changes: ListChange) -> Iterator[str]:
    if name == "reverse-checkpointed-topics":
        yield from _replica_names(found, changes.add)
    if not found.configured:
        return
    flow_config = found.config.flow(found.flow)
    if not flow_config.enabled:
        yield (
            f"flow {found.flow} is not enabled: set {found.flow}.enabled = true in "
            f"{found.config.path}"
        )
    if name == "reverse-checkpointed-topics" and not flow_config.reverse_checkpointing_enabled:
        yield (
            "reverse checkpointing is off: set reverse.checkpointing.enabled = true in "
            f"{found.config.path}"
        )


def _replica_names(found: Target, patterns: Sequence[str]) -> Iterator[str]:
    """Say so when a name cannot be that of a remote topic on the flow's source."""
    primary, settings = found.flow.target, found.config.flow(found.flow)
    policy = settings.back or settings.policy
    for pattern in patterns:
        plain = pattern.replace("\\.", ".")
        if not _NAME.fullmatch(pattern) or policy.topic_source(plain) == primary:
            continue
        topic = re.sub(rf"^{re.escape(primary)}(__|[._\-])", "", plain, count=1)
        yield (
            f"{pattern} is not a remote topic of {primary} on {found.flow.source}: the remote "
            f"topic of {topic} is {policy.format_remote_topic(primary, topic)}"
        )


BROKER_DEFAULT: Final = -1
"""Replication factor that lets the broker choose (its default.replication.factor)."""


@dataclass(frozen=True, slots=True)
class Target:
    """A flow as srm-control knows it; ``configured``: from a whole file, not only an address."""

    config: Config
    flow: Flow
    configured: bool

    @property
    def replication_factor(self) -> int:
        """Replication factor of the control topic, if it has to be made."""
        if not self.configured:
            return BROKER_DEFAULT
        return self.config.flow(self.flow).internal_replication_factor

    @property
    def separator(self) -> str:
        return self.config.flow(self.flow).policy.separator


def find_target(options: ControlOptions) -> Target:
    """Find out how to reach the flow's target, which is that of the one enabled flow by default.

    From the properties file, with the options on top; from ``--bootstrap-servers`` alone where no
    file is named and none that knows the flow is found. A named file without ``clusters`` holds
    client settings, as for other Kafka tools.
    """
    source, target = options.source, options.target
    flow = Flow.parse(f"{source}->{target}") if source and target else _only(options)
    overrides = options.lines(flow.target)
    file = _file(options)
    lines = read_properties(file) if file is not None else ()
    clusters = [line.value for line in lines if line.key == "clusters"]
    if file is not None and clusters and not _is_bypassed(flow, options, clusters[-1]):
        config = load_config(file, overrides)
        config.flow(flow)
        return Target(config, flow, configured=True)
    if options.bootstrap_servers is None:
        raise UsageError(
            f"no address of cluster {flow.target}: give --bootstrap-servers, or a properties file "
            f"with --config, ${CONFIG_VARIABLE} or ./{DEFAULT_FILE}"
        )
    own = () if clusters else lines
    path = str(file) if own else "command line"
    config = target_only(flow, with_overrides(own, overrides), path)
    return Target(config, flow, configured=False)


def _only(options: ControlOptions) -> Flow:
    config = load_config(options.config)
    fitting = [
        flow
        for flow in config.flows
        if options.source in {None, flow.source} and options.target in {None, flow.target}
    ]
    if len(fitting) != 1:
        enabled = ", ".join(map(str, config.flows)) or "none"
        raise UsageError(
            f"ambiguous flow: {config.path} enables {enabled}", "name --source and --target"
        )
    return fitting[0]


def _file(options: ControlOptions) -> Path | None:
    named = options.config is not None or bool(os.environ.get(CONFIG_VARIABLE))
    if named or Path(DEFAULT_FILE).is_file():
        return find_config(options.config)
    return None


def _is_bypassed(flow: Flow, options: ControlOptions, clusters: str) -> bool:
    """Return whether a file found by default, not named, is about other clusters."""
    if options.config is not None or options.bootstrap_servers is None:
        return False
    return not {flow.source, flow.target} <= {alias.strip() for alias in clusters.split(",")}


def _settings(prefix: str, texts: Iterable[str] | None, option: str) -> dict[str, str]:
    settings = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            said = shown(text, text)
            raise UsageError(f"invalid {option} {said!r}; use KEY=VALUE")
        settings[prefix + key.strip()] = value.strip()
    return settings
