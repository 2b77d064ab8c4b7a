"""Lists of topics and groups name the selection, or the entry that is against it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.suffix_policy import Merging
from tests.unit.engine.why.running_flow import RunningFlow

from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import away_cluster
from srm.engine.groups.checkpoints import emit
from srm.engine.why.answer import list_groups, list_topics
from srm.errors import GivenUpError

REFUSED = GivenUpError("cluster P: connection refused")


@pytest.fixture
def flow() -> RunningFlow:
    made = RunningFlow()
    made.p.add_topic("Denied")
    made.p.add_topic("B.Other")
    made.b.add_topic("P.Gone")
    made.list_of("topics", add=("Topic", "Denied"), add_deny=("Denied",))
    made.list_of("groups", add=("audit",), add_deny=("other",))
    made.p.commit("audit", {TopicPartition("Topic", 0): 4})
    made.p.commit("other", {TopicPartition("Topic", 0): 4})
    return made


def test_each_topic_is_selected_or_has_its_reason(flow: RunningFlow) -> None:
    found = {one.topic: one for one in list_topics(flow.context)[0]}

    assert found["Topic"].selected
    assert found["Topic"].state == "caught-up"
    assert (found["Topic"].remote_topic, found["Topic"].remote_partitions) == ("P.Topic", 1)
    assert "denied, and deny lists win" in found["Denied"].reason
    assert found["Denied"].action.startswith("srm-control topics")
    assert found["B.Other"].reason == "it is a copy of a topic of B"
    assert (found["Gone"].partitions, found["Gone"].remote_partitions) == (None, 1)
    assert not [name for name in found if "internal" in name]


def test_copies_and_groups_with_checkpoints_are_listed_without_the_source(
    flow: RunningFlow,
) -> None:
    emit(flow.context)
    alone = replace(flow.context, source=away_cluster("P", REFUSED))

    listed, of_topics = list_topics(alone)
    [group], of_groups = list_groups(alone)
    topics = {one.topic: one for one in listed}

    assert of_topics.startswith("P does not answer: only copies are listed, with states of its")
    assert of_topics.endswith("last answer to the slots: 0 s ago")
    worth = "only groups with checkpoints are listed, without state and members"
    assert of_groups == f"P does not answer: {worth}"
    assert [one[1] for one in (list_topics(flow.context), list_groups(flow.context))] == ["", ""]
    assert (topics["Topic"].partitions, topics["Topic"].remote_partitions) == (None, 1)
    assert (group.group, group.state, group.selected) == ("audit", "unknown", True)
    assert group.checkpoint_age_ms is not None


@pytest.mark.parametrize("answers", [True, False])
def test_the_record_of_a_pair_shows_the_copy_whatever_its_name(
    flow: RunningFlow, answers: bool
) -> None:
    flow.b.add_topic("Mirror", 3)
    ids = flow.p.topics()["Topic"].topic_id, flow.b.topics()["Mirror"].topic_id
    pair = CopiedTopic("Topic", ids[0], "Mirror", ids[1], "p", "b")
    flow._write({pair.key(): pair.value()})
    source = flow.p if answers else away_cluster("P", REFUSED)

    found = {one.topic: one for one in list_topics(replace(flow.context, source=source))[0]}

    assert (found["Topic"].remote_topic, found["Topic"].remote_partitions) == ("Mirror", 3)


def test_a_former_copy_that_remains_under_another_name_is_not_listed(flow: RunningFlow) -> None:
    topic_id = flow.p.topics()["Topic"].topic_id
    flow.b.add_topic("Topic-from-P", 3)
    for name, active in (("P.Topic", True), ("Topic-from-P", False)):
        target_id = flow.b.topics()[name].topic_id
        pair = CopiedTopic("Topic", topic_id, name, target_id, "p", "b", active)
        flow._write({pair.key(): pair.value()})

    found = {one.topic: one for one in list_topics(flow.context)[0]}

    assert (found["Topic"].remote_topic, found["Topic"].remote_partitions) == ("P.Topic", 1)


def test_a_topic_whose_copy_has_the_name_of_anothers_is_not_selected(flow: RunningFlow) -> None:
    flow.p.add_topic("Topic-old")
    config = replace(flow.context.config, policy=Merging("P", "."), topics=("Topic.*",))

    found = {one.topic: one for one in list_topics(replace(flow.context, config=config))[0]}

    assert found["Topic"].selected
    assert found["Topic-old"].reason == "by Merging Topic-from-P is the copy of Topic, too"


def test_a_record_about_a_former_copy_does_not_count(flow: RunningFlow) -> None:
    flow.b.add_topic("Mirror")
    pair = CopiedTopic("Topic", "former", "Mirror", "former", "p", "b")
    flow._write({pair.key(): pair.value()})

    found = {one.topic: one for one in list_topics(flow.context)[0]}

    assert found["Topic"].remote_topic == "P.Topic"


def test_each_group_is_selected_or_has_its_reason(flow: RunningFlow) -> None:
    emit(flow.context)

    found = {one.group: one for one in list_groups(flow.context)[0]}

    assert found["audit"].selected
    assert found["audit"].checkpoint_age_ms is not None
    assert found["audit"].offsets_on_target is False
    assert "denied, and deny lists win" in found["other"].reason
    assert found["other"].checkpoint_age_ms is None
