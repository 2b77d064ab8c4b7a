"""From a properties file to a Config."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from srm.config.loader import find_config, load_config, read_settings
from srm.config.model import Config
from srm.config.values import NEVER
from srm.domain.names.topics import Flow
from srm.errors import ConfigError

MINIMAL = """\
clusters = P, B
P.bootstrap.servers = p:9092
B.bootstrap.servers = b:9092
P->B.enabled = true
"""

Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(more: str = "", head: str = MINIMAL) -> Config:
        file = tmp_path / "srm.properties"
        file.write_text(head + more, "utf-8")
        return load_config(file)

    return write_and_load


class TestDefaults:
    def test_every_ordered_pair_has_a_flow_and_only_the_named_one_is_enabled(
        self, load: Load
    ) -> None:
        config = load("")

        assert set(config.flow_configs) == {Flow("P", "B"), Flow("B", "P")}
        assert config.flows == (Flow("P", "B"),)

    def test_defaults_are_mirror_makers_but_for_selection_and_discovery(self, load: Load) -> None:
        flow = load("").flow(Flow("P", "B"))

        assert (flow.topics, flow.groups) == ((), ())
        assert flow.topics_exclude == (r"mm2.*\.internal", r".*\.replica", "__.*")
        assert flow.groups_exclude == ("console-consumer-.*", "connect-.*", "__.*")
        assert flow.refresh_topics_interval == timedelta(seconds=2)
        assert flow.replication_factor == 2
        assert flow.checkpoints_replication_factor == 3
        assert flow.emit_checkpoints_interval == timedelta(seconds=60)
        assert flow.sync_group_offsets_enabled is False
        assert flow.emit_heartbeats_interval == timedelta(seconds=1)
        assert flow.offset_syncs_location == "source"
        assert flow.tasks_max == 1
        assert flow.data_loss_policy == "stop"
        assert flow.checkpoints_engine == "task"

    def test_internal_topics_follow_the_offset_syncs_topic_unless_set(self, load: Load) -> None:
        flow = Flow("P", "B")

        assert load("").flow(flow).internal_replication_factor == 3
        one = load("offset-syncs.topic.replication.factor = 1\n").flow(flow)
        assert one.internal_replication_factor == 1
        two = load(
            "offset-syncs.topic.replication.factor = 1\ninternal.topic.replication.factor = 2\n"
        ).flow(flow)
        assert two.internal_replication_factor == 2


class TestMirrorMakerFile:
    """A file as people run MirrorMaker 2 with."""

    @pytest.fixture(scope="class")
    def config(self) -> Config:
        return load_config(Path(__file__).with_name("mirror-maker.properties"))

    def test_it_is_taken_as_it_is(self, config: Config) -> None:
        east_west = config.flow(Flow("us-east", "us-west"))

        assert config.flows == (Flow("us-east", "us-west"), Flow("us-west", "us-east"))
        assert east_west.topics == ("orders", r"payments\..*", "customers-[a-z]+")
        assert east_west.topics_exclude == (".*-internal", "__.*", r".*\.tmp")
        assert east_west.groups_exclude == ("console-consumer-.*",)
        assert east_west.tasks_max == 4
        assert east_west.replication_factor == 3
        assert east_west.refresh_topics_interval == timedelta(minutes=10)
        assert east_west.sync_group_offsets_enabled is True
        assert east_west.emit_heartbeats_interval == timedelta(seconds=1)
        west_east = config.flow(Flow("us-west", "us-east"))
        assert west_east.emit_heartbeats_interval == timedelta(seconds=5)

    def test_client_settings_become_librdkafkas(self, config: Config) -> None:
        assert config.client("us-east", "admin") == {
            "bootstrap.servers": (
                "east-1.example.com:9093,east-2.example.com:9093,east-3.example.com:9093"
            ),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "mirror",
            "sasl.password": 'p=a;ss "word"',
            "ssl.ca.location": "/etc/kafka/ca.pem",
        }
        consumer = config.client("us-east", "consumer")
        assert consumer["isolation.level"] == "read_committed"
        assert consumer["socket.timeout.ms"] == "45000"
        assert config.client("us-west", "producer")["linger.ms"] == "20"

    def test_lines_of_a_flow_reach_only_its_clients(self, config: Config) -> None:
        flow = Flow("us-east", "us-west")
        producer = config.client("us-west", "producer", flow)

        assert producer == {
            **config.client("us-west", "producer"),
            "compression.type": "zstd",
        }
        assert config.client("us-east", "consumer", flow)["fetch.wait.max.ms"] == "250"
        assert "fetch.wait.max.ms" not in config.client("us-east", "consumer")
        assert config.client("us-east", "producer", flow.reverse) == config.client(
            "us-east", "producer"
        )

    def test_keys_without_meaning_are_warnings_with_line_and_reason(self, config: Config) -> None:
        warned = {re.split(": ", text, maxsplit=2)[1] for text in config.warnings}

        assert warned == {
            "groups.blacklist",
            "offset.storage.replication.factor",
            "status.storage.replication.factor",
            "config.storage.replication.factor",
            "offset.lag.max",
            "offset.flush.interval.ms",
            "key.converter",
            "value.converter",
            "dedicated.mode.enable.internal.rest",
            "listeners",
            "us-west.exactly.once.source.support",
            "us-west.producer.buffer.memory",
            "us-east->us-west.consumer.max.poll.records",
            "us-east->us-west.consumer.fetch.max.wait.ms",
            "us-east->us-west.producer.override.compression.type",
            "us-west.producer.linger.ms",
        }
        assert any(
            re.search(r"properties line \d+: offset\.lag\.max: has no meaning here: \w", text)
            for text in config.warnings
        )


class TestOurKeys:
    def test_reverse_checkpointing_by_either_name(self, load: Load) -> None:
        back = Flow("B", "P")

        ours = load("B->P.reverse.checkpointing.enabled = true\n")
        assert ours.flow(back).reverse_checkpointing_enabled is True
        assert ours.flow(back.reverse).reverse_checkpointing_enabled is False
        cloudera = load("cloudera.reverse.checkpointing.enabled = true\n")
        assert cloudera.flow(back).reverse_checkpointing_enabled is True
        assert cloudera.warnings == ()

    def test_the_other_keys_of_ours(self, load: Load) -> None:
        flow = load(
            "reverse.checkpointed.topics = P.Payments\ncheckpoints.engine = spark\n"
            "metrics.interval.seconds = 0.5\ndata.loss.policy = continue\n"
            "errors.tolerance = all\nadmin.timeout.ms = 500\n"
        ).flow(Flow("P", "B"))

        assert flow.reverse_checkpointed_topics == ("P.Payments",)
        assert flow.checkpoints_engine == "spark"
        assert flow.metrics_interval == timedelta(milliseconds=500)
        assert flow.data_loss_policy == "continue"
        assert (flow.errors_tolerance, flow.admin_timeout_ms) == ("all", 500)

    def test_what_is_done_to_records(self, load: Load) -> None:
        config = load(
            "provenance.header.enable = true\nprovenance.header.name = origin\n"
            "provenance.header.filter.overrides = c-1,T.*,-;c2,a,5-9\n"
            "P->B.copy.source.offset.in.header.enabled = true\n"
            "B->P.records.exclude.headers = test-.*, x\n"
        )
        there, back = (config.flow(flow).records for flow in (Flow("P", "B"), Flow("B", "P")))

        assert (there.provenance, there.provenance_name) == (True, "origin")
        assert [(o.cluster_id, o.topic, o.from_ms) for o in there.overrides] == [
            ("c-1", "T.*", 0),
            ("c2", "a", 5),
        ]
        assert (there.source_offsets, back.source_offsets) == (True, False)
        assert (there.exclude_headers, back.exclude_headers) == ((), ("test-.*", "x"))
        assert load("").flow(Flow("P", "B")).records.does_nothing

    def test_only_committed_records_unless_told_otherwise(self, load: Load) -> None:
        flow = Flow("P", "B")

        assert load("").flow(flow).isolation_level == "read_committed"
        told = load("P->B.consumer.isolation.level = read_uncommitted\n")
        assert told.flow(flow).isolation_level == "read_uncommitted"
        assert told.flow(flow.reverse).isolation_level == "read_committed"

    def test_stack_keys_pass(self, load: Load) -> None:
        assert load("stack.airflow.port = 8080\n").stack == {"stack.airflow.port": "8080"}

    def test_keys_of_spark_pass_under_their_own_names(
        self, load: Load, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("BUCKET", "s3a://bucket/srm")
        config = load(
            "spark.executor.memory = 512m\n"
            "spark.kubernetes.file.upload.path = ${env:BUCKET}\n"
            "config.providers = env\n"
        )

        assert config.warnings == ()
        assert config.spark == {
            "spark.executor.memory": "512m",
            "spark.kubernetes.file.upload.path": "s3a://bucket/srm",
        }

    def test_a_flow_is_enabled_by_its_name_alone(self, load: Load) -> None:
        assert Flow("B", "P") in load("B->P = true\n").flows

    def test_discovery_that_is_switched_off_never_comes_due(self, load: Load) -> None:
        flow = load("refresh.topics.enabled = false\n").flow(Flow("P", "B"))

        assert flow.refresh_topics_interval == NEVER

    def test_separator(self, load: Load) -> None:
        flow = load("replication.policy.separator = __\n").flow(Flow("P", "B"))

        assert flow.policy.format_remote_topic("P", "Payments") == "P__Payments"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "taks.max = 1",
            r"srm\.properties line 5: unknown key taks\.max; did you mean tasks\.max\?",
        ),
        ("P->B.topic = x", r"unknown key P->B\.topic; did you mean P->B\.topics\?"),
        ("P.consumer.fetch.mn.bytes = 1", r"did you mean P\.consumer\.fetch\.min\.bytes\?"),
        ("topic = x", r"unknown key topic; did you mean topics\?"),
        ("P->P.enabled = true", r"P->P\.enabled: a flow has two clusters"),
        ("emit.checkpoints.interval = 5", r"did you mean emit\.checkpoints\.interval\.seconds\?"),
        ("p.security.protocol = SSL", r"did you mean P\.security\.protocol\?"),
        ("P->b.topics = x", r"did you mean P->B\.topics\?"),
        ("B -> P.enabled = true", "write a flow without blanks: B->P.enabled = true"),
        ("B -> P = true", "write a flow without blanks: B->P = true"),
        ("B-> P = true", "write a flow without blanks: B->P = true"),
        ("B ->P: true", "write a flow without blanks: B->P = true"),
        ("B -> P.sasl.password = x", r"write a flow without blanks: .* = \[hidden\]$"),
        (
            "P.bootstrapServers = p:1",
            r"did you mean P\.bootstrap\.servers\?",
        ),
        ("-----BEGIN PRIVATE KEY-----", "line 5: it does not begin with a key"),
        ("aGVsbG8gd29ybGQ=", "line 5: it does not begin with a key"),
        ("MIIEvQIBADANBgkq", r"line 5: it does not begin with a key, .* end that one with \\"),
        ("tasks.max = many", r"line 5: tasks\.max: 'many' is not a whole number from 1 to 10000"),
        ("tasks.max = 0", "'0' is not a whole number from 1 to 10000"),
        ("tasks.max = 2147483648", "'2147483648' is not a whole number from 1 to 10000"),
        ("replication.factor = 32768", "'32768' is not a whole number from 1 to 10000"),
        ("service.port = 99999", "'99999' is not a whole number from 0 to 65535"),
        ("replicator.linger.ms = 60001", "'60001' is not a whole number from 0 to 60000"),
        ("admin.timeout.ms = 1", "'1' is not a whole number from 100 to 2000000000"),
        ("P->B.emit.checkpoints.interval.seconds = -1", "'-1' is not a number of seconds above 0"),
        ("refresh.topics.interval.seconds = nan", "is not a number of seconds"),
        ("sync.group.offsets.enabled = yes", "'yes' is not one of true, false"),
        ("consumer.isolation.level = dirty", "'dirty' is neither read_committed nor"),
        ("provenance.header.filter.overrides = a,b", "'a,b' is not of the form CLUSTER_ID,TOPIC"),
        ("data.loss.policy = ignore", "'ignore' is not one of stop, continue"),
        ("topics = a(b", r"topics: 'a\(b' is not a regular expression"),
        ("B.bootstrap.servers = P:9092", "P and B are the same cluster: both name p:9092"),
        ("B.bootstrap.servers = b", r"'b' is not of the form host:port"),
        ("replication.policy.class = com.example.Mine", "Mine is a Java class .* module:Class"),
        ("topic.filter.class = com.example.Mine", r"topic\.filter\.class: com\.example\.Mine is a"),
        (
            "clusters = P, B, C\nC.bootstrap.servers = c:1\nP->C = true\nB->C = true\n\
replication.policy.class = IdentityReplicationPolicy",
            "C would get records of P twice, by B->C and P->C, which keep names; name different",
        ),
        ("replication.policy.class = nowhere:Mine", "nowhere:Mine cannot be imported"),
        ("group.filter.class = json:JSONDecoder", "is not a class derived from .*NameFilter"),
        ("replication.policy.separator = /", "is invalid in a topic name"),
        ("replication.policy.separator =", "'' is invalid in a topic name"),
        ("replication.factor = -2", "'-2' is not a whole number from 1 to 10000"),
        ("tasks.max = -1", "'-1' is not a whole number from 1 to 10000"),
        ("P.ssl.keystore.location = /k.jks", "cluster P: ssl.keystore.location: /k.jks: cannot be"),
        (
            "P.ssl.truststore.location = /t.jks",
            "ssl.truststore.location: /t.jks: cannot be read on",
        ),
        ("P.ssl.truststore.location = /t\nP.ssl.truststore.type = BKS", "BKS is not one of JKS, P"),
        ("P.sasl.jaas.config = com.example.Login required;", "login module Login has no equiv"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(load: Load, line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(line + "\n")

    assert "\n" not in str(caught.value)
    assert "srm.properties" in str(caught.value)


FOREIGN = """\
my.company.key = hunter2
transforms.x.type = InsertField
auditTrail = on
no.such.thing
src.consumer.group.id = replicator
sync.topic.quotas.enabled = true
C.bootstrap.servers = c:9092
P->C.enabled = true
P->B.consumer.fetch.what.bytes = 1
my.company.key = twice
"""


def test_keys_of_others_are_listed_in_one_warning_without_their_values(load: Load) -> None:
    warnings = load(FOREIGN).warnings

    (unknown,) = [text for text in warnings if "unknown" in text]
    stranger = "is not among the clusters P, B)"
    assert unknown.partition("srm.properties: ")[2] == (
        "unknown keys, which have no effect: my.company.key (line 5), auditTrail (line 7), "
        f"no.such.thing (line 8), src.consumer.group.id (line 9; src {stranger}, "
        f"sync.topic.quotas.enabled (line 10), C.bootstrap.servers (line 11; C {stranger}, "
        f"P->C.enabled (line 12; C {stranger}, P->B.consumer.fetch.what.bytes (line 13)"
    )
    assert "hunter2" not in "".join(warnings)


def test_a_process_says_once_how_many_there_are(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        load(FOREIGN)

    (said,) = caplog.messages
    assert said.endswith(
        "srm.properties: 8 of its keys are unknown and without effect: srm config check lists them"
    )


def test_the_strict_take_each_of_them_for_an_error(load: Load, tmp_path: Path) -> None:
    load(FOREIGN)

    with pytest.raises(
        ConfigError,
        match=r"line 5: unknown key my\.company\.key; docs/configuration\.md lists all keys; .*"
        r"line 7.*line 8.*and 6 more",
    ):
        read_settings(tmp_path / "srm.properties", strict=True)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("tasks.max = 1\n", "key clusters is missing"),
        ("clusters =\n", "key clusters is missing"),
        ("clusters = a.b, c\n", "'a.b' cannot be the alias of a cluster"),
        ("clusters = admin, c\n", "'admin' cannot be the alias"),
        ("clusters = P, B\nP.bootstrap.servers = p:1\n", r"add B\.bootstrap\.servers = host:port$"),
        (
            "clusters = P, B\nP.bootstrap.servers = p:1\nBackup.bootstrap.servers = b:1\n",
            r"add B\.bootstrap\.servers = host:port; srm config check --strict shows the unknown",
        ),
    ],
)
def test_clusters_have_to_be_named_and_addressed(load: Load, head: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("", head)


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("topics.blacklist = x", "is an old name; write topics.exclude"),
        ("P->B.topics.blacklist = x", "is an old name; write P->B.topics.exclude"),
        ("enabled = true", "write it for a flow: A->B.enabled"),
        ("P->B.security.protocol = SSL", "has no effect on a replication; set it for a cluster"),
        ("P.consumer.max.poll.records = 1", "has no meaning here"),
        ("consumer.key.deserializer = x", "records are copied byte for byte"),
        ("workers.rest.port = 1", "no Connect REST server"),
        ("P->B.worker.offset.flush.timeout.ms = 1", "has no meaning here"),
        (
            "use.incremental.alter.configs = required",
            "Topic settings are always altered incrementally",
        ),
        ("P.ssl.enabled.protocols = TLSv1.2", "librdkafka's use it if the broker supports it"),
        (
            "ssl.cipher.suites = TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "librdkafka's use it if the broker supports it",
        ),
        ("ssl.cipher.suites = TLS_AES_256_GCM_SHA384", "offers all three suites of TLSv1.3"),
    ],
)
def test_a_line_without_effect_is_a_warning(load: Load, line: str, warning: str) -> None:
    warnings = load(line + "\n").warnings

    assert len(warnings) == 1
    assert warning in warnings[0]
    assert "srm.properties line 5" in warnings[0]


def test_a_replication_factor_may_be_left_to_the_broker(load: Load) -> None:
    flow = load("replication.factor = -1\noffset-syncs.topic.replication.factor = -1\n").flow(
        Flow("P", "B")
    )

    assert (flow.replication_factor, flow.internal_replication_factor) == (-1, -1)


def test_settings_of_brokers_and_workers_that_tutorials_give_are_taken(load: Load) -> None:
    """Seen in published files for MirrorMaker 2, which takes any key."""
    lines = [
        "P.offsets.topic.replication.factor = 1",
        "P.transaction.state.log.replication.factor = 1",
        "P.errors.deadletterqueue.topic.replication.factor = 1",
        "P.consumer.group.id = mm2",
        "P.config.storage.topic = mm2-configs",
        "tasks.max.enforce = true",
        "topic.creation.default.partitions = 1",
    ]

    assert len(load("\n".join(lines) + "\n").warnings) == len(lines)


def test_a_line_that_says_what_happens_anyway_needs_no_warning(load: Load) -> None:
    assert load("sync.topic.acls.enabled = false\n").warnings == ()


def test_a_global_enabled_line_enables_nothing(load: Load) -> None:
    """MirrorMaker 2 looks for it at the replication level only."""
    assert load("enabled = true\n").flows == (Flow("P", "B"),)


def test_values_can_come_from_declared_providers(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.properties").write_text("password = s3cret\n")
    (tmp_path / "user").write_text("mirror\n")
    monkeypatch.setenv("SRM_TEST_RACK", "r1")

    client = load(
        "config.providers = file, directory, env\n"
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"P.sasl.password = ${{file:{tmp_path}/secret.properties:password}}\n"
        f"P.sasl.username = ${{directory:{tmp_path}:user}}\n"
        "P.client.rack = ${env:SRM_TEST_RACK}\n"
    ).client("P", "admin")

    assert client["sasl.password"] == "s3cret"
    assert client["sasl.username"] == "mirror"
    assert client["client.rack"] == "r1"


def test_a_value_that_a_provider_does_not_have_is_named(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"line 6: P\.client\.rack: environment variable NOPE"):
        load("config.providers = env\nP.client.rack = ${env:NOPE}\n")


class TestFindConfig:
    def test_the_option_wins_over_the_variable_over_the_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("option", "variable", "srm.properties"):
            (tmp_path / name).write_text("")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("SRM_CONFIG", str(tmp_path / "variable"))

        assert find_config(tmp_path / "option") == tmp_path / "option"
        assert find_config() == tmp_path / "variable"
        monkeypatch.delenv("SRM_CONFIG")
        assert find_config() == Path("srm.properties")

    def test_without_a_file_the_message_says_where_to_put_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("SRM_CONFIG", raising=False)

        with pytest.raises(ConfigError, match=r"--config or \$SRM_CONFIG"):
            load_config()


def test_overrides_count_as_lines_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(MINIMAL)

    config = load_config(file, {"P->B.tasks.max": "3", "P.bootstrap.servers": "other:1"})

    assert config.flow(Flow("P", "B")).tasks_max == 3
    assert config.client("P", "admin")["bootstrap.servers"] == "other:1"
    with pytest.raises(ConfigError, match="override: unknown key nope"):
        load_config(file, {"nope": "1"})


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("P->B.consumer.auto.offset.reset = latest", "from its first record"),
        ("consumer.auto.offset.reset = earliest", ""),
        ("P->B.producer.compression.type = zstd", "compression.type of the remote topic"),
        ("producer.batch.size = 1", "batches are the source's, small ones merged"),
        ("B.producer.linger.ms = 5", "batches are the source's, small ones merged"),
        ("producer.override.acks = 1", "acknowledged by all in-sync replicas"),
        ("producer.acks = all", ""),
        ("P.consumer.fetch.max.bytes = 1", "replicator.max.bytes.per.second"),
        ("P.consumer.client.rack = a", "fetched from the leaders"),
        ("P->B.consumer.max.poll.records = 1", "has no meaning here"),
        ("P->B.consumer.session.timeout.ms = 1", "without a consumer group"),
        ("P->B.producer.retries = 1", "tries again"),
        ("P->B.consumer.client.id = x", ""),
        ("P->B.producer.security.protocol = SSL", ""),
        ("admin.request.timeout.ms = 1", ""),
    ],
)
def test_a_setting_that_does_not_steer_the_copy_is_answered_with_what_happens(
    load: Load, line: str, answer: str
) -> None:
    warnings = load(line + "\n").warnings

    assert [answer in warning for warning in warnings] == ([True] if answer else [])


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("request.timeout.ms = 600000", "socket.timeout.ms", "300000"),
        ("request.timeout.ms = 40000", "socket.timeout.ms", "40000"),
        ("client.dns.lookup = default", "client.dns.lookup", "use_all_dns_ips"),
    ],
)
def test_a_value_that_only_java_takes_becomes_the_nearest_one(
    load: Load, line: str, name: str, value: str
) -> None:
    """No client of srm opened with such a file."""
    assert load(f"{line}\n").client("P", "admin")[name] == value


def test_groups_are_listed_once_where_their_refresh_is_off(load: Load) -> None:
    config = load("refresh.groups.enabled = false\nrefresh.groups.interval.seconds = 5\n")

    assert config.warnings == ()
    assert config.flow(Flow("P", "B")).refresh_groups_interval == NEVER


def test_unknown_parts_of_acl_sync_are_refused(load: Load) -> None:
    known = load("sync.acls.include = prefixed, groups\n").flow(Flow("P", "B"))
    assert known.sync_acls_include == ("prefixed", "groups")
    with pytest.raises(ConfigError, match=r"sync\.acls\.include: 'users' is not one of prefixed"):
        load("sync.acls.include = users\n")


def test_values_that_were_meant_otherwise_are_warned_at_each_first_load_and_refused_by_the_strict(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        config = load("provenance.header.name = ${env:NAME}\n")

    (said,) = caplog.messages
    assert "provenance.header.name: ${env:...} is not replaced; add config.providers = env" in said
    assert said in config.warnings
    with pytest.raises(ConfigError, match=r"is not replaced; add config\.providers = env"):
        read_settings(tmp_path / "srm.properties", strict=True)


def test_transforms_are_refused_as_copies_would_lack_them(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"P->B\.transforms: records are copied byte for byte"):
        load("P->B.transforms = rename\n")
    assert load("transforms =\n").warnings
    with pytest.raises(ConfigError, match=r"a variable needs its provider in config\.providers"):
        load("topics = ${env:TOPICS}\n")
