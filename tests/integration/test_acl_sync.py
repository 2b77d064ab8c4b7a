"""ACLs, quotas and users on brokers with an authorizer: carried over, compared, removed by plan."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.integration.kafka_tools import run_tool
from tests.integration.rights import Right, user_with
from tests.integration.securing import SecuredBroker
from tests.replicating import one_broker_as_two_clusters

from srm.config.model import ClusterClients, FlowConfig
from srm.domain.names.rights import Acl
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control import topic_sync
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError
from srm.kafka.cluster import KafkaCluster
from srm.wiring import flow_context
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.flows import flow_config

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

READ_ACLS = Right("X", "Describe", "--cluster")
CHANGE_ACLS = Right("X", "Alter", "--cluster")
TOPICS = tuple(
    Right("X", operation, "--topic", "*")
    for operation in ("Create", "Read", "DescribeConfigs", "AlterConfigs", "Alter")
)


def config_of(topic: str, **settings: object) -> FlowConfig:
    return flow_config(Flow("P", "B"), topics=(topic,), **settings)


@contextmanager
def opened(
    config: FlowConfig, source: dict[str, str], target: dict[str, str]
) -> Iterator[FlowContext]:
    with (
        one_broker_as_two_clusters(),
        KafkaCluster("P", ClusterClients.alike(source), timeout_s=60) as here,
        KafkaCluster("B", ClusterClients.alike(target), timeout_s=60) as there,
    ):
        yield flow_context(config, here, there, ClusterClients.alike(target))


@pytest.fixture
def topic(secured: SecuredBroker) -> str:
    name = f"pay{uuid.uuid4().hex[:8]}"
    plain = {"bootstrap.servers": secured.broker.bootstrap}
    with KafkaCluster("P", ClusterClients.alike(plain)) as cluster:
        cluster.create_topics([TopicSpec(name, 1, 1, {})])
    return name


def test_acls_reach_the_copy_once_and_leave_it_by_plan_alone(
    secured: SecuredBroker, topic: str
) -> None:
    """One broker is both clusters; srm has Describe and Alter on it, and no more than it needs."""
    user = user_with(secured, [READ_ACLS, CHANGE_ACLS, *TOPICS])
    app = f"User:app-{topic}"
    rules = [
        Acl("topic", topic, app, "All"),
        Acl("topic", topic, app, "Write"),
        Acl("topic", topic, app, "DescribeConfigs", host="10.1.2.3"),
        Acl("topic", topic, f"User:former-{topic}", "Read", "Deny"),
        Acl("topic", topic, app, "Describe", pattern="prefixed"),
        Acl("group", topic, app, "Read"),
    ]
    config = config_of(topic, groups=(topic,))
    more = replace(config, sync_acls_include=("prefixed", "groups"))
    copies = {
        Acl("topic", f"P.{topic}", app, "Read"),
        Acl("topic", f"P.{topic}", app, "DescribeConfigs", host="10.1.2.3"),
        Acl("topic", f"P.{topic}", f"User:former-{topic}", "Read", "Deny"),
    }
    with opened(config, user, user) as context:
        context.source.create_acls(rules)
        assert context.source.acls() >= {*rules}

        assert set(topic_sync.sync(context).acls) == copies
        assert context.target.acls() >= copies
        assert topic_sync.sync(context).is_empty
        included = topic_sync.sync(replace(context, config=more), dry_run=True).acls
        assert [acl for acl in included if acl.principal == app] == [
            Acl("topic", f"P.{topic}", app, "Describe", pattern="prefixed")
        ]

        context.source.delete_acls(rules)
        planned = topic_sync.plan(context)
        assert set(planned.surplus_acls) == copies
        topic_sync.apply(context, planned)
        assert context.target.acls() >= copies
        topic_sync.apply(context, planned, planned.surplus_acls)
        assert copies.isdisjoint(context.target.acls())


def test_without_the_rights_acls_are_left_out_and_the_rest_is_synced(
    secured: SecuredBroker, topic: str
) -> None:
    """Describe alone is not enough on the target; on the source nothing else is needed."""
    neither, reads = user_with(secured, TOPICS), user_with(secured, [READ_ACLS, *TOPICS])
    config = config_of(topic)
    for source, target, lacking in (
        (neither, reads, "grant Describe on the cluster"),
        (reads, reads, "lacks Alter on the cluster"),
    ):
        with opened(config, source, target) as context:
            found = topic_sync.sync(context)
        [note] = found.notes
        assert lacking in note
        assert found.acls == ()
    with opened(config, neither, neither) as context:
        assert f"P.{topic}" in context.target.topics()
        with pytest.raises(AuthorizationError, match="grant Alter on the cluster"):
            context.target.create_acls([Acl("topic", topic, "User:x", "Read")])


def test_without_the_rights_a_plan_says_what_it_does_not_compare(
    secured: SecuredBroker, topic: str
) -> None:
    """Where a broker refuses to list SCRAM users, librdkafka ends the process."""
    user = user_with(secured, TOPICS)
    with opened(config_of(topic), user, user) as context:
        acls, *notes = topic_sync.plan(context).notes

    lacking = {"quotas": "DescribeConfigs", "SCRAM users": "Describe"}
    assert acls.startswith("ACLs are not synced")
    for note, (what, right) in zip(notes, lacking.items(), strict=True):
        assert note.startswith(f"{what} are not compared")
        assert f"grant {right} on the cluster" in note


def test_users_and_quotas_of_the_source_alone_are_found(
    secured: SecuredBroker, clusters: Mapping[str, KafkaBroker], topic: str
) -> None:
    """B has no authorizer: that is a note, and its quotas and users are compared all the same."""
    user = user_with(
        secured,
        [READ_ACLS, Right("X", "DescribeConfigs", "--cluster"), *TOPICS],
    )
    broker = secured.broker.bootstrap
    run_tool(
        *("kafka.admin.ConfigCommand", "--bootstrap-server", broker, "--alter"),
        *("--entity-type", "users", "--entity-name", "alice"),
        *("--add-config", "producer_byte_rate=1048576"),
    )
    target = {"bootstrap.servers": clusters["B"].bootstrap}
    with opened(config_of(topic), user, target) as context:
        found = topic_sync.plan(context)

    texts = {finding.subject: finding.text for finding in found.findings}
    assert texts["quota of user alice"] == "producer_byte_rate is 1048576 on P, not set on B"
    assert "only on P: " in texts["users"]
    assert "the brokers of B have no authorizer" in found.notes[0]
