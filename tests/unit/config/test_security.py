"""TLS and SASL settings of the Java clients in librdkafka's notation."""

from __future__ import annotations

import pytest

from srm.config.security import translate_security
from srm.errors import ConfigError


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
    ],
)
def test_translation(java: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert translate_security(java) == librdkafka


def test_an_explicit_type_wins_over_the_name_of_the_store() -> None:
    with pytest.raises(ConfigError, match=r"a\.pem is a JKS store"):
        translate_security({"ssl.keystore.location": "a.pem", "ssl.keystore.type": "JKS"})


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
