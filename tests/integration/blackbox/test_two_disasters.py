"""The primary dies, returns, is settled and failed back to, twice; the harness counts for itself.

The seed chooses the producers, what is decided about the residue, whether partitions are idle at
the failback, and whether the flow whose map it needs still has a slot.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.integration.blackbox.programs import Client
from tests.integration.blackbox.stage import Stage
from tests.integration.blackbox.test_worst_day import (
    await_checkpoints,
    emitting,
    lost_and_twice,
    srm,
)
from tests.integration.moving import PARTITIONS
from tests.replicating import replicating
from tests.waiting import eventually

from srm.domain.names.topics import Flow
from srm_lab.stack.kafka import KafkaBroker

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


def give_up(stage: Stage, number: int, primary: KafkaBroker, groups: list[str]) -> Any:
    """Let the primary die with its clients, and move to B without it; return the report."""
    primary.kill()
    for client in (*stage.writers, *stage.readers):
        client.kill()
    choices = ("--mode", "unplanned", "--yes")
    with stage.run(f"worst{number}", stage.p, *choices, groups=groups) as move:
        code, printed = move.ended()  # no member is left to wait for
        assert code == 0, printed
        stage.start(stage.b)
        return move.report()


def settle(stage: Stage, flow: Flow, choice: str) -> str:
    """Settle the return; merge where a transaction is open that died with its producer."""
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


@pytest.mark.parametrize("seed", cases((1,), (2, 3, 4, 5, 6, 7, 8)))
def test_after_each_of_two_disasters_the_counts_agree_with_the_reports(
    site_of_two: Stage, primary: KafkaBroker, seed: int
) -> None:
    stage, rng = site_of_two, random.Random(seed)
    there = Flow(stage.p, stage.b)
    transactional = f"bank-{stage.site.unique}" if seed % 2 else None
    stage.writer("writer", rate=100, transactional_id=transactional)
    stage.reader("plain", reset="earliest", store=True)
    stage.java_reader("java", reset="earliest")
    stage.reader("assign", reset="earliest", store=True, assign=PARTITIONS)
    groups = [reader.group for reader in stage.readers]
    repeated, left = Counter[str](), 0
    with ExitStack() as slots:
        slots.enter_context(replicating(stage.site.config, there))
        stage.start(stage.p)
        for number in (1, 2):
            choice = rng.choice(("merge", "discard"))
            is_idle, has_slot = number == 1 or rng.random() < 0.5, rng.random() < 0.5
            work(stage.readers)
            await_checkpoints(stage, groups)
            report = give_up(stage, number, primary, groups)
            assert report["ok"], report["problems"]
            for group in report["forecast"]["groups"]:
                repeated[group["group"]] += group["re_read"]
            work(stage.readers)

            primary.start()
            primary.wait_ready()
            blocked = stage.operator.plan(stage.b, stage.p, stage.topic, groups)["blocking"]
            assert any(f"srm return status --flow '{there}'" in reason for reason in blocked)
            choice = settle(stage, there, choice)
            outcome = stage.operator.ask("report", report["move_id"])["outcome"]
            residue = sum(one["records"] for one in outcome["partitions"])
            left += residue if choice == "discard" else 0
            if choice == "merge":
                repeated.update(dict.fromkeys(groups, residue))
            if is_idle:
                become_idle(stage)
            if not has_slot:  # once groups have read the residue, which it copies
                eventually(lambda: not stage.in_the_way(stage.b), "nothing is in the way")
                slots.close()
            back = stage.move(f"back{number}", stage.b)
            assert back["ok"], back["problems"]
            moved = back["groups"].values()
            assert {(one["skipped"], one["re_read"]) for one in moved} == {(0, 0)}, back
            if not has_slot:
                slots.enter_context(replicating(stage.site.config, there))
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
