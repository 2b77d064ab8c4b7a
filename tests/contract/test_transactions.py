"""What every implementation of the Cluster port promises about transactions and members."""

from __future__ import annotations

import time

import pytest
from tests.waiting import eventually

from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec

KINDS = ["classic", "consumer"]


def test_high_watermarks_count_what_an_open_transaction_holds_up(site, topic):
    """The last stable offset stands still, whatever a plain producer writes meanwhile."""
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(topic, 9)]
    site.produce(topic, 0, 2)
    site.produce_in(topic, topic, 0, 1)
    site.produce(topic, 0, 3)

    assert site.cluster.log_ends(partitions) == {partitions[0]: 2, partitions[1]: 0}
    assert site.cluster.high_watermarks(partitions) == {partitions[0]: 6, partitions[1]: 0}

    site.end_transaction(topic, commit=True)
    eventually(lambda: site.cluster.log_ends(partitions)[partitions[0]] == 7, "the marker")
    assert site.cluster.high_watermarks(partitions)[partitions[0]] == 7


def test_an_open_transaction_is_named_with_its_first_offset_and_age(site, topic):
    partition = TopicPartition(topic, 1)
    site.produce(topic, 1, 4)
    began = time.monotonic()
    site.produce_in(topic, topic, 1, 2)

    found = site.cluster.open_transactions(
        [TopicPartition(topic, 0), partition, TopicPartition(topic, 9)]
    )

    assert found.keys() == {partition}
    [seen] = found[partition]
    assert (seen.partition, seen.first_offset, seen.producer_epoch) == (partition, 4, 0)
    assert seen.transactional_id == topic
    assert 0 <= seen.age_ms <= (time.monotonic() - began) * 1000 + 1000

    site.end_transaction(topic, commit=False)
    eventually(lambda: site.cluster.open_transactions([partition]) == {}, "the end of it")


def test_two_open_transactions_in_one_partition_come_in_the_order_of_their_offsets(site, topic):
    partition = TopicPartition(topic, 0)
    site.produce_in(f"{topic}-z", topic, 0, 1)
    site.produce_in(f"{topic}-a", topic, 0, 1)

    found = site.cluster.open_transactions([partition])[partition]

    assert [(t.first_offset, t.transactional_id) for t in found] == [
        (0, f"{topic}-z"),
        (1, f"{topic}-a"),
    ]
    site.end_transaction(f"{topic}-z", commit=True)
    site.end_transaction(f"{topic}-a", commit=True)


def test_nothing_is_asked_about_no_partition(site, unique):
    assert site.cluster.open_transactions([]) == {}
    assert site.cluster.active_producers([]) == {}
    assert site.cluster.high_watermarks([]) == {}
    assert site.cluster.open_transactions([TopicPartition(unique, 0)]) == {}
    assert unique not in site.cluster.topics()


def test_an_idempotent_producer_is_remembered_and_a_plain_one_is_not(site, topic):
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    before = int(time.time() * 1000)
    site.produce(topic, 0, 3)
    site.produce_idempotently(topic, 1, 3)

    found = site.cluster.active_producers(partitions)

    assert found.keys() == {partitions[1]}
    [seen] = found[partitions[1]]
    assert seen.partition == partitions[1]
    assert seen.producer_id >= 0
    assert before - 1000 <= seen.last_timestamp_ms <= time.time() * 1000 + 1000


def pending(site, group, also=()):
    found, errors = site.cluster.pending_commits([group], also)
    assert not errors
    return found[group]


def test_undecided_commits_are_named_until_the_transaction_ends(site, topic, unique):
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    site.commit(unique, dict.fromkeys(partitions, 1))
    assert pending(site, unique) == frozenset()

    site.commit_in(topic, unique, {partitions[1]: 5})

    assert pending(site, unique) == {partitions[1]}
    assert site.cluster.committed_offsets(unique) == {partitions[0]: 1, partitions[1]: 1}

    site.end_transaction(topic, commit=True)
    eventually(lambda: not pending(site, unique), "the decision")
    assert site.cluster.committed_offsets(unique) == {partitions[0]: 1, partitions[1]: 5}


def test_a_first_commit_that_is_undecided_is_found_where_it_is_asked_for(site, topic, unique):
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    site.commit_in(topic, unique, {partitions[0]: 5})

    assert pending(site, unique, partitions) == {partitions[0]}

    site.end_transaction(topic, commit=False)
    eventually(lambda: not pending(site, unique, partitions), "the decision")
    assert site.cluster.committed_offsets(unique) == {}


def test_an_absent_group_has_nothing_undecided(site, unique):
    assert pending(site, unique) == frozenset()
    assert pending(site, unique, [TopicPartition(unique, 0)]) == frozenset()


@pytest.mark.parametrize("protocol", KINDS)
def test_a_static_member_is_named_and_removed_by_its_instance_id(site, topic, unique, protocol):
    with site.member(unique, topic, protocol, "shop-1"):
        found = site.cluster.groups([unique])[unique]
        assert (found.state, found.instance_ids) == ("active", ("shop-1",))

        def is_removed() -> bool:
            site.cluster.remove_static_members(unique, ["shop-1", "shop-2"])
            return site.cluster.groups([unique])[unique].state == "empty"

        eventually(is_removed, "a moment without it: at its next heartbeat it joins again")
        site.cluster.remove_static_members(unique, ["shop-1"])


def test_removing_members_of_an_absent_group_changes_nothing(site, unique):
    site.cluster.remove_static_members(unique, ["shop-1"])
    site.cluster.remove_static_members(unique, [])

    assert site.cluster.groups([unique])[unique].state == "dead"


def test_topics_that_one_transaction_wrote_are_found_together(site, topic, unique):
    other = f"{topic}-other"
    site.cluster.create_topics([TopicSpec(other, 1, 1, {})])
    site.produce_in(topic, topic, 0, 1)
    site.produce_in(topic, other, 0, 1)
    site.commit_in(topic, unique, {TopicPartition(topic, 1): 5})
    site.end_transaction(topic, commit=True)

    assert frozenset({topic, other}) in site.cluster.transactional_topics()
