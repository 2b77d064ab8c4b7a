"""A broker that requires every kind of security on listeners of their own, and its clients."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.certificates import Authority, Signed
from tests.conftest import LASTING, owner
from tests.identities import IdentityProvider, identity_provider
from tests.waiting import eventually

from srm.config.security import translate_security
from srm_lab.stack.java import find_java
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.stack.process import LOOPBACK

PASSWORD: Final = "it's srm's, \"quoted\""
SUITE: Final = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
"""What the listener TLS12 has alone."""
KEY_PASSWORD: Final = "of the key"
SESSION_MS: Final = 2_500
"""Lifetime of a session on the listener SHORT."""

LISTENERS: Final = {
    "TLS": "SSL",
    "TLS12": "SSL",
    "TLS13": "SSL",
    "MUTUAL": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "SHORT": "SASL_SSL",
    "OIDC": "SASL_PLAINTEXT",
}
_SASL: Final = ("SASL", "SASLTLS", "SHORT")
WAYS_IN: Final = (
    "TLS",
    "mutual TLS, PEM files",
    "mutual TLS, PKCS12",
    "mutual TLS, PEM text",
    "mutual TLS, JKS",
    "PLAIN",
    "PLAIN over TLS",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512 over TLS",
    "OAUTHBEARER",
    "OAUTHBEARER over TLS",
    "OAUTHBEARER, OIDC",
)
_MODULES: Final = "org.apache.kafka.common.security"


class SecuredBroker:
    """A cluster of one broker with an authorizer; ``admin`` may do everything there.

    Plain clients (the test itself, readiness checks) come in by the PLAINTEXT listener and are
    super users, as are ``srm`` by any mechanism and certificate.
    """

    def __init__(
        self,
        home: Path,
        identities: IdentityProvider,
        users: Mapping[str, str],
        **server_props: str,
    ) -> None:
        self.identities = identities
        self._home = home
        home.mkdir(parents=True, exist_ok=True)
        self.authority = Authority()
        self.client = self.authority.client("srm")
        plain = " ".join(
            f'user_{name}="{_escaped(password)}"'
            for name, password in {"srm": PASSWORD, **users}.items()
        )
        modules = {
            "plain": f"{_MODULES}.plain.PlainLoginModule required {plain};",
            "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
            "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        }
        logins = {
            f"listener.name.{listener.lower()}.{mechanism}.sasl.jaas.config": module
            for listener in _SASL
            for mechanism, module in modules.items()
        }
        self.broker = KafkaBroker(
            home / "broker",
            "X",
            listeners=LISTENERS,
            server_props={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS;User:srm;User:CN=srm",
                **self._stores("", self.authority.broker(LOOPBACK, "localhost")),
                **self._stores(
                    "listener.name.elsewhere.", self.authority.broker("kafka.example.org")
                ),
                "listener.name.mutual.ssl.client.auth": "required",
                "listener.name.tls12.ssl.enabled.protocols": "TLSv1.2",
                "listener.name.tls12.ssl.cipher.suites": SUITE,
                "listener.name.tls13.ssl.enabled.protocols": "TLSv1.3",
                "sasl.enabled.mechanisms": ",".join(name.upper() for name in modules),
                "listener.name.oidc.sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.oidc.oauthbearer.sasl.jaas.config": modules["oauthbearer"],
                "listener.name.oidc.oauthbearer.sasl.server.callback.handler.class": (
                    f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
                ),
                "sasl.oauthbearer.jwks.endpoint.url": identities.keys_url,
                "sasl.oauthbearer.expected.audience": identities.audience,
                **logins,
                **{
                    f"listener.name.short.{mechanism}.connections.max.reauth.ms": str(SESSION_MS)
                    for mechanism in modules
                },
                # A refused login is answered at once.
                "connection.failed.authentication.delay.ms": "0",
                **LASTING,
                **server_props,
            },
            environ={
                **owner(),
                "JAVA_TOOL_OPTIONS": "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
                + identities.keys_url,
            },
        )

    def _stores(self, prefix: str, broker: Signed) -> dict[str, str]:
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.key": broker.key_pem,
            f"{prefix}ssl.keystore.certificate.chain": broker.pem,
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.certificates": self.authority.own.pem,
        }

    def start(self) -> None:
        """Start the broker and give ``srm`` its SCRAM credentials."""
        self.broker.start()
        self.broker.wait_ready()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion("srm", credential, PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result()
            known = {
                **self.at("SASL"),
                "sasl.mechanism": mechanism.name.replace("_", "-"),
                "sasl.username": "srm",
                "sasl.password": PASSWORD,
            }
            eventually(partial(may_come_in, known), f"srm may come in by {mechanism.name}")

    def file(self, name: str, content: str | bytes) -> str:
        """Write a file beside the broker and return its path."""
        path = self._home / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def at(self, listener: str) -> dict[str, str]:
        """Return what clients of a listener need but credentials, as librdkafka's properties."""
        properties = {
            "bootstrap.servers": self.broker.address(listener),
            "security.protocol": LISTENERS[listener],
        }
        if LISTENERS[listener].endswith("SSL"):
            properties["ssl.ca.location"] = self.file("ca.pem", self.authority.own.pem)
        return properties

    def ways_in(self) -> dict[str, dict[str, str]]:
        """Return every way in, by a name for it."""
        name = {"sasl.username": "srm", "sasl.password": PASSWORD}
        token = {
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=srm lifeSeconds=600",
        }
        return {
            "TLS": self.at("TLS"),
            "mutual TLS, PEM files": {**self.at("MUTUAL"), **self._shows_certificate()},
            "mutual TLS, PKCS12": {
                **self.at("MUTUAL"),
                "ssl.keystore.location": self.file("srm.p12", self.client.pkcs12(KEY_PASSWORD)),
                "ssl.keystore.password": KEY_PASSWORD,
            },
            "mutual TLS, PEM text": {
                **self.at("MUTUAL"),
                "ssl.certificate.pem": self.client.pem,
                "ssl.key.pem": self.client.key_pem,
            },
            "mutual TLS, JKS": translate_security(
                {
                    "bootstrap.servers": self.broker.address("MUTUAL"),
                    "security.protocol": "SSL",
                    **self._java_stores(),
                }
            ),
            "PLAIN": {**self.at("SASL"), **name, "sasl.mechanism": "PLAIN"},
            "PLAIN over TLS": {**self.at("SASLTLS"), **name, "sasl.mechanism": "PLAIN"},
            "SCRAM-SHA-256": {**self.at("SASL"), **name, "sasl.mechanism": "SCRAM-SHA-256"},
            "SCRAM-SHA-512 over TLS": {
                **self.at("SASLTLS"),
                **name,
                "sasl.mechanism": "SCRAM-SHA-512",
            },
            "OAUTHBEARER": {**self.at("SASL"), **token},
            "OAUTHBEARER over TLS": {**self.at("SASLTLS"), **token},
            "OAUTHBEARER, OIDC": {**self.at("OIDC"), **self.identities.client()},
        }

    def _java_stores(self) -> dict[str, str]:
        """Make stores with keytool; the right authority is the second one."""
        store = self.file("srm.p12", self.client.pkcs12(KEY_PASSWORD))
        own, trusted = self._home / "srm.jks", self._home / "trusted.jks"
        if not own.exists():
            keytool(own, "-importkeystore", "-srckeystore", store, "-srcstorepass", KEY_PASSWORD)
            for name, authority in (("a", Authority("another")), ("b", self.authority)):
                pem = self.file(f"{name}.pem", authority.own.pem)
                keytool(trusted, "-importcert", "-noprompt", "-alias", name, "-file", pem)
        return {
            "ssl.keystore.type": "JKS",
            "ssl.keystore.location": str(own),
            "ssl.keystore.password": KEY_PASSWORD,
            "ssl.truststore.type": "JKS",
            "ssl.truststore.location": str(trusted),
            "ssl.truststore.password": KEY_PASSWORD,
        }

    def _shows_certificate(self) -> dict[str, str]:
        return {
            "ssl.certificate.location": self.file("srm.pem", self.client.pem),
            "ssl.key.location": self.file("srm.key", self.client.key_pem_under(KEY_PASSWORD)),
            "ssl.key.password": KEY_PASSWORD,
        }


@contextmanager
def secured_broker(home: Path) -> Iterator[SecuredBroker]:
    """Run a broker that accepts the tokens of an identity provider."""
    with identity_provider() as identities:
        broker = SecuredBroker(home, identities, {})
        try:
            broker.start()
            yield broker
        finally:
            broker.broker.kill()


def may_come_in(properties: Mapping[str, str]) -> bool:
    """Whether a client is let in: a broker knows a new user some time after the controller."""
    try:
        AdminClient({**properties, "log_level": 0}).list_topics(timeout=5)
    except KafkaException:
        return False
    return True


def keytool(store: Path, *arguments: str, kind: str = "JKS") -> None:
    """Write a store of a kind, under KEY_PASSWORD, with Java's tool."""
    is_import = "-importkeystore" in arguments
    names = ("-destkeystore", "-deststoretype", "-deststorepass")
    names = names if is_import else ("-keystore", "-storetype", "-storepass")
    values = (str(store), kind, KEY_PASSWORD)
    options = [word for pair in zip(names, values, strict=True) for word in pair]
    tool = find_java().program.with_name("keytool")
    subprocess.run([str(tool), *arguments, *options], check=True, capture_output=True)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
