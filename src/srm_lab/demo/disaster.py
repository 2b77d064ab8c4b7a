"""Disaster demo: P fails in the middle of a sale, groups resume on B, P returns.

No Airflow: it may have failed with the site. A thread here does its periodic work.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

import psutil

from srm.domain.moves.disaster import Forecast
from srm.domain.moves.report import MoveReport
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import Flow
from srm.engine import emission
from srm.engine.cluster_ports import TopicSpec
from srm.engine.groups import group_sync
from srm.engine.moves import planning, steps
from srm.engine.recovery import ReturnedFlow, SettledReturn
from srm.engine.status.observing import flow_status
from srm.errors import SrmError, StackError
from srm.wiring import open_cluster, open_flow, open_move, open_return
from srm_lab.demo.record import PARTITIONS, TOPIC, PaymentEntry
from srm_lab.demo.scenario import GROUPS, SLOW_GROUP
from srm_lab.demo.world import DemoProgram, DemoWorld, application, producer
from srm_lab.processes import slot_workers
from srm_lab.stack.process import HOME_MARK, ManagedProcess, ProcessSpec

logger = logging.getLogger(__name__)

_START_S: Final = 400.0
_WORK_S: Final = 300.0
_STOP_S: Final = 60.0
_IDLE_S: Final = 60.0
_UPKEEP_S: Final = 2.0
_SALE_S: Final = 5.0
"""Seconds that the sale takes, as long as P lives; the line to B fails after half of them."""
FLOW: Final = Flow("P", "B")


@dataclass
class Disaster:
    """Sends the events to the world; ``records`` are the payments to start with."""

    world: DemoWorld
    records: int
    replicator: psutil.Process | None = None
    _upkeep: list[threading.Thread] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def open_shop(self) -> None:
        """Create the topics, start producers, applications and the replicator."""
        world = self.world
        config, path, home = world.config, world.stack.config_path, world.home
        for alias in ("P", "B"):
            with open_cluster(config, alias) as cluster:
                cluster.create_topics([TopicSpec(TOPIC, PARTITIONS, 1, {})])
        world.producers += [
            producer("shop", "P", self.records // 2, 150.0, path, home),
            producer("branch", "B", self.records // 10, 50.0, path, home),
        ]
        pace = f"{self.records / 100:g},0"
        world.applications.update(
            {g: application(g, pace if g == SLOW_GROUP else "0", 0.0, path, home) for g in GROUPS}
        )
        world.start(*world.producers, *world.applications.values())

    @contextmanager
    def replicating(self) -> Iterator[None]:
        """Run ``srm replicate``, and the work of Airflow's periodic DAGs at the same time."""
        home, name = self.world.home, "replicator"
        process = ManagedProcess(name, home / "logs/replicator.log", home / "run/replicator.pid")
        command = [sys.executable, "-m", "srm.cli.main", "replicate"]
        environ = {
            **os.environ,
            HOME_MARK: str(home.absolute()),
            "SRM_CONFIG": str(self.world.stack.config_path),
        }
        process.start(ProcessSpec(name, command, environ, process.log, home))
        self.replicator = psutil.Process(process.pid)
        for flow in self.world.config.flows:
            thread = threading.Thread(target=self._keep_up, args=(flow,), daemon=True)
            self._upkeep.append(thread)
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            process.stop(_STOP_S)
            for thread in self._upkeep:
                thread.join()

    def await_replication(self) -> None:
        """Wait until both flows have caught up and all groups have checkpoints."""
        world = self.world
        with ExitStack() as stack:
            contexts = [stack.enter_context(open_flow(world.config, f)) for f in world.config.flows]

            def condition() -> str | None:
                for context in contexts:
                    status = flow_status(context)
                    payments = {t.topic: t for t in status.topics}.get(TOPIC)
                    if payments is None or payments.reported < PARTITIONS:
                        return f"{status.flow}: not all partitions are copied yet"
                    if payments.remaining > 500:
                        return f"{status.flow}: {payments.remaining:,} records to copy"
                behind = {g: world.behind(g) for g in GROUPS if g != SLOW_GROUP}
                late = [f"{g} {n:,} behind" for g, n in behind.items() if n > 1_000]
                with open_cluster(world.config, "B") as cluster:
                    absent = [group for group in GROUPS if not cluster.committed_offsets(group)]
                late += [f"{group} without offsets on B" for group in absent]
                return ", ".join(late) or None

            world.wait(condition, _START_S, "replication of both flows")
        world.display.say("both flows copied, all groups have checkpoints and offsets on B")

    def kill_in_a_sale(self) -> list[PaymentEntry]:
        """Let a sale begin on P, cut the line to B, and kill P with SIGKILL in the sale.

        Returns what P had acknowledged by then.
        """
        world = self.world
        path, home = world.stack.config_path, world.home
        sale = producer("sale", "P", 0, self.records / _SALE_S, path, home)
        world.producers.append(sale)
        world.start(sale)
        self._await_payments(sale, 1)
        self._over.wait(_SALE_S / 2)
        with self.line_down():
            sale.read()
            self._await_payments(sale, sale.done + self.records // 50)
            world.stack.brokers["P"].kill()
        world.look()
        world.display.say(f"P is dead; the sale had {sale.done:,} payments acknowledged")
        return [entry for entry in world.acks if entry.cluster == "P"]

    def _await_payments(self, sale: DemoProgram, wanted: int) -> None:
        missing = f"{wanted:,} payments of the sale are awaited"
        self.world.wait(lambda: missing if sale.done < wanted else None, _WORK_S, "the sale")

    @contextmanager
    def line_down(self) -> Iterator[None]:
        """Suspend the slots: what P takes in the meantime is certainly not copied."""
        slots = slot_workers(self.replicator) if self.replicator else []
        for slot in slots:
            slot.suspend()
        try:
            yield
        finally:
            for slot in slots:
                slot.resume()

    def fail_over(self) -> tuple[Forecast, MoveReport]:
        """Do what the one on call does: look at the forecast, approve, and move everybody."""
        config, display = self.world.config, self.world.display
        request = MoveRequest("failover", "P", "B", (TOPIC,), GROUPS, mode="unplanned")
        with open_move(config, "P", "B", unplanned=True) as context:
            planned = planning.plan(context, request)
            if planned.forecast is not None:
                display.say(planned.forecast.line("P"))
            report = steps.carry_out(context, planned.move_id)
        if report.forecast is None:
            raise StackError(f"move {planned.move_id} has no forecast")
        display.say(f"{report.forecast.line('P')}; RTO {report.rto_seconds} s")
        return report.forecast, report

    def await_work_on_b(self) -> None:
        """Wait until producers and all groups work on B, and the quick ones have caught up."""
        world = self.world

        def condition() -> str | None:
            absent = [p.name for p in world.applications.values() if p.cluster != "B"]
            shop = world.producers[0]
            if not shop.by_cluster["B"]:
                absent.append(shop.name)
            return f"{', '.join(absent)} not on B yet" if absent else None

        world.wait(condition, _WORK_S, "work on B")

    def note_state(self) -> dict[str, int]:
        """Count what each group has processed: what comes later it has of the residue, or since."""
        self.world.look()
        return {group: program.done for group, program in self.world.applications.items()}

    def bring_back(self) -> None:
        """Start P again, with the disk it died with."""
        broker = self.world.stack.brokers["P"]
        broker.start()
        broker.wait_ready()
        self.world.display.say("P answers again; the flow from it is paused")

    def settle(self) -> SettledReturn:
        """Find the residue, and have it copied after all."""
        display = self.world.display
        with open_return(self.world.config, FLOW) as (context, logs):
            returned = ReturnedFlow(context, logs, display.say)
            done = returned.settle({}, "merge", "the demo")
        groups = ", ".join(f"{g} had read {r.records:,}" for g, r in done.found.groups.items())
        display.say(
            f"it is the {done.found.shape} cluster, with {done.outcome.records:,} records that "
            f"were not copied{groups and '; '}{groups}; they are copied now"
        )
        return done

    def catch_up(self) -> None:
        """End the producers, then wait until every group has processed all there is."""
        world = self.world
        world.stop_producers()
        progress = {"done": -1, "since": time.monotonic()}

        def condition() -> str | None:
            known = {entry.payment for entry in world.acks}
            missing = {
                g: len(known - {entry.payment for entry in p.entries})
                for g, p in world.applications.items()
            }
            done = sum(program.done for program in world.applications.values())
            if done != progress["done"]:
                progress.update(done=done, since=time.monotonic())
            # A payment that never comes is for the audit to name, not for a time-out.
            if not any(missing.values()) or time.monotonic() - progress["since"] > _IDLE_S:
                return None
            return ", ".join(f"{g} lacks {n:,}" for g, n in missing.items() if n)

        world.wait(condition, _WORK_S, "catching up")
        world.display.say(f"{world.total_acks:,} payments, all groups at the end")

    def _keep_up(self, flow: Flow) -> None:
        """Emit checkpoints and write group offsets every few seconds, as srm's DAGs do."""
        with open_flow(self.world.config, flow) as context:
            while not self._over.wait(_UPKEEP_S):
                try:
                    emission.emit(context)
                    group_sync.sync(context)
                except SrmError as error:
                    logger.info("%s: %s", flow, error)
