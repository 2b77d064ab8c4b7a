"""srm config check and srm config explain."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import certifi
import pytest
from tests.unit.config.test_stores import TRUSTED_JKS
from typer.testing import CliRunner

from srm.cli.flows.doctor import Checks, _topics
from srm.cli.main import app
from srm.client.settings import load_client_config
from srm.config.loader import load_config
from srm.domain.names.policy import IdentityReplicationPolicy
from srm.domain.names.topics import Flow
from srm.engine.ports import FlowContext
from srm.errors import ConfigError, UsageError
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import FakeClock

MIRROR_MAKER = Path(__file__).parents[2] / "config" / "mirror-maker.properties"
FLOW = "us-east->us-west"


def srm(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["config", *arguments, "--config", str(MIRROR_MAKER)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file's authorities be some that exist."""
    path = tmp_path / MIRROR_MAKER.name
    path.write_text(MIRROR_MAKER.read_text().replace("/etc/kafka/ca.pem", certifi.where()))
    monkeypatch.setattr(f"{__name__}.MIRROR_MAKER", path)


def test_check_shows_all_that_is_wrong_at_once_and_no_row_is_padded(tmp_path: Path) -> None:
    """Missing files of both formats, and a wrong number."""
    path = tmp_path / "srm.properties"
    path.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
        "P.security.protocol = SSL\nP.ssl.ca.location = /none.pem\nB.security.protocol = SSL\n"
        "B.ssl.truststore.location = /none.jks\nB.ssl.truststore.password = x\ntasks.max = x\n"
    )
    for words, others in ((["config", "check"], 0), (["doctor"], 1)):
        result = CliRunner().invoke(app, [*words, "--config", str(path)])

        rows = [line for line in result.stdout.splitlines() if line.startswith("problem ")]
        assert [sum(name in row for row in rows) for name in ("none.pem", "none.jks")] == [1, 1]
        assert (len(rows), sum("tasks.max" in row for row in rows)) == (3, 1)
        assert [line for line in result.stdout.splitlines() if line.endswith(" ")] == []
        assert ("versions" in result.stdout) == bool(others)
        assert isinstance(result.exception, ConfigError)


def test_check_fails_on_warnings_if_strict(tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    path.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
        "offset.lag.max = 1\n"
    )
    command = ["config", "check", "--config", str(path)]

    assert CliRunner().invoke(app, command).exit_code == 0
    strict = CliRunner().invoke(app, [*command, "--strict"])
    assert str(strict.exception).startswith("1 warning, first ")


@pytest.mark.usefixtures("complete")
def test_check_shows_flows_warnings_and_what_selects_nothing() -> None:
    text = srm("check")

    assert "customers-[a-z]+" in text
    assert "warning: " in text
    assert "offset.lag.max: has no meaning here" in text
    assert (
        "note: us-west->us-east selects no groups in this file; set us-west->us-east.groups = .* "
        "for all, the default of MirrorMaker 2, or select some with: srm-control groups --config "
        in text
    )
    assert " --source us-west --target us-east --add" in text


def test_check_notes_that_no_flow_is_enabled(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text("clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n")

    result = CliRunner().invoke(app, ["config", "check", "--config", str(path)])

    assert result.exit_code == 0
    assert (
        "note: no flow is enabled, and nothing is copied; set A->B.enabled = true" in result.stdout
    )


@pytest.mark.usefixtures("complete")
def test_check_as_json_has_every_setting_of_every_flow() -> None:
    report = json.loads(srm("check", "--json"))

    assert list(report["clusters"]) == ["us-east", "us-west"]
    flow = report["flows"][FLOW]
    assert flow["enabled"] is True
    assert flow["tasks_max"] == 4
    assert flow["refresh_topics_interval"] == 600
    assert flow["policy"] == "DefaultReplicationPolicy"
    assert len(report["warnings"]) == 16


def test_check_shows_classes_by_their_names_and_no_command_of_a_redirector(tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    path.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
        "P->B.enabled = true\nP->B.failover.command = notify --token s3cret\n"
    )

    result = CliRunner().invoke(app, ["config", "check", "--json", "--config", str(path)])

    assert result.exit_code == 0, result.output
    assert "s3cret" not in result.stdout
    assert "<class" not in result.stdout


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        ("taks.max = 1", (), r"bad\.properties line 5: unknown key taks\.max; did you mean"),
        ("task.max = 1", (), r"line 5: unknown key task\.max; did you mean tasks\.max"),
        ("nope = 1", ("--strict",), "line 5: unknown key nope; docs/configuration"),
        ("sasl.mechanism = GSSAPI", (), r"cluster P: .*GSSAPI \(Kerberos\) is not supported; use"),
        ("P.sasl.mechanism = NTLM", (), "cluster P: sasl.mechanism: NTLM is not one of PLAIN"),
        ("P->B.producer.sasl.mechanism = GSSAPI", (), "cluster B: sasl.mechanism: GSSAPI"),
        ("security.protocol = TLS", (), "cluster P: security.protocol: TLS is not one of"),
        ("sasl.username =", (), "cluster P: sasl.username is missing, PLAIN needs it"),
        ("P.ssl.truststore.location = /t.p12", (), "/t.p12: cannot be read on"),
        ("P.bootstrap.servers = b1:9092", (), "P and B are the same cluster: both name b1:9092"),
    ],
)
def test_check_refuses_what_cannot_work(
    tmp_path: Path, lines: str, arguments: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "bad.properties"
    head = "clusters = P, B\nP.bootstrap.servers = p1:9092\nB.bootstrap.servers = b1:9092\n\n"
    login = "sasl.mechanism = PLAIN\nsasl.username = srm\nsasl.password = x\n"
    good = f"{head}sasl.extra = 1\nsecurity.protocol = SASL_SSL\n{login}"
    command = ["config", "check", "--config", str(file)]

    file.write_text(good)
    assert CliRunner().invoke(app, command).exception is None
    name = lines.partition(" ")[0]
    kept = [line for line in good.splitlines() if not line.startswith(f"{name} ")]
    file.write_text("\n".join([*kept[:3], "", lines, *kept[3:]]))
    result = CliRunner().invoke(app, [*command, *arguments])

    assert isinstance(result.exception, ConfigError)
    assert result.exception.exit_code == 2
    assert re.search(message, str(result.exception)), result.exception
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize("command", [["config", "check"], ["doctor"]])
def test_misspelt_keys_and_references_without_a_value_are_problems_among_the_others(
    tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(
        "clusters = P, B\nP.bootstrap.servers = p1:9092\nB.bootstrap.servers = ${env:SRM_NONE}\n"
        "config.providers = env\ntask.max = 1\ntasks.max = ${env:SRM_NONE}\n"
        "replication.factor = -2\npredicates = orders\nP->B.enabled = true\n"
        "topics = ${env:SRM_NONE}\ntopics.exclude = [\n"
    )

    result = CliRunner().invoke(app, [*command, "--config", str(file), "--json"])

    problems = re.findall(r"srm\.properties (line \d+: [\w.]+(?: key task)?)", result.stdout)
    assert problems == [
        "line 3: B.bootstrap.servers",
        "line 6: tasks.max",
        "line 10: topics",
        "line 5: unknown key task",
        "line 8: predicates",
        "line 11: topics.exclude",
        "line 7: replication.factor",
    ]
    assert re.match("7 problems, first configuration: .* line 3: ", str(result.exception))


@pytest.mark.parametrize("command", [["config", "check"], ["doctor"]])
def test_what_leaves_other_values_unknown_hides_no_other_problem_and_is_one_row(
    tmp_path: Path, command: list[str]
) -> None:
    """No aliases, an invalid line, a provider of another class, and what comes of each."""
    file, store = tmp_path / "srm.properties", tmp_path / "store.jks"
    store.write_bytes(TRUSTED_JKS)
    file.write_text(
        "P.bootstrap.servers = ${vault:a:b}\nB.bootstrap.servers = b1\nP->B.enabled = true\n"
        "config.providers = env, vault\nP.security.protocol = SASL_SSL\n"
        "P.sasl.mechanism = PLAIN\nP.sasl.jaas.config = ${env:SRM_NONE}\n"
        "C.airflow.connection = c1\nC->P.enabled = true\ntasks.max = 1 \\\n \\u12G\n"
        "replication.factor = -2\nC.security.protocol = SSL\nC.ssl.ca.location = /none.pem\n"
        f"B.security.protocol = SSL\nB.ssl.truststore.location = {store}\n"
        "B.ssl.truststore.password = ${env:SRM_NONE}\n"
    )

    result = CliRunner().invoke(app, [*command, "--config", str(file), "--json"])
    found = json.loads(result.stdout)
    rows = found["findings"] if isinstance(found, dict) else found
    problems = [row["text"] for row in rows if row["state"] == "problem"]

    assert [text.replace(f"{file}", "").strip(" :")[:30] for text in problems] == [
        "line 10: invalid escape \\u12G;",
        "config.providers names 'vault'",
        "line 7: P.sasl.jaas.config: en",
        "line 8: C.airflow.connection: ",
        "line 17: B.ssl.truststore.pass",
        "key clusters is missing; list ",
        "B.bootstrap.servers: 'b1' is n",
        "line 12: replication.factor: '",
        "line 14: C.ssl.ca.location: /n",
    ]
    assert "list the aliases: clusters = P, B, C" in result.stdout


@pytest.mark.parametrize("command", [["config", "check"], ["doctor"]])
def test_each_cause_in_the_settings_of_one_client_is_a_row(
    tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
        "P.security.protocol = SASL_SSL\nP.sasl.mechanism = FOO\n"
        'P.sasl.jaas.config = com.example.Foo required a="b";\n'
        "P.ssl.truststore.location = /none/trust.jks\nP.ssl.keystore.location = /none/key.jks\n"
        "P.ssl.enabled.protocols = TLSv9\nP.ssl.cipher.suites = NOPE, NEVER\n"
        "P->B.topics = a[, b(\nP->B.replication.policy.class = none:None\n"
        "P->B.failover.webhook.url = x\nservice.users.location = none.users\n"
        "report.signing.key.location = /none/sign.pem\n"
    )

    result = CliRunner().invoke(app, [*command, "--config", str(file), "--json"])
    found = json.loads(result.stdout)
    rows = found["findings"] if isinstance(found, dict) else found
    problems = [row["text"] for row in rows if row["state"] == "problem"]

    cut = (text.replace(f"{file}", "").strip(" :").split(": ") for text in problems)
    assert sorted(": ".join(parts[:2]) for parts in cut) == [
        *["cluster P: sasl.jaas.config", "cluster P: sasl.mechanism"],
        *["cluster P: ssl.cipher.suites"] * 2,
        "cluster P: ssl.enabled.protocols",
        *["line 11: P->B.topics"] * 2,
        *["line 12: P->B.replication.policy.class", "line 13: P->B.failover.webhook.url"],
        "line 14: service.users.location",
        "line 15: report.signing.key.location",
        *["line 7: P.ssl.truststore.location", "line 8: P.ssl.keystore.location"],
    ]


HEAD = "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "clusters = P B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n",
            ["line 1: 'P B' cannot be the alias of a cluster; use letters, digits, - and _, with "],
        ),
        (f"{HEAD}replication.policy.class = a.Mine", ["line 4: replication.policy.class: a.Mine"]),
        (f"{HEAD}failover.command = 'a", ["line 4: failover.command: No closing quotation"]),
        (f"{HEAD}failover.notifier.arguments = [1]", ["line 4: failover.notifier.arguments: not"]),
        (
            f"{HEAD}service.port = 99999\nservice.targets = X",
            [
                "line 4: service.port: '99999' is not a whole number",
                "line 5: service.targets: X: not among the clusters P, B",
            ],
        ),
        (f"{HEAD}topics = *", ["line 4: topics: '*' is not a regular expression"]),
    ],
)
def test_a_line_for_both_flows_is_one_row_with_its_number(
    tmp_path: Path, text: str, rows: list[str]
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(text)

    result = CliRunner().invoke(app, ["config", "check", "--config", str(file), "--json"])

    found = [row["text"] for row in json.loads(result.stdout)["findings"]]
    for problem, row in zip(found, rows, strict=True):
        assert problem.startswith(f"{file} {row}")


def test_doctor_shows_a_refused_replication_factor_once_with_its_topics(tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    path.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
        "P->B.topics = orders\nreplication.factor = 1\noffset-syncs.topic.replication.factor = 1\n"
        "internal.topic.replication.factor = 9\nheartbeats.topic.replication.factor = 9\n"
    )
    config, maps = load_config(path).flow(Flow("P", "B")), FakeMapReader()
    context = FlowContext(config, FakeCluster("P"), FakeCluster("B"), maps, maps, FakeClock())
    checks = Checks()

    checks.run("topics of P->B", partial(_topics, context))

    [problem] = [check for check in checks if check.state == "problem"]
    assert "replication factor 9" in problem.text
    assert "heartbeats" in problem.text


def test_explain_shows_the_deciding_line_and_the_overruled_ones() -> None:
    lines = srm("explain", "emit.heartbeats.interval.seconds", "--flow", "us-west->us-east")

    first, second, third = lines.splitlines()
    assert first == "us-west->us-east  emit.heartbeats.interval.seconds = 5"
    assert second.strip().startswith("from flow us-west->us-east: us-west->us-east.emit.heart")
    assert second.endswith("mirror-maker.properties line 21")
    assert third.strip() == "overruled: default: emit.heartbeats.interval.seconds = 1"


def test_explain_of_a_client_setting_shows_each_client() -> None:
    (explained,) = [
        each
        for each in json.loads(srm("explain", "compression.type", "--flow", FLOW, "--json"))
        if each["value"] is not None
    ]

    assert explained["subject"] == "us-west producer"
    assert explained["value"] == "zstd"
    assert [c["key"] for c in explained["trace"]] == [
        "us-east->us-west.producer.override.compression.type"
    ]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (f"{FLOW}.topics = a.*, b=c", "topics"),
        ("emit.heartbeats.interval.seconds = 5", "emit.heartbeats.interval.seconds"),
        (f"{FLOW}.producer.override.compression.type=zstd", "compression.type"),
        ("us-east.sasl.jaas.config", "sasl.jaas.config"),
    ],
)
def test_explain_takes_a_line_of_the_file(line: str, key: str) -> None:
    flow = ("--flow", FLOW) if line.startswith(FLOW) else ()

    assert srm("explain", line) == srm("explain", key, *flow)


def test_explain_hides_secrets() -> None:
    text = srm("explain", "sasl.jaas.config")

    assert "[hidden]" in text
    assert "word" not in text
    assert "ScramLoginModule" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("taks.max",), r"unknown key taks\.max; did you mean tasks\.max\?"),
        (("tasks.max", "--flow", "a->b"), "flow a->b is unknown: .* lists the clusters us-east"),
    ],
)
def test_explain_of_something_unknown(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        srm("explain", *arguments)


SECURED = """
clusters = P, B
P.bootstrap.servers = p1:9092
B.bootstrap.servers = b1:9092
security.protocol = SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config = x.ScramLoginModule required username="srm" password="operator";
ssl.truststore.type = PEM
ssl.truststore.location = /etc/srm/ca.pem
ssl.truststore.password = hidden
P->B.enabled = true
P->B.topics = .*
P->B.replication.policy.separator = _
B->P.replication.policy.class = IdentityReplicationPolicy
"""


def client_file(tmp_path: Path, *arguments: str) -> Path:
    source, written = tmp_path / "srm.properties", tmp_path / "client.properties"
    source.write_text(SECURED)
    command = ["config", "client", "-c", str(source), "-o", str(written), *arguments]
    result = CliRunner().invoke(app, command)
    if result.exception is not None:
        raise result.exception
    return written


def test_the_file_of_clients_says_where_clusters_are_and_has_no_secrets(tmp_path: Path) -> None:
    written = client_file(tmp_path)
    text = written.read_text()

    assert "operator" not in text
    assert "hidden" not in text
    assert "topics" not in text
    assert "# P.sasl.jaas.config =" in text
    assert written.stat().st_mode & 0o077 == 0
    config = load_client_config(written)
    assert config.clusters == ("P", "B")
    assert config.client("B", "producer") == {
        "bootstrap.servers": "b1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": "/etc/srm/ca.pem",
    }
    assert config.flow(Flow("P", "B")).policy.separator == "_"
    assert config.flow(Flow("B", "P")).policy == IdentityReplicationPolicy(".", "B")


def test_the_file_of_clients_has_credentials_that_were_given(tmp_path: Path) -> None:
    written = client_file(
        tmp_path, "--set", "P.sasl.username=app", "--set", "P.sasl.password=a=b # c"
    )
    client = load_client_config(written).client("P", "consumer")

    assert (client["sasl.username"], client["sasl.password"]) == ("app", "a=b # c")


@pytest.mark.parametrize(
    ("line", "message"),
    [("nonsense", "KEY=VALUE"), ("P.no.such=1", "unknown key"), ("clusters=P", "clusters|flow|B")],
)
def test_a_line_that_cannot_be_used_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        client_file(tmp_path, "--set", line)


@pytest.mark.parametrize("text", ["group.id = shop\n", '{"path": "C:\\users"}'])
def test_the_file_of_clients_replaces_no_other_file(tmp_path: Path, text: str) -> None:
    other = tmp_path / "client.properties"
    other.write_text(text)

    with pytest.raises(
        UsageError, match=r"client\.properties exists, and srm config client has not"
    ):
        client_file(tmp_path)
    assert other.read_text() == text


def test_the_file_of_clients_is_written_again_without_losing_a_login(tmp_path: Path) -> None:
    client_file(tmp_path, "--set", "P.sasl.username=app")
    written = client_file(tmp_path, "--set", "P.sasl.username=shop")
    assert load_client_config(written).client("P", "admin")["sasl.username"] == "shop"
    written.write_text(f"{written.read_text()}P.sasl.password = by hand\n")
    before = written.read_text()

    with pytest.raises(
        UsageError, match=r"has P\.sasl\.username, P\.sasl\.password, which the new"
    ):
        client_file(tmp_path)
    assert written.read_text() == before


def test_without_a_client_file_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="srm config client"):
        load_client_config()
