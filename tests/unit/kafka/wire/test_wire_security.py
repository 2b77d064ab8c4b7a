"""Security settings from librdkafka's properties, and what is made of them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.certificates import Authority

from srm.config.security import translate_security
from srm.errors import AuthorizationError, ConfigError, UnavailableError
from srm.kafka.wire.brokers import addresses
from srm.kafka.wire.security import (
    OidcTokens,
    Sasl,
    Security,
    Tls,
    UnsecuredTokens,
    read_security,
)
from srm.kafka.wire.tls import _block, tls_context, tls_failure

NAME = {"sasl.username": "srm", "sasl.password": "secret"}
OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
    "sasl.oauthbearer.client.id": "srm",
    "sasl.oauthbearer.client.secret": "secret",
}


def test_without_a_protocol_there_is_no_security() -> None:
    assert read_security("P", {"bootstrap.servers": "x:1", **NAME}) == Security("P")


def test_reads_a_protocol_in_either_case() -> None:
    properties = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-512", **NAME}

    security = read_security("P", {**properties, "ssl.ca.location": "ca.pem"})

    assert security.sasl == Sasl("SCRAM-SHA-512", "srm", "secret")
    assert security.tls == Tls(ca_location="ca.pem")


@pytest.mark.parametrize(
    ("properties", "certificate", "hostname"),
    [
        ({}, True, True),
        ({"ssl.endpoint.identification.algorithm": "none"}, True, False),
        ({"enable.ssl.certificate.verification": "false"}, False, False),
    ],
)
def test_certificate_and_host_name_are_checked_unless_the_settings_say_otherwise(
    properties: dict[str, str], *, certificate: bool, hostname: bool
) -> None:
    tls = read_security("P", {"security.protocol": "SSL", **properties}).tls

    assert tls is not None
    context = tls_context("P", tls)
    assert context.verify_mode is (ssl.CERT_REQUIRED if certificate else ssl.CERT_NONE)
    assert context.check_hostname is hostname


def test_a_suite_taken_from_openssls_default_list_is_not_offered() -> None:
    settings = {"security.protocol": "SSL", "ssl.cipher.suites": "DEFAULT:!AES128"}
    tls = read_security("P", translate_security(settings)).tls

    assert tls is not None
    offered = [one["name"] for one in tls_context("P", tls).get_ciphers()]
    assert [name for name in offered if "AES128" in name] == []
    assert "ECDHE-RSA-AES256-GCM-SHA384" in offered


def test_reads_the_java_notation_of_a_token_endpoint() -> None:
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="srm" clientSecret="secret" scope="kafka" extension_tenant="one";'
        ),
        "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
    }

    sasl = read_security("P", translate_security(java)).sasl

    assert sasl == Sasl(
        "OAUTHBEARER",
        tokens=OidcTokens("https://id.example.org/token", "srm", "secret", "kafka"),
        extensions=(("tenant", "one"),),
    )


def test_reads_the_java_notation_of_client_credentials_without_a_login_module() -> None:
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.credentials.client.id": "srm",
        "sasl.oauthbearer.client.credentials.client.secret": "secret",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
    }

    sasl = read_security("P", translate_security(java)).sasl

    tokens = OidcTokens("https://id.example.org/token", "srm", "secret")
    assert sasl == Sasl("OAUTHBEARER", tokens=tokens)


def test_reads_the_java_notation_of_a_pem_store_with_certificate_and_key(tmp_path: Path) -> None:
    authority = Authority()
    client = authority.client("srm")
    store, authorities = tmp_path / "srm.pem", tmp_path / "ca.pem"
    store.write_text(client.key_pem_under("password") + client.pem)
    authorities.write_text(authority.own.pem)
    java = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authorities),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.key.password": "password",
    }

    tls = read_security("P", translate_security(java)).tls

    assert tls == Tls(
        ca_location=str(authorities),
        certificate_location=str(store),
        key_location=str(store),
        key_password="password",
    )
    tls_context("P", tls)


def test_reads_the_java_notation_of_unsecured_tokens() -> None:
    java = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="srm" unsecuredLoginLifetimeSeconds="60";'
        ),
    }

    sasl = read_security("P", translate_security(java)).sasl

    assert sasl == Sasl("OAUTHBEARER", tokens=UnsecuredTokens("srm", lifetime_s=60))


def test_reads_librdkafkas_notation_of_unsecured_tokens() -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": (
            "principalClaimName=azp principal=srm scopeClaimName=roles scope=a,b lifeSeconds=600 "
            "extension_tenant=one"
        ),
    }

    sasl = read_security("P", properties).sasl

    tokens = UnsecuredTokens("srm", "azp", ("a", "b"), "roles", 600)
    assert sasl == Sasl("OAUTHBEARER", tokens=tokens, extensions=(("tenant", "one"),))


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: TLS is not one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL", **NAME}, "sasl.mechanism is missing"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
            "sasl.mechanism: GSSAPI (Kerberos) is not supported",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "DIGEST-MD5"},
            "sasl.mechanism: DIGEST-MD5 is not one of PLAIN",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "srm"},
            "sasl.password is missing, PLAIN needs it",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            "OAUTHBEARER needs a source of tokens: sasl.oauthbearer.method = oidc",
        ),
        (
            {**OIDC, "sasl.oauthbearer.client.secret": ""},
            "sasl.oauthbearer.client.secret is missing, sasl.oauthbearer.method = oidc needs it",
        ),
        ({**OIDC, "sasl.oauthbearer.extensions": "tenant"}, "is not of the form name=value"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=srm lifeSeconds=soon",
            },
            "sasl.oauthbearer.config is not of the form",
        ),
        (
            {"security.protocol": "SSL", "ssl.curves.list": "X448"},
            "ssl.curves.list cannot be applied",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_security("P", properties)

    assert text in str(refused.value)
    assert str(refused.value).startswith("cluster P: ")


def test_secrets_are_not_shown() -> None:
    tls = Tls(key_pem="hidden", key_password="hidden", keystore_password="hidden")
    tokens = OidcTokens("https://id", "srm", "hidden")
    security = Security("P", tls, Sasl("PLAIN", "srm", "hidden", tokens))

    assert "hidden" not in repr(security)


def test_bootstrap_servers_may_name_their_protocol() -> None:
    properties = {"bootstrap.servers": "SASL_SSL://one:9092, two:9093"}

    assert addresses(properties) == [("one", 9092), ("two", 9093)]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"ca_location": "{folder}/none"},
            "ssl.ca.location: {folder}/none: cannot be read on ",
        ),
        ({"ca_location": "{folder}/text"}, "ssl.ca.location: {folder}/text: not usable"),
        ({"ca_pem": "text"}, "ssl.ca.pem: not usable"),
        ({"crl_location": "{folder}/text"}, "ssl.crl.location: {folder}/text: not usable"),
        ({"keystore_location": "{folder}/text"}, "ssl.keystore.location: {folder}/text: not us"),
        (
            {"keystore_location": "{folder}/store.p12", "keystore_password": "guessed"},
            "ssl.keystore.location: {folder}/store.p12: not usable: Invalid password",
        ),
        ({"certificate_location": "{folder}/srm.pem"}, "ssl.key.location is missing"),
        ({"key_pem": "text"}, "ssl.certificate.location is missing"),
        (
            {"certificate_location": "{folder}/srm.pem", "key_location": "{folder}/other.key"},
            "ssl.key.location: {folder}/other.key: not usable: key values mismatch",
        ),
        (
            {"certificate_location": "{folder}/srm.pem", "key_location": "{folder}/sealed.key"},
            "ssl.key.location: {folder}/sealed.key: not usable: no PEM, or a wrong password",
        ),
        (
            {"certificate_location": "{folder}/srm.pem", "key_pem": "text"},
            "ssl.certificate.pem, ssl.key.pem: not usable",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_key(
    tmp_path: Path, settings: dict[str, str], text: str
) -> None:
    authority = Authority()
    client = authority.client("srm")
    (tmp_path / "text").write_text("no certificate")
    (tmp_path / "srm.pem").write_text(client.pem)
    (tmp_path / "other.key").write_text(authority.client("other").key_pem)
    (tmp_path / "sealed.key").write_text(client.key_pem_under("password"))
    (tmp_path / "store.p12").write_bytes(client.pkcs12("password"))
    tls = Tls(**{name: value.format(folder=tmp_path) for name, value in settings.items()})

    with pytest.raises(ConfigError) as refused:
        tls_context("P", tls)

    assert text.format(folder=tmp_path) in str(refused.value)
    assert str(refused.value).startswith("cluster P: ssl.")
    assert "\n" not in str(refused.value)


def test_a_broker_that_hangs_up_may_be_restarting() -> None:
    assert isinstance(tls_failure("P", ConnectionResetError("reset")), UnavailableError)


def test_an_alert_about_our_certificate_is_a_refusal() -> None:
    alert = ssl.SSLError(1, "told")
    alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"

    refused = tls_failure("cluster P", alert)

    assert isinstance(refused, AuthorizationError)
    assert "tlsv13 alert certificate required" in str(refused)


@given(st.lists(st.integers(1, 40_000), min_size=1, max_size=40))
def test_small_parts_share_a_record_and_large_ones_are_not_copied(sizes: list[int]) -> None:
    whole = bytes(range(256)) * (sum(sizes) // 256 + 1)
    parts, at = [], 0
    for size in sizes:
        parts.append(memoryview(whole)[at : at + size])
        at += size

    block = _block(parts)

    assert block == whole[: len(block)]
    if sizes[0] >= 16_384 or len(sizes) == 1:
        assert block is parts[0]
    else:
        assert len(block) == min(16_384, sum(sizes))
