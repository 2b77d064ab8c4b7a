"""What the report of a move says about time and repetition, on real brokers with real clients."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.moving import Application, Site, carry_out
from tests.waiting import eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.client import announcing
from srm.client.following import Moment
from srm.client.routing import RoutingWatcher
from srm.domain import internal_topics
from srm.domain.move.routes import acks_of
from srm.engine import move
from srm.engine.move import MoveContext, MoveReport, MoveRequest

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

HOUR_MS = 3_600_000


@pytest.fixture
def late_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clocks of all clients an hour ahead."""

    def ahead() -> Moment:
        return Moment(time.time_ns() // 1_000_000 + HOUR_MS, time.monotonic())

    monkeypatch.setattr(announcing, "now", ahead)


def produce(site: Site, alias: str, count: int) -> None:
    producer = Producer(site.config.client(alias, "producer"))
    for number in range(count):
        producer.produce(site.topic, str(number), partition=0)
    assert producer.flush(60) == 0


def complete_report(context: MoveContext, move_id: str) -> MoveReport:
    """Report, and look again until each group that has something to process has done so."""
    reports = [move.report(context, move_id)]

    def complete() -> bool:
        if reports[-1].rto_seconds is None:
            reports.append(move.watch_residue(context, move_id).report)
        return reports[-1].rto_seconds is not None

    eventually(complete, "all groups work")
    return reports[-1]


@pytest.mark.usefixtures("late_clocks")
def test_clients_whose_clocks_are_an_hour_off_do_not_change_the_service_time(site: Site) -> None:
    """With the clients' clocks it was an hour, or nothing where they were an hour late."""
    busy, idle = site.group("busy"), site.group("idle")
    produce(site, site.p, 300)
    with (
        site.replicating(),
        RoutingWatcher(site.config) as watcher,
        # However long the rest takes, it has something left to read on the target.
        Application(site, busy, 1, watcher, pause_s=0.5) as working,
        Application(site, idle, 1, watcher) as waiting,
        site.context(site.p, site.b) as context,
    ):
        eventually(lambda: len(waiting.processed) == 300, "one group has read all there is")
        request = MoveRequest(
            "failover", site.p, site.b, (site.topic,), (busy, idle), quiet_seconds=0.2
        )
        move_id = f"clocks-{site.unique}"
        began = time.monotonic()
        carry_out(context, request, move_id)
        report = complete_report(context, move_id)
        took = time.monotonic() - began
        said = acks_of(context.target.compacted(internal_topics.ROUTING).read())

    for application in (working, waiting):
        assert application.failures == []
    ours = [ack for ack in said if ack.subject == f"group:{busy}"]
    assert ours, "the clients do say something"
    assert all(ack.time_ms > report.created_ms + HOUR_MS for ack in ours)
    assert report.rto_seconds is not None
    assert report.assigned_seconds is not None
    until_go = report.rto_seconds - report.rto_steps["resume"]
    assert 0 < until_go < report.groups[busy].assigned_seconds <= report.assigned_seconds
    assert report.groups[busy].assigned_seconds <= report.groups[busy].rto_seconds <= took + 1
    # What its member said may be on its way while its first commit, a second later, is there.
    assert report.groups[busy].rto_end in ("processed", "committed")
    assert report.groups[idle].rto_end == "assigned"
    assert report.ok, report.problems


def shown(site: Site, move_id: str) -> dict[str, Any]:
    """Return what srm failover report says."""
    asked = ["failover", "report", move_id, "--config", str(site.path), "--json"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_records_written_after_the_report_are_found_while_the_source_is_watched(
    site: Site,
) -> None:
    group = site.group("g")
    produce(site, site.p, 50)
    with (
        site.replicating(),
        RoutingWatcher(site.config) as watcher,
        Application(site, group, 1, watcher) as working,
        site.context(site.p, site.b) as context,
    ):
        eventually(lambda: len(working.processed) == 50, "the group works on P")
        request = MoveRequest(
            "failover", site.p, site.b, (site.topic,), (group,), quiet_seconds=0.2
        )
        move_id = f"late-{site.unique}"
        carry_out(context, request, move_id)
        first = move.report(context, move_id)
        assert first.ok
        produce(site, site.p, 7)
        found = shown(site, move_id)
        kept = move.kept_report(context, move_id).report

    assert (found["residue"], found["ok"]) == ({site.topic: 7}, False)
    assert found["residue_until_ms"] == first.residue_until_ms
    assert (kept.ok, kept.residue_over) == (False, False)
    assert any("7 records" in problem for problem in kept.problems)
