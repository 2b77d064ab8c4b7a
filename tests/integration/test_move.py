"""Moves between real brokers with the real slots, and applications built on srm.client."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests import moves
from tests.integration.kafka_tools import run_tool
from tests.integration.moving import (
    Application,
    Site,
    Source,
    begin,
    carry_out,
    pass_gate,
)
from tests.waiting import eventually

from srm.client.routing import RoutingWatcher
from srm.domain.moves.report import MoveReport
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import TopicPartition
from srm.errors import NotFoundError

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def test_groups_and_producers_move_there_and_back_and_process_each_payment_once(
    site: Site,
) -> None:
    names = {name: site.group(name) for name in ("fast", "steady", "far")}
    bulk = Producer(site.config.client(site.p, "producer"))
    loaded = [f"old-{number}".encode() for number in range(6_000)]
    for value in loaded:
        bulk.produce(site.topic, value, value)
    assert bulk.flush(60) == 0

    with ExitStack() as stack:
        stack.enter_context(site.replicating())
        watcher = stack.enter_context(RoutingWatcher(site.config))
        source = Source(site, watcher)
        applications = {
            "fast": Application(site, names["fast"], 2, watcher),
            "steady": Application(site, names["steady"], 1, watcher),
            # However long the rest takes, it is far behind at the first move.
            "far": Application(site, names["far"], 1, watcher, pause_s=0.2),
        }
        for application in applications.values():
            stack.enter_context(application)
        source.start()
        stack.callback(source.stop)
        eventually(lambda: len(applications["fast"].processed) > 6_000, "fast has read the bulk")

        request = MoveRequest(
            "failover", site.p, site.b, (site.topic,), tuple(names.values()), quiet_seconds=0.5
        )
        with site.context(site.p, site.b) as context:
            carry_out(context, request, f"there-{site.unique}")
            there = moves.report(context, f"there-{site.unique}")
        before = len(source.acknowledged)
        eventually(lambda: len(source.acknowledged) > before + 500, "payments written on B")
        eventually(
            lambda: len(applications["steady"].processed) > before + 6_000, "steady works on B"
        )
        eventually(lambda: site.b in applications["far"].clusters, "far works on B")

        back = MoveRequest(
            "failback", site.b, site.p, (site.topic,), tuple(names.values()), quiet_seconds=0.5
        )
        with site.context(site.b, site.p) as context:
            carry_out(context, back, f"back-{site.unique}")
            again = moves.report(context, f"back-{site.unique}")
        before = len(source.acknowledged)
        eventually(lambda: len(source.acknowledged) > before + 300, "payments written on P again")
        source.stop()
        applications["far"].pause_s = 0.0
        expected = Counter(loaded + source.acknowledged)
        for name, application in applications.items():
            eventually(
                lambda a=application: len(a.processed) >= len(expected) or a.failures,
                f"{name} has read everything",
            )

    assert source.failures == []
    assert set(expected.values()) == {1}
    for application in applications.values():
        assert application.failures == []
        assert Counter(application.processed) == expected
        assert application.clusters == {site.p, site.b}
    for report in (there, again):
        assert report.ok, report.problems
        assert report.rpo_records == 0
        assert {(g.skipped, g.re_read) for g in report.groups.values()} == {(0, 0)}
    assert there.groups[names["far"]].lag_at_hold > 3_000


@pytest.fixture
def filled(site: Site) -> Site:
    """200 payments on P, and a group that has read 50 of partition 0 and left."""
    producer = Producer(site.config.client(site.p, "producer"))
    for number in range(200):
        producer.produce(site.topic, f"{number}", partition=0)
    assert producer.flush(60) == 0
    group = member(site, site.p, site.group("g"))
    group.commit(offsets=[KafkaTopicPartition(site.topic, 0, 50)], asynchronous=False)
    group.close()
    return site


SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


def test_a_share_group_continues_at_its_start_offset(filled: Site) -> None:
    """As one on the target, where no group has its name: it reads what it had left."""
    site, group, partition = filled, filled.group("queue"), TopicPartition(filled.topic, 0)

    def begins() -> bool:
        with suppress(NotFoundError):  # the coordinator does not know the new topic yet
            site.clusters[site.p].set_share_starts(group, {partition: 0})
            return True
        return False

    eventually(begins, "the group begins at the first record")
    _share(site, site.p, group, site.topic, 150)
    read = site.clusters[site.p].committed_offsets(group)[partition]
    assert read >= 150
    request = MoveRequest("failover", site.p, site.b, (site.topic,), (group,), quiet_seconds=0)

    with site.replicating(), site.context(site.p, site.b) as context:
        begin(context, request, f"queue-{site.unique}")
        pass_gate(context, f"queue-{site.unique}")
        assert site.clusters[site.b].groups([group])[group].kind == "share"

    rest = _share(site, site.b, group, f"{site.p}.{site.topic}", 200 - read)
    assert sorted(rest) == [str(number) for number in range(read, 200)]


def _share(site: Site, alias: str, group: str, topic: str, records: int) -> list[str]:
    """Read so many records as a consumer of a share group, and acknowledge them."""
    servers = ("--bootstrap-server", site.servers[alias])
    limit = ("--max-messages", str(records))
    told = run_tool(SHARE_CONSUMER, *servers, "--topic", topic, "--group", group, *limit)
    return told.stdout.split()


def member(site: Site, alias: str, group: str) -> Consumer:
    """Join a group as an application that knows nothing of srm; returns when it is a member."""
    consumer = Consumer(
        {
            **site.config.client(alias, "consumer"),
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
    )
    joined = threading.Event()
    consumer.subscribe([site.topic], on_assign=lambda *_: joined.set())

    def is_member() -> bool:
        consumer.poll(0.1)
        return joined.is_set()

    eventually(is_member, f"a member of {group}")
    return consumer


def srm(site: Site, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "srm.cli.main", "failover", *arguments, "--config", str(site.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_gives_up_in_time_or_when_interrupted_and_releases_clients(
    filled: Site, tmp_path: Path
) -> None:
    site, group = filled, filled.group("g")
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (site.path.parent / "report.key").write_bytes(pem)
    with site.path.open("a") as file:
        file.write("\nreport.signing.key.location = report.key\n")
    named = ["--yes", "--topic", site.topic, "--group", group, "--move-id"]

    with site.replicating(), RoutingWatcher(site.config) as watcher:
        with site.context(site.p, site.b) as context:
            request = MoveRequest("failover", site.p, site.b, (site.topic,), (group,))
            eventually(lambda: not moves.plan(context, request, dry_run=True).blocking, "a plan")
        stubborn = member(site, site.p, group)

        late = srm(site, "run", *named, f"late-{site.unique}", "--timeout", "10")
        _, said = late.communicate()
        assert late.returncode == 5, said
        assert f"group {group} is still active on {site.p}" in said

        stopped = srm(site, "run", *named, f"stopped-{site.unique}")
        eventually(lambda: watcher.route(f"group:{group}").state == "hold", "held")
        stopped.send_signal(signal.SIGINT)
        _, said = stopped.communicate()
        assert stopped.returncode == 130, said
        eventually(lambda: watcher.route(f"group:{group}").state == "go", "released")
        assert watcher.route(f"group:{group}").cluster == site.p
        stubborn.close()

        done = srm(site, "run", *named, f"done-{site.unique}", "--json")
        out, said = done.communicate()
        assert done.returncode == 0, said
        assert MoveReport.decode(out.encode()).rpo_records == 0
        eventually(lambda: watcher.route(f"topic:{site.topic}").cluster == site.b, "gone")

    exported = srm(site, "report", f"done-{site.unique}", "--output", str(tmp_path / "evidence"))
    _, said = exported.communicate()
    assert exported.returncode == 0, said
    files = sorted((tmp_path / "evidence").glob("*.json"))
    checked = srm(site, "report", "verify", f"done-{site.unique}", *map(str, files), "--json")
    out, said = checked.communicate()
    assert checked.returncode == 0, said
    kept, *others = json.loads(out)
    assert files
    assert [kept["revision"], kept["sha256"]] in [[r["revision"], r["sha256"]] for r in others]
