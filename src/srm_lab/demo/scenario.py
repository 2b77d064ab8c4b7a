"""The acts of the demo, in order. Each waits for what it needs to see, never for time to pass."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from srm.domain.verification.verification import VerificationSummary
from srm.engine import verification
from srm.engine.cluster_ports import TopicSpec
from srm.engine.metrics import metrics
from srm.engine.status.observing import flow_status
from srm.engine.status.status import FlowStatus
from srm.errors import StackError
from srm.pages.moves import seconds
from srm.wiring import open_cluster, open_flow
from srm_lab.demo.airflow_api import AirflowApi
from srm_lab.demo.record import PARTITIONS, TOPIC
from srm_lab.demo.world import DemoWorld, application, follow_run, producer

GROUPS: Final = ("ledger", "fraud", "analytics")
SLOW_GROUP: Final = "analytics"

_FRAUD_DELAY_S: Final = 10.0
_RUN: Final = "demo"
_METRICS_DAG: Final = "srm_metrics_aggregation"
_START_S: Final = 600.0
_LOAD_S: Final = 400.0
_MOVE_S: Final = 900.0
_WORK_S: Final = 600.0
_SPARK_JOB_S: Final = 900.0
_IDLE_S: Final = 90.0


@dataclass(frozen=True)
class Move:
    """One move as its run left it: Airflow's run and the report of the move itself."""

    run: str
    seconds: float
    report: Mapping[str, Any]


@dataclass(frozen=True)
class Scale:
    """Sizes that depend on the number of payments at the start."""

    records: int

    @property
    def at_b(self) -> int:
        """Payments loaded on B; the rest is loaded on P."""
        return self.records // 10

    @property
    def rate_at_p(self) -> float:
        """Payments a second that continue on P: 250, fewer where there are few to start with."""
        return min(250.0, max(100.0, self.records / 400))

    @property
    def rate_at_b(self) -> float:
        """Payments a second that continue on B."""
        return self.rate_at_p * 0.4

    @property
    def rate(self) -> float:
        """Payments a second on both clusters."""
        return self.rate_at_p + self.rate_at_b

    @property
    def needed_lag(self) -> int:
        """Payments the slow group has to be behind at the first hold."""
        return self.records // 2

    @property
    def pace(self) -> str:
        """Pace of the slow group before the first move, on the other side, and home again."""
        return f"{self.records / 1000:g},{self.records / 100:g},0"

    @property
    def to_produce_away(self) -> int:
        """Payments that have to be produced on B between the moves."""
        return max(500, min(5_000, self.records // 20))


class DemoScenario:
    """Sends the next events to the world."""

    def __init__(self, world: DemoWorld, records: int) -> None:
        self._world = world
        self._scale = Scale(records)

    @property
    def scale(self) -> Scale:
        """The numbers of this run."""
        return self._scale

    def open_shop(self) -> None:
        """Create the topics, start producers and applications."""
        world, scale = self._world, self._scale
        config, path, home = world.config, world.stack.config_path, world.home
        for alias in ("P", "B"):
            with open_cluster(config, alias) as cluster:
                cluster.create_topics([TopicSpec(TOPIC, PARTITIONS, 1, {})])
        world.producers += [
            producer("shop", "P", scale.records - scale.at_b, scale.rate_at_p, path, home),
            producer("branch", "B", scale.at_b, scale.rate_at_b, path, home),
        ]
        paces = {
            "ledger": ("0", 0.0),
            "fraud": ("0", _FRAUD_DELAY_S),
            SLOW_GROUP: (scale.pace, 0.0),
        }
        world.applications.update(
            {g: application(g, pace, delay, path, home) for g, (pace, delay) in paces.items()}
        )
        world.start(*world.producers, *world.applications.values())

    def await_load(self) -> None:
        """Wait until the first payments are written."""
        world, records = self._world, self._scale.records

        def condition() -> str | None:
            return None if world.total_acks >= records else f"{world.total_acks:,} of {records:,}"

        world.wait(condition, _LOAD_S, "the load")
        world.display.say(f"{records:,} payments on two clusters, more every moment")

    def await_replication(self, api: AirflowApi) -> None:
        """Wait until the application that Airflow started copies both flows and has caught up."""
        world, config = self._world, self._world.config
        with ExitStack() as stack:
            contexts = [stack.enter_context(open_flow(config, flow)) for flow in config.flows]

            def condition() -> str | None:
                if not api.runs("srm_replication", "running"):
                    return "Airflow has not started srm_replication yet"
                for context in contexts:
                    status = flow_status(context)
                    if missing := _not_running(status, self._scale.rate * 2):
                        return f"{status.flow}: {missing}"
                return None

            world.wait(condition, _START_S, "replication of both flows")
            driver = flow_status(contexts[0]).driver
        if driver is not None:
            world.display.say(
                f"both flows copied by Spark application {driver.application_id} (process "
                f"{driver.pid}, heartbeat {driver.age_ms / 1000:.1f} s ago)"
            )

    def await_group_sync(self, api: AirflowApi) -> None:
        """Wait until checkpoints flow and the groups have offsets on the other cluster."""
        world = self._world
        runs: list[dict[str, Any]] = []

        def condition() -> str | None:
            if not api.runs("srm_checkpoints", "success"):
                return "no run of srm_checkpoints has ended yet"
            runs[:] = [
                run
                for run in api.runs("srm_group_offset_sync", "success")
                if run["run_type"] == "asset_triggered"
            ]
            if not runs:
                return "no checkpoint has triggered srm_group_offset_sync yet"
            with open_cluster(world.config, "B") as cluster:
                absent = [group for group in GROUPS if not cluster.committed_offsets(group)]
            return f"{', '.join(absent)} without offsets on B" if absent else None

        world.wait(condition, _START_S, "the first group offset sync")
        world.display.say(
            f"{len(runs)} runs of srm_group_offset_sync, each triggered by a checkpoint; all "
            f"groups have offsets on B"
        )

    def await_lags(self) -> None:
        """Wait until each group is as far behind as it should be; the slow one is watched too."""
        world, scale = self._world, self._scale
        most = {"ledger": scale.rate, "fraud": scale.rate * (_FRAUD_DELAY_S + 5)}

        def condition() -> str | None:
            late = [group for group, limit in most.items() if world.behind(group) > limit * 2]
            return f"{', '.join(late)} still reading what was loaded" if late else None

        world.wait(condition, _WORK_S, "the groups to read what was loaded")
        if world.behind(SLOW_GROUP) < scale.needed_lag:
            raise StackError(
                f"{SLOW_GROUP} is only {world.behind(SLOW_GROUP):,} payments behind, "
                f"{scale.needed_lag:,} are wanted: the machine was too slow in between, start again"
            )
        world.display.say(", ".join(f"{g} {world.behind(g):,} behind" for g in GROUPS))

    def move(self, api: AirflowApi, operation: str, source: str, target: str) -> Move:
        """Trigger srm_failover, follow it to its end, return what it reported."""
        began = time.monotonic()
        conf = {
            "operation": operation,
            "source": source,
            "target": target,
            "topics": [TOPIC],
            "groups": list(GROUPS),
            # Each payment is counted in the end: no run need stay to look for stray ones.
            "residue_seconds": 0,
        }
        run = api.trigger("srm_failover", f"demo-{operation}", conf)
        follow_run(self._world, api, "srm_failover", run, _MOVE_S)
        report = api.insist(lambda: api.xcom("srm_failover", run, "report", "report"))
        self._world.display.say(
            f"RPO {report['rpo_records']} records, RTO {seconds(report['rto_seconds'])}; lag at "
            f"hold " + ", ".join(f"{g} {report['groups'][g]['lag_at_hold']:,}" for g in GROUPS)
        )
        return Move(run, time.monotonic() - began, report)

    def await_work_on(self, cluster: str) -> None:
        """Wait until producers and all groups have really worked on a cluster."""
        world, wanted = self._world, self._scale.to_produce_away
        written = {p.name: p.by_cluster[cluster] for p in world.producers}
        done = {g: world.applications[g].by_cluster[cluster] for g in GROUPS}

        def condition() -> str | None:
            parts = {g: p.by_cluster[cluster] - done[g] for g, p in world.applications.items()}
            new = sum(p.by_cluster[cluster] - written[p.name] for p in world.producers)
            text = f"{new:,} produced, processed by " + ", ".join(
                f"{g} {n:,}" for g, n in parts.items()
            )
            shop = world.producers[0]
            enough = (
                new >= wanted
                and shop.by_cluster[cluster] > written[shop.name]
                and all(n >= wanted // 2 for n in parts.values())
            )
            world.display.say(text)
            return None if enough else text

        world.wait(condition, _WORK_S, f"work on {cluster}")

    def catch_up(self) -> None:
        """End the producers, then wait until every group has processed all there is."""
        world = self._world
        world.stop_producers()
        last = {"behind": -1, "changed": time.monotonic()}

        def condition() -> str | None:
            behind = {group: world.behind(group) for group in GROUPS}
            total = sum(behind.values())
            if total != last["behind"]:
                last.update(behind=total, changed=time.monotonic())
            # A payment that never comes is for the audit to name, not for a time-out.
            if not total or time.monotonic() - last["changed"] > _IDLE_S:
                return None
            return ", ".join(f"{g} {n:,} behind" for g, n in behind.items() if n)

        world.wait(condition, _WORK_S, "catching up")
        world.display.say(f"{world.total_acks:,} payments, all groups at the end")

    def put_off_aggregation(self, api: AirflowApi) -> None:
        """Let no scheduled aggregation begin until it is its turn."""
        api.pause(_METRICS_DAG, paused=True)

    def start_aggregation(self, api: AirflowApi) -> str:
        """Let the metrics be aggregated while the applications work; return the run's id."""
        api.pause(_METRICS_DAG, paused=False)
        # It is scheduled too: a second run would only wait for the one under way.
        runs = api.insist(lambda: api.runs(_METRICS_DAG))
        under_way = [run for run in runs if run["state"] in {"running", "queued"}]
        return str(under_way[-1]["dag_run_id"]) if under_way else api.trigger(_METRICS_DAG, _RUN)

    def await_aggregation(self, api: AirflowApi, run: str) -> dict[str, int]:
        """Wait for the end of an aggregation; return the number of windows by flow."""
        follow_run(self._world, api, _METRICS_DAG, run, _SPARK_JOB_S)
        config = self._world.config
        windows = {}
        for flow in config.flows:
            with open_cluster(config, flow.target) as cluster:
                windows[str(flow)] = len(metrics.stored_windows(cluster, flow))
        return windows

    def verify(self, api: AirflowApi) -> dict[str, VerificationSummary]:
        """Let all copies be compared as a whole; return the results by flow."""
        wanted = {"topics": [TOPIC], "records": None, "full": True}
        run = api.trigger("srm_verification", _RUN, wanted)
        follow_run(self._world, api, "srm_verification", run, _SPARK_JOB_S)
        config = self._world.config
        results = {}
        for flow in config.flows:
            with open_cluster(config, flow.target) as cluster:
                results[str(flow)] = verification.latest(cluster, flow)
        return results


def _not_running(status: FlowStatus, under_way: float) -> str | None:
    """Say what a flow lacks to be copied; raises StackError where copying has stopped.

    New payments are produced all the time: up to ``under_way`` may not be copied yet.
    """
    if status.driver is None or not status.driver.alive:
        return "no heartbeat of the replicator yet, Spark is starting"
    payments = {topic.topic: topic for topic in status.topics}.get(TOPIC)
    if payments is None or payments.reported < PARTITIONS:
        return "not all partitions are copied yet"
    if payments.state == "stopped":
        raise StackError(f"copying of {TOPIC} has stopped: {payments.reason}")
    waiting = payments.remaining
    return f"{waiting:,} records to copy" if waiting > under_way else None
