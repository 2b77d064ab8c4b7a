"""Group sync: a group is never harmed, whatever happens between two calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from srm.domain.groups.group_sync import GroupLedger
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.group_sync import apply_exact, sync
from srm.engine.groups.ledger import read_ledger
from srm.errors import GroupActiveError, NotFoundError, UnavailableError
from srm_lab.testing.fake_compacted import FakeCompactedTopic

GROUP = "billing"
REPLICA = TopicPartition("P.Payments", 0)


def ledger(sites, alias: str = "B") -> GroupLedger:
    return read_ledger(sites.clusters[alias], sites.clusters[alias].topics())


def actions(sites, flow: str = "P->B") -> Mapping[str, int]:
    return sync(sites.flow(flow)).actions


def test_an_absent_group_is_created_where_it_goes_on(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)

    summary = sync(sites.flow("P->B"))

    assert (summary.applied, summary.actions) == (1, {"write": 1})
    assert sites.committed("B", GROUP, "P.Payments") == 41
    entry = ledger(sites).entry(GROUP, REPLICA)
    assert entry is not None
    assert (entry.previous, entry.intended, entry.origin, entry.settled) == (None, 41, "P", True)


def test_a_second_run_writes_nothing(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sync(sites.flow("P->B"))
    commits = list(sites.clusters["B"].commits)

    assert actions(sites) == {"unchanged": 1}
    assert sites.clusters["B"].commits == commits


def test_the_progress_of_a_source_that_no_longer_copies_there_is_forgotten(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sync(sites.flow("P->B"))
    entry = ledger(sites).entry(GROUP, REPLICA)
    assert entry is not None
    known = replace(entry, progress={"P": 41, "C": 5, "D": 7})
    sites.clusters["B"].compacted_topic(internal_topics.LEDGER).write({known.key(): known.value()})
    sites.change("P->B", joined=frozenset({"C"}))
    sites.commit("P", GROUP, "Payments", 70)

    sync(sites.flow("P->B"))

    entry = ledger(sites).entry(GROUP, REPLICA)
    assert entry is not None
    assert entry.progress == {"P": 71, "C": 5}


def test_progress_and_a_rewind_on_the_source_both_follow(sites) -> None:
    for offset in (40, 70, 5):
        sites.commit("P", GROUP, "Payments", offset)
        sync(sites.flow("P->B"))

        assert sites.committed("B", GROUP, "P.Payments") == offset + 1


def test_a_group_with_members_is_left_alone_and_they_are_named(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sites.clusters["B"].join(GROUP, "app-7")

    summary = sync(sites.flow("P->B"))

    [decision] = summary.decisions
    assert (decision.action, summary.applied) == ("group-active", 0)
    assert "app-7" in decision.reason
    assert sites.committed("B", GROUP, "P.Payments") is None


def test_consumers_that_went_further_here_keep_their_place(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sites.commit("B", GROUP, "P.Payments", 80)

    assert actions(sites) == {"consumer-ahead": 1}
    assert sites.committed("B", GROUP, "P.Payments") == 80


def test_a_commit_after_the_end_of_a_log_that_was_truncated_is_replaced(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sites.commit("B", GROUP, "P.Payments", 5_000)
    end = sites.clusters["B"].log_ends([REPLICA])[REPLICA]

    [done] = sync(sites.flow("P->B")).decisions
    assert (done.action, done.reason) == ("write", f"the log of {REPLICA} was truncated to {end}")
    assert sites.committed("B", GROUP, "P.Payments") == 41


def test_an_operators_rewind_here_is_respected(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sync(sites.flow("P->B"))
    sites.commit("B", GROUP, "P.Payments", 3)

    assert actions(sites) == {"rewind-respected": 1}
    assert sites.committed("B", GROUP, "P.Payments") == 3


def test_the_ledger_is_written_before_the_offset(sites, monkeypatch: pytest.MonkeyPatch) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    target = sites.clusters["B"]

    def die(_group: str, _offsets: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(target, "commit_idle", die)
    with pytest.raises(KeyboardInterrupt):
        sync(sites.flow("P->B"))

    entry = ledger(sites).entry(GROUP, REPLICA)
    assert entry is not None
    assert (entry.previous, entry.intended, entry.settled) == (None, 41, False)


@pytest.mark.parametrize("written", [False, True])
def test_after_a_crash_around_the_write_the_next_run_finishes_it(
    sites, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sync(sites.flow("P->B"))
    sites.commit("P", GROUP, "Payments", 60)
    target = sites.clusters["B"]
    commit = target.commit_idle

    def die(group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if written:
            commit(group, offsets)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(target, "commit_idle", die)
        with pytest.raises(KeyboardInterrupt):
            sync(sites.flow("P->B"))
    sync(sites.flow("P->B"))

    entry = ledger(sites).entry(GROUP, REPLICA)
    assert sites.committed("B", GROUP, "P.Payments") == 61
    assert entry is not None
    assert (entry.intended, entry.settled) == (61, True)


def test_a_group_that_wakes_up_before_the_write_keeps_its_offsets_and_its_ledger(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sync(sites.flow("P->B"))
    before = ledger(sites).entry(GROUP, REPLICA)
    sites.commit("P", GROUP, "Payments", 60)
    target = sites.clusters["B"]

    def wake(_group: str, _offsets: object) -> None:
        raise GroupActiveError("group 'billing' on cluster B has members")

    monkeypatch.setattr(target, "commit_idle", wake)

    assert actions(sites) == {"group-active": 1}
    assert sites.committed("B", GROUP, "P.Payments") == 41
    assert ledger(sites).entry(GROUP, REPLICA) == before


def commit_before_write(sites, monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """Let another program commit on B after the decision, before the write."""
    target = sites.clusters["B"]
    committed, calls = target.committed_offsets, []

    def moving(group: str) -> dict[TopicPartition, int]:
        calls.append(group)
        if len(calls) == 2:
            sites.commit("B", GROUP, "P.Payments", offset)
        return committed(group)

    monkeypatch.setattr(target, "committed_offsets", moving)


def test_offsets_that_change_between_decision_and_write_are_not_overwritten(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race of KAFKA-19794: a consumer came, committed and left within the run."""
    sites.commit("P", GROUP, "Payments", 40)
    commit_before_write(sites, monkeypatch, 10)

    assert actions(sites) == {"group-active": 1}
    assert sites.committed("B", GROUP, "P.Payments") == 10
    assert ledger(sites).entry(GROUP, REPLICA) is None


def test_the_wanted_offset_written_by_another_run_does_not_stop_a_move(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group sync of the replicator runs during a move, and one refusal repeats its apply."""
    sites.commit("P", GROUP, "Payments", 40)
    commit_before_write(sites, monkeypatch, 41)

    [decision] = apply_exact(sites.flow("P->B"), {GROUP: {REPLICA: 41}}, operation="m-1")

    assert decision.applied
    entry = ledger(sites).entry(GROUP, REPLICA)
    assert entry is not None
    assert (entry.operation, entry.intended, entry.settled) == ("m-1", 41, True)


def test_one_partition_that_is_refused_fails_alone(sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-19107: a deleted topic made every cycle fail for the whole group."""
    for group in ("audit", GROUP):
        sites.commit("P", group, "Payments", 40)
    sites.commit("P", GROUP, "B.Payments", 20)
    target = sites.clusters["B"]
    commit = target.commit_idle

    def refuse(group: str, offsets: Mapping[TopicPartition, int]) -> None:
        commit(group, {p: o for p, o in offsets.items() if p != REPLICA or group != GROUP})
        if group == GROUP and REPLICA in offsets:
            raise NotFoundError("unknown partition P.Payments-0")

    monkeypatch.setattr(target, "commit_idle", refuse)

    summary = sync(sites.flow("P->B"))

    by_place = {(d.group, d.partition.topic): (d.action, d.applied) for d in summary.decisions}
    assert by_place == {
        ("audit", "P.Payments"): ("write", True),
        (GROUP, "Payments"): ("write", True),
        (GROUP, "P.Payments"): ("failed", False),
    }


def test_a_target_group_that_cannot_be_read_is_reported_and_hides_no_other(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("audit", GROUP):
        sites.commit("P", group, "Payments", 40)
    target = sites.clusters["B"]
    committed = target.committed_offsets

    def refuse(group: str) -> dict[TopicPartition, int]:
        if group == "audit":
            raise UnavailableError("coordinator of 'audit' does not answer")
        return committed(group)

    monkeypatch.setattr(target, "committed_offsets", refuse)

    summary = sync(sites.flow("P->B"))

    assert summary.errors == {"audit": "coordinator of 'audit' does not answer"}
    assert summary.applied == 1


def test_many_groups_are_written_in_one_run(sites) -> None:
    names = [f"g{number:03}" for number in range(120)]
    for position, name in enumerate(names):
        sites.commit("P", name, "Payments", position % 100)

    summary = sync(sites.flow("P->B"))

    assert summary.applied == len(names)
    assert all(
        sites.committed("B", name, "P.Payments") == position % 100 + 1
        for position, name in enumerate(names)
    )


def test_a_dry_run_decides_and_writes_nothing(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)

    summary = sync(sites.flow("P->B"), dry_run=True)

    assert (summary.actions, summary.applied) == ({"write": 1}, 0)
    assert sites.committed("B", GROUP, "P.Payments") is None
    assert internal_topics.LEDGER not in sites.clusters["B"].topics()


def test_switched_off_it_does_nothing_and_says_so(sites) -> None:
    sites.change("P->B", sync_group_offsets_enabled=False)
    sites.commit("P", GROUP, "Payments", 40)

    summary = sync(sites.flow("P->B"))

    assert summary.skipped == "P->B.sync.group.offsets.enabled is false"
    assert sites.committed("B", GROUP, "P.Payments") is None


def test_apply_exact_sets_what_a_move_decided_lower_or_higher(sites) -> None:
    for offset in (80, 20):
        [decision] = apply_exact(sites.flow("P->B"), {GROUP: {REPLICA: offset}}, operation="m-1")

        assert decision.applied
        assert sites.committed("B", GROUP, "P.Payments") == offset
    entry = ledger(sites).entry(GROUP, REPLICA)
    assert entry is not None
    assert (entry.operation, entry.intended, entry.settled) == ("m-1", 20, True)


def test_apply_exact_leaves_a_group_with_members_alone(sites) -> None:
    sites.commit("B", GROUP, "P.Payments", 7)
    sites.clusters["B"].join(GROUP, "app")

    [decision] = apply_exact(sites.flow("P->B"), {GROUP: {REPLICA: 80}})

    assert (decision.action, decision.applied) == ("group-active", False)
    assert sites.committed("B", GROUP, "P.Payments") == 7


def test_a_position_a_move_confirmed_does_not_pass_for_a_rewind_later(sites) -> None:
    sites.commit("P", GROUP, "Payments", 80)
    sync(sites.flow("P->B"))
    sites.commit("B", GROUP, "P.Payments", 21)
    sites.commit("P", GROUP, "Payments", 20)
    apply_exact(sites.flow("P->B"), {GROUP: {REPLICA: 21}})
    sites.commit("P", GROUP, "Payments", 40)

    assert actions(sites) == {"write": 1}
    assert sites.committed("B", GROUP, "P.Payments") == 41


def test_a_place_of_a_consumer_that_a_move_keeps_is_not_lowered_by_the_next_sync(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sync(sites.flow("P->B"))
    sites.commit("B", GROUP, "P.Payments", 61)

    [decision] = apply_exact(sites.flow("P->B"), {GROUP: {REPLICA: 61}})

    assert decision.in_place
    assert actions(sites) == {"consumer-ahead": 1}
    assert sites.committed("B", GROUP, "P.Payments") == 61


def test_a_group_that_may_not_be_described_is_named_and_the_others_are_written(sites) -> None:
    for group in ("hidden", GROUP):
        sites.commit("P", group, "Payments", 40)
    sites.clusters["B"].hide_group("hidden")

    summary = sync(sites.flow("P->B"))

    assert summary.errors == {"hidden": "grant Describe on group hidden"}
    assert sites.committed("B", GROUP, "P.Payments") == 41


def test_many_groups_of_a_move_cost_one_reading_of_the_ledger(sites, monkeypatch) -> None:
    reads: list[str] = []
    read = FakeCompactedTopic.read_history
    monkeypatch.setattr(
        FakeCompactedTopic, "read_history", lambda table: (reads.append("read"), read(table))[1]
    )
    wanted = {f"group-{number}": {REPLICA: number} for number in range(60)}

    decisions = apply_exact(sites.flow("P->B"), wanted)

    assert len(reads) == 1
    assert [d.applied for d in decisions] == [True] * 60
    assert {d.group: sites.committed("B", d.group, "P.Payments") for d in decisions} == {
        group: offsets[REPLICA] for group, offsets in wanted.items()
    }


def test_a_group_with_members_does_not_keep_others_of_a_move_from_their_offsets(sites) -> None:
    sites.clusters["B"].join("alive", "app")

    done = apply_exact(sites.flow("P->B"), {"alive": {REPLICA: 3}, GROUP: {REPLICA: 80}})

    assert {d.group: d.action for d in done} == {"alive": "group-active", GROUP: "write"}
    assert sites.committed("B", GROUP, "P.Payments") == 80
