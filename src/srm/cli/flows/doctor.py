"""``srm doctor``: whether this host and both clusters have what srm needs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final, Literal, cast

import confluent_kafka
from rich.console import Console
from rich.markup import escape

from srm import __version__
from srm.cli.console import ConfigOption, JsonOption, emit
from srm.cli.flows.config import check_connections
from srm.config.loader import build_config, read_settings
from srm.config.model import ClientKind, Config, FlowConfig
from srm.domain.text.amount import amount, some
from srm.engine.cluster_ports import Cluster
from srm.engine.control import control_lists
from srm.errors import SrmError
from srm.kafka.cluster import KafkaCluster
from srm.pages.tables import Listing
from srm.replication.native.library import native_library
from srm.wiring import open_clusters

State = Literal["ok", "warning", "problem"]

_COLOURS: Final[Mapping[State, str]] = {"ok": "green", "warning": "yellow", "problem": "red"}
_OPTIONAL: Final = {
    "pyspark": "srm replicate and srm verify need it",
    "apache-airflow": "the DAGs need it",
    "fastapi": "srm-service needs it",
}
_JAVA_S: Final = 3.0
_MINIMUM_JAVA: Final = 17
_OLDEST: Final = (3, 7)
"""Oldest release of Kafka that srm is tested with."""
_SKEW_MS: Final = 5_000
_TRANSACTION_LOG: Final = "__transaction_state"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check; ``action`` says what to do about a warning or problem."""

    name: str
    state: State
    text: str
    action: str = ""


class _Checks(list[Check]):
    """The checks so far; ``failures`` are the errors behind problems."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[SrmError] = []

    def note(self, name: str, state: State, text: str, action: str = "") -> None:
        self.append(Check(name, state, text, action))

    def run(self, name: str, check: Callable[[], Iterator[Check]]) -> None:
        """Add the results of a check; an error is a problem."""
        try:
            self.extend(check())
        except SrmError as error:
            self.note(name, "problem", error.what.removeprefix(f"{name}, "), error.action)
            self.failures.append(error)


def doctor(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check this host, the configuration and each cluster; nothing is written.

    One line a check: versions, Java, native library, configuration, then for each cluster whether
    it answers, its release, clock, transactions and srm's rights on the topics of its flows.

    Exit code 0 only without problems, else that of the first one: 6 for a cluster that is
    unavailable, 9 for a missing right.
    """
    checks = _Checks()
    checks.extend(_host())
    try:
        resolved = build_config(read_settings(config))
        check_connections(resolved)
    except SrmError as error:
        checks.note("configuration", "problem", error.what, error.action)
        checks.failures.append(error)
    else:
        checks.append(_configuration(resolved))
        with Console(stderr=True).status("looking at the clusters"):
            _check_clusters(resolved, checks)
    emit(list(checks), as_json, lambda console: _render(console, checks))
    problems = [check for check in checks if check.state == "problem"]
    if problems:
        kind = type(checks.failures[0]) if checks.failures else SrmError
        first = f"{problems[0].name}: {problems[0].text}"
        raise kind(f"{amount(len(problems), 'problem')}, first {first}", problems[0].action)


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
    """Return the version of the Java runtime, which Spark needs."""
    home, action = os.environ.get("JAVA_HOME"), "install a JDK 17 or newer, or set JAVA_HOME"
    program = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=True
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


def _check_clusters(config: Config, checks: _Checks) -> None:
    targets = {flow.target for flow in config.flows}
    with open_clusters(config, config.clusters) as opened:
        answers = []
        for alias, cluster in opened.items():
            before = len(checks.failures)
            checks.run(f"cluster {alias}", partial(_cluster, cast("KafkaCluster", cluster)))
            if len(checks.failures) > before:
                continue
            answers.append(alias)
            if alias in targets:
                checks.run(f"transactions on {alias}", partial(_transactions, cluster))
        for flow in config.flows:
            if flow.source in answers and flow.target in answers:
                source, target = opened[flow.source], opened[flow.target]
                merged = control_lists.merged_if_known(config.flow(flow), target)
                checks.run(f"rights of {flow}", partial(_rights, merged, source, target))


def _cluster(cluster: KafkaCluster) -> Iterator[Check]:
    """Yield whether a cluster answers, with release and clock."""
    name, found = f"cluster {cluster.alias}", cluster.facts()
    release = f"Kafka {found.release} or newer" if found.release else "release unknown"
    text = f"{amount(found.brokers, 'broker')}, {release}, id {cluster.cluster_id()}"
    too_old = tuple(map(int, found.release.split("."))) < _OLDEST if found.release else True
    oldest = ".".join(map(str, _OLDEST))
    action = f"srm is tested with Kafka {oldest} and newer" if too_old else ""
    yield Check(name, "warning" if too_old else "ok", text, action)
    name = f"clock of {cluster.alias}"
    if found.ahead_ms is None:
        yield Check(name, "ok", "not compared: the cluster has no KRaft controller")
        return
    text = f"{found.ahead_ms / 1000:+.1f} s from this host's, within {found.within_ms / 1000:.1f} s"
    if abs(found.ahead_ms) > _SKEW_MS + found.within_ms:
        yield Check(name, "warning", text, "synchronise the clocks (NTP): ages and RPO are wrong")
    else:
        yield Check(name, "ok", text)


def _transactions(cluster: Cluster) -> Iterator[Check]:
    """Yield whether a target can take transactions, which claims and moves need."""
    name = f"transactions on {cluster.alias}"
    log = cluster.topics().get(_TRANSACTION_LOG)
    if log is None:
        action = "keep transaction.state.log.replication.factor within the number of brokers"
        text = f"{_TRANSACTION_LOG} does not exist yet; the first transaction creates it"
        yield Check(name, "ok", f"{text}: {action}")
        return
    least = int(cluster.topic_configs([log.name]).get(log.name, {}).get("min.insync.replicas", 1))
    text = f"{_TRANSACTION_LOG} has {amount(log.replicas, 'replica')}, min.insync.replicas {least}"
    if log.leaderless:
        text = f"{_TRANSACTION_LOG} has {amount(len(log.leaderless), 'partition')} without a leader"
        yield Check(name, "problem", text, f"start the brokers of {cluster.alias}")
    elif log.replicas < least:
        action = f"add replicas to {_TRANSACTION_LOG}"
        yield Check(name, "problem", f"{text}: no transaction can commit", action)
    else:
        yield Check(name, "ok", text)


def _rights(config: FlowConfig, source: Cluster, target: Cluster) -> Iterator[Check]:
    """Yield what srm may not do with the topics of a flow."""
    name, chosen = f"rights of {config.flow}", config.names.select(source.topics())
    copies = [*map(config.names.remote, chosen)]
    wanted: tuple[tuple[Cluster, Collection[str], str, ClientKind], ...] = (
        (source, chosen, "Read", "consumer"),
        (source, chosen, "DescribeConfigs", "admin"),
        (target, copies, "Write", "producer"),
    )
    wrong = False
    for cluster, topics, operation, client in wanted:
        held = cluster.topic_rights(topics, client)
        missing = [topic for topic in topics if topic in held and operation not in held[topic]]
        if missing:
            wrong = True
            text = f"srm lacks {operation} on {some(missing)} of {cluster.alias}"
            yield Check(name, "problem", text, "grant it (docs/security.md)")
    if not wrong:
        yield Check(name, "ok", f"{amount(len(chosen), 'topic')} can be read and copied")


def _render(console: Console, checks: Collection[Check]) -> None:
    table = Listing.grid("", "", "", padding=(0, 2, 0, 0))
    for check in checks:
        colour = _COLOURS[check.state]
        todo = f"; to do: {check.action}" if check.action else ""
        table.add_row(
            f"[{colour}]{check.state}[/{colour}]", check.name, escape(f"{check.text}{todo}")
        )
    console.print(table)
