"""What counts where the application and the file of clusters name the same property."""

from __future__ import annotations

from pathlib import Path

import pytest

from srm.client.cluster_producers import ClusterProducers, Reports, Transactions
from srm.client.membership import remote_name, subscription
from srm.client.producer import FailoverProducer
from srm.client.settings import ClientSettings, load_client_config
from srm.errors import UsageError


def made(tmp_path: Path, given: dict[str, object]) -> ClientSettings:
    file = tmp_path / "srm-client.properties"
    file.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:9092\nB.bootstrap.servers = b:9092\n"
        "B.sasl.username = of-the-file\nB.consumer.fetch.min.bytes = 7\n"
    )
    return ClientSettings(
        load_client_config(file),
        "consumer",
        given,
        defaults={"fetch.min.bytes": 1, "linger": 0},
        forced={"client.id": "ours"},
    )


def settings(tmp_path: Path, given: dict[str, object]) -> dict[str, object]:
    return made(tmp_path, given).on("B")


def test_no_text_of_a_producer_shows_the_password_of_the_application(tmp_path: Path) -> None:
    given = made(tmp_path, {"sasl.password": "hunter2"})
    producers = ClusterProducers(given, Reports(), None, transactional=False)

    assert "hunter2" not in repr(Transactions(producers, str, lambda: None, None))


def test_the_file_says_how_to_connect_and_the_application_all_else(tmp_path: Path) -> None:
    given = {
        "bootstrap.servers": "old:9092",
        "sasl.username": "app",
        "sasl.password": "secret",
        "fetch.min.bytes": 9,
        "client.id": "mine",
    }

    assert settings(tmp_path, given) == {
        "bootstrap.servers": "b:9092",
        "sasl.username": "of-the-file",
        "sasl.password": "secret",
        "fetch.min.bytes": 9,
        "linger": 0,
        "client.id": "ours",
    }


def test_the_file_wins_over_defaults(tmp_path: Path) -> None:
    assert settings(tmp_path, {})["fetch.min.bytes"] == "7"


def test_topics_and_patterns_are_read_with_their_copies(tmp_path: Path) -> None:
    file = tmp_path / "srm-client.properties"
    file.write_text("clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n")

    found = subscription(load_client_config(file), "P", ["a", "^b|^c"])

    assert found == ["a", "^b|^c", "B.a", r"^B\.(b|c)"]


def test_subscriptions_follow_the_policy_that_names_copies() -> None:
    def suffixed(topic: str) -> str:
        return f"{topic}.of.B"

    wanted = ["a", "^b|^c"]
    assert [remote_name(topic, str) for topic in wanted] == wanted
    assert [remote_name(t, suffixed) for t in wanted] == ["a.of.B", r"^(b|c)\.of\.B$"]
    with pytest.raises(UsageError, match=r"the pattern \^b\.\* cannot select copies"):
        remote_name("^b.*", lambda _topic: "x")


@pytest.mark.parametrize(("timeout", "waits"), [("90000", "90000"), ("0", "3600000")])
def test_a_topic_that_is_missing_after_a_move_is_waited_for_as_long_as_a_delivery(
    tmp_path: Path, timeout: str, waits: str
) -> None:
    path = tmp_path / "clusters.properties"
    path.write_text("clusters = P\nP.bootstrap.servers = p:1\n")
    producer = FailoverProducer({"message.timeout.ms": timeout}, clusters=path)

    found = producer._producers.settings.on("P")

    assert found["topic.metadata.propagation.max.ms"] == waits
