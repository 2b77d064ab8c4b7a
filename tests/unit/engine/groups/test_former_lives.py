"""Topics re-created: what was known of their former selves does not count."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from srm.clock import now_ms
from srm.domain.groups.group_sync import all_entries
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicDescription
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.groups.checkpoints import emit, forget_topics, read_checkpoints
from srm.engine.groups.group_sync import apply_exact, sync
from srm.engine.groups.ledger import read_ledger
from srm.errors import AuthorizationError, GroupActiveError, UnavailableError
from srm_lab.testing.fake_cluster import FakeCluster

OVER_A_DAY_MS = 86_401_000
GROUP = "billing"
COPY = TopicPartition("P.Payments", 0)
TOPIC = internal_topics.checkpoints("P")


def create_again(sites, records: int) -> None:
    """Delete Payments of P and its copy, and fill new ones of the same names."""
    for alias, name in (("P", "Payments"), ("B", "P.Payments")):
        sites.clusters[alias].delete_topic(name)
        sites.clusters[alias].add_topic(name)
    sites.runs[sites.flow("P->B").config.flow].clear()
    sites.produce("P", records)
    sites.copy("P->B", claim=1)


def emitted(cluster: FakeCluster) -> dict[tuple[str, TopicPartition], tuple[int, int]]:
    found = read_checkpoints(cluster, TOPIC, cluster.topics())
    return {(c.group, c.topic_partition): (c.upstream_offset, c.downstream_offset) for c in found}


def test_a_place_below_a_former_intention_is_not_taken_for_a_rewind(sites) -> None:
    sites.commit("P", GROUP, "Payments", 80)
    sync(sites.flow("P->B"))
    create_again(sites, 50)
    sites.commit("B", GROUP, "P.Payments", 6)
    sites.commit("P", GROUP, "Payments", 30)

    summary = sync(sites.flow("P->B"))

    assert summary.actions == {"write": 1}
    assert sites.committed("B", GROUP, "P.Payments") == 31


def test_a_commit_equal_to_what_srm_wrote_in_a_former_life_is_news(sites) -> None:
    """Else the commit of a consumer would pass for the write that srm carried over."""
    sites.commit("B", GROUP, "Payments", 40)
    sites.change("B->P", reverse_checkpointing_enabled=False)
    sync(sites.flow("B->P"))
    own = sites.committed("P", GROUP, "B.Payments")
    assert sync(sites.flow("P->B"), dry_run=True).actions == {"own-write": 1}
    sites.clusters["P"].add_topic("B.Payments")
    sites.runs[sites.flow("B->P").config.flow].clear()
    sites.copy("B->P")
    sites.commit("P", GROUP, "B.Payments", own)

    assert "own-write" not in sync(sites.flow("P->B"), dry_run=True).actions


def test_equal_offsets_of_a_new_life_are_emitted_again(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    emit(sites.flow("P->B"))
    create_again(sites, 50)
    assert emitted(sites.clusters["B"]) == {(GROUP, COPY): (0, 0)}
    sites.commit("P", GROUP, "Payments", 40)

    assert emit(sites.flow("P->B")).written == 1

    assert emitted(sites.clusters["B"]) == {(GROUP, COPY): (40, 41)}


def test_a_reverse_checkpoint_of_a_former_life_is_at_the_start(sites) -> None:
    original = TopicPartition("Payments", 0)
    sites.commit("P", GROUP, "B.Payments", 20)
    emit(sites.flow("P->B"))
    assert emitted(sites.clusters["B"]) == {(GROUP, original): (20, 20)}

    sites.clusters["B"].add_topic("Payments")

    assert emitted(sites.clusters["B"]) == {(GROUP, original): (0, 0)}


def test_checkpoints_of_mm2_count_as_far_as_the_log_goes(
    sites, caplog: pytest.LogCaptureFixture
) -> None:
    target = sites.clusters["B"]
    ensure_compacted(target, TOPIC)
    records = [
        Checkpoint("within", COPY, 90, 101, "from a consumer's commit"),
        Checkpoint("beyond", COPY, 5000, 5100),
        Checkpoint("no partition", TopicPartition("P.Payments", 1), 7, 7),
        Checkpoint("no topic", TopicPartition("P.Refunds", 0), 7, 7),
    ]
    target.compacted_topic(TOPIC).write(
        {one.key(): one.value() for one in records} | {b"damaged": b"x"}
    )

    assert emitted(target) == {("within", COPY): (90, 101), ("beyond", COPY): (0, 0)}
    assert len([line for line in caplog.messages if "skipped" in line]) == 1


def test_a_partition_without_a_leader_does_not_hide_checkpoints(sites) -> None:
    target = sites.clusters["B"]
    ensure_compacted(target, TOPIC)
    one = Checkpoint(GROUP, COPY, 5000, 5100)
    target.compacted_topic(TOPIC).write({one.key(): one.value()})
    target.leaderless.add(COPY)

    assert emitted(target) == {(GROUP, COPY): (5000, 5100)}


def test_what_is_kept_of_a_topic_that_is_gone_is_deleted_and_nothing_else(sites) -> None:
    for group in ("audit", GROUP):
        sites.commit("P", group, "Payments", 40)
        sites.commit("P", group, "B.Payments", 20)
    emit(sites.flow("P->B"))
    sync(sites.flow("P->B"))
    target = sites.clusters["B"]
    former = target.topics()["P.Payments"].topic_id
    create_again(sites, 50)
    sites.commit("P", "audit", "Payments", 10)
    emit(sites.flow("P->B"))
    sync(sites.flow("P->B"))

    for _ in range(2):
        forget_topics(target, TOPIC, {former}, now_ms())

    rows = [Checkpoint.decode(*row) for row in target.compacted_topic(TOPIC).read().items()]
    original = TopicPartition("Payments", 0)
    assert {(c.group, c.topic_partition): c.downstream_offset for c in rows} == {
        (GROUP, COPY): 0,
        ("audit", COPY): 11,
        (GROUP, original): 20,
        ("audit", original): 20,
    }
    left = all_entries(target.compacted_topic(internal_topics.LEDGER).read())
    assert {(e.group, e.topic_partition) for e in left} == {
        ("audit", COPY),
        (GROUP, original),
        ("audit", original),
    }


def test_entries_of_deleted_topics_that_no_flow_copies_are_deleted_but_not_of_hidden_ones(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    emit(sites.flow("P->B"))
    sync(sites.flow("P->B"))
    target = sites.clusters["B"]
    ledger, starts = target.compacted_topic(internal_topics.LEDGER), target.log_starts
    [entry] = all_entries(ledger.read())
    former = [
        replace(entry, topic_partition=TopicPartition(topic, 0), topic_id="former")
        for topic in ("A.Payments", "Payments", "hidden")
    ]
    ledger.write({one.key(): one.value() for one in former})

    def refuse(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        if TopicPartition("hidden", 0) in partitions:
            raise AuthorizationError("grant Describe on topic hidden")
        return starts(partitions)

    monkeypatch.setattr(target, "log_starts", refuse)

    forget_topics(target, TOPIC, {"another"}, now_ms())
    assert len([*all_entries(ledger.read())]) == 4
    forget_topics(target, TOPIC, {"another"}, now_ms() + OVER_A_DAY_MS)

    left = {one.topic_partition.topic for one in all_entries(ledger.read())}
    assert left == {"P.Payments", "hidden"}


def test_an_entry_written_while_deleted_topics_are_looked_up_stays(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sync(sites.flow("P->B"))
    target = sites.clusters["B"]
    ledger = target.compacted_topic(internal_topics.LEDGER)
    former = target.topics()[COPY.topic].topic_id
    create_again(sites, 50)
    sites.commit("P", GROUP, "Payments", 10)
    topics = target.topics

    def write_meanwhile() -> dict[str, TopicDescription]:
        monkeypatch.undo()
        sync(sites.flow("P->B"))
        return topics()

    monkeypatch.setattr(target, "topics", write_meanwhile)
    forget_topics(target, TOPIC, {former}, now_ms())

    assert [one.intended for one in all_entries(ledger.read())] == [11]


def test_a_topic_that_a_broker_does_not_know_yet_keeps_its_entries(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sync(sites.flow("P->B"))
    target = sites.clusters["B"]
    known = {name: one for name, one in target.topics().items() if name != COPY.topic}
    monkeypatch.setattr(target, "topics", lambda: known)

    forget_topics(target, TOPIC, {"another"}, now_ms())

    [entry] = all_entries(target.compacted_topic(internal_topics.LEDGER).read())
    assert entry.topic_partition == COPY


def test_a_topic_that_was_created_again_needs_no_leader_for_its_former_entries(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    emit(sites.flow("P->B"))
    sync(sites.flow("P->B"))
    create_again(sites, 50)
    target = sites.clusters["B"]

    def refuse(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        raise UnavailableError(f"no leader: {partitions}")

    monkeypatch.setattr(target, "log_starts", refuse)

    forget_topics(target, TOPIC, {"another"}, now_ms() + OVER_A_DAY_MS)

    assert not target.compacted_topic(internal_topics.LEDGER).read()


def test_a_damaged_entry_keeps_no_group_from_being_synced(
    sites, caplog: pytest.LogCaptureFixture
) -> None:
    for group in ("audit", GROUP):
        sites.commit("P", group, "Payments", 40)
    sync(sites.flow("P->B"))
    entry = read_ledger(sites.clusters["B"], sites.clusters["B"].topics()).entry(GROUP, COPY)
    assert entry is not None
    sites.clusters["B"].compacted_topic(internal_topics.LEDGER).write({entry.key(): b"7"})
    for group in ("audit", GROUP):
        sites.commit("P", group, "Payments", 60)

    summary = sync(sites.flow("P->B"))

    assert (summary.actions, summary.applied) == ({"write": 2}, 2)
    assert len([line for line in caplog.messages if "ledger record" in line]) == 1


def test_an_entry_of_another_run_is_not_replaced_by_an_older_one(sites, monkeypatch) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sync(sites.flow("P->B"))
    sites.commit("P", GROUP, "Payments", 60)
    target = sites.clusters["B"]
    commit = target.commit_idle

    def overtake(_group: str, _offsets: object) -> None:
        monkeypatch.setattr(target, "commit_idle", commit)
        apply_exact(sites.flow("P->B"), {GROUP: {COPY: 91}}, operation="m1")
        raise GroupActiveError("group 'billing' on cluster B has members")

    monkeypatch.setattr(target, "commit_idle", overtake)

    sync(sites.flow("P->B"))

    entry = read_ledger(target, target.topics()).entry(GROUP, COPY)
    assert entry is not None
    assert (entry.operation, entry.intended, entry.settled) == ("m1", 91, True)
