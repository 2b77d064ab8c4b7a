"""Client settings: the names of the Java clients and what librdkafka calls them.

Three kinds of settings: those that both know under one name pass as they are, those with another
name or notation are translated (simple names here, notations in :mod:`srm.config.security`), and
those of the Java clients alone are answered with a warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Users = Literal["all", "consumer", "producer"]


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One client setting.

    ``librdkafka`` is its name there, None where it has no meaning here; ``users`` are the kinds of
    clients that know it; ``reason`` says why a setting without meaning has none.
    """

    name: str
    librdkafka: str | None
    users: Users = "all"
    reason: str = ""


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SAME_FOR_ALL: Final = _names("""
    allow.auto.create.topics api.version.fallback.ms api.version.request
    api.version.request.timeout.ms bootstrap.servers broker.address.family broker.address.ttl
    client.dns.lookup client.id client.rack connections.max.idle.ms debug enable.metrics.push
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location
    https.ca.pem log_level max.in.flight max.in.flight.requests.per.connection
    message.copy.max.bytes message.max.bytes metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms
    retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable
    socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
    socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem
    ssl.certificate.location ssl.certificate.pem ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location
    ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
    ssl.sigalgs.list statistics.interval.ms topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
""")

SAME_FOR_CONSUMERS: Final = _names("""
    auto.commit.interval.ms auto.offset.reset check.crcs coordinator.query.interval.ms
    enable.auto.commit enable.auto.offset.store fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms
    group.protocol group.remote.assignor heartbeat.interval.ms isolation.level
    max.partition.fetch.bytes max.poll.interval.ms queued.max.messages.kbytes
    queued.min.messages session.timeout.ms
""")

SAME_FOR_PRODUCERS: Final = _names("""
    acks batch.num.messages batch.size compression.codec compression.level compression.type
    delivery.timeout.ms enable.idempotence linger.ms message.send.max.retries message.timeout.ms
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms
    request.required.acks retries sticky.partitioning.linger.ms transaction.timeout.ms
""")

_RENAMED: Final = (
    ClientKey("request.timeout.ms", "socket.timeout.ms"),
    ClientKey("send.buffer.bytes", "socket.send.buffer.bytes"),
    ClientKey("receive.buffer.bytes", "socket.receive.buffer.bytes"),
    ClientKey("fetch.max.wait.ms", "fetch.wait.max.ms", "consumer"),
    ClientKey("max.request.size", "message.max.bytes", "producer"),
)

TRANSLATED: Final = _names("""
    sasl.jaas.config sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret ssl.cipher.suites ssl.enabled.protocols
    ssl.keystore.type ssl.keystore.key ssl.keystore.certificate.chain ssl.truststore.type
    ssl.truststore.location ssl.truststore.certificates ssl.truststore.password
""")
"""Settings whose notation differs; srm.config.security turns them into librdkafka's."""

_BYTES: Final = "records are copied byte for byte"
_JAVA: Final = "it names a Java class"
_ASSIGNED: Final = "partitions are assigned without a consumer group"
_TLS: Final = "OpenSSL chooses it"
_RELOGIN: Final = "librdkafka renews logins by itself"
_CREDENTIALS: Final = "tokens are fetched with a client secret"
_BROKERS: Final = "brokers use it to check clients"
_BOUNDS: Final = "the clients here bound it otherwise"
_METRICS: Final = "Java metrics do not exist here"

_MEANINGLESS: Final[dict[str, str]] = {
    _BYTES: (
        "key.serializer value.serializer key.deserializer value.deserializer partitioner.class "
        "partitioner.ignore.keys partitioner.adaptive.partitioning.enable "
        "partitioner.availability.timeout.ms compression.gzip.level compression.lz4.level "
        "compression.zstd.level"
    ),
    _JAVA: (
        "interceptor.classes metric.reporters security.providers ssl.engine.factory.class "
        "sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class "
        "ssl.login.callback.handler.class "
        "sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class "
        "socket.factory.class config.providers"
    ),
    _ASSIGNED: (
        "group.id group.instance.id partition.assignment.strategy exclude.internal.topics "
        "transactional.id transaction.two.phase.commit.enable internal.leave.group.on.close "
        "internal.throw.on.fetch.stable.offset.unsupported share.acknowledgement.mode "
        "share.acquire.mode"
    ),
    _TLS: (
        "ssl.protocol ssl.provider ssl.keymanager.algorithm ssl.trustmanager.algorithm "
        "ssl.secure.random.implementation"
    ),
    _RELOGIN: (
        "sasl.kerberos.kinit.cmd sasl.kerberos.ticket.renew.jitter "
        "sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds "
        "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor "
        "sasl.login.refresh.window.jitter sasl.login.connect.timeout.ms "
        "sasl.login.read.timeout.ms sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms"
    ),
    _CREDENTIALS: (
        "sasl.oauthbearer.header.urlencode sasl.oauthbearer.assertion.algorithm "
        "sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds "
        "sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include "
        "sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub "
        "sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file "
        "sasl.oauthbearer.assertion.private.key.passphrase "
        "sasl.oauthbearer.assertion.template.file"
    ),
    _BROKERS: (
        "ssl.client.auth sasl.oauthbearer.jwks.endpoint.url "
        "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.scope.claim.name "
        "sasl.oauthbearer.sub.claim.name sasl.oauthbearer.expected.audience "
        "sasl.oauthbearer.expected.issuer sasl.oauthbearer.clock.skew.seconds"
    ),
    _BOUNDS: (
        "max.poll.records buffer.memory max.block.ms default.api.timeout.ms bootstrap.controllers "
        "metadata.max.idle.ms socket.connection.setup.timeout.max.ms"
    ),
    _METRICS: (
        "metrics.num.samples metrics.recording.level metrics.sample.window.ms "
        "metric.names.formats auto.include.jmx.reporter"
    ),
}

_WHOLE: Final = "a partition is copied from its first record on, so with its whole history"
_OFFSETS: Final = "positions are kept with the offset map, nothing is committed"
_FETCHES: Final = "the copy sizes its fetches itself; replicator.max.bytes.per.second limits it"
_LEADERS: Final = "records are fetched from the leaders of their partitions, in whatever rack"
_ACKS: Final = "copies are written once, in order, and acknowledged by all in-sync replicas"
_BATCHES: Final = "batches are the source's, small ones merged: `replicator.merge.batch.bytes`"
_CODEC: Final = (
    "batches keep the source's compression; set compression.type of the remote topic instead"
)
_AGAIN: Final = "the copy tries again until the target takes a batch or refuses it for good"

_BESIDE_THE_COPY: Final[dict[str, str]] = {
    _WHOLE: "auto.offset.reset",
    _OFFSETS: "enable.auto.commit auto.commit.interval.ms enable.auto.offset.store",
    _ASSIGNED: (
        "group.protocol group.remote.assignor session.timeout.ms heartbeat.interval.ms "
        "max.poll.interval.ms coordinator.query.interval.ms"
    ),
    _FETCHES: (
        "fetch.max.bytes fetch.min.bytes fetch.max.wait.ms fetch.wait.max.ms "
        "max.partition.fetch.bytes fetch.message.max.bytes fetch.error.backoff.ms "
        "fetch.queue.backoff.ms queued.max.messages.kbytes queued.min.messages"
    ),
    _LEADERS: "client.rack",
    _ACKS: (
        "acks request.required.acks enable.idempotence max.in.flight "
        "max.in.flight.requests.per.connection transaction.timeout.ms"
    ),
    _BATCHES: (
        "batch.size batch.num.messages linger.ms sticky.partitioning.linger.ms max.request.size "
        "message.max.bytes message.copy.max.bytes queue.buffering.max.kbytes "
        "queue.buffering.max.messages queue.buffering.max.ms"
    ),
    _CODEC: "compression.type compression.codec compression.level",
    _AGAIN: "retries message.send.max.retries delivery.timeout.ms message.timeout.ms",
}

BESIDE_THE_COPY: Final = {
    name: reason for reason, names in _BESIDE_THE_COPY.items() for name in names.split()
}
"""Settings that reach srm's other clients (control topics, offset map) but do not steer the copy:
by name, what the copy does instead."""

QUIET_VALUES: Final[dict[str, frozenset[str]]] = {
    "auto.offset.reset": frozenset({"earliest", "smallest", "beginning"}),
    "enable.auto.commit": frozenset({"false"}),
    "acks": frozenset({"all", "-1"}),
    "request.required.acks": frozenset({"all", "-1"}),
    "enable.idempotence": frozenset({"true"}),
}
"""Values of these that need no warning: they say what the copy does anyway."""


def _build() -> dict[str, ClientKey]:
    keys = [ClientKey(name, name) for name in SAME_FOR_ALL]
    keys += [ClientKey(name, name, "consumer") for name in SAME_FOR_CONSUMERS]
    keys += [ClientKey(name, name, "producer") for name in SAME_FOR_PRODUCERS]
    keys += _RENAMED
    keys += [ClientKey(name, name) for name in TRANSLATED]
    for reason, names in _MEANINGLESS.items():
        keys += [ClientKey(name, None, reason=reason) for name in names.split()]
    return {key.name: key for key in keys}


CLIENT_KEYS: Final = _build()
"""Every client setting by the name it is written with."""
