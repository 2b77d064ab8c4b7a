"""``srm doctor`` looks at real brokers and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from tests.conftest import BrokerFactory
from tests.waiting import eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.config.model import ClusterClients
from srm.engine.cluster_ports import TopicSpec
from srm.kafka.cluster import KafkaCluster
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.stack.process import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def configured(folder: Path, source: str, target: str) -> Path:
    path = folder / "srm.properties"
    path.write_text(
        "clusters = P, B\nP->B.enabled = true\ntopics = doctor.*\ngroups = .*\n"
        f"P.bootstrap.servers = {source}\nB.bootstrap.servers = {target}\nreplication.factor = 1\n"
        "offset-syncs.topic.replication.factor = 1\ncheckpoints.topic.replication.factor = 1\n"
        "heartbeats.topic.replication.factor = 1\n"
    )
    return path


def examined(config: Path) -> tuple[int | None, dict[str, dict[str, str]], BaseException | None]:
    result = CliRunner().invoke(app, ["doctor", "--config", str(config), "--json"])
    found = {check["name"]: check for check in json.loads(result.stdout)}
    code = getattr(result.exception, "exit_code", result.exit_code)
    return code, found, result.exception


def test_a_healthy_pair_has_no_problem(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> None:
    source, target = clusters["P"].bootstrap, clusters["B"].bootstrap
    plain = {"bootstrap.servers": source}
    with KafkaCluster("P", ClusterClients.alike(plain)) as cluster:
        cluster.create_topics([TopicSpec("doctor.payments", 1, 1, {})])

    code, found, error = examined(configured(tmp_path, source, target))

    assert code == 0, error
    assert not [check for check in found.values() if check["state"] == "problem"]
    assert "1 broker, Kafka 4.1 or newer" in found["cluster P"]["text"]
    assert "from this host's" in found["clock of B"]["text"]
    assert found["clock of B"]["state"] == "ok"
    assert found["transactions on B"]["state"] == "ok"
    assert found["rights of P->B"]["text"].endswith("can be read and copied")
    assert found["limits of P->B"]["state"] in {"ok", "warning"}  # others set quotas there


def test_a_dead_cluster_is_a_problem_and_the_other_is_examined(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    dead = f"127.0.0.1:{free_port()}"

    code, found, _ = examined(configured(tmp_path, dead, clusters["B"].bootstrap))

    assert code == 6
    assert "connection refused" in found["cluster P"]["text"]
    assert found["cluster B"]["state"] == "ok"
    assert "rights of P->B" not in found


def test_two_names_of_one_cluster_are_one_problem_and_every_command_refuses_them(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    source = clusters["P"].bootstrap
    config = configured(tmp_path, source, source.replace("127.0.0.1", "localhost"))
    with config.open("a", encoding="utf-8") as file:
        file.write(
            f"clusters = P, B, C\nC.bootstrap.servers = {clusters['B'].bootstrap}\n"
            "P->C.enabled = true\n"
        )

    code, found, _ = examined(config)
    problems = {name: one["text"] for name, one in found.items() if one["state"] == "problem"}
    commands = [
        ["topics", "sync"],
        ["checkpoints", "emit"],
        ["groups", "sync"],
        ["metrics", "show"],
        ["status"],
        ["replicate"],
        ["replicate", "--flow", "P->C"],
    ]
    refusals = {
        str(CliRunner().invoke(app, [*words, "--flow", "P->B", "--config", str(config)]).exception)
        for words in commands
    }

    assert (code, list(problems)) == (2, ["clusters"])
    assert found["rights of P->C"]["state"] != "problem"
    assert problems["clusters"].startswith("B and P are one cluster, ")
    assert [text for text in refusals if problems["clusters"] not in text] == []


@pytest.mark.parametrize(
    ("brokers", "expected_code", "state", "text"),
    [
        (1, 1, "problem", "no transaction can commit"),
        (2, 0, "warning", "none commits while one broker is dead"),
    ],
)
def test_a_target_that_cannot_commit_transactions_is_found(
    clusters: Mapping[str, KafkaBroker],
    cluster_factory: Callable[..., list[KafkaBroker]],
    tmp_path: Path,
    brokers: int,
    expected_code: int,
    state: str,
    text: str,
) -> None:
    lacking = cluster_factory("X", brokers)[0].bootstrap
    with KafkaCluster("B", ClusterClients.alike({"bootstrap.servers": lacking})) as cluster:
        cluster.create_topics(
            [TopicSpec("__transaction_state", 1, brokers, {"min.insync.replicas": "2"})]
        )

    code, found, _ = examined(configured(tmp_path, clusters["P"].bootstrap, lacking))

    assert code == expected_code
    assert found["transactions on B"]["state"] == state
    assert text in found["transactions on B"]["text"]


def test_what_does_not_fit_between_two_clusters_is_found_before_the_start(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    target = broker_factory(
        "Y",
        **{
            "auto.create.topics.enable": "true",
            "min.insync.replicas": "2",
            "message.max.bytes": "2000",
            "log.retention.ms": "60000",
        },
    )
    source = {"bootstrap.servers": clusters["P"].bootstrap}
    with KafkaCluster("P", ClusterClients.alike(source)) as cluster:
        cluster.create_topics([TopicSpec("doctor.sizes", 1, 1, {})])
    there = {"bootstrap.servers": target.bootstrap}
    with KafkaCluster("B", ClusterClients.alike(there)) as cluster:
        cluster.create_topics([TopicSpec("any", 1, 1, {}), TopicSpec("P.doctor.old", 1, 1, {})])
    config = configured(tmp_path, clusters["P"].bootstrap, target.bootstrap)
    with config.open("a") as file:
        file.write("checkpoints.topic.replication.factor = 3\n")

    command = ["config", "check", "--online", "--config", str(config), "--json"]
    result = CliRunner().invoke(app, command)
    found = {(one["name"], one["state"]): [] for one in json.loads(result.stdout)["findings"]}
    for one in json.loads(result.stdout)["findings"]:
        found[one["name"], one["state"]].append(one["text"])

    assert getattr(result.exception, "exit_code", 0) == 2
    [few] = found["defaults for P->B", "problem"]
    assert few.startswith("min.insync.replicas of B is 2, remote topics get 1 replica: no record")
    [auto] = found["defaults for P->B", "warning"]
    assert auto.startswith("auto.create.topics.enable is true on B")
    [refused] = found["topics of P->B", "problem"]
    assert "P.checkpoints.internal" in refused
    weaker = found["P->B: P.doctor.sizes", "warning"]
    assert "max.message.bytes is 2000, on doctor.sizes of P 1048588" in weaker
    assert any(text.startswith("retention.ms is 60000, ") for text in weaker)
    assert found["P->B: P.doctor.old", "warning"] == ["P has no topic doctor.old"]


def test_what_the_target_does_not_admit_of_clients_is_named_before_a_move(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    """Its brokers were not upgraded yet, or have other settings."""
    narrow = broker_factory(
        "Z",
        **{
            "group.coordinator.rebalance.protocols": "classic",
            "group.max.session.timeout.ms": "10000",
            "transaction.max.timeout.ms": "10000",
            "offsets.retention.minutes": "1",
        },
    )
    source = {"bootstrap.servers": clusters["P"].bootstrap}
    with KafkaCluster("P", ClusterClients.alike(source)) as cluster:
        cluster.create_topics([TopicSpec("doctor.limits", 1, 1, {})])
    settings = {
        **source,
        "group.id": "doctor-modern",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["doctor.limits"])
        eventually(lambda: consumer.poll(0.2) or consumer.assignment(), "an assignment")
        config = configured(tmp_path, clusters["P"].bootstrap, narrow.bootstrap)
        result = CliRunner().invoke(app, ["doctor", "--config", str(config), "--json"])
    lines = [
        check["text"]
        for check in json.loads(result.stdout)
        if check["name"] == "limits of P->B" and check["state"] == "warning"
    ]

    [protocol] = [line for line in lines if "with the consumer group protocol" in line]
    assert "doctor-modern" in protocol
    for setting in ("group.max.session", "transaction.max", "offsets.retention.minutes"):
        assert any(line.startswith(setting) for line in lines), (setting, lines)
    assert getattr(result.exception, "exit_code", 0) == 0
