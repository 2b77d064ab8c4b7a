"""A move is killed at one of its control record writes, and then run again or released.

Afterwards nobody is held, all clients agree on one cluster, what was decided is finished, and the
group reads the record next that it had not read. One seed after the other moves the same group,
from wherever it is then.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from tests import moves
from tests.cases import cases
from tests.integration.moving import Site, hold_and_go
from tests.waiting import eventually

from srm.client.routing import RoutingWatcher
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import group_subject, topic_subject
from srm.engine.moves.history import RoutingTables
from srm.engine.moves.store import MoveStore
from srm.errors import ConflictError
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

WRITES = 11  # hold 2, apply 4, go 5
MOMENTS = ("before", "within", "after")
READ = 50
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def site(clusters: Mapping[str, KafkaBroker], home: Path) -> Iterator[Site]:
    made = Site(clusters, home)
    producer = Producer(made.config.client(made.p, "producer"))
    for number in range(100):
        producer.produce(made.topic, f"{number}", partition=0)
    assert producer.flush(120) == 0
    group = Consumer({**made.config.client(made.p, "consumer"), "group.id": made.group("g")})
    place = KafkaTopicPartition(made.topic, 0, READ)
    eventually(lambda: _committed(group, place), "a commit")
    group.close()
    with made.replicating():
        yield made
    assert made.violations(home) == []
    for cluster in made.clusters.values():
        cluster.close()


def _committed(consumer: Consumer, place: KafkaTopicPartition) -> bool:
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except Exception:  # noqa: BLE001 -- the coordinator is loading
        return False
    return True


@pytest.fixture(scope="module")
def watchers(site: Site) -> Iterator[list[RoutingWatcher]]:
    """Clients that were there all the time, and read both clusters."""
    with RoutingWatcher(site.config) as one, RoutingWatcher(site.config, home=site.p) as other:
        yield [one, other]


def kill(site: Site, request: MoveRequest, move_id: str, number: int, moment: str) -> None:
    """Run the move in a process of its own until it kills itself."""
    arguments = [str(site.path), request.source, request.target, move_id, str(number), moment]
    run = subprocess.run(
        [sys.executable, "-m", "tests.faults.move_runner", *arguments],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert run.returncode == -signal.SIGKILL, run.stderr.decode()[-2000:]


def next_value(site: Site, alias: str) -> bytes:
    """Read the record that the group reads next on a cluster."""
    offsets = site.clusters[alias].committed_offsets(site.group("g"))
    reader = Consumer({**site.config.client(alias, "consumer"), "group.id": "value"})
    try:
        for place, offset in offsets.items():
            reader.assign([KafkaTopicPartition(place.topic, place.partition, offset)])
            _, end = reader.get_watermark_offsets(
                KafkaTopicPartition(place.topic, place.partition), timeout=120
            )
            if offset < end:
                return _read_one(reader).value()
    finally:
        reader.close()
    return b""


def _read_one(reader: Consumer) -> Message:
    found: list[Message] = []

    def reads() -> bool:
        found.extend(message for message in reader.consume(1, 1.0) if message.error() is None)
        return bool(found)

    eventually(reads, "the next record")
    return found[0]


@pytest.mark.parametrize("seed", cases((1, 5, 9), (0, 2, 3, 4, 6, 7, 8, 10, 11)))
def test_a_move_that_was_killed_is_finished_or_released_and_nobody_is_stranded(
    site: Site, watchers: list[RoutingWatcher], seed: int
) -> None:
    chance = random.Random(seed)
    number, moment = seed % WRITES + 1, chance.choice(MOMENTS)
    subjects = (group_subject(site.group("g")), topic_subject(site.topic))
    source = watchers[0].route(subjects[0]).cluster
    target = site.b if source == site.p else site.p
    request = MoveRequest(
        "failover", source, target, (site.topic,), (site.group("g"),), quiet_seconds=0.1
    )
    move_id = f"kill{seed}-{site.unique}"
    with site.context(source, target) as context:
        eventually(lambda: not moves.plan(context, request, move_id).blocking, "may start")
        kill(site, request, move_id, number, moment)
        decided = MoveStore.read(context).progress(move_id).is_decided
        if chance.random() < 0.5:
            hold_and_go(context, move_id)
        else:
            try:
                moves.release(context, move_id)
            except ConflictError:
                assert decided
                hold_and_go(context, move_id)
        progress = MoveStore.read(context).progress(move_id)
        if decided:
            assert progress.is_decided
        there = target if progress.is_decided else source
        for table in RoutingTables.read(context).tables:
            ours = {table[s] for s in subjects if s in table}
            assert {(r.cluster, r.state) for r in ours} <= {(there, "go")}
    for watcher in watchers:
        for subject in subjects:
            eventually(
                lambda w=watcher, s=subject: (
                    (w.route(s).cluster, w.route(s).state) == (there, "go")
                ),
                f"{subject} is on {there}",
            )
    assert next_value(site, there) == str(READ).encode()
