"""What the fake cluster has beyond the port; the port itself is in tests/contract."""

from __future__ import annotations

import pytest

from srm.domain.names.topics import TopicPartition
from srm.errors import AuthorizationError, GroupActiveError, NotFoundError, UnavailableError
from srm_lab.testing.fake_cluster import FakeCluster

P0 = TopicPartition("Payments", 0)


@pytest.fixture
def cluster():
    fake = FakeCluster("P")
    fake.add_topic("Payments", 2)
    return fake


def test_a_cluster_that_is_down_fails_every_call_until_it_recovers(cluster):
    cluster.fail()
    for call in (
        cluster.topics,
        cluster.groups,
        cluster.cluster_id,
        lambda: cluster.log_ends([P0]),
        lambda: cluster.high_watermarks([P0]),
        lambda: cluster.open_transactions([P0]),
        lambda: cluster.active_producers([P0]),
        cluster.transactional_topics,
        lambda: cluster.pending_commits(["g"]),
        lambda: cluster.remove_static_members("g", ["i"]),
        lambda: cluster.remove_members("g", []),
        lambda: cluster.committed_offsets("g"),
        lambda: cluster.commits_of(["g"]),
        lambda: cluster.commit_idle("g", {P0: 1}),
        cluster.compacted_topic("Payments").read,
        lambda: cluster.compacted_topic("Payments").write({b"a": b"1"}),
    ):
        with pytest.raises(UnavailableError, match="cluster P"):
            call()

    cluster.recover()

    assert cluster.committed_offsets("g") == {}
    assert "Payments" in cluster.topics()


def test_a_failure_can_be_any_srm_error(cluster):
    cluster.fail(AuthorizationError("no"))

    with pytest.raises(AuthorizationError):
        cluster.topics()


def test_it_remembers_what_srm_committed_but_not_what_consumers_did(cluster):
    cluster.commit("g", {P0: 3})
    cluster.commit_idle("g", {P0: 5})

    assert cluster.commits == [("g", {P0: 5})]
    assert cluster.committed_offsets("g") == {P0: 5}


def test_offsets_are_refused_until_the_last_member_has_left(cluster):
    cluster.join("g", "a")
    cluster.join("g", "b")
    cluster.leave("g", "a")
    with pytest.raises(GroupActiveError):
        cluster.commit_idle("g", {P0: 1})

    cluster.leave("g", "b")
    cluster.commit_idle("g", {P0: 1})

    assert cluster.groups()["g"].state == "empty"


def test_an_expired_group_is_dead(cluster):
    cluster.commit("g", {P0: 3})

    cluster.expire_group("g")

    assert cluster.groups(["g"])["g"].state == "dead"
    assert cluster.committed_offsets("g") == {}


def test_a_deleted_topic_takes_its_committed_offsets_along(cluster):
    cluster.commit("g", {P0: 3})

    cluster.delete_topic("Payments")

    assert cluster.committed_offsets("g") == {}
    with pytest.raises(NotFoundError):
        cluster.produce("Payments")


def test_retention_never_passes_the_end(cluster):
    cluster.produce("Payments", 0, 5)
    cluster.trim("Payments", 0, 9)
    cluster.trim("Payments", 0, 2)

    assert cluster.log_starts([P0]) == {P0: 5}
    assert cluster.log_ends([P0]) == {P0: 5}


def test_rights_can_be_taken_away(cluster):
    """What real brokers do then is in tests/integration/test_broker_calls.py."""
    cluster.produce_in("txn", "Payments", 0, 1, age_ms=5)
    cluster.commit("theirs", {P0: 1})
    [seen] = cluster.open_transactions([P0])[P0]
    assert (seen.transactional_id, seen.age_ms) == ("txn", 5)

    cluster.hide_transactions()
    cluster.hide_group("theirs")

    [hidden] = cluster.open_transactions([P0])[P0]
    assert (hidden.transactional_id, hidden.age_ms) == (None, None)
    assert cluster.transactional_topics() is None
    assert cluster.groups(["theirs"])["theirs"].state == "unknown"
    assert "theirs" in cluster.groups(["theirs"])["theirs"].reason
    assert "theirs" not in cluster.groups()
    with pytest.raises(AuthorizationError, match="theirs"):
        cluster.committed_offsets("theirs")
    for call in (cluster.commits_of, cluster.pending_commits):
        answers, errors = call(["theirs", "ours"])
        assert (answers.keys(), errors.keys()) == ({"ours"}, {"theirs"})
