"""Settings of librdkafka as the Java clients call them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srm.config.security import java_settings, translate_security

FILES = {"/key": "KEY", "/chain": "CHAIN"}

text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)
login = st.fixed_dictionaries(
    {
        "sasl.mechanism": st.sampled_from(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
        "sasl.username": text,
        "sasl.password": text,
    }
)
truststore = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"ssl.ca.location": st.just("/ca")}),
    st.fixed_dictionaries({"ssl.ca.pem": text}),
)
keystore = st.one_of(
    st.just({}),
    st.just({"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "s"}),
    st.just({"ssl.key.location": "/k", "ssl.certificate.location": "/k", "ssl.key.password": "s"}),
    st.fixed_dictionaries({"ssl.key.pem": text, "ssl.certificate.pem": text}),
)


@given(login, truststore, keystore)
def test_what_is_written_for_java_means_the_same_when_it_is_read(
    login: dict[str, str], truststore: dict[str, str], keystore: dict[str, str]
) -> None:
    settings = {"security.protocol": "SASL_SSL", **login, **truststore, **keystore}
    pem_breaks = any("\\n" in value for value in (*truststore.values(), *keystore.values()))
    if not pem_breaks:
        assert translate_security(java_settings(settings, FILES.__getitem__)) == settings


def test_key_and_certificate_in_two_files_become_one_store() -> None:
    settings = {"ssl.key.location": "/key", "ssl.certificate.location": "/chain"}
    assert java_settings(settings, FILES.__getitem__) == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "KEY",
        "ssl.keystore.certificate.chain": "CHAIN",
    }


def test_tokens_are_fetched_by_javas_own_handler() -> None:
    settings = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "id",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.extensions": "tenant=one,x=y",
        "sasl.oauthbearer.token.endpoint.url": "https://idp",
    }
    java = java_settings(settings, FILES.__getitem__)
    assert java["security.protocol"] == "SASL_SSL"
    assert java["sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
    read = translate_security(java)
    assert {n: read[n] for n in settings if n in read} == {
        **{n: v for n, v in settings.items() if n != "sasl.mechanisms"},
        "security.protocol": "SASL_SSL",
    }


def test_a_name_that_is_not_checked_is_empty_in_java() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert java_settings({name: "none"}, FILES.__getitem__) == {name: ""}
