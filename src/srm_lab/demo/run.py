"""Runs the demo: starts everything, plays the scenario, judges it, and stops everything again."""

from __future__ import annotations

import platform
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from srm import __version__
from srm.clock import now_ms
from srm.errors import SrmError, StackError, UsageError
from srm.files import disk_errors
from srm_lab.demo.airflow_api import AirflowApi
from srm_lab.demo.disaster import Disaster
from srm_lab.demo.disaster_report import DisasterFindings, DisasterReport, write_disaster_report
from srm_lab.demo.disaster_report import judge as judge_disaster
from srm_lab.demo.display import Display
from srm_lab.demo.report import DemoReport, draw, write_report
from srm_lab.demo.scenario import GROUPS, DemoScenario, Move
from srm_lab.demo.verdict import DemoFindings, judge
from srm_lab.demo.world import DemoWorld, application, producer
from srm_lab.stack.jars import KAFKA_VERSION
from srm_lab.stack.service import NAME as SERVICE
from srm_lab.stack.stack import Stack, StackOptions, StackStatus

KEPT_RATE: Final = 50.0
"""Payments per second that continue after the demo, with --keep."""
_FEWEST: Final = 2_000


@dataclass(frozen=True)
class DemoOptions:
    """Options of the demo: ``records`` payments at the start, all files in ``home``.

    ``disaster``: P dies, instead of the planned moves.
    """

    home: Path
    records: int = 100_000
    keep: bool = False
    disaster: bool = False


@dataclass(frozen=True)
class DemoResult:
    """The report, where it was written, and the stack where it was kept running."""

    report: DemoReport | DisasterReport
    folder: str
    kept: StackStatus | None


def run_demo(options: DemoOptions, display: Display) -> DemoResult:
    """Run the whole demo.

    Everything it started is stopped at its end, also after a failure or Ctrl-C, unless ``keep`` is
    set and it succeeded. StackError: a part did not do its job in time; the message names logs and
    cause.
    """
    if options.records < _FEWEST:
        raise UsageError(
            f"--records {options.records} is too few to see anything: {_FEWEST} or more"
        )
    home = options.home / "stack"
    _clear(home)
    world = DemoWorld(Stack(StackOptions(home=home, kafka_only=True)), display)
    kept = None
    try:
        play = _play_disaster if options.disaster else _play
        report: DemoReport | DisasterReport = play(world, options)
        if options.keep:
            with display.step("Everything continues"):
                kept = _keep(world)
    except SrmError as error:
        if isinstance(error, UsageError):
            raise
        raise StackError(f"{error} (logs are in {world.stack.home.logs})") from error
    finally:
        if kept is None:
            _stop(world)
    return DemoResult(report, str(options.home), kept)


def _clear(home: Path) -> None:
    """Remove what an earlier demo left in this folder, which it may have kept running."""
    if not (home / "stack.json").exists():
        return
    Stack(StackOptions(home=home)).down()
    with disk_errors(home):
        shutil.rmtree(home)


def _stop(world: DemoWorld) -> None:
    """Stop everything; a second Ctrl-C does not leave half of it running."""
    with ignored_interrupts(), world.display.step("Everything stops"):
        world.stop_programs()
        if (world.home / "stack.json").exists():
            world.stack.down(lambda name, state: world.display.say(f"{name} {state}"))
        world.display.say("nothing is left running")


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM for a while; a no-op outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _play(world: DemoWorld, options: DemoOptions) -> DemoReport:
    display = world.display
    scenario = DemoScenario(world, options.records)
    with display.step("Two Kafka clusters"):
        _up(world)
        scenario.open_shop()
        display.say("P and B are up, two producers and three applications start")
    with display.step("Airflow and Spark"):
        # A new object: it takes the ports chosen at the first start.
        world.stack = Stack(StackOptions(home=world.home))
        _up(world)
        display.say(f"{world.stack.service.url}: flows, groups and moves, live")
        name, password = world.stack.airflow.login
        display.say(f"{world.stack.airflow.url}, login {name} with password {password}")
    with AirflowApi(world.stack.airflow.url, (name, password)) as api:
        scenario.put_off_aggregation(api)
        with display.step("Payments to start with"):
            scenario.await_load()
        with display.step("Replication P->B and B->P"):
            scenario.await_replication(api)
        with display.step("Checkpoints and group offsets"):
            scenario.await_group_sync(api)
        with display.step("Three applications at work"):
            scenario.await_lags()
        moves = _moves(scenario, api, display)
        aggregation = scenario.start_aggregation(api)
        with display.step("Everybody works on P again"):
            scenario.await_work_on("P")
        with display.step("Everybody catches up"):
            scenario.catch_up()
        with display.step("Metrics by Spark"):
            windows = scenario.await_aggregation(api, aggregation)
            display.say(f"{sum(windows.values())} windows of rate, latency and lag")
        with display.step("Copies compared by Spark"):
            copies = scenario.verify(api)
            display.say(
                ", ".join(f"{f}: {len(s.partitions)} partitions" for f, s in copies.items())
            )
    world.stop_applications()
    findings = DemoFindings(
        acknowledged=world.acks,
        processed={group: world.applications[group].entries for group in GROUPS},
        says={group: world.applications[group].summary for group in GROUPS},
        moves=moves,
        copies=copies,
        windows=windows,
        needed_lag=scenario.scale.needed_lag,
    )
    report = judge(findings, display.elapsed_s, display.seconds, versions())
    spans = [
        (f"{m.operation} {m.source}->{m.target}", m.started_ms, m.rto_seconds or 0.0)
        for m in report.moves
    ]
    timeline = draw(findings.acknowledged, findings.processed, spans)
    write_report(options.home, report, timeline)
    return report


def _play_disaster(world: DemoWorld, options: DemoOptions) -> DisasterReport:
    display = world.display
    disaster = Disaster(world, options.records)
    with display.step("Two Kafka clusters"):
        _up(world)
        disaster.open_shop()
        display.say("P and B are up, two producers and three applications start")
    with disaster.replicating():
        with display.step("Replication P->B and B->P"):
            disaster.await_replication()
        with display.step("P dies in the middle of a sale"):
            at_death = disaster.kill_in_a_sale()
        with display.step("Unplanned failover P->B"):
            triggered_ms, (forecast, move) = now_ms(), disaster.fail_over()
        with display.step("Everybody works on B"):
            disaster.await_work_on_b()
        with display.step("P comes back"):
            disaster.bring_back()
            at_return = disaster.note_state()
        with display.step("What P still held"):
            settled = disaster.settle()
        with display.step("Everybody catches up"):
            disaster.catch_up()
    world.stop_applications()
    findings = DisasterFindings(
        acknowledged=world.acks,
        processed={group: world.applications[group].entries for group in GROUPS},
        at_return=at_return,
        acknowledged_at_death=at_death,
        triggered_ms=triggered_ms,
        forecast=forecast,
        outcome=settled.outcome,
        move=move,
    )
    report = judge_disaster(findings, display.elapsed_s, display.seconds, versions())
    write_disaster_report(options.home, report)
    return report


def _moves(scenario: DemoScenario, api: AirflowApi, display: Display) -> list[Move]:
    moves = []
    with display.step("Failover P->B"):
        moves.append(scenario.move(api, "failover", "P", "B"))
    with display.step("Everybody works on B"):
        scenario.await_work_on("B")
    with display.step("Failback B->P"):
        moves.append(scenario.move(api, "failback", "B", "P"))
    return moves


def _up(world: DemoWorld) -> None:
    states: dict[str, str] = {}

    def report(name: str, state: str) -> None:
        is_seen = name == SERVICE and state == "ready"  # long before all else is
        states[name] = f"ready at {world.stack.service.url}" if is_seen else state
        world.display.say(", ".join(f"{n} {s}" for n, s in states.items()))

    world.stack.up(report)


def _keep(world: DemoWorld) -> StackStatus:
    """Let new producers write and the applications continue, for people to play with."""
    path, home = world.stack.config_path, world.home
    again = (
        producer("shop-2", "P", 0, KEPT_RATE, path, home),
        *(application(group, "0", 0.0, path, home) for group in GROUPS),
    )
    world.start(*again)
    world.display.say("a producer and the three applications keep running")
    return world.stack.status()


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    return {
        "srm": __version__,
        "Kafka": KAFKA_VERSION,
        "Airflow": metadata.version("apache-airflow"),
        "Spark": metadata.version("pyspark"),
        "Python": platform.python_version(),
    }
