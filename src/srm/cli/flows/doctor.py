"""``srm doctor`` and ``srm rights``: what srm needs on this host and on its clusters."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final, Literal, cast

import confluent_kafka
import typer
from rich.console import Console
from rich.text import Text

from srm import __version__
from srm.cli import completing
from srm.cli.console import Common, open_console
from srm.cli.flows.for_flows import Flows, say
from srm.config.loader import SettingsFile, build_config, find_config, find_problems
from srm.config.model import ClientKind, Config, FlowConfig
from srm.config.values import at_place
from srm.domain.moves.limits import LIMITS_UNKNOWN, target_limits
from srm.domain.names.internal_topics import CONSUMER_OFFSETS, TRANSACTIONS
from srm.domain.names.rights import (
    ANY_NAME,
    FlowNames,
    NeededRight,
    Role,
    client_rights,
    operator_rights,
    replicator_rights,
    service_rights,
)
from srm.domain.text.amount import amount, set_key, some
from srm.engine.cluster_ports import Cluster, TopicSetting
from srm.engine.control import control_lists, topic_sync
from srm.engine.control.control_topics import clock_findings
from srm.engine.control.limits import read_limits
from srm.engine.control.recorded_copies import with_recorded
from srm.engine.moves.losses import lost_pause_findings, lost_route_findings
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, ConfigError, SrmError, UsageError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.wire.login import SecurityAccess
from srm.kafka.wire.security import read_security
from srm.pages.tables import Listing
from srm.replication.driver.discovery import internal_topic_specs
from srm.replication.native.library import native_library
from srm.wiring import compare, flow_context, open_clusters

State = Literal["ok", "warning", "problem"]

_COLOURS: Final[Mapping[State, str]] = {"ok": "green", "warning": "yellow", "problem": "red"}
_OLDEST: Final = (3, 7)
"""Oldest release of Kafka that srm is tested with."""
_SKEW_MS: Final = 5_000
_AUTO_CREATE: Final = "auto.create.topics.enable"
_SHOWN: Final = (
    "default.replication.factor",
    "min.insync.replicas",
    "message.max.bytes",
    "log.retention.ms",
    "log.retention.hours",
)
_CLIENTS: Final[dict[str, ClientKind]] = {"Read": "consumer", "Write": "producer"}


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check; ``action`` says what to do about a warning or problem."""

    name: str
    state: State
    text: str
    action: str = ""


class Checks(list[Check]):
    """The checks so far; ``failures`` are the errors behind problems."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[SrmError] = []

    def run(self, name: str, check: Callable[[str], Iterator[Check | SrmError]]) -> None:
        """Add the results of a check; an error is a problem."""
        try:
            for found in check(name):
                if isinstance(found, SrmError):
                    self.fail(name, found)
                else:
                    self.append(found)
        except SrmError as error:
            self.fail(name, error)

    def fail(self, name: str, error: SrmError) -> None:
        text = error.what.removeprefix(f"{name}, ")
        self.append(Check(name, "problem", text, error.action))
        self.failures.append(error)

    def raise_problems(self) -> None:
        """Raise the first problem, where there is one, in its class."""
        problems = [check for check in self if check.state == "problem"]
        if problems:
            kind = type(self.failures[0]) if self.failures else SrmError
            first = f"{problems[0].name}: {problems[0].text}"
            raise kind(f"{amount(len(problems), 'problem')}, first {first}", problems[0].action)


def check_file(
    path: Path | None, checks: Checks, *, strict: bool = False
) -> tuple[SettingsFile, Config | None]:
    """Add each problem of a file, also with the files that it names; no Config if it has some."""
    name = str(find_config(path))

    def open_client(alias: str, client: Mapping[str, str], opens: bool) -> None:  # noqa: FBT001 -- as it is called
        with at_place(name):
            security = read_security(alias, client)
            if opens:
                SecurityAccess(security)

    file, problems = find_problems(path, open_client, strict=strict)
    for error in problems:
        checks.fail("configuration", error)
    return file, None if problems else build_config(file)


def check_clusters(config: Config, checks: Checks) -> None:
    """Look at each cluster, then at each flow whose clusters answer; nothing is written."""
    targets = {flow.target for flow in config.flows}
    with (
        open_console(stderr=True).status("looking at the clusters"),
        open_clusters(config, config.clusters) as opened,
    ):
        answers = set()
        for alias, cluster in opened.items():
            before = len(checks.failures)
            checks.run(f"cluster {alias}", partial(_cluster, cast("KafkaCluster", cluster)))
            if len(checks.failures) > before:
                continue
            answers.add(alias)
            if alias in targets:
                checks.run(f"transactions on {alias}", partial(_transactions, cluster))
        for error in compare(opened[alias] for alias in answers):
            checks.fail("clusters", error)
        for flow in config.flows:
            source, target = opened[flow.source], opened[flow.target]
            if not {flow.source, flow.target} <= answers or compare((source, target)):
                continue
            try:
                merged = control_lists.merged_if_known(config.flow(flow), target)
                effective = with_recorded(merged, source, target)
            except SrmError as error:
                checks.fail(f"flow {flow}", error)
                continue
            clients = config.cluster_clients(flow.target, flow)
            context = flow_context(effective, source, target, clients)
            checks.run(f"rights of {flow}", partial(rights_of, context))
            checks.run(f"defaults for {flow}", partial(_defaults, context))
            checks.run(f"topics of {flow}", partial(_topics, context))
            checks.run(f"limits of {flow}", partial(_limits, context))


def render_checks(console: Console, checks: Collection[Check]) -> None:
    table = Listing.grid("", "", "", padding=(0, 2, 0, 0))
    for check in checks:
        todo = f"; to do: {check.action}" if check.action else ""
        state = Text(check.state, _COLOURS[check.state])
        table.add_row(state, Text(check.name), Text(f"{check.text}{todo}"))
    console.print(table)


def _cluster(cluster: KafkaCluster, name: str) -> Iterator[Check]:
    found = cluster.facts()
    text = f"{found.text}, id {cluster.cluster_id()}"
    too_old = tuple(map(int, found.release.split("."))) < _OLDEST if found.release else True
    oldest = ".".join(map(str, _OLDEST))
    action = f"srm is tested with Kafka {oldest} and newer" if too_old else ""
    yield Check(name, "warning" if too_old else "ok", text, action)
    name = f"clock of {cluster.alias}"
    if found.ahead_ms is None:
        text = "not compared: no KRaft controller, or no right Describe on the cluster"
        yield Check(name, "ok", text)
        return
    text = (
        f"{found.ahead_ms / 1000:+z.1f} s from this host's, within {found.within_ms / 1000:.1f} s"
    )
    if abs(found.ahead_ms) > _SKEW_MS + found.within_ms:
        yield Check(name, "warning", text, "synchronise the clocks (NTP): ages and RPO are wrong")
    else:
        yield Check(name, "ok", text)


def _transactions(cluster: Cluster, name: str) -> Iterator[Check]:
    """Yield whether a target can take transactions, which claims and moves need."""
    log = cluster.topics().get(TRANSACTIONS)
    if log is None:
        action = "keep transaction.state.log.replication.factor within the number of brokers"
        text = f"{TRANSACTIONS} does not exist yet, or srm may not see it; transactions create it"
        yield Check(name, "ok", f"{text}: {action}")
        return
    settings = cluster.topic_settings([log.name]).get(log.name, {})
    least = int(settings.get("min.insync.replicas", TopicSetting("1")).value)
    text = f"{TRANSACTIONS} has {amount(log.replicas, 'replica')}, min.insync.replicas {least}"
    if log.leaderless:
        text = f"{TRANSACTIONS} has {amount(len(log.leaderless), 'partition')} without a leader"
        yield Check(name, "problem", text, f"start the brokers of {cluster.alias}")
    elif log.replicas == least > 1:
        action = f"set min.insync.replicas = {least - 1} on it, or add replicas to it"
        yield Check(name, "warning", f"{text}: none commits while one broker is dead", action)
    elif log.replicas < least:
        action = f"add replicas to {TRANSACTIONS}"
        yield Check(name, "problem", f"{text}: no transaction can commit", action)
    else:
        yield Check(name, "ok", text)


def rights_of(context: FlowContext, name: str) -> Iterator[Check | SrmError]:
    """Yield the replicator's rights that are missing on topics, of those that brokers report."""
    config = context.config
    chosen = config.names.select(context.source.topics())
    used = {*chosen, *map(config.names.remote, chosen)}
    wrong = False
    for cluster in (context.source, context.target):
        rights = [
            right
            for right in replicator_rights(flow_names(config))
            if right.cluster == cluster.alias and right.option == "--topic"
        ]
        own = {name for name in cluster.topics() if name.startswith("__srm-")}
        named = {right.name for right in rights if not right.prefixed} - {ANY_NAME}
        for operation, topics in _lacking(cluster, rights, used | own | named):
            wrong = True
            text = f"srm lacks {operation} on topic {some(topics)} of {cluster.alias}"
            if topics == [CONSUMER_OFFSETS]:  # optional
                yield Check(name, "warning", text, _grant(context))
            else:
                yield AuthorizationError(text, _grant(context))
    if not chosen:
        action = "compare the flow's topics with the names on the source, and its rights with Read"
        yield Check(name, "warning", "srm sees no topic to copy on the source", action)
    elif not wrong:
        text = f"{amount(len(chosen), 'topic')} can be read and copied"
        yield Check(name, "ok", text)


def _lacking(
    cluster: Cluster, rights: Collection[NeededRight], topics: Collection[str]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield operations with the topics of a cluster that lack them, as far as those exist."""
    wanted: dict[str, set[str]] = {}
    for right in rights:
        for operation in right.operations:
            on = wanted.setdefault(operation, set())
            on.update(name for name in topics if _covers(right, name))
    wanted.pop("Create", None)  # what does not exist is tried
    hidden = set[str]()
    for operation, names in sorted(wanted.items()):
        held = cluster.topic_rights(names, _CLIENTS.get(operation, "admin"))
        hidden.update(name for name, operations in held.items() if not operations)
        if missing := [one for one in sorted(held) if held[one] and operation not in held[one]]:
            yield operation, missing
    if hidden:
        yield "Describe", sorted(hidden)


def _covers(right: NeededRight, topic: str) -> bool:
    if right.prefixed:
        return topic.startswith(right.name)
    return right.name in {topic, ANY_NAME}


def _grant(context: FlowContext) -> str:
    return f"grant it: srm rights --flow '{context.config.flow}' prints the command"


def _defaults(context: FlowContext, name: str) -> Iterator[Check | SrmError]:
    config = context.config
    flow, target = config.flow, config.flow.target
    found = cast("KafkaCluster", context.target).broker_configs()
    if not found:
        text = f"srm lacks DescribeConfigs on the cluster {target}: Kafka's defaults are assumed"
        yield Check(name, "warning", text, _grant(context))
        return
    if found.get(_AUTO_CREATE) == "true":
        text = f"{_AUTO_CREATE} is true on {target}: a client can make a remote topic before srm"
        yield Check(name, "warning", text, f"set {_AUTO_CREATE} = false on {target}")
    factor = config.replication_factor
    if factor < 1:
        factor = int(found.get("default.replication.factor", 1))
    least = int(found.get("min.insync.replicas", 1))
    if factor < least:
        text = f"min.insync.replicas of {target} is {least}, remote topics get "
        text += f"{amount(factor, 'replica')}: no record can be written"
        yield ConfigError(text, set_key(flow, "replication.factor", str(least)))
    yield Check(name, "ok", ", ".join(f"{key}={found[key]}" for key in _SHOWN if key in found))


def _topics(context: FlowContext, name: str) -> Iterator[Check | SrmError]:
    flow, plan = context.config.flow, topic_sync.plan(context)
    on_target, syncs = internal_topic_specs(context.config)
    on_source = [syncs] if syncs and context.config.offset_syncs_location == "source" else []
    rest = [syncs] if syncs and not on_source else []
    causes: dict[str, list[str]] = {}
    errors: dict[str, SrmError] = {}
    for cluster, specs in (
        (context.source, on_source),
        (context.target, [*on_target, *rest, *plan.create[:1]]),
    ):
        existing = cluster.topics()
        missing = [spec for spec in specs if spec.name not in existing]
        for topic, problem in cluster.creation_problems(missing).items():
            cause = problem.what.replace(topic, "{}")
            causes.setdefault(cause, []).append(topic)
            errors.setdefault(cause, problem)
        found = (*clock_findings(cluster), *lost_route_findings([cluster], flow))
        yield from (ConfigError(one.text, one.action) for one in found)
    yield from (ConfigError(one.text, one.action) for one in lost_pause_findings(context))
    for cause, error in errors.items():
        yield type(error)(cause.replace("{}", some(causes[cause])), error.action)
    if plan.skipped:
        yield Check(name, "ok", plan.skipped)
        return
    for finding in plan.differences(flow):
        yield Check(f"{flow}: {finding.subject}", "warning", finding.text, finding.action)
    for note in plan.notes:
        yield Check(name, "ok", note)
    text = f"{amount(plan.selected, 'topic')} selected"
    if not plan.is_empty:
        text += f"; srm topics plan --flow '{flow}' shows what the next sync changes"
    yield Check(name, "ok", text)


def _limits(context: FlowContext, name: str) -> Iterator[Check]:
    """Yield what clients of the source bring, and the target does not admit."""
    config, groups = context.config, defaultdict[str, list[str]](list, classic=[])
    for group in context.source.groups().values():
        if config.group_names.matches(group.name):
            groups[group.kind].append(group.name)
    topics = [*config.names.select(context.source.topics())]
    sides = (read_limits(context.source, topics), read_limits(context.target, topics))
    found = [*target_limits(*sides, groups)]
    for one in found:
        is_note = one.id == LIMITS_UNKNOWN
        action = _grant(context) if is_note else one.action
        yield Check(name, "ok" if is_note else "warning", one.text, action)
    if not found:
        yield Check(name, "ok", f"{config.flow.target} admits what clients may bring")


_OPTIONAL: Final = {
    "pyspark": "srm replicate and srm verify need it",
    "apache-airflow": "the DAGs need it",
    "fastapi": "srm-service needs it",
}
_MINIMUM_JAVA: Final = 17


def doctor(common: Common) -> None:
    checks = Checks()
    checks.extend(_host())
    try:
        _, resolved = check_file(common.config, checks)
    except SrmError as error:
        checks.fail("configuration", error)
    else:
        if resolved is not None:
            checks.append(_configuration(resolved))
            check_clusters(resolved, checks)
    common.emit(list(checks), lambda console: render_checks(console, checks))
    checks.raise_problems()


def _host() -> Iterator[Check]:
    librdkafka = confluent_kafka.libversion()[0]
    text = f"srm {__version__}, Python {platform.python_version()}, librdkafka {librdkafka}"
    yield Check("versions", "ok", text)
    for package, purpose in _OPTIONAL.items():
        try:
            yield Check(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Check(package, "ok", f"not installed; {purpose}")
    yield _java()
    if native_library() is None:
        text = "not usable: the replicator copies more slowly"
        yield Check("native library", "warning", text, "install srm again where cc is available")
    else:
        yield Check("native library", "ok", "loaded")


def _java() -> Check:
    home, action = os.environ.get("JAVA_HOME"), "install a JDK 17 or newer, or set JAVA_HOME"
    program = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=3.0, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        text = f"{program} does not run, only Spark needs it: {error}"
        return Check("java", "warning", text, action)
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if found is None or int(found[1]) < _MINIMUM_JAVA:
        return Check("java", "warning", f"{program} is too old for Spark", action)
    return Check("java", "ok", f"{found[1]} ({program})")


def _configuration(config: Config) -> Check:
    if config.warnings:
        text = f"{config.path}: {amount(len(config.warnings), 'warning')}"
        return Check("configuration", "warning", text, "srm config check")
    text = f"{config.path}: {', '.join(config.clusters)}; {amount(len(config.flows), 'flow')}"
    return Check("configuration", "ok", text)


_TOOL: Final = "kafka-acls.sh"


@dataclass(frozen=True, slots=True)
class RightCommand:
    """A right, and the command that grants it."""

    right: NeededRight
    command: str


def rights(
    flows: Flows,
    *,
    role: Annotated[
        Role,
        typer.Option(
            help="Program: replicator (also the commands that Airflow runs), operator of moves, "
            "service (reads only), or client."
        ),
    ] = "replicator",
    principal: Annotated[
        str, typer.Option(metavar="PRINCIPAL", help="Principal to grant to.")
    ] = "User:srm",
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="Group of a client; may be repeated.",
            autocompletion=completing.groups,
        ),
    ] = None,
    acls: Annotated[
        bool,
        typer.Option("--acls", help="Include ACL sync: the replicator may then change any ACL."),
    ] = False,
) -> None:
    if role == "client" and not group:
        raise UsageError("the rights of a client depend on its group; give --group")
    resolved, needed = flows.settings, list[NeededRight]()
    for one in flows.to_open:
        names = flow_names(resolved.flow(one))
        if role == "client":
            needed += client_rights(names, group or ())
        elif role == "operator":
            needed += operator_rights(names)
        elif role == "service":
            needed += service_rights(names)
        else:
            needed += replicator_rights(names, acls=acls)
    commands = [
        RightCommand(right, _command(resolved, right, principal)) for right in dict.fromkeys(needed)
    ]
    lines = "\n".join(one.command for one in commands)
    flows.emit(commands, lambda console: say(console, lines))


def flow_names(settings: FlowConfig) -> FlowNames:
    flow = settings.flow
    location = flow.source if settings.offset_syncs_location == "source" else flow.target
    return FlowNames(flow, settings.policy, settings.topics, settings.groups, location)


def _command(config: Config, right: NeededRight, principal: str) -> str:
    servers = config.client(right.cluster, "admin")["bootstrap.servers"]
    words = (_TOOL, "--bootstrap-server", servers, "--command-config", "admin.properties")
    return shlex.join((*words, "--add", "--allow-principal", principal, *right.arguments))
