"""Who followed, and what came of each partition."""

from __future__ import annotations

from srm.domain.moves.announcements import Ack, StampedAck
from srm.domain.moves.plan import GroupPlan, PartitionMove
from srm.domain.moves.progress import GroupResume, MoveProgress
from srm.domain.moves.report import (
    CallReport,
    Follower,
    call_reports,
    followers_of,
    join_followers,
    members_of,
    partition_reports,
)
from srm.domain.moves.routing import Call


def ack(client: str, state: str, stamped_ms: int | None, cluster: str, **ages: int) -> StampedAck:
    said = Ack("group:audit", client, 7, state, cluster, 1, host="h", ages_ms=ages)  # type: ignore[arg-type]
    return StampedAck(said, stamped_ms or 1, by_broker=stamped_ms is not None)


def test_times_of_a_follower_are_counted_from_the_hold_by_the_targets_clock() -> None:
    [one] = followers_of(
        [
            ack("a", "resumed", 14_000, "B", held=2_000, resumed=0),
            ack("a", "processed", 15_500, "B", held=3_500, resumed=1_500, processed=500),
        ],
        [ack("a", "held", 99_000, "P", held=0)],
        10_000,
    )

    assert one == Follower(
        "group:audit", "a", "h", "consumer", "routing", "processed", 2.0, 4.0, 5.0, instance="a"
    )


def test_a_client_that_only_left_is_named_with_what_is_known_of_it() -> None:
    [one] = followers_of([], [ack("a", "held", 99_000, "P", held=0)], 10_000)

    assert (one.state, one.left_seconds) == ("held", None), "the source's clock is another one"


def test_without_the_brokers_stamps_no_time_is_claimed() -> None:
    said = [ack("a", "resumed", None, "B", resumed=0)]

    assert followers_of(said, [], 10_000)[0].resumed_seconds is None
    said = [ack("a", "resumed", 12_000, "B", resumed=0)]
    assert followers_of(said, [], None)[0].resumed_seconds is None


def test_members_that_said_nothing_are_named_by_the_broker_alone() -> None:
    known = [Follower("group:audit", "a", "h", "consumer", "routing", "resumed")]

    found = members_of("group:audit", ["a@h", "java-1@10.0.0.9", "java-1@10.0.0.9"], known)

    assert found == [Follower("group:audit", "java-1", "10.0.0.9", "consumer", "", "member")]
    assert [one.client for one in members_of("group:other", ["a@h"], known)] == ["a"]


def test_members_that_follow_no_route_may_have_been_told_by_the_others() -> None:
    [one] = members_of("group:audit", ["java-1@h"], [], "webhook, command")
    late = Follower("group:audit", "java-1", "h", "consumer", "routing", "resumed")

    assert (one.redirector, one.state) == ("webhook, command", "member")
    assert join_followers([one], [late]) == (late,), "what it says itself counts"
    assert join_followers([late], [one]) == (late,)


def test_calls_of_redirectors_are_told_in_the_order_they_were_made() -> None:
    calls = {
        "7/go/webhook": Call("failed", 30, "HTTP 503"),
        "7/hold/webhook": Call("done", 10, "HTTP 200"),
        "7/go/command": Call("done", 20),
    }

    assert call_reports(calls) == (
        CallReport("webhook", "hold", "done", 10, "HTTP 200"),
        CallReport("command", "go", "done", 20, ""),
        CallReport("webhook", "go", "failed", 30, "HTTP 503"),
    )


def test_who_was_seen_once_stays_and_keeps_the_first_times() -> None:
    before = [
        Follower("group:audit", "a", "h", "consumer", "routing", "resumed", 1.0, 2.0),
        Follower("group:audit", "gone", "h", "consumer", "", "member"),
        Follower("group:audit", "late", "h", "consumer", "", "member"),
    ]
    now = [
        Follower("group:audit", "a", "h", "consumer", "routing", "processed", 1.5, None, 3.0),
        Follower("group:audit", "late", "h", "consumer", "routing", "resumed"),
    ]

    joined = join_followers(before, now)

    assert joined == (
        Follower("group:audit", "a", "h", "consumer", "routing", "processed", 1.0, 2.0, 3.0),
        before[1],
        now[1],
    )
    assert join_followers(joined, now) == joined
    unseen = [Follower("group:audit", "a", "h", "consumer", "", "member")]
    assert join_followers(joined, unseen) == joined


def test_each_partition_shows_plan_and_outcome_and_those_without_anything_are_left_out() -> None:
    row = PartitionMove("Payments", 0, "P.Payments", "forward", "translated", 7, 3, 5, re_read=1)
    idle = PartitionMove("Payments", 1, "P.Payments", "forward", "no-commit", None, 0)
    unread = PartitionMove("Payments", 2, "P.Payments", "forward", "no-commit", None, 4)
    progress = MoveProgress(
        "m",
        intended={"audit": {"P.Payments-0": 6}},
        resumed={
            "audit": GroupResume(1, started={"P.Payments-0": 6}, committed={"P.Payments-0": 9})
        },
    )

    group = GroupPlan("audit", (), (row, idle, unread))
    found, left = partition_reports(group, group, progress)

    assert (found.committed, found.lag, found.re_read, found.planned) == (7, 3, 1, 5)
    assert (found.applied, found.started, found.last_commit) == (6, 6, 9)
    assert (left.partition, left.state, left.planned, left.applied) == (2, "no-commit", None, None)
