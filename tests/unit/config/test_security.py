"""TLS and SASL settings of the Java clients in librdkafka's notation."""

from __future__ import annotations

import pytest

from srm.config.security import translate_security
from srm.errors import ConfigError

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@pytest.mark.parametrize(
    ("java", "librdkafka"),
    [
        ({"ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        (
            {"ssl.truststore.location": "/ca", "ssl.truststore.type": "pem"},
            {"ssl.ca.location": "/ca"},
        ),
        ({"ssl.truststore.certificates": r"--A--\n--B--"}, {"ssl.ca.pem": "--A--\n--B--"}),
        (
            {"ssl.truststore.certificates": f"{BEGIN} QUJD REVG {END}  {BEGIN}{'A' * 70}{END}"},
            {"ssl.ca.pem": (f"{BEGIN}\nQUJDREVG\n{END}\n{BEGIN}\n{'A' * 64}\n{'A' * 6}\n{END}\n")},
        ),
        (
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.location": "/k.pem", "ssl.key.password": "x"},
            {
                "ssl.key.location": "/k.pem",
                "ssl.certificate.location": "/k.pem",
                "ssl.key.password": "x",
            },
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": "K",
                "ssl.keystore.certificate.chain": "C",
            },
            {"ssl.key.pem": "K", "ssl.certificate.pem": "C"},
        ),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {"sasl.jaas.config": "a.b.PlainLoginModule required username='u' password=p;"},
            {"sasl.username": "u", "sasl.password": "p"},
        ),
        (
            {
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
                'useKeyTab=true storeKey=true keyTab="/srm.keytab" principal="srm/h@R" '
                'serviceName="kafka";'
            },
            {
                "sasl.kerberos.keytab": "/srm.keytab",
                "sasl.kerberos.principal": "srm/h@R",
                "sasl.kerberos.service.name": "kafka",
            },
        ),
        (
            {"sasl.jaas.config": "x.OAuthBearerLoginModule required clientId=a clientSecret='b';"},
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "b",
            },
        ),
        ({"security.protocol": "SSL"}, {"security.protocol": "SSL"}),
        ({"ssl.enabled.protocols": "TLSv1.3, TLSv1.2,TLSv1.1"}, {}),
        ({"ssl.enabled.protocols": "TLSv1.2"}, {"ssl.cipher.suites": "DEFAULT:!TLSv1.3"}),
        (
            {
                "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,"
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_RSA_WITH_AES_256_CBC_SHA,"
                "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256,TLS_DHE_RSA_WITH_AES_128_CCM_8"
            },
            {
                "ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305:"
                "AES256-SHA:DHE-RSA-AES128-SHA256:DHE-RSA-AES128-CCM8"
            },
        ),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"},
            {"ssl.cipher.suites": "ECDHE-ECDSA-AES256-SHA384:!TLSv1.3"},
        ),
        ({"ssl.cipher.suites": "HIGH:!aNULL"}, {"ssl.cipher.suites": "HIGH:!aNULL"}),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"},
            {"ssl.cipher.suites": "PSK-AES128-CBC-SHA:!TLSv1.2"},
        ),
    ],
)
def test_translation(java: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert translate_security(java) == librdkafka


def test_an_explicit_type_wins_over_the_name_of_the_store() -> None:
    with pytest.raises(ConfigError, match=r"ssl.keystore.location: a\.pem: cannot be read on"):
        translate_security({"ssl.keystore.location": "a.pem", "ssl.keystore.type": "JKS"})


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("ssl.enabled.protocols", "TLSv1.1", "'TLSv1.1' must name TLSv1.2, TLSv1.3 or both"),
        ("ssl.enabled.protocols", "TLSv1.2,TLS13", "must name TLSv1.2, TLSv1.3 or both"),
        ("ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_129_GCM_SHA256", "no suite TLS_ECDHE_RSA_WI"),
        ("ssl.cipher.suites", "ECDHE-RSA-AES128-GCM-SHA256:TYPO", "OpenSSL has no suite TYPO"),
    ],
)
def test_a_limit_of_tls_that_openssl_does_not_know_is_refused(
    setting: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"{setting}: .*{message}"):
        translate_security({setting: value})


def test_versions_without_a_suite_of_theirs_are_refused() -> None:
    limits = {
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    }

    with pytest.raises(ConfigError, match=r"ssl.cipher.suites has no suite for TLSv1\.3; add one"):
        translate_security(limits)


def test_an_empty_login_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"login module \(none\)"):
        translate_security({"sasl.jaas.config": ""})


def test_of_a_login_in_both_notations_the_stronger_line_counts():
    jaas = 'PlainLoginModule required username="all" password="theirs";'
    own = {"sasl.username": "one", "sasl.password": "own"}

    weaker = translate_security({"sasl.jaas.config": jaas, **own})
    stronger = translate_security({**own, "sasl.jaas.config": jaas})

    assert weaker == own
    assert stronger == {"sasl.username": "all", "sasl.password": "theirs"}
