"""What consumers in memory commit, beside what those of real clients do."""

from __future__ import annotations

import pytest

from srm.domain.names.topics import TopicPartition
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_consumer import FakeConsumer

PLACE = TopicPartition("Payments", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    """Make a log of three records and a marker, then two records and a marker."""
    fake = FakeCluster("P")
    fake.add_topic("Payments")
    for count in (3, 2):
        fake.produce("Payments", records=count)
        fake.mark("Payments")
    return fake


@pytest.mark.parametrize(("passes_markers", "committed"), [(True, 7), (False, 6)])
def test_at_the_end_a_java_consumer_commits_after_the_marker_and_librdkafka_before_it(
    cluster: FakeCluster, passes_markers: bool, committed: int
) -> None:
    consumer = FakeConsumer(
        cluster, "g", ["Payments"], reset="earliest", passes_markers=passes_markers
    )

    assert [offset for _, offset in consumer.poll()] == [0, 1, 2, 4, 5]
    consumer.commit()

    assert cluster.committed_offsets("g") == {PLACE: committed}


def test_within_a_fetch_it_commits_after_the_last_record_that_it_has_returned(
    cluster: FakeCluster,
) -> None:
    consumer = FakeConsumer(cluster, "g", ["Payments"], reset="earliest")

    consumer.poll(3)
    consumer.commit()

    assert cluster.committed_offsets("g") == {PLACE: 3}
    assert [offset for _, offset in consumer.poll()] == [4, 5]


def test_what_was_not_committed_is_read_again_by_the_next_one(cluster: FakeCluster) -> None:
    first = FakeConsumer(cluster, "g", ["Payments"], reset="earliest")
    first.poll(1)
    first.commit()
    first.poll(2)
    first.close()

    assert FakeConsumer(cluster, "g", ["Payments"]).poll(2) == [(PLACE, 1), (PLACE, 2)]


def test_one_without_a_commit_that_resets_to_the_latest_reads_only_what_comes_later(
    cluster: FakeCluster,
) -> None:
    consumer = FakeConsumer(cluster, "g", ["Payments"])

    assert consumer.poll() == []
    cluster.produce("Payments", records=1)

    assert consumer.poll() == [(PLACE, 7)]


def test_one_that_assigns_its_partitions_itself_is_no_member(cluster: FakeCluster) -> None:
    FakeConsumer(cluster, "g", ["Payments"], subscribes=False).commit()

    assert cluster.groups(["g"])["g"].state != "active"
