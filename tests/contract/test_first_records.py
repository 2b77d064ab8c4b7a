"""Single records by offset, a look as a member of a group, and groups that are deleted."""

from __future__ import annotations

import pytest
from tests.waiting import eventually

from srm.domain.names.topics import TopicPartition
from srm.errors import GroupActiveError


def offsets(found):
    return {place[1]: record and record.offset for place, record in found.items()}


def test_the_first_record_from_an_offset_on_is_read_and_at_the_end_none(site, topic):
    site.produce(topic, 0, 5)
    place = TopicPartition(topic, 0)

    found = site.cluster.first_records([(place, at) for at in (0, 3, 5)])

    assert offsets(found) == {0: 0, 3: 3, 5: None}


def test_what_retention_took_is_skipped_and_what_never_was_is_left_out(site, topic):
    site.produce(topic, 0, 5)
    site.trim(topic, 0, 2)
    place, absent = TopicPartition(topic, 0), TopicPartition(f"{topic}-no", 0)

    found = site.cluster.first_records([(place, 0), (place, 99), (absent, 0)])

    assert {at: record.offset for (_, at), record in found.items()} == {0: 2}
    assert site.cluster.first_records([]) == {}


def test_markers_and_aborted_records_are_skipped_as_a_reader_does(site, topic, unique):
    site.produce_in(f"{unique}-a", topic, 0, 2)
    site.end_transaction(f"{unique}-a", commit=False)
    site.produce_in(f"{unique}-b", topic, 0, 1)
    site.end_transaction(f"{unique}-b", commit=True)
    place = TopicPartition(topic, 0)
    eventually(lambda: site.cluster.log_ends([place])[place] == 5, "both transactions ended")

    found = site.cluster.first_records([(place, at) for at in (0, 3, 4, 5)])
    all_records = site.cluster.first_records([(place, 0), (place, 2)], committed=False)

    assert offsets(found) == {0: 3, 3: 3, 4: None, 5: None}
    assert offsets(all_records) == {0: 0, 2: 3}


def test_records_of_an_open_transaction_are_seen_only_uncommitted(site, topic, unique):
    site.produce_in(unique, topic, 1, 2)
    place = TopicPartition(topic, 1)

    assert offsets(site.cluster.first_records([(place, 0)])) == {0: None}
    assert offsets(site.cluster.first_records([(place, 0)], committed=False)) == {0: 0}
    site.end_transaction(unique, commit=True)


def test_a_member_reads_from_the_groups_offsets_and_leaves_nothing_behind(site, topic, unique):
    for partition in (0, 1):
        site.produce(topic, partition, 4)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    site.cluster.commit_idle(unique, {first: 2, second: 4})

    found = site.cluster.read_as_member(unique, [first, second], 120.0)

    assert found.keys() == {first, second}
    assert found[first].offset == 2
    assert found[second] is None
    assert site.cluster.committed_offsets(unique) == {first: 2, second: 4}


def test_a_partition_without_an_offset_is_left_out_and_not_read_from_somewhere(site, topic, unique):
    site.produce(topic, 0, 1)
    site.produce(topic, 1, 1)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    site.cluster.commit_idle(unique, {first: 0})

    found = site.cluster.read_as_member(unique, [first, second], 120.0)

    assert found.keys() == {first}


def test_a_deleted_group_is_gone_with_its_offsets_and_an_absent_one_is_fine(site, topic, unique):
    site.commit(unique, {TopicPartition(topic, 0): 0})

    site.cluster.delete_groups([unique, f"{unique}-absent"])

    assert site.cluster.groups([unique])[unique].state == "dead"
    assert site.cluster.committed_offsets(unique) == {}
    site.cluster.delete_groups([])


def test_a_group_with_members_is_not_deleted_and_the_others_are(site, topic, unique):
    site.commit(f"{unique}-idle", {TopicPartition(topic, 0): 0})
    with site.member(unique, topic, "classic"):
        with pytest.raises(GroupActiveError, match=unique):
            site.cluster.delete_groups([unique, f"{unique}-idle"])

        assert site.cluster.groups([unique])[unique].state == "active"
        assert site.cluster.groups([f"{unique}-idle"])[f"{unique}-idle"].state == "dead"
