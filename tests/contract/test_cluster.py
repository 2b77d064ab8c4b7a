"""What every implementation of the Cluster port promises."""

from __future__ import annotations

import pytest
from tests.overrides import overrides

from srm.clock import now_ms
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.errors import ConfigError, GroupActiveError, NotFoundError, UsageError

KINDS = ["classic", "consumer"]


def test_it_knows_its_alias_and_the_id_that_kafka_gave_the_cluster(site, other_site):
    assert site.cluster.alias == "P"
    assert site.cluster.cluster_id() == site.cluster.cluster_id()
    assert site.cluster.cluster_id() != other_site.cluster.cluster_id()


def test_a_created_topic_is_described_at_once(site, unique):
    site.cluster.create_topics([TopicSpec(unique, 3, 1, {})])

    found = site.cluster.topics()[unique]

    assert (found.name, found.partitions, found.replicas) == (unique, 3, 1)
    assert len(found.topic_id) == 22


def test_partitions_are_counted_as_they_are_described(site, topic):
    described = {name: found.partitions for name, found in site.cluster.topics().items()}

    assert site.cluster.partition_counts()[topic] == described[topic] == 2


def test_partitions_of_named_topics_are_counted_and_absent_ones_left_out(site, topic, unique):
    absent = f"{unique}-absent"

    assert site.cluster.partition_counts([topic, absent]) == {topic: 2}
    assert absent not in site.cluster.topics()


def test_creating_a_topic_again_leaves_it_as_it_is(site, unique):
    site.cluster.create_topics([TopicSpec(unique, 3, 1, {"retention.ms": "1000"})])
    before = site.cluster.topics()[unique]

    site.cluster.create_topics([TopicSpec(unique, 5, 1, {}), TopicSpec(f"{unique}-2", 1, 1, {})])

    assert site.cluster.topics()[unique] == before
    assert overrides(site.cluster, [unique]) == {unique: {"retention.ms": "1000"}}
    assert f"{unique}-2" in site.cluster.topics()


def test_a_topic_that_is_deleted_and_created_again_has_another_id(site, topic):
    before = site.cluster.topics()[topic].topic_id

    site.delete_topic(topic)
    site.cluster.create_topics([TopicSpec(topic, 2, 1, {})])

    assert site.cluster.topics()[topic].topic_id != before


def test_more_replicas_than_brokers_is_a_mistake_in_the_settings(site, unique):
    with pytest.raises(ConfigError):
        site.cluster.create_topics([TopicSpec(unique, 1, 99, {})])

    assert unique not in site.cluster.topics()


def test_creating_nothing_is_fine(site):
    site.cluster.create_topics([])
    site.cluster.create_partitions({})
    site.cluster.alter_topic_configs({})

    assert overrides(site.cluster, []) == {}
    assert site.cluster.log_ends([]) == {}
    assert site.cluster.groups([]) == {}


def test_a_topic_grows_and_never_shrinks(site, topic):
    site.cluster.create_partitions({topic: 4})
    site.cluster.create_partitions({topic: 3})

    assert site.cluster.topics()[topic].partitions == 4


def test_growing_a_topic_that_does_not_exist_names_it(site, topic, unique):
    with pytest.raises(NotFoundError, match=f"{unique}-no"):
        site.cluster.create_partitions({topic: 4, f"{unique}-no": 4})

    assert site.cluster.topics()[topic].partitions == 2


def test_configs_are_only_what_was_set_on_the_topic(site, unique):
    site.cluster.create_topics(
        [TopicSpec(unique, 1, 1, {"retention.ms": "1000", "cleanup.policy": "compact"})]
    )

    configs = overrides(site.cluster, [unique, f"{unique}-no"])

    assert configs == {unique: {"retention.ms": "1000", "cleanup.policy": "compact"}}


def test_configs_change_one_by_one_and_none_deletes(site, topic):
    site.cluster.alter_topic_configs({topic: {"retention.ms": "1000", "segment.ms": "2000"}})
    site.cluster.alter_topic_configs({topic: {"retention.ms": None, "cleanup.policy": "compact"}})

    assert overrides(site.cluster, [topic]) == {
        topic: {"segment.ms": "2000", "cleanup.policy": "compact"}
    }


def test_changing_configs_of_a_topic_that_does_not_exist_fails(site, unique):
    with pytest.raises(NotFoundError):
        site.cluster.alter_topic_configs({unique: {"retention.ms": "1000"}})


def test_log_starts_and_ends_follow_producers_and_retention(site, topic):
    site.produce(topic, 0, 5)
    site.trim(topic, 0, 2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]

    assert site.cluster.log_starts(partitions) == {partitions[0]: 2, partitions[1]: 0}
    assert site.cluster.log_ends(partitions) == {partitions[0]: 5, partitions[1]: 0}


def test_a_time_is_found_in_a_log_and_an_empty_log_has_none(site, topic):
    began = now_ms()
    site.produce_idempotently(topic, 0, 3)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition("absent", 0)]

    newest = site.cluster.newest_times(partitions)

    assert newest.keys() == {partitions[0]}
    assert began <= newest[partitions[0]] <= now_ms()
    assert site.cluster.offsets_at(dict.fromkeys(partitions, began)) == {partitions[0]: 0}
    assert site.cluster.offsets_at({partitions[0]: now_ms() + 60_000}) == {}
    assert site.cluster.newest_times([]) == site.cluster.offsets_at({}) == {}


def test_unknown_partitions_are_left_out_next_to_known_ones(site, topic):
    site.produce(topic, 1, 1)
    asked = [
        TopicPartition(topic, 1),
        TopicPartition(topic, 9),
        TopicPartition(f"{topic}-no", 0),
    ]

    assert site.cluster.log_ends(asked) == {TopicPartition(topic, 1): 1}
    assert site.cluster.log_starts(asked) == {TopicPartition(topic, 1): 0}


def test_asking_only_for_unknown_partitions_answers_nothing_and_creates_nothing(site, unique):
    asked = [TopicPartition(unique, 0)]

    assert site.cluster.log_ends(asked) == {}
    assert site.cluster.log_starts(asked) == {}
    assert unique not in site.cluster.topics()


def test_an_absent_group_is_dead_and_has_no_offsets(site, unique):
    found = site.cluster.groups([unique])

    assert found.keys() == {unique}
    assert found[unique].state == "dead"
    assert found[unique].members == ()
    assert site.cluster.committed_offsets(unique) == {}
    assert unique not in site.cluster.groups()


@pytest.mark.parametrize("protocol", KINDS)
def test_a_group_with_a_member_is_active_and_names_it(site, topic, unique, protocol):
    with site.member(unique, topic, protocol):
        found = site.cluster.groups([unique])[unique]

        assert found.state == "active"
        assert found.kind == protocol
        assert found.members == (f"app-{topic}@127.0.0.1",)
        [(member_id, name)] = found.by_id
        assert (bool(member_id), name) == (True, found.members[0])


@pytest.mark.parametrize("protocol", KINDS)
def test_offsets_of_a_group_with_a_member_are_its_own(site, topic, unique, protocol):
    with site.member(unique, topic, protocol):
        with pytest.raises(GroupActiveError, match=unique):
            site.cluster.commit_idle(unique, {TopicPartition(topic, 0): 3})

        assert site.cluster.committed_offsets(unique) == {}


@pytest.mark.parametrize("protocol", KINDS)
def test_a_group_whose_members_left_is_empty_listed_and_writable(site, topic, unique, protocol):
    with site.member(unique, topic, protocol):
        pass

    site.cluster.commit_idle(unique, {TopicPartition(topic, 0): 3})

    found = site.cluster.groups()[unique]
    assert (found.state, found.kind, found.members) == ("empty", protocol, ())
    assert site.cluster.committed_offsets(unique) == {TopicPartition(topic, 0): 3}


def test_writing_offsets_of_an_absent_group_creates_it_empty(site, topic, unique):
    offsets = {TopicPartition(topic, 0): 7, TopicPartition(topic, 1): 0}

    site.cluster.commit_idle(unique, offsets)

    assert site.cluster.committed_offsets(unique) == offsets
    assert site.cluster.groups()[unique].state == "empty"


def test_writing_some_offsets_leaves_the_others(site, topic, unique):
    site.commit(unique, {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 2})

    site.cluster.commit_idle(unique, {TopicPartition(topic, 1): 5})

    assert site.cluster.committed_offsets(unique) == {
        TopicPartition(topic, 0): 1,
        TopicPartition(topic, 1): 5,
    }


def test_writing_no_offsets_changes_nothing(site, unique):
    site.cluster.commit_idle(unique, {})

    assert site.cluster.groups([unique])[unique].state == "dead"


def test_an_unknown_partition_is_named_and_the_known_ones_are_written(site, topic, unique):
    with pytest.raises(NotFoundError, match=f"{topic}-9"):
        site.cluster.commit_idle(unique, {TopicPartition(topic, 0): 4, TopicPartition(topic, 9): 4})

    assert site.cluster.committed_offsets(unique) == {TopicPartition(topic, 0): 4}


def test_a_negative_offset_is_refused_before_anything_is_written(site, topic, unique):
    with pytest.raises(UsageError, match=f"{topic}-1"):
        site.cluster.commit_idle(
            unique, {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): -1}
        )

    assert site.cluster.committed_offsets(unique) == {}


def test_named_groups_are_exactly_those_that_were_asked_for(site, topic, unique):
    site.commit(f"{unique}-a", {TopicPartition(topic, 0): 1})
    site.commit(f"{unique}-b", {TopicPartition(topic, 0): 1})

    found = site.cluster.groups([f"{unique}-a", f"{unique}-no"])

    assert {name: group.state for name, group in found.items()} == {
        f"{unique}-a": "empty",
        f"{unique}-no": "dead",
    }


def test_whether_a_topic_could_be_created_is_said_without_creating_it(site, unique):
    good, bad = TopicSpec(unique, 1, 1, {}), TopicSpec(f"{unique}-bad", 1, 99, {})
    [(name, problem)] = site.cluster.creation_problems([good, bad]).items()
    assert name == bad.name
    assert "replication factor" in str(problem).lower().replace("_", " ")
    assert unique not in site.cluster.topics()


def test_whether_a_setting_could_be_changed_is_said_without_changing_it(site, topic):
    assert site.cluster.change_problem(topic, {"retention.ms": "5000"}) is None
    assert site.cluster.topic_settings([topic])[topic]["retention.ms"].value != "5000"


@pytest.mark.parametrize("client", ["admin", "consumer", "producer"])
def test_without_an_authorizer_everything_may_be_done_with_the_topics_there_are(
    site, topic, unique, client
):
    rights = site.cluster.topic_rights([topic, f"{unique}-absent"], client)

    assert rights.keys() == {topic}
    assert rights[topic] >= {"Read", "Write", "Create", "DescribeConfigs", "AlterConfigs"}
