"""Copying between brokers that require TLS, certificates and logins of every kind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.cases import cases
from tests.certificates import Authority
from tests.integration.copying import CopyLab
from tests.integration.securing import (
    PASSWORD,
    SESSION_MS,
    SUITE,
    WAYS_IN,
    SecuredBroker,
    may_come_in,
)
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.config.security import NO_TLS_1_3, translate_security
from srm.errors import AuthorizationError, ConfigError, SrmError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.wire.brokers import QUESTIONS, Brokers
from srm.kafka.wire.cluster import WireCluster
from srm.kafka.wire.requests import metadata_request
from srm.kafka.wire.security import read_security
from srm.kafka.wire.tls import tls_context

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@pytest.mark.parametrize("way", cases(WAYS_IN[1::3], WAYS_IN[::3] + WAYS_IN[2::3]))
def test_copies_with_every_kind_of_security_on_either_side(
    secured: SecuredBroker, way: str
) -> None:
    """Each kind is the source's in one flow and the target's in another: no flow has one twice.

    The few flows are of eight kinds.
    """
    ways = secured.ways_in()
    other = WAYS_IN[(WAYS_IN.index(way) + 1) % len(WAYS_IN)]
    lab = CopyLab(ways[way], ways[other])
    partitions = lab.topic(2)
    producer = lab.producer()
    for number in range(400):
        producer.produce(partitions[0].topic, b"%d" % number * 50, partition=number % 2)
    producer.flush()

    lab.assign("0", partitions)
    with lab.running():
        lab.wait_until_copied(partitions)

    lab.assert_equal(partitions)


# What is wrong; the way in that it is wrong about; what is changed; what comes of it.
REFUSALS = {
    "password": (
        "PLAIN",
        {"sasl.password": "guessed"},
        (AuthorizationError, "Invalid username or password; check sasl.username"),
    ),
    "SCRAM password": (
        "SCRAM-SHA-512 over TLS",
        {"sasl.password": "guessed"},
        (AuthorizationError, "invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ),
    "expired token": (
        "OAUTHBEARER",
        {"sasl.oauthbearer.config": "principal=srm lifeSeconds=0"},
        (AuthorizationError, "invalid_token"),
    ),
    "client secret": (
        "OAUTHBEARER, OIDC",
        {"sasl.oauthbearer.client.secret": "guessed"},
        (AuthorizationError, "wrong secret; check sasl.oauthbearer.client.id"),
    ),
    "mechanism": (
        "OAUTHBEARER, OIDC",
        {"sasl.mechanism": "PLAIN", "sasl.username": "srm", "sasl.password": PASSWORD},
        (ConfigError, "PLAIN is not enabled on this listener; it has OAUTHBEARER"),
    ),
    "no certificate": (
        "mutual TLS, PEM text",
        {"ssl.certificate.pem": "", "ssl.key.pem": ""},
        (AuthorizationError, "refuses srm's certificate"),
    ),
    "key password": (
        "mutual TLS, PEM files",
        {"ssl.key.password": "guessed"},
        (ConfigError, "ssl.key.location: "),
    ),
    "store password": (
        "mutual TLS, PKCS12",
        {"ssl.keystore.password": "guessed"},
        (ConfigError, "ssl.keystore.location: "),
    ),
    "missing file": (
        "TLS",
        {"ssl.ca.location": "/nowhere/ca.pem"},
        (ConfigError, "ssl.ca.location: /nowhere/ca.pem: cannot be read on "),
    ),
    "system authorities": (
        "TLS",
        {"ssl.ca.location": ""},
        (ConfigError, "certificate is not accepted"),
    ),
    "plaintext to TLS": (
        "TLS",
        {"security.protocol": "PLAINTEXT"},
        (ConfigError, "the listener requires TLS; check security.protocol"),
    ),
    "login to a listener without": (
        "TLS",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "srm",
            "sasl.password": PASSWORD,
        },
        (ConfigError, "the listener has no SASL; check security.protocol"),
    ),
    "Kerberos": ("PLAIN", {"sasl.mechanism": "GSSAPI"}, (ConfigError, "(Kerberos) is not")),
}


@pytest.mark.parametrize("wrong", REFUSALS)
def test_what_keeps_srm_out_is_one_line_that_names_cluster_and_key(
    secured: SecuredBroker, wrong: str
) -> None:
    """At once, and in the same words, from the connections that copy and from all other clients."""
    way, changes, (kind, text) = REFUSALS[wrong]
    changed = {**secured.ways_in()[way], **changes}
    properties = {name: value for name, value in changed.items() if value}

    for refused in (_copying_refused(properties), _others_refused(properties)):
        assert type(refused) is kind, refused
        assert text in str(refused)
        assert str(refused).startswith("cluster P")
        assert "\n" not in str(refused)


def test_a_certificate_for_another_host_is_refused_unless_that_is_not_checked(
    secured: SecuredBroker,
) -> None:
    properties = secured.at("ELSEWHERE")

    refused = _copying_refused(properties)
    unchecked = {**properties, "ssl.endpoint.identification.algorithm": "none"}

    assert isinstance(refused, ConfigError)
    assert "see ssl.endpoint.identification.algorithm" in str(refused)
    assert _copying_refused(unchecked) is None
    assert _others_refused(unchecked) is None


_OTHER_SUITE = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


@pytest.mark.parametrize(
    ("limits", "let_in"),
    [
        ({"ssl.enabled.protocols": "TLSv1.3"}, "TLS13"),
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLS12"),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}, "TLS12 TLS13"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "TLS13"),
        ({"ssl.cipher.suites": SUITE}, "TLS12"),
        ({"ssl.cipher.suites": _OTHER_SUITE}, ""),
        ({"ssl.cipher.suites": f"{_OTHER_SUITE},TLS_AES_128_GCM_SHA256"}, "TLS13"),
        ({"ssl.cipher.suites": "ECDHE-ECDSA-AES128-GCM-SHA256"}, "TLS12 TLS13"),
    ],
)
def test_srm_agrees_only_to_versions_and_suites_that_the_file_names(
    secured: SecuredBroker, limits: dict[str, str], let_in: str
) -> None:
    """By the connections that copy; librdkafka's own take TLSv1.3 wherever a broker has it."""
    for listener in ("TLS12", "TLS13"):
        properties = translate_security({**secured.at(listener), **limits})
        welcome = listener in let_in.split()
        by_librdkafka = may_come_in(properties)

        copying = _copying_refused(properties)
        assert (copying is None) == welcome, (listener, copying)
        assert copying is None or "TLS handshake failed: " in str(copying)
        only_1_2 = NO_TLS_1_3 in properties.get("ssl.cipher.suites", "").split(":")
        assert by_librdkafka == (welcome or (listener == "TLS13" and only_1_2)), listener


@pytest.mark.parametrize(
    ("limits", "agreed"),
    [
        ({}, ("TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        ({"ssl.cipher.suites": SUITE}, ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")),
        (
            {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": f"{_OTHER_SUITE},{SUITE}"},
            ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ),
    ],
)
def test_a_broker_that_has_everything_is_spoken_to_as_the_file_says(
    secured: SecuredBroker, limits: dict[str, str], agreed: tuple[str, str]
) -> None:
    tls = read_security("P", translate_security({**secured.at("TLS"), **limits})).tls
    assert tls is not None
    host, _, port = secured.broker.address("TLS").rpartition(":")

    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        tls_context("P", tls).wrap_socket(plain, server_hostname=host) as encrypted,
    ):
        version, cipher = encrypted.version(), encrypted.cipher()

    assert cipher is not None
    assert (version, cipher[0]) == agreed


def test_openssls_own_file_limits_librdkafka_as_the_page_says(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")
    written = re.search(r"```\n(openssl_conf = .*?)```", page, re.DOTALL)
    assert written is not None
    limits = tmp_path / "openssl.cnf"
    limits.write_text(written[1])
    program = (
        "import sys; from tests.integration.securing import may_come_in;"
        "print(*[may_come_in(eval(text)) for text in sys.argv[1:]])"
    )

    let_in = subprocess.run(
        [sys.executable, "-c", program, *(repr(secured.at(name)) for name in ("TLS12", "TLS13"))],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OPENSSL_CONF": str(limits)},
    )

    assert let_in.stdout.split() == ["True", "False"]


def _copying_refused(properties: dict[str, str]) -> SrmError | None:
    async def start() -> None:
        cluster = WireCluster("P", properties)
        try:
            await cluster.start()
        finally:
            await cluster.close()

    try:
        asyncio.run(start())
    except SrmError as error:
        return error
    return None


def _others_refused(properties: dict[str, str]) -> SrmError | None:
    try:
        with KafkaCluster("P", ClusterClients.alike(properties), timeout_s=60) as cluster:
            cluster.topics()
    except SrmError as error:
        return error
    return None


def test_sessions_that_end_are_renewed_in_between_the_requests(secured: SecuredBroker) -> None:
    """Copying goes on for several sessions on both sides, and partitions are not claimed again.

    At the end of a session that was not renewed, both are. A request that a busy broker reads after
    that end, though it was sent before, costs a claim too.
    """
    session = {"bootstrap.servers": secured.broker.address("SHORT")}
    ways = secured.ways_in()
    lab = CopyLab(
        {**ways["SCRAM-SHA-512 over TLS"], **session}, {**ways["OAUTHBEARER over TLS"], **session}
    )
    partitions = lab.topic(2)
    producer = lab.producer()
    lab.assign("0", partitions)
    claims = set()
    began = time.monotonic()

    with lab.running():
        for number in range(1, 73):
            producer.produce(partitions[0].topic, b"%d" % number * 500, partition=number % 2)
            if number % 8 == 0:
                producer.flush()
                lab.wait_until_copied(partitions)
                claims.update(
                    (p.partition, p.producer_id, p.producer_epoch)
                    for report in lab.reports()
                    for p in report.positions
                )

    lab.assert_equal(partitions)
    sessions = (time.monotonic() - began) * 1000 / SESSION_MS
    again = len({claim for claim in claims if claim[1] >= 0}) - len(partitions)
    assert 0 <= again <= sessions * len(partitions) / 2


def test_sessions_of_the_control_plane_are_renewed_on_the_same_connection(
    secured: SecuredBroker,
) -> None:
    """A broker closes a connection that goes on after its session's end (KIP-368)."""
    session = {"bootstrap.servers": secured.broker.address("SHORT")}
    properties = {**secured.ways_in()["SCRAM-SHA-512 over TLS"], **session}

    async def run() -> None:
        brokers = Brokers("X", properties)
        await brokers.look()
        [node] = brokers.nodes
        first = await brokers.connection(node, QUESTIONS)
        ends = time.monotonic() + 3 * SESSION_MS / 1000
        while time.monotonic() < ends:
            await brokers.query(node, metadata_request([]))
            await asyncio.sleep(0.1)  # the pace of the load
        assert await brokers.connection(node, QUESTIONS) is first
        brokers.close()

    asyncio.run(run())


def test_a_broker_that_hangs_does_not_hold_up_the_end(secured: SecuredBroker) -> None:
    """TLS has a farewell, for which a client library waits half a minute; srm waits for none."""
    pid = secured.broker.pid
    assert pid is not None

    async def run() -> bool:
        cluster = WireCluster("P", secured.at("TLS"))
        await cluster.start()
        await cluster.connect(1)
        os.kill(pid, signal.SIGSTOP)
        closing = asyncio.create_task(cluster.close())
        for _ in range(100):
            await asyncio.sleep(0)
        return closing.done()

    try:
        assert asyncio.run(run()), "closed though the broker answers nothing"
    finally:
        os.kill(pid, signal.SIGCONT)


def test_connections_that_break_in_the_middle_of_a_record_lose_and_repeat_nothing(
    secured: SecuredBroker,
) -> None:
    """Encrypted connections of both sides are cut again and again while data flows."""
    way = secured.ways_in()["SCRAM-SHA-512 over TLS"]
    lab = CopyLab(way, way)
    partitions = lab.topic(2)
    producer = lab.producer(**{"batch.size": 200_000, "enable.idempotence": True})
    port = int(secured.broker.address("SASLTLS").rpartition(":")[2])

    lab.assign("0", partitions)
    with lab.running():
        eventually(lab.reports, "a slot that has started")
        for number in range(20_000):
            producer.produce(partitions[0].topic, os.urandom(1_000), partition=number % 2)
            if number % 4_000 == 3_999:
                producer.flush()
                _cut_connections(port)
        lab.wait_until_copied(partitions)

    lab.assert_equal(partitions)


def _cut_connections(port: int) -> None:
    """Cut every connection of this process to a port, as a firewall would."""
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port == port and connection.fd >= 0:
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as end:
                end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("place", ["{0}/*.crt", "{0}/other.crt,{0}/broker.crt", "{0}"])
def test_the_authority_of_a_broker_may_be_in_one_of_several_files(
    secured: SecuredBroker, tmp_path: Path, place: str
) -> None:
    (tmp_path / "other.crt").write_text(Authority("other").own.pem)
    (tmp_path / "broker.crt").write_text(secured.authority.own.pem)
    properties = {**secured.ways_in()["TLS"], "ssl.ca.location": place.format(tmp_path)}

    assert _copying_refused(translate_security(properties)) is None
    assert _others_refused(translate_security(properties)) is None
