"""One application for three clusters, of which always one is in trouble: no flow stops another.

The flows are a fan-out from P, a fan-in to C, and a ring of P, B and C.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.conftest import BrokerFactory
from tests.identities import identity_provider
from tests.integration.securing import SecuredBroker
from tests.replicating import configure
from tests.waiting import DEADLINE_S, eventually

from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.flows import supervision
from srm.engine.flows.supervision import Watch
from srm.engine.flows.target_topics import StateTopic
from srm.wiring import open_cluster
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.stack.process import LOOPBACK, free_port
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.integration]

START_S = 300.0
SRM = Path(sys.executable).parent / "srm"
PASSWORD = "of-late"


class Ring:
    """The clusters P, B and C with a topic each, under names of this test alone."""

    def __init__(self, p: KafkaBroker, b: KafkaBroker, c: SecuredBroker, home: Path) -> None:
        unique = uuid.uuid4().hex[:6]
        self.p, self.b, self.c = (f"{alias}{unique}" for alias in "PBC")
        self.topic = f"pay{unique}"
        self.brokers = {self.p: p, self.b: b, self.c: c.broker}
        self.written: dict[str, int] = {}
        self.home = home
        self.file = home / "srm.properties"
        servers = {self.p: p.bootstrap, self.b: b.bootstrap, self.c: c.broker.address("SASL")}
        flows = ((self.p, self.b), (self.p, self.c), (self.b, self.c), (self.c, self.p))
        self.flows = [Flow(source, target) for source, target in flows]
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        self.config: Config = configure(
            self.file,
            servers,
            *(f"{flow}.enabled = true" for flow in self.flows),
            f"topics = .*{self.topic}",
            "tasks.max = 1",
            "heartbeats.replication.enabled = false",
            f"{self.c}.security.protocol = SASL_PLAINTEXT",
            f"{self.c}.sasl.mechanism = SCRAM-SHA-256",
            f'{self.c}.sasl.jaas.config = {module} required username="late" password="{PASSWORD}";',
        )

    def renew_password(self, old: str, new: str) -> None:
        """Write another password of C into the file, as an operator does."""
        self.file.write_text(self.file.read_text().replace(old, new))
        self.config = load_config(self.file)

    def create(self, alias: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers[alias].bootstrap})
        for created in admin.create_topics([NewTopic(self.topic, 1, 1)]).values():
            created.result(DEADLINE_S)

    def write(self, alias: str) -> None:
        """Write ten more records to the cluster's own topic."""
        producer = Producer({"bootstrap.servers": self.brokers[alias].bootstrap})
        first = self.written.get(alias, 0)
        for number in range(first, first + 10):
            producer.produce(self.topic, f"{alias}-{number}".encode(), partition=0)
        assert producer.flush(DEADLINE_S) == 0
        self.written[alias] = first + 10

    def topics(self, alias: str) -> set[str]:
        """Return the topic of this test and its copies, without the suffix of the aliases."""
        admin = AdminClient({"bootstrap.servers": self.brokers[alias].bootstrap})
        names = admin.list_topics(timeout=DEADLINE_S).topics
        return {n.replace(self.topic[3:], "") for n in names if n.endswith(self.topic)}

    def wait_until_copied(self, alias: str, *hops: str) -> None:
        """Wait until a copy holds each record of its origin once, in order."""
        origin = hops[-1]
        remote = ".".join((*hops, self.topic))
        wanted = [f"{origin}-{number}".encode() for number in range(self.written[origin])]

        def is_equal() -> bool:
            with suppress(Exception):  # the topic does not exist yet
                records = read_log(self.brokers[alias].bootstrap, remote, 0)
                return [record.value for _, record in records] == wanted
            return False

        eventually(is_equal, f"{remote} on {alias} holds {len(wanted)} records", START_S)

    @contextmanager
    def replicating(self) -> Iterator[Replicating]:
        """Run one application with all flows; it has to end well on SIGTERM."""
        log = self.home / "replicate.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [SRM, "replicate", "--config", self.file, "--json"],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield Replicating(process, log)
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(DEADLINE_S)


class Replicating:
    """A running application and what it prints."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for_trouble(self, flow: Flow, text: str) -> None:
        """Wait until the latest line of a flow shows this trouble, none for an empty text."""
        eventually(
            lambda: (t := self._trouble(flow)) is not None and (text in t if text else not t),
            f"the trouble of {flow} is {text or 'over'}",
            START_S,
        )

    def _trouble(self, flow: Flow) -> str | None:
        assert self._process.poll() is None, self._log.read_text()
        lines = [line for line in self._log.read_text().splitlines() if line.startswith("{")]
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return next((line["trouble"] for line in found[::-1] if line["flow"] == str(flow)), None)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    """Give a cluster that is not started; the user late may do everything once it is known."""
    users = {"super.users": "User:ANONYMOUS;User:srm;User:late"}
    with identity_provider() as identities:
        broker = SecuredBroker(tmp_path / "secured", identities, {}, **users)
        yield broker
        broker.broker.kill()


def _let_in(broker: SecuredBroker, password: str = PASSWORD) -> None:
    admin = AdminClient({"bootstrap.servers": broker.broker.bootstrap})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("late", credential, password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(DEADLINE_S)


def _next_step(ring: Ring) -> str:
    """Say what a supervisor does that begins now."""
    with ExitStack() as stack:
        topics = {
            flow: StateTopic(
                stack.enter_context(open_cluster(ring.config, flow.target, 5.0)), flow.source
            )
            for flow in ring.flows
        }
        watch = Watch.over(topics, 0.0)
        # Two looks at a living driver, on a clock by which no flow is waited for.
        for now in (0.0, 1.0):
            has_beaten = partial(_has_beaten, topics, watch)
            eventually(has_beaten, "each driver that can be read gives a sign of life", START_S)
            watch = watch.after(supervision.look(topics), now)
        return watch.next_step(1.0)


def _has_beaten(topics: supervision.StateTopics, watch: Watch) -> bool:
    before = {signs.flow: signs.beat for signs in watch.signs}
    signs = watch.after(supervision.look(topics), 0.0).signs
    return bool(signs) and all(one.beat != before.get(one.flow) for one in signs)


@pytest.mark.timeout(1800)
def test_a_cluster_that_is_away_or_refuses_srm_stops_no_flow_between_the_others(
    clusters: Mapping[str, KafkaBroker],
    broker_factory: BrokerFactory,
    secured: SecuredBroker,
    tmp_path: Path,
) -> None:
    """C is away at the start, then does not know srm's user; B dies and comes back."""
    ring = Ring(clusters["P"], broker_factory("B"), secured, tmp_path)
    p, b, c = ring.p, ring.b, ring.c
    for alias in (p, b):
        ring.create(alias)
        ring.write(alias)

    with ring.replicating() as application:
        ring.wait_until_copied(b, p)
        application.wait_for_trouble(Flow(p, c), f"{c}.bootstrap.servers")
        application.wait_for_trouble(Flow(c, p), f"{c}.bootstrap.servers")
        assert _next_step(ring) == "supervise", "no second application is started"

        secured.start()
        ring.create(c)
        ring.write(c)
        application.wait_for_trouble(Flow(b, c), "check sasl.username")
        ring.write(p)
        ring.wait_until_copied(b, p)

        _let_in(secured)
        for hops in ((p,), (b,), (b, p)):
            ring.wait_until_copied(c, *hops)
        for hops in ((c,), (c, b)):
            ring.wait_until_copied(p, *hops)
        ring.wait_until_copied(b, p, c)
        for flow in ring.flows:
            application.wait_for_trouble(flow, "")

        _let_in(secured, "renewed")
        ring.renew_password(PASSWORD, "renewed")
        eventually(
            lambda: application.log.count(": new settings of its clients: it starts again") == 3,
            "all flows of C start again",
        )
        secured.broker.kill()  # connections of the old password end
        secured.broker.restart()  # connections of the old password end
        ring.write(p)
        ring.wait_until_copied(c, p)
        ring.wait_until_copied(c, b, p)
        assert f"{p}->{b}: new settings" not in application.log

        ring.brokers[b].kill()
        ring.write(p)
        ring.write(c)
        ring.wait_until_copied(c, p)
        ring.wait_until_copied(p, c)
        application.wait_for_trouble(Flow(p, b), f"cluster {b}")
        assert _next_step(ring) == "supervise"

        ring.brokers[b].start()
        ring.brokers[b].wait_ready()
        ring.write(b)
        for alias, hops in ((b, (p,)), (b, (p, c)), (c, (b,)), (c, (b, p)), (p, (c, b))):
            ring.wait_until_copied(alias, *hops)

    assert ring.topics(p) == {"pay", "C.pay", "C.B.pay"}, "nothing comes home by the ring"
    assert ring.topics(b) == {"pay", "P.pay", "P.C.pay"}
    assert ring.topics(c) == {"pay", "P.pay", "B.pay", "B.P.pay"}


@pytest.mark.timeout(900)
def test_until_caught_up_ends_with_the_flow_that_cannot_start_after_the_others_are_copied(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    unique = uuid.uuid4().hex[:6]
    p, b, c, topic = f"P{unique}", f"B{unique}", f"C{unique}", f"pay{unique}"
    addresses = {p: clusters["P"].bootstrap, b: clusters["B"].bootstrap}
    configure(
        tmp_path / "srm.properties",
        {**addresses, c: f"{LOOPBACK}:{free_port()}"},
        f"{p}->{c}.enabled = true",
        f"topics = {topic}",
        "tasks.max = 1",
    )
    admin = AdminClient({"bootstrap.servers": addresses[p]})
    for created in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        created.result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": addresses[p]})
    for number in range(100):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(DEADLINE_S) == 0

    done = subprocess.run(
        [SRM, "replicate", "--config", tmp_path / "srm.properties", "--until-caught-up"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 6, done.stderr
    assert done.stderr.splitlines()[-1].startswith("srm: the copy cannot catch up: ")
    assert f"cluster {c}" in done.stderr.splitlines()[-1]
    assert len(read_log(addresses[b], f"{p}.{topic}", 0)) == 100
