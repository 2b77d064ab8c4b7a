"""What a program is told: topics and copies, both notations of the settings, what is secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.follow.following import GROUP, PRODUCER, config_in

from srm.cli.moves.follow import _work
from srm.errors import UsageError
from srm.follow.values import Values, pattern_of

SASL = (
    "B.security.protocol = SASL_SSL",
    "B.sasl.mechanism = SCRAM-SHA-512",
    "B.sasl.username = shop",
    "B.sasl.password = p",
    "B.ssl.ca.location = /ca.pem",
)


def test_the_environment_names_the_cluster_in_force(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    assert Values(config, GROUP, "B", "me", 7).environ() == {
        "SRM_CLUSTER": "B",
        "SRM_BOOTSTRAP_SERVERS": "b1:9092",
        "SRM_TOPICS": "Payments,P.Payments",
        "SRM_TOPIC_PATTERN": r"^(Payments|P\.Payments)$",
        "SRM_WRITES": "",
        "SRM_GROUP": "audit",
        "SRM_CLIENT_ID": "me",
        "SRM_GENERATION": "7",
    }


def test_a_producer_is_told_its_topics_without_copies(tmp_path: Path) -> None:
    environ = Values(config_in(tmp_path), PRODUCER, "P", "me").environ()
    assert (environ["SRM_TOPICS"], environ["SRM_WRITES"]) == ("Payments", "Payments")


def test_security_is_there_as_java_and_as_librdkafka_call_it(tmp_path: Path) -> None:
    values = Values(config_in(tmp_path, *SASL), GROUP, "B", "me")
    environ = values.environ()
    assert environ["SRM_SASL_PASSWORD"] == "p"
    assert environ["SRM_SSL_CA_LOCATION"] == environ["SRM_SSL_TRUSTSTORE_LOCATION"] == "/ca.pem"
    assert 'password="p"' in environ["SRM_SASL_JAAS_CONFIG"]
    assert values.java["group.id"] == values.librdkafka["group.id"] == "audit"
    assert values.secrets == {"sasl_password", "sasl_jaas_config", "java", "librdkafka"}
    assert "SRM_SASL_PASSWORD" not in Values(config_in(tmp_path, *SASL), GROUP, "P", "me").environ()


def test_nothing_is_secret_without_secrets(tmp_path: Path) -> None:
    assert Values(config_in(tmp_path), GROUP, "P", "me").secrets == frozenset()


@pytest.mark.parametrize(
    ("topics", "yes", "no"),
    [
        (["Payments", "P.Payments"], ["Payments", "P.Payments"], ["PxPayments", "Payments2"]),
        (["^Pay.*", r"^P\.(Pay.*)"], ["Payments", "P.Payments"], ["P-Payments", "B.Payments"]),
    ],
)
def test_the_pattern_matches_the_topics_and_no_others(
    topics: list[str], yes: list[str], no: list[str]
) -> None:
    pattern = pattern_of(topics)
    assert [bool(re.search(pattern, name)) for name in (*yes, *no)] == [
        *[True] * len(yes),
        *[False] * len(no),
    ]


def test_a_key_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    lines = ("P.ssl.key.location = /no/key", "P.ssl.certificate.location = /no/chain")
    with pytest.raises(UsageError, match="/no/key: cannot be read"):
        Values(config_in(tmp_path, *lines), GROUP, "P", "me")


def test_what_a_program_writes_to_has_a_name_and_what_it_reads_may_be_a_pattern() -> None:
    for topics, writes, producer in ((["^pay.*"], [], True), (["orders"], ["^pay.*"], False)):
        with pytest.raises(UsageError, match=r"topic to write to \^pay\.\*; use a name"):
            _work("" if producer else "audit", topics, writes, producer=producer)
    assert _work("audit", ["^pay.*"], ["orders"], producer=False).reads == ("^pay.*",)
    assert _work("", ["orders"], [], producer=True).writes == ("orders",)
