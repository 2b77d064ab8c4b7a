"""``srm follow``: run any program where its group or its topics are."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from srm.cli.console import ClientConfigOption
from srm.client.routing import RoutingWatcher, default_client_id
from srm.client.settings import load_client_config
from srm.errors import UsageError
from srm.follow.program import Restart, Restarts, Stopping
from srm.follow.supervisor import (
    ENDING,
    FORWARDED,
    Job,
    MemberLooks,
    ProgramSupervisor,
    use_event_log,
)
from srm.follow.values import ProgramSettings, Template
from srm.kafka.cluster import KafkaCluster


def _option(metavar: str, text: str, **more: Any) -> Any:
    return typer.Option(metavar=metavar, help=text, **more)


def follow(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM",
            help="Program to run, with its arguments, after --.",
            show_default=False,
        ),
    ],
    *,
    group: Annotated[str, _option("GROUP", "Consumer group to follow.")] = "",
    topic: Annotated[
        list[str] | None,
        _option("TOPIC", "Topic the program reads, or with --producer writes to; may be repeated."),
    ] = None,
    producer: Annotated[
        bool,
        typer.Option("--producer", help="The program writes to the topics: follow their routes."),
    ] = False,
    writes: Annotated[
        list[str] | None,
        _option("TOPIC", "Topic that a program with a --group writes to: follow its route, too."),
    ] = None,
    config: ClientConfigOption = None,
    home: Annotated[
        str | None,
        _option("CLUSTER", "Where to run while there is no route; default: the first of the file."),
    ] = None,
    template: Annotated[
        list[str] | None,
        _option("IN:OUT", "Write OUT from IN, with placeholders filled in, before each start."),
    ] = None,
    properties: Annotated[
        Path | None,
        _option("FILE", "Write all settings of a Java client here before each start."),
    ] = None,
    stop_signal: Annotated[str, _option("NAME", "Signal that ends the program.")] = "TERM",
    grace: Annotated[
        float, _option("SECONDS", "Time to end before the program is killed.", min=0)
    ] = 30.0,
    grace_lost: Annotated[
        float, _option("SECONDS", "The same after an unplanned move abandoned its cluster.", min=0)
    ] = 5.0,
    restart: Annotated[
        Restart, typer.Option(help="Whether to restart a program that has ended by itself.")
    ] = "on-failure",
    restart_limit: Annotated[
        int, _option("N", "Maximum consecutive quick restarts; 0 means unlimited.", min=0)
    ] = 10,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Write log lines as JSON objects.")
    ] = False,
) -> None:
    use_event_log(as_json=json_logs)
    work = _work(group, topic or [], writes or [], producer=producer)
    loaded, client_id = load_client_config(config), default_client_id("follow")
    files = [*map(Template.parse, template or ())]
    if properties:
        files.append(Template.java_properties(properties))
    stopping = Stopping(_signal(stop_signal), grace, grace_lost)
    job = Job(loaded, work, command, client_id, files, stopping, json_logs)
    job.check()
    raise typer.Exit(_run(job, Restarts(restart, restart_limit), home))


def _run(job: Job, restarts: Restarts, home: str | None) -> int:
    def open_cluster(alias: str) -> KafkaCluster:
        return KafkaCluster(alias, job.config.cluster_clients(alias), timeout_s=5.0)

    watcher = RoutingWatcher(job.config, home)
    supervisor = ProgramSupervisor(
        job,
        watcher,
        restarts,
        lambda group, report: MemberLooks(open_cluster, group, job.client_id, report),
    )
    for number in (*ENDING, *FORWARDED):
        signal.signal(number, lambda received, _frame: supervisor.signal(received))
    if os.getpid() == 1:
        signal.signal(signal.SIGCHLD, lambda received, _frame: supervisor.signal(received))
    try:
        return supervisor.run()
    finally:
        watcher.close()


def _work(group: str, topics: list[str], writes: list[str], *, producer: bool) -> ProgramSettings:
    if producer:
        if group or writes or not topics:
            raise UsageError(
                "--producer takes --topic for each topic that is written to, and no --group; a "
                "program that reads as well takes --group, --topic and --writes"
            )
        topics, writes = [], topics
    elif not group:
        raise UsageError("name what to follow: --group GROUP, or --producer with --topic TOPIC")
    patterns = [topic for topic in writes if topic.startswith("^")]
    if patterns:
        raise UsageError(f"invalid topic to write to {patterns[0]}; use a name, not a pattern")
    return ProgramSettings(group, tuple(topics), tuple(writes))


def _signal(name: str) -> signal.Signals:
    try:
        return signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
    except KeyError:
        raise UsageError(f"unknown --stop-signal {name}; use for example TERM") from None
