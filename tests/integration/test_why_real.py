"""``srm why`` on real brokers: rights, and a group before and after an emission."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from tests.integration.rights import Right, documented
from tests.integration.securing import SecuredBroker
from tests.integration.test_checkpoints_real import Copied, copied, sites
from tests.integration.test_rights import Srm, srm_with
from tests.replicating import one_broker_as_two_clusters
from typer.testing import CliRunner

from srm.cli.main import app
from srm.config.model import ClusterClients
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ListChange
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.groups.checkpoints import emit
from srm.engine.why import Why, WhyStep, why_topic
from srm.kafka.cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.integration]
__all__ = ["copied", "sites"]


def run(copied: Copied, *command: str) -> Result:
    there = copied.sites.there
    return CliRunner().invoke(
        app, [*command, "--config", str(copied.sites.path), "--flow", str(there)]
    )


def asked(copied: Copied, name: str) -> dict:
    """Return the one answer of the command."""
    result = run(copied, "why", name, "--json")
    assert result.exit_code == 0, result.output
    [answer] = json.loads(result.output)
    return answer


def step_of(answer: dict, name: str) -> dict:
    return next(step for step in answer["steps"] if step["name"] == name)


def test_a_group_lacks_its_checkpoint_until_the_next_emission(copied: Copied) -> None:
    copied.forward.source.commit_idle(copied.group, {copied.here: 10})

    before = asked(copied, copied.group)
    emit(copied.forward)
    after = asked(copied, copied.group)

    assert before["action"] == f"srm checkpoints emit --flow '{copied.sites.there}'"
    assert (step_of(before, "emitted")["ok"], step_of(after, "emitted")["ok"]) == (False, True)
    assert step_of(after, "translated")["ok"] is True
    assert step_of(after, "proven")["ok"] is True
    assert after["verdict"].startswith("translated; can move")


def test_lists_say_what_a_flow_selects_and_how_far_it_is(copied: Copied) -> None:
    copied.forward.source.commit_idle(copied.group, {copied.here: 10})
    emit(copied.forward)

    topics, groups = (run(copied, name, "list", "--json") for name in ("topics", "groups"))

    assert (topics.exit_code, groups.exit_code) == (0, 0), topics.output + groups.output
    [listed] = json.loads(topics.output)
    topic = next(one for one in listed["topics"] if one["topic"] == copied.here.topic)
    assert topic["selected"]
    assert topic["partitions"] == topic["remote_partitions"]
    [listed] = json.loads(groups.output)
    group = next(one for one in listed["groups"] if one["group"] == copied.group)
    assert (group["selected"], group["members"], group["state"]) == (True, 0, "empty")
    assert group["checkpoint_age_ms"] is not None
    assert group["offsets_on_target"] is not None
    assert copied.group in run(copied, "groups", "list", "--selected").output


def test_a_topic_whose_copy_would_have_too_long_a_name_says_so(copied: Copied) -> None:
    flow, target, name = copied.sites.there, copied.forward.target, copied.tag.ljust(249, "x")
    copied.forward.source.create_topics([TopicSpec(name, 1, 1, {})])
    ensure_compacted(target, internal_topics.control(flow.source), replication_factor=1)
    change = ListChange(add=(name,))
    control_lists.change(target, flow, "topics", change, copied.forward.now_ms())

    answer = asked(copied, name)

    assert step_of(answer, "copy")["ok"] is False
    assert "is longer than the max allowed length 249" in answer["verdict"]


# ----- rights


@pytest.fixture(scope="module")
def secured(secured: SecuredBroker) -> Iterator[SecuredBroker]:
    plain = {"bootstrap.servers": secured.broker.bootstrap}
    with KafkaCluster("P", ClusterClients.alike(plain)) as cluster:
        cluster.create_topics([TopicSpec(name, 1, 1, {}) for name in ("payments", "P.payments")])
        cluster.commit_idle("analytics", {TopicPartition("payments", 0): 0})
    with one_broker_as_two_clusters():
        yield secured


def why_with(srm: Srm) -> Why:
    with srm.context() as context:
        return why_topic(context, "payments")


def rights_step(answer: Why, name: str) -> WhyStep:
    return next(step for step in answer.steps if step.name == name)


def test_with_the_documented_rights_none_is_missing(secured: SecuredBroker) -> None:
    answer = why_with(srm_with(secured, documented()))

    assert rights_step(answer, "read-right").ok
    assert rights_step(answer, "write-right").ok


def test_the_right_to_read_is_missed_by_name(secured: SecuredBroker) -> None:
    some = (
        *documented(without="Read topic payments on P"),
        Right("P", "Describe", "--topic", "payments"),
    )

    answer = why_with(srm_with(secured, some))

    assert answer.verdict == "not copied: srm lacks Read on topic payments"
    assert (
        answer.action == "grant Read on topic payments of P to srm's principal (docs/security.md)"
    )


def test_the_right_to_write_the_copy_is_missed_by_name(secured: SecuredBroker) -> None:
    answer = why_with(srm_with(secured, documented(without="Write topic P.* on B")))

    assert rights_step(answer, "write-right").answer == "srm lacks Write on topic P.payments"


def test_a_topic_that_srm_may_not_even_see_is_no_topic_that_does_not_exist(
    secured: SecuredBroker,
) -> None:
    hidden = tuple(
        right for right in documented() if not (right.cluster == "P" and right.name == "payments")
    )

    answer = why_with(srm_with(secured, hidden))

    assert answer.known
    assert rights_step(answer, "exists").answer == "P does not let srm see whether the topic exists"
