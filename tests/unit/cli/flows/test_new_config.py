"""``srm init`` and ``srm config import`` write files that ``srm config check`` accepts."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.certificates import Authority
from typer.testing import CliRunner

from srm.cli.main import app
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.errors import UsageError

ENDS = {
    "source.cluster.alias": "P",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "kafka-p:9093",
    "target.cluster.bootstrap.servers": "kafka-b:9092",
}
SOURCE = {
    "name": "p-to-b",
    "config": {
        **ENDS,
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.security.protocol": "SASL_SSL",
        "source.cluster.sasl.mechanism": "PLAIN",
        "source.cluster.sasl.jaas.config": "PlainLoginModule required password='hunter2';",
        "topics": "Payments.*",
        "tasks.max": 4,
        "replication.factor": "3",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    },
}
CHECKPOINT = {
    **ENDS,
    "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
    "tasks.max": 1,
    "sync.group.offsets.enabled": True,
}
STRIMZI = """
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: mm2}
spec:
  connectCluster: B
  clusters:
    - alias: P
      bootstrapServers: p-kafka-bootstrap:9093
      tls: {trustedCertificates: [{secretName: p-cluster-ca-cert, pattern: "*.crt"}]}
      authentication:
        type: scram-sha-512
        username: mm2
        passwordSecret: {secretName: mm2, password: password}
    - alias: B
      bootstrapServers: b-kafka-bootstrap:9092
      config: {request.timeout.ms: 20000}
  mirrors:
    - sourceCluster: P
      targetCluster: B
      topicsPattern: "Payments.*|Orders"
      groupsPattern: "audit|ledger"
      sourceConnector:
        tasksMax: 8
        autoRestart: {enabled: true}
        config: {replication.factor: 3, offset.lag.max: 10}
      checkpointConnector:
        config: {checkpoints.topic.replication.factor: 3}
"""
STRIMZI_V1 = """
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
spec:
  target: {alias: B, bootstrapServers: "b:9092", groupId: mm2, offsetStorageTopic: offsets}
  mirrors:
    - source: {alias: P, bootstrapServers: "p:9092"}
      topicsPattern: ".*"
      sourceConnector: {tasksMax: 2, state: stopped}
"""


def run(*command: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, list(command), input=given)


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> Config:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    checked = run("config", "check", "--config", str(path))
    assert checked.exit_code == 0, checked.exception or checked.output
    return load_config(path)


def test_options_alone_make_a_file_that_has_no_secret_in_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "srm.properties"
    servers = [f"--bootstrap-servers={alias}=kafka-{alias.lower()}:9092" for alias in ("P", "B")]
    options = ["--security-protocol", "SASL_PLAINTEXT", "--topics", "Payments.*,Orders"]

    result = run("init", "--yes", "--output", str(path), *servers, *options)
    again = run("init", "--yes", "--output", str(path), *servers)

    assert result.exit_code == 0, result.exception
    assert "exists" in str(again.exception)
    assert path.stat().st_mode & 0o077 == 0
    assert "P.sasl.password = ${env:P_SASL_PASSWORD}" in path.read_text()
    names = {f"{a}_SASL_{kind}": "secret" for a in "PB" for kind in ("USERNAME", "PASSWORD")}
    config = loaded(path, monkeypatch, **names)
    assert config.flow(Flow("P", "B")).topics == ("Payments.*", "Orders")
    assert {*config.flows} == {Flow("P", "B"), Flow("B", "P")}


def test_the_next_commands_name_a_new_file_that_they_do_not_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SRM_CONFIG", raising=False)
    servers = ["--bootstrap-servers", "P=p:9092", "--bootstrap-servers", "B=b:9092"]

    found = run("init", "--yes", *servers).stdout
    other = run("init", "--yes", *servers, "-o", "my srm.properties").stdout

    assert found == "srm.properties: written; next: srm config check, then srm doctor\n"
    file = "--config 'my srm.properties'"
    next_ones = f"srm config check {file}, then srm doctor {file}"
    assert other == f"my srm.properties: written; next: {next_ones}\n"


def test_questions_need_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "srm.properties"
    refused = run("init", "--output", str(path))
    monkeypatch.setattr("srm.cli.flows.config.require_terminal", lambda **_: None)

    answers = "East,West\neast:9092\nwest:9092\nPayments\n.*\nPLAINTEXT\n"
    result = run("init", "--output", str(path), given=answers)

    assert "no terminal" in str(refused.exception)
    assert result.exit_code == 0, result.exception
    assert loaded(path, monkeypatch).clusters == ("East", "West")


def test_an_address_that_is_missing_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "srm.properties")

    result = run("init", "--yes", "--output", path, "--bootstrap-servers", "P=p:9092")

    assert "--bootstrap-servers B=HOST:PORT is missing" in str(result.exception)


@pytest.mark.parametrize("wrong", ["--security-protocol=TLS", "--sasl-mechanism=SCRAM"])
def test_a_security_that_no_client_has_is_refused(wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    servers = ["--bootstrap-servers=P=p:9092", "--bootstrap-servers=B=b:9092"]

    result = run("init", "--yes", "--output", str(path), *servers, wrong)

    assert wrong.partition("=")[2] in str(result.exception)
    assert not path.exists()


def test_connectors_become_flows_and_what_has_no_meaning_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, checkpoint = tmp_path / "source.json", tmp_path / "checkpoint.json"
    source.write_text(json.dumps(SOURCE))
    checkpoint.write_text(json.dumps([CHECKPOINT]))
    path = tmp_path / "srm.properties"

    shown = run("config", "import", str(source), str(checkpoint))
    done = run("config", "import", str(source), str(checkpoint), "--output", str(path))

    assert (shown.exit_code, done.exit_code) == (0, 0), done.exception
    assert shown.stdout == path.read_text()
    assert "hunter2" not in shown.stdout
    assert "# - P->B.key.converter: Records are copied byte for byte." in shown.stdout
    assert "# - P->B.tasks.max: two values, 4 is used, not 1" in shown.stdout
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    login += ' username="a" password="b";'
    flow = loaded(path, monkeypatch, P_SASL_JAAS_CONFIG=login).flow(Flow("P", "B"))
    assert (flow.enabled, flow.topics, flow.groups) == (True, ("Payments.*",), (".*",))
    assert (flow.tasks_max, flow.replication_factor) == (4, 3)
    assert flow.sync_group_offsets_enabled


def test_a_resource_of_strimzi_is_taken_over_with_its_secrets_as_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource, path = tmp_path / "mm2.yaml", tmp_path / "srm.properties"
    resource.write_text(STRIMZI)

    result = run("config", "import", str(resource), "--output", str(path))

    assert result.exit_code == 0, result.exception
    text = path.read_text()
    assert "P.sasl.password = ${env:P_SASL_PASSWORD}" in text
    assert "# - P.sasl.password: key password of the Secret mm2" in text
    assert "# - P->B sourceConnector.autoRestart: srm has no Connect workers." in text
    assert "# - P->B.offset.lag.max: The offset map is exact whatever the lag." in text
    (tmp_path / "ca.crt").write_text(Authority().own.pem)
    path.write_text(text.replace("/etc/srm/certificates/p-cluster-ca-cert", str(tmp_path)))
    config = loaded(path, monkeypatch, P_SASL_PASSWORD="secret")
    flow = config.flow(Flow("P", "B"))
    assert (flow.topics, flow.groups) == (("Payments.*|Orders",), ("audit|ledger",))
    assert (flow.tasks_max, flow.checkpoints_replication_factor) == (8, 3)
    workers = flow.mm2_group, flow.mm2_offsets_topic
    assert workers == ("mirrormaker2-cluster", "mirrormaker2-cluster-offsets")
    assert config.client("P", "admin")["security.protocol"] == "SASL_SSL"


def test_a_resource_of_the_newest_version_names_clusters_in_its_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource, path = tmp_path / "mm2.yaml", tmp_path / "srm.properties"
    resource.write_text(STRIMZI_V1)

    result = run("config", "import", str(resource), "--output", str(path))

    assert result.exit_code == 0, result.exception
    config = loaded(path, monkeypatch)
    assert config.client("P", "admin")["bootstrap.servers"] == "p:9092"
    flow = config.flow(Flow("P", "B"))
    assert not flow.enabled
    assert (flow.mm2_group, flow.mm2_offsets_topic) == ("mm2", "offsets")
    assert "# - P->B is disabled: its sourceConnector is paused" in path.read_text()


def test_patterns_under_their_old_names_exclude_topics_and_groups(tmp_path: Path) -> None:
    resource = tmp_path / "mm2.yaml"
    old = 'topicsBlacklistPattern: "Payments.tmp"\n      groupsBlacklistPattern: "console-.*"'
    resource.write_text(STRIMZI.replace('groupsPattern: "audit|ledger"', old))

    shown = run("config", "import", str(resource)).stdout

    assert "\nP->B.topics.exclude = Payments.tmp\n" in shown
    assert "\nP->B.groups.exclude = console-.*\n" in shown


def test_all_else_of_a_resource_of_strimzi_is_listed(tmp_path: Path) -> None:
    resource = tmp_path / "mm2.yaml"
    workers = "connectCluster: B\n  replicas: 3\n  rack: {topologyKey: zone}"
    more = '[{secretName: one, certificate: ca.crt}, {secretName: two, pattern: "*.crt"}]'
    text = STRIMZI.replace("connectCluster: B", workers)
    resource.write_text(text.replace('[{secretName: p-cluster-ca-cert, pattern: "*.crt"}]', more))

    shown = run("config", "import", str(resource)).stdout

    assert "# - replicas: srm has no Connect workers.\n" in shown
    assert "# - rack: srm has no Connect workers.\n" in shown
    files = "/etc/srm/certificates/one/ca.crt,/etc/srm/certificates/two/*.crt"
    assert f"\nP.ssl.truststore.location = {files}\n" in shown
    assert "/etc/srm/certificates/two: mount the Secret two there" in shown
    resource.write_text(STRIMZI_V1.replace("groupId", "statusStorageTopic: status, groupId"))
    shown = run("config", "import", str(resource)).stdout
    assert "# - B.statusStorageTopic: srm has no Connect workers.\n" in shown


def test_a_login_of_another_kind_is_taken_from_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource, path = tmp_path / "mm2.yaml", tmp_path / "srm.properties"
    password = "${secrets:kafka/mm2:password}"
    login = f'PlainLoginModule required username="a" password="{password}";'
    config = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login, "ssl.key.password": password}
    custom = json.dumps({"type": "custom", "sasl": True, "config": config})
    resource.write_text(STRIMZI_V1.replace("groupId: mm2", f"authentication: {custom}"))

    result = run("config", "import", str(resource), "--output", str(path))

    assert result.exit_code == 0, result.exception
    text = path.read_text()
    assert "B.security.protocol = SASL_PLAINTEXT" in text
    assert "B.sasl.jaas.config = ${env:B_SASL_JAAS_CONFIG}" in text
    assert "B.ssl.key.password = ${env:B_SSL_KEY_PASSWORD}" in text
    known = "org.apache.kafka.common.security.plain." + login
    loaded(path, monkeypatch, B_SASL_JAAS_CONFIG=known, B_SSL_KEY_PASSWORD="secret")


def test_a_list_of_resources_as_kubectl_prints_it_is_taken_over(tmp_path: Path) -> None:
    resource = "\n".join(f"    {line}" for line in STRIMZI.strip().splitlines())
    file = tmp_path / "all.yaml"
    file.write_text(f"apiVersion: v1\nkind: List\nitems:\n  -\n{resource}\n")

    result = run("config", "import", str(file))

    assert result.exit_code == 0, result.exception
    assert "P->B.topics = Payments.*|Orders" in result.stdout


def test_a_setting_without_a_value_is_not_set(tmp_path: Path) -> None:
    source, resource = tmp_path / "source.json", tmp_path / "mm2.yaml"
    source.write_text(json.dumps({**SOURCE, "config": {**SOURCE["config"], "topics": None}}))
    resource.write_text(STRIMZI.replace('"Payments.*|Orders"', ""))

    for file in (source, resource):
        assert "\nP->B.topics = .*\n" in run("config", "import", str(file)).stdout


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ('{"config": "text"}', "mm2.yaml: config is not "),
        ('{"kind": "KafkaMirrorMaker2", "spec": "text"}', "mm2.yaml: spec is not "),
        (
            '{"kind": "KafkaMirrorMaker2", "spec": {"clusters": {"P": 1}}}',
            "mm2.yaml: clusters is not ",
        ),
        (
            '{"kind": "KafkaMirrorMaker2", "spec": {"mirrors": ["P->B"]}}',
            "mm2.yaml: mirrors is not ",
        ),
        (
            STRIMZI.replace('[{secretName: p-cluster-ca-cert, pattern: "*.crt"}]', "7"),
            "Certificates is not",
        ),
        (STRIMZI.replace("{request.timeout.ms: 20000}", "[1]"), "mm2.yaml: config is not "),
        (STRIMZI.replace("8", "[8]", 1), "P->B.tasks.max is not a single value"),
        (STRIMZI.replace("mm2}", "2024-99-99}", 1), "neither JSON nor YAML"),
        ("42", "has no flow"),
        ("[]", "has no flow"),
        ("", "has no flow"),
    ],
)
def test_odd_documents_are_refused_in_one_line(given: str, wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "mm2.yaml"
    file.write_text(given)

    error = run("config", "import", str(file)).exception

    assert isinstance(error, UsageError), error
    assert wrong in str(error)
    assert "\n" not in str(error)


def test_other_files_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, resource = tmp_path / "other.json", tmp_path / "mm2.yaml"
    other.write_text('{"connector.class": "FileStreamSource"}')
    resource.write_text(STRIMZI)
    unknown = str(run("config", "import", str(other)).exception)

    def no_yaml(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", no_yaml)
    without = str(run("config", "import", str(resource)).exception)

    assert "has no flow of MirrorMaker 2" in unknown
    assert "needs the package PyYAML" in without
    assert not {"\n"} & {*unknown, *without}


IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def routed(regex: str, replacement: str, **more: str) -> str:
    router = "org.apache.kafka.connect.transforms.RegexRouter"
    of = {"type": router, "regex": regex, "replacement": replacement}
    lines = {f"transforms.rename.{key}": value for key, value in of.items()}
    return json.dumps({**SOURCE["config"], "transforms": "rename", **lines, **more})


@pytest.mark.parametrize(
    ("connector", "lines"),
    [
        (routed(r"P\.(.*)", "$1"), {"class": "IdentityReplicationPolicy"}),
        (routed(r"^P[.](.+)$", "P-$1"), {"class": "DefaultReplicationPolicy", "separator": "-"}),
        (
            routed(".*", "P_$0", **{"replication.policy.class": IDENTITY}),
            {"class": "DefaultReplicationPolicy", "separator": "_"},
        ),
    ],
)
def test_a_transform_that_changes_the_prefix_of_topics_becomes_a_policy(
    tmp_path: Path, connector: str, lines: dict[str, str]
) -> None:
    source = tmp_path / "source.json"
    source.write_text(connector)

    shown = run("config", "import", str(source)).stdout

    assert {
        line.partition("policy.")[2]
        for line in shown.splitlines()
        if line.startswith("P->B.replication.policy.")
    } == {f"{key} = {value}" for key, value in lines.items()}
    assert "# - P->B.transforms: rename became replication.policy.class" in shown
    assert "transforms.rename" not in shown


def test_predicates_alone_are_refused_unless_they_may_be_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source.json"
    lines = {"predicates": "orders", "predicates.orders.type": "a.b.TopicNameMatches"}
    source.write_text(json.dumps({**SOURCE["config"], **lines}))

    refused = run("config", "import", str(source))
    done = run("config", "import", str(source), "--without-transforms")

    assert "P->B.predicates: records are copied byte for byte, without orders; use" in str(
        refused.exception
    )
    assert "# - P->B.predicates: Records are copied byte for byte." in done.stdout


@pytest.mark.parametrize(
    "connector",
    [
        routed(r"P\.(.*)", "other.$1"),
        routed(r"P\.(orders|pay)", "$1"),
        routed(r"Q\.(.*)", "$1"),
        routed(r"P\.(.*)", "$1", **{"transforms.rename.predicate": "is-orders"}),
        routed(r"P\.(.*)", "$1", **{"transforms.rename.type": "a.b.InsertField"}),
    ],
)
def test_another_transform_is_refused_unless_it_may_be_left_out(
    tmp_path: Path, connector: str
) -> None:
    source = tmp_path / "source.json"
    source.write_text(connector)

    refused = run("config", "import", str(source))
    done = run("config", "import", str(source), "--without-transforms")

    assert "P->B.transforms: records are copied byte for byte, without rename; use" in str(
        refused.exception
    )
    assert "# - P->B.transforms: Records are copied byte for byte." in done.stdout
    assert "left out: copies are not renamed or changed by rename" in done.stdout
    assert "replication.policy" not in done.stdout


@pytest.mark.parametrize("output", [[], ["--output", "new.properties"]])
def test_problems_of_imported_files_name_these_without_lines_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = {"topics": "a[, b(", "tasks.max": "many"}
    Path("one.json").write_text(json.dumps({**SOURCE["config"], **wrong}))
    Path("two.json").write_text("{}")

    refused = run("config", "import", "one.json", "two.json", *output)

    text = str(refused.exception)
    assert text.count("one.json, two.json: P->B.") == 3, text
    assert "tasks.max: 'many'" in text
    assert " line " not in text
    assert "new.properties" not in text


def test_an_import_of_a_connector_names_its_file_without_a_line(tmp_path: Path) -> None:
    source = tmp_path / "one.json"
    source.write_text(json.dumps({**SOURCE["config"], "tasks.max": "many"}))

    refused = run("import", "mm2", "--config", str(source), "--dry-run")

    assert str(refused.exception).startswith(f"{source}: P->B.tasks.max: 'many'")


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("source.cluster.bootstrap.servers", "${file:/x:y}", "P.bootstrap.servers = "),
        ("source.cluster.bootstrap.servers", "${env:P}:9092,p2:9092", "P.bootstrap.servers = "),
        ("topics", "${file:/x:y}", "P->B.topics = "),
        ("topics", "orders, ${env:TOPICS}", "P->B.topics = "),
        ("tasks.max", "${env:TASKS}", "P->B.tasks.max = "),
        ("source.cluster.security.protocol", "${env:PROTOCOL}", "P.security.protocol = "),
    ],
)
def test_a_value_that_is_a_reference_stays_one(
    tmp_path: Path, key: str, value: str, line: str
) -> None:
    source = tmp_path / "one.json"
    source.write_text(json.dumps({**SOURCE["config"], key: value}))

    shown = run("config", "import", str(source)).stdout

    assert f"{line}{value}" in shown
    assert "config.providers = " in shown


def test_a_properties_file_is_not_imported(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = P, B\n")

    refused = run("config", "import", str(file))

    assert str(refused.exception).endswith("a properties file needs no import")
