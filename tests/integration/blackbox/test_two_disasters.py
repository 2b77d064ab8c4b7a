"""The primary dies, returns, is settled and failed back to, twice; the harness counts for itself.

The seed chooses the producers, a fourth reader, what the source has lost, whether it is rebuilt and
restored, what is decided about the residue, whether partitions are idle at the failback, whether
the flow whose map it needs still has a replicator, whether the first one was cut off and wakes up
late, and the brokers' quotas.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.faults.campaign.truncation import cut
from tests.integration.blackbox.audit import read_ids
from tests.integration.blackbox.programs import Client
from tests.integration.blackbox.stage import Stage
from tests.integration.blackbox.test_worst_day import (
    await_checkpoints,
    client_reader,
    emitting,
    lost_and_twice,
    srm,
)
from tests.integration.kafka_tools import client_quota
from tests.integration.moving import PARTITIONS
from tests.replicating import application_of, replicating
from tests.waiting import DEADLINE_S, eventually

from srm.domain.names.topics import Flow
from srm_lab.stack.kafka import KafkaBroker

SMALL_RATE = 100_000
TAKEN_OVER = 4
"""Exit code of a replicator whose flows another one has."""

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@pytest.fixture
def site_of_two(
    primary: KafkaBroker, clusters: Mapping[str, KafkaBroker], tmp_path: Path, java_clients: str
) -> Iterator[Stage]:
    """A stage with its own primary; the replicator of B->P and the emission of P->B run."""
    made = Stage({"P": primary, "B": clusters["B"]}, tmp_path, java_clients)
    there = Flow(made.p, made.b)
    try:
        with replicating(made.site.config, there.reverse), emitting(made, there):
            yield made
    finally:
        made.close()


def work(clients: list[Client], count: int = 60) -> None:
    """Wait until each reader has processed records since its last start."""
    eventually(
        lambda: all(reader.count("processed") > count for reader in clients), "all readers work"
    )


def give_up(
    stage: Stage, number: int, broker: KafkaBroker, groups: list[str], source: str = ""
) -> Any:
    """Let a cluster, by default P, die with its clients; move to the other; return the report."""
    broker.kill()
    for client in (*stage.writers, *stage.readers):
        client.kill()
    choices = ("--mode", "unplanned", "--yes")
    with stage.run(f"worst{number}", source or stage.p, *choices, groups=groups) as move:
        move.await_gone()
        stage.start(stage.p if source == stage.b else stage.b)
        code, printed = move.ended()
        assert code == 0, printed
        return move.report()


def settle(stage: Stage, flow: Flow, choice: str) -> str:
    """Settle a return; merge, not discard, if a transaction is open that died with its producer."""
    given = ("return", "settle", "--flow", str(flow), "--yes", "--default")
    code, printed = srm(stage, *given, choice)
    if code and choice == "discard":
        choice = "merge"
        code, printed = srm(stage, *given, choice)
    assert code == 0, printed
    return choice


def read_twice(reader: Client, acked: set[str]) -> int:
    """Count repetitions; the transaction that died with its producer is not committed."""
    read = [event.id for event in reader.events if event.kind == "processed"]
    return sum(n - 1 for one, n in Counter(read).items() if one in acked)


def become_idle(stage: Stage) -> None:
    """Stop the writers, and wait until all readers are at the end of what was written on B."""
    stage.stop(*stage.writers)
    written = [event for event in stage.acked if event.cluster == stage.b]
    for reader in stage.readers:
        eventually(lambda r=reader: not lost_and_twice(r, written)[0], "B's are read")


class Replicators:
    """What copies from the primary: a thread, or an application that a disaster cuts off."""

    def __init__(self, stage: Stage, flow: Flow, *, is_cut_off: bool) -> None:
        self._stage, self._flow, self._running = stage, flow, ExitStack()
        self._asleep: subprocess.Popen[bytes] | None = None
        self._ending = ExitStack()
        if is_cut_off:
            self._asleep = self._application(self._ending)
        else:
            self.start()

    def close(self) -> None:
        self.stop()
        self._ending.close()

    def start(self) -> None:
        self._running.enter_context(replicating(self._stage.site.config, self._flow))

    def stop(self) -> None:
        self._running.close()

    def cut_off(self) -> None:
        """Stop the application, if it is one, where it is."""
        if self._asleep is not None:
            os.killpg(self._asleep.pid, signal.SIGSTOP)

    def replace(self) -> None:
        """Start another application in place of one that is cut off."""
        if self._asleep is not None:
            self._application(self._running)

    def wake(self) -> None:
        """Let one that was cut off continue: it has to find that it was replaced."""
        if self._asleep is not None:
            os.killpg(self._asleep.pid, signal.SIGCONT)
            assert self._asleep.wait(DEADLINE_S) == TAKEN_OVER
            self._asleep = None

    def _application(self, running: ExitStack) -> subprocess.Popen[bytes]:
        options = ("--flow", str(self._flow), "--without", "checkpoints,group-offsets,topics")
        log = self._stage.home / "replicate.log"
        return running.enter_context(application_of(self._stage.site.path, log, *options))


@contextmanager
def small_quotas(broker: KafkaBroker) -> Iterator[None]:
    with (
        client_quota(broker, "producer_byte_rate", SMALL_RATE),
        client_quota(broker, "consumer_byte_rate", SMALL_RATE),
    ):
        yield


def cast(stage: Stage, seed: int) -> None:
    """Give the stage its writer and its readers."""
    transactional = f"bank-{stage.site.unique}" if seed % 2 else None
    # A failback waits for the end of one that died with it, if a reader has committed within it.
    stage.writer("writer", rate=100, transactional_id=transactional, timeout=60)
    stage.reader("plain", reset="earliest", store=True)
    stage.java_reader("java", reset="earliest")
    stage.reader("assign", reset="earliest", store=True, assign=PARTITIONS)
    if seed % 3 == 2:
        client_reader(stage)
    elif seed % 3 == 0:
        stage.streams("streams")


def come_back(stage: Stage, primary: KafkaBroker, rng: random.Random) -> int:
    """Start the primary, which may have lost the end of a partition; count what no log has."""
    if rng.random() < 0.3:
        cut(primary, stage.topic, 0, share=0.8)
    primary.start()
    primary.wait_ready()
    return count_lost(stage)


def restore(stage: Stage, primary: KafkaBroker) -> int:
    """Rebuild the primary without its records, and restore it from B; count what no log has.

    It keeps its cluster id: with another one, applications start their slots again.
    """
    shutil.rmtree(primary.home / "data")
    stage.is_rebuilt = True
    primary.start()
    primary.wait_ready()
    command = [sys.executable, "-m", "srm.cli.main", "restore", "--config", str(stage.site.path)]
    ends = ("--from", stage.b, "--to", stage.p, "--yes")
    subprocess.run([*command, *ends], check=True, timeout=DEADLINE_S)
    return count_lost(stage)


def count_lost(stage: Stage) -> int:
    written = {event.id for event in stage.acked if event.cluster == stage.p}
    return len(
        written - set(read_ids(stage.bootstrap[stage.p], stage.topic)) - set(stage.copy(stage.p))
    )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", cases((1,), range(2, 21)))
def test_after_each_of_two_disasters_the_counts_agree_with_the_reports(
    site_of_two: Stage, primary: KafkaBroker, clusters: Mapping[str, KafkaBroker], seed: int
) -> None:
    stage, rng = site_of_two, random.Random(seed)
    there = Flow(stage.p, stage.b)
    cast(stage, seed)
    groups = [reader.group for reader in stage.readers]
    repeated, left = Counter[str](), 0
    with (
        small_quotas(clusters["B"]) if seed % 5 == 3 else nullcontext(),
        closing(Replicators(stage, there, is_cut_off=seed % 4 == 2)) as replicators,
    ):
        stage.start(stage.p)
        for number in (1, 2):
            choice = rng.choice(("merge", "discard", "keep"))
            is_rebuilt = seed % 7 == 4 and number == 1
            is_idle, has_slot = number == 1 or rng.random() < 0.5, rng.random() < 0.5
            work(stage.readers)
            await_checkpoints(stage, groups)
            replicators.cut_off()
            report = give_up(stage, number, primary, groups)
            assert report["ok"], report["problems"]
            for group in report["forecast"]["groups"]:
                repeated[group["group"]] += group["re_read"]
            work(stage.readers)

            if is_rebuilt:
                left += restore(stage, primary)
            else:
                left += come_back(stage, primary, rng)
                blocked = stage.operator.plan(stage.b, stage.p, stage.topic, groups)["blocking"]
                assert any(f"srm return status --flow '{there}'" in reason for reason in blocked)
                choice = settle(stage, there, choice)
                outcome = stage.operator.ask("report", report["move_id"])["outcome"]
                residue = sum(one["records"] for one in outcome["partitions"])
                if choice == "discard":
                    left += residue
                else:  # kept ones wait on P for the groups that go back there
                    repeated.update(dict.fromkeys(groups, residue))
            replicators.replace()
            if is_idle:
                become_idle(stage)
            if not has_slot:  # once groups have read the residue, which it copies
                stage.await_clear(stage.b)
                replicators.stop()
            back = stage.move(f"back{number}", stage.b)
            assert back["ok"], back["problems"]
            moved = back["groups"].values()
            assert {(one["skipped"], one["re_read"]) for one in moved} == {(0, 0)}, back
            if not has_slot:
                replicators.start()
            replicators.wake()
        work(stage.readers)
        stage.stop(*stage.writers)
        for reader in stage.readers:
            eventually(
                lambda r=reader: len(lost_and_twice(r, stage.acked)[0]) <= left,
                f"{reader.name} has read everything",
            )
        stage.stop(*stage.readers)
    for reader in stage.readers:
        lost, _ = lost_and_twice(reader, stage.acked)
        twice = read_twice(reader, {event.id for event in stage.acked})
        assert len(lost) <= left, (reader.name, len(lost), left)
        assert twice <= repeated[reader.group], (reader.name, twice, repeated)
