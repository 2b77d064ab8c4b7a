"""P dies, returns, and B dies before that return is settled; the harness counts for itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import cases
from tests.conftest import BrokerFactory
from tests.integration.blackbox.stage import Stage
from tests.integration.blackbox.test_two_disasters import give_up, settle, work
from tests.integration.blackbox.test_worst_day import emitting, lost_and_twice, srm
from tests.replicating import replicating
from tests.waiting import eventually

from srm.config.loader import load_config
from srm.domain.names.topics import Flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@pytest.fixture
def sites(broker_factory: BrokerFactory) -> dict[str, KafkaBroker]:
    return {alias: broker_factory(alias) for alias in ("P", "B")}


@pytest.fixture
def stage(sites: dict[str, KafkaBroker], tmp_path: Path, java_clients: str) -> Iterator[Stage]:
    """A stage whose clusters may both die, replicated both ways, with checkpoints of both flows."""
    made = Stage(sites, tmp_path, java_clients)
    there = Flow(made.p, made.b)
    with made.site.path.open("a") as file:
        file.write(f"\n{there.reverse}.reverse.checkpointing.enabled = true\n")
        file.write(f"{there.reverse}.reverse.checkpointed.topics = .*\n")
    made.site.config = load_config(made.site.path)
    try:
        with (
            replicating(made.site.config, there, there.reverse),
            emitting(made, there),
            emitting(made, there.reverse),
        ):
            yield made
    finally:
        made.close()


def await_checkpoints(stage: Stage, source: str, groups: list[str]) -> None:
    """Wait until an unplanned move knows what groups have read, and none works on its target."""
    target = stage.b if source == stage.p else stage.p
    named = [part for group in groups for part in ("--group", group)]
    pair = ("--source", source, "--target", target, "--topic", stage.topic)
    read = {row.topic for row in stage.site.clusters[source].committed_offsets(groups[0])}

    def known() -> bool:
        plan = stage.operator.ask("plan", "--mode", "unplanned", *pair, *named)
        rows = [row for group in plan["groups"] for row in group["positions"]]
        missing = [row for row in rows if row["topic"] in read and row["committed"] is None]
        found = {one["id"] for one in plan["findings"]} - {"no-original", "plain-members"}
        return bool(rows) and not (missing or found)

    eventually(known, f"a move away from {source} knows where groups are")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", cases((1,), (2, 3, 4)))
def test_the_second_site_dies_before_the_return_of_the_first_is_settled(
    stage: Stage, sites: dict[str, KafkaBroker], seed: int
) -> None:
    rng = random.Random(seed)
    there = Flow(stage.p, stage.b)
    stage.writer("writer", rate=100)
    stage.reader("plain", reset="earliest", store=True)
    stage.java_reader("java", reset="earliest")
    groups = [reader.group for reader in stage.readers]
    stage.start(stage.p)
    work(stage.readers)
    await_checkpoints(stage, stage.p, groups)

    reports = []
    for number, (source, broker) in enumerate(((stage.p, sites["P"]), (stage.b, sites["B"]))):
        reports.append(give_up(stage, number, broker, groups, source))
        work(stage.readers)
        if number == 0:
            sites["P"].start()
            sites["P"].wait_ready()
            if rng.random() < 0.5:
                stage.stop(*stage.writers)
                stage.await_copied(stage.b)
                stage.start(stage.b, *stage.writers)
            work(stage.readers, 200)
            await_checkpoints(stage, stage.b, groups)

    sites["B"].start()
    sites["B"].wait_ready()
    refused = srm(stage, "return", "settle", "--flow", str(there), "--yes", "--default", "discard")
    assert refused[0], "what clients write on P since the second move is no residue"
    for flow in rng.sample((there, there.reverse), 2):
        assert settle(stage, flow, "merge") == "merge"
    stage.stop(*stage.writers)
    stage.await_copied(stage.b)
    stage.await_copied(stage.p)
    for reader in stage.readers:
        eventually(
            lambda r=reader: not lost_and_twice(r, stage.acked)[0],
            f"{reader.name} has read everything",
        )
    residue = 0
    for report in reports:
        assert report["ok"], report["problems"]
        outcome = stage.operator.ask("report", report["move_id"])["outcome"]
        residue += sum(one["records"] for one in outcome["partitions"])
    for reader in stage.readers:
        again = [
            g["re_read"]
            for r in reports
            for g in r["forecast"]["groups"]
            if g["group"] == reader.group
        ]
        _, twice = lost_and_twice(reader, stage.acked)
        assert twice <= sum(again) + residue, (reader.name, twice, again, residue)
    back = stage.move("back", stage.p)
    assert back["ok"], back["problems"]
    assert {(one["skipped"], one["re_read"]) for one in back["groups"].values()} == {(0, 0)}
