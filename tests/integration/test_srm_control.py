"""srm-control against real brokers: the lists' topic, and offsets that Kafka's own tool takes."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.integration.kafka_tools import run_tool

from srm.cli.main import control_main as main
from srm.config.loader import load_config
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.control.control_lists import ListPair, load
from srm.engine.control.control_topics import ensure_compacted
from srm.wiring import open_cluster, open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

Clusters = Mapping[str, KafkaBroker]


@dataclass(frozen=True)
class Outcome:
    """What a command ended with and printed."""

    code: int
    out: str
    err: str


Control = Callable[..., Outcome]


@pytest.fixture
def aliases() -> tuple[str, str]:
    """Aliases of this test alone, so that no other test uses its control topics."""
    unique = uuid.uuid4().hex[:8]
    return f"P{unique}", f"B{unique}"


@pytest.fixture
def config_file(clusters: Clusters, aliases: tuple[str, str], tmp_path: Path) -> Path:
    primary, backup = aliases
    file = tmp_path / "srm.properties"
    file.write_text(
        f"clusters = {primary}, {backup}\n"
        f"{primary}.bootstrap.servers = {clusters['P'].bootstrap}\n"
        f"{backup}.bootstrap.servers = {clusters['B'].bootstrap}\n"
        f"{primary}->{backup}.enabled = true\n{backup}->{primary}.enabled = true\n"
        "reverse.checkpointing.enabled = true\ninternal.topic.replication.factor = 1\n"
    )
    return file


@pytest.fixture
def control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Control:
    """Run srm-control's entry point in an empty folder without $SRM_CONFIG."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.delenv("SRM_CONFIG", raising=False)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["srm-control", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), printed.out, printed.err)

    return run


def test_the_installed_program_reaches_the_cluster(
    clusters: Clusters, aliases: tuple[str, str], tmp_path: Path
) -> None:
    program = Path(sys.executable).with_name("srm-control")
    address = ("--bootstrap-servers", clusters["B"].bootstrap)
    flow = ("--source", aliases[0], "--target", aliases[1])

    listed = subprocess.run(
        [str(program), "topics", *address, *flow, "--list"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )

    assert listed.stdout == "Current whitelist:\nCurrent blacklist:\nDone.\n"


def test_the_steps_of_enabling_reverse_checkpointing(
    control: Control, config_file: Path, aliases: tuple[str, str]
) -> None:
    """Each flow's lists are on its target, and a flow that is opened works with them."""
    primary, backup = aliases
    for subcommand, source, target, entry in (
        ("topics", primary, backup, "Payments"),
        ("reverse-checkpointed-topics", backup, primary, f"{primary}.Payments"),
        ("groups", primary, backup, "payment-processor"),
        ("groups", backup, primary, "payment-processor"),
    ):
        done = control(
            subcommand, "--config", str(config_file), "--source", source, "--target", target,
            "--add", entry,
        )  # fmt: skip
        assert done == Outcome(0, "Done.\n", "")

    config = load_config(config_file)
    with open_flow(config, Flow(primary, backup)) as forward:
        assert forward.config.topics == ("Payments",)
        assert forward.config.groups == ("payment-processor",)
    with open_flow(config, Flow(backup, primary)) as back:
        assert back.config.topics == ()
        assert back.config.reverse_checkpointed_topics == (f"{primary}.Payments",)


def test_an_address_alone_makes_the_compacted_topic_there(
    control: Control, clusters: Clusters, config_file: Path, aliases: tuple[str, str]
) -> None:
    primary, backup = aliases
    where = ("--source", primary, "--target", backup)
    address = ("--bootstrap-server", clusters["B"].bootstrap)

    added = control(*address, "topics", *where, "--add", "b,a.*", "--add-blacklist", "a1")
    listed = control("topics", "--bootstrap-servers", address[1], *where, "--list")

    assert (added.code, added.err) == (0, "")
    assert listed.out == "Current whitelist:\na.*\nb\nCurrent blacklist:\na1\nDone.\n"
    topic = internal_topics.control(primary)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": clusters["B"].bootstrap})
    settings = admin.describe_configs([resource])[resource].result(timeout=60)
    assert settings["cleanup.policy"].value == "compact"
    assert (
        topic
        not in AdminClient({"bootstrap.servers": clusters["P"].bootstrap})
        .list_topics(timeout=60)
        .topics
    )
    with open_cluster(load_config(config_file), backup) as cluster:
        assert load(cluster, Flow(primary, backup)).topics == ListPair(("a.*", "b"), ("a1",))


@pytest.fixture
def checkpointed(
    clusters: Clusters, config_file: Path, aliases: tuple[str, str]
) -> tuple[str, str]:
    """Checkpoints of two groups on the backup, and an address for the primary where nobody is."""
    primary, backup = aliases
    topic = f"{primary}.Payments"
    with open_cluster(load_config(config_file), backup) as cluster:
        ensure_compacted(cluster, topic, partitions=2)
        cluster.compacted_topic(topic).write({str(n).encode(): b"payment" for n in range(5)})
        ensure_compacted(cluster, internal_topics.checkpoints(primary))
        table = cluster.compacted_topic(internal_topics.checkpoints(primary))
        for group in (f"g-{primary}", f"h-{primary}"):
            for partition in (0, 1):
                place = TopicPartition(topic, partition)
                checkpoint = Checkpoint(group, place, 10, 3 if partition == 0 else 0)
                table.write({checkpoint.key(): checkpoint.value()})
    config_file.write_text(config_file.read_text().replace(clusters["P"].bootstrap, "127.0.0.1:1"))
    return topic, f"g-{primary}"


def test_kafkas_own_tool_takes_the_exported_offsets(
    control: Control,
    clusters: Clusters,
    config_file: Path,
    aliases: tuple[str, str],
    checkpointed: tuple[str, str],
    tmp_path: Path,
) -> None:
    """With the source down: export, kafka-consumer-groups --from-file, look at the group."""
    topic, group = checkpointed
    primary, backup = aliases
    base = ("offsets", "--config", str(config_file), "--source", primary, "--target", backup)
    one, every = tmp_path / "one.csv", tmp_path / "every.csv"

    assert control(*base, "--export", "--group", group, "--to", str(one)).code == 0
    exported = control(*base, "--export")
    every.write_text(exported.out)

    assert one.read_text() == f"{topic},0,3\n{topic},1,0\n"
    assert exported.out.splitlines()[0] == f"{group},{topic},0,3"
    other = group.replace("g-", "h-")
    for file, groups in ((one, (group,)), (every, (group, other))):
        chosen = [argument for each in groups for argument in ("--group", each)]
        done = _consumer_groups(
            clusters["B"], *chosen, "--reset-offsets", "--from-file", str(file), "--execute"
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with open_cluster(load_config(config_file), backup) as cluster:
        for each in (group, other):
            assert cluster.committed_offsets(each) == {
                TopicPartition(topic, 0): 3,
                TopicPartition(topic, 1): 0,
            }


def _consumer_groups(broker: KafkaBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    where = "--bootstrap-server", broker.bootstrap
    return run_tool(tool, *where, *arguments, check=False)
