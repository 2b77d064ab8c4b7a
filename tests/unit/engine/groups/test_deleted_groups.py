"""Deleted groups stay deleted, whatever call of emission and sync they are deleted before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from srm.domain.groups.group_sync import SyncAction
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.domain.names.internal_topics import CONSUMER_OFFSETS
from srm.domain.text.amount import grant
from srm.engine.groups.checkpoints import emit
from srm.engine.groups.group_sync import sync
from srm.engine.groups.proving import read_proof
from srm.errors import AuthorizationError

GROUP = "billing"
TOPIC = internal_topics.checkpoints("P")
FLOWS = ("P->B", "B->P")
Steps = dict[int, tuple[str, ...]]


def run(sites, *flows: str) -> None:
    for flow in flows or FLOWS:
        emit(sites.flow(flow))
        sync(sites.flow(flow))


@contextmanager
def before_calls(sites, hook: Callable[[int], None]) -> Iterator[list[int]]:
    """Call the hook with the number of each call to a cluster, before it; yield the counter."""
    count = [0]
    clusters = sites.clusters.values()
    within = [False]

    def counted(reach: Callable[[str], None], doing: str) -> None:
        if not within[0]:
            within[0], count[0] = True, count[0] + 1
            hook(count[0] - 1)
            within[0] = False
        reach(doing)

    for one in clusters:
        one._reach = partial(counted, one._reach)
    try:
        yield count
    finally:
        for one in clusters:
            del one._reach


def settled(new_sites, also: str = "", *, logs: bool = True):
    """Make sites with a group of P that is on B by sync, and is about to be carried on.

    ``also``: another topic in which the group has a commit. ``logs``: srm sees those of commits.
    """
    made = new_sites()
    for one in made.clusters.values() if logs else ():
        one.add_topic(CONSUMER_OFFSETS, 3)
    made.produce("P", 100)
    made.produce("B", 50)
    made.copy("P->B", claim=1)
    made.copy("B->P")
    made.commit("P", GROUP, "Payments", 10)
    if also:
        made.commit("P", GROUP, also, 7)
    run(made)
    return made


def left(sites) -> dict[str, object]:
    found = {alias: dict(c.committed_offsets(GROUP)) for alias, c in sites.clusters.items()}
    return {alias: commits for alias, commits in found.items() if commits}


def delete(sites, *aliases: str) -> None:
    for alias in aliases:
        sites.clusters[alias].delete_groups([GROUP])


def play(
    new_sites, steps: Steps, *, moved: bool, also: str = "", logs: bool = True
) -> dict[str, object]:
    """Run both flows, delete the group on clusters before the calls of these numbers, run again."""
    sites, waiting = settled(new_sites, also, logs=logs), dict(steps)
    if moved:
        sites.commit("P", GROUP, "Payments", 20)

    def delete_some(at: int) -> None:
        delete(sites, *waiting.pop(at, ()))

    with before_calls(sites, delete_some):
        run(sites)
    for aliases in waiting.values():  # without the group there were fewer calls
        delete(sites, *aliases)
    run(sites)
    return left(sites)


def calls_of(new_sites, *, moved: bool) -> int:
    sites = settled(new_sites)
    if moved:
        sites.commit("P", GROUP, "Payments", 20)
    with before_calls(sites, lambda _: None) as count:
        run(sites)
    return count[0]


def test_a_group_deleted_on_its_source_before_any_call_is_not_created_there(
    new_sites,
) -> None:
    calls = range(calls_of(new_sites, moved=True))

    assert [at for at in calls if "P" in play(new_sites, {at: ("P",)}, moved=True)] == []


def test_a_group_deleted_on_both_before_two_calls_is_not_created(new_sites) -> None:
    calls = range(calls_of(new_sites, moved=True) - 1)

    assert [p for p in calls if play(new_sites, {p: ("P",), p + 1: ("B",)}, moved=True)] == []


def left_of_both(new_sites, also: str = "", *, logs: bool = True) -> list[int]:
    """Return the calls before which both deletions of a group leave it somewhere."""
    steps = [{at: ("P", "B")} for at in range(calls_of(new_sites, moved=True))]
    return [
        at
        for at, step in enumerate(steps)
        if play(new_sites, step, moved=True, also=also, logs=logs)
    ]


def test_a_group_deleted_on_both_just_before_the_write_is_found_in_the_log(new_sites) -> None:
    assert left_of_both(new_sites) == []


def test_without_the_log_only_a_group_with_all_commits_in_the_write_is_left(new_sites) -> None:
    assert left_of_both(new_sites, "B.Payments", logs=False) == []
    assert len(left_of_both(new_sites, logs=False)) == 1, "docs/decisions/0014"


def written_after(sites, before_write: Callable[[], None]) -> SyncAction:
    """Carry the group on; something happens between sync's last look and its write."""
    sites.commit("P", GROUP, "Payments", 40)
    target = sites.clusters["B"]
    commit = target.commit_idle

    def commit_late(group: str, offsets: object) -> None:
        before_write()
        commit(group, offsets)

    target.commit_idle = commit_late
    [decision] = [one for one in sync(sites.flow("P->B")).decisions if one.action != "unchanged"]
    return decision.action


def test_a_group_deleted_on_its_source_alone_during_the_write_remains(new_sites) -> None:
    """Clients that move by hand delete it there, and start on the target."""
    sites = settled(new_sites)

    assert written_after(sites, lambda: delete(sites, "P")) == "write"
    assert left(sites).keys() == {"B"}


def test_an_old_deletion_does_not_count(new_sites) -> None:
    sites = settled(new_sites)
    delete(sites, "B")
    run(sites)

    assert written_after(sites, lambda: delete(sites, "P")) == "write"
    assert left(sites).keys() == {"B"}


def test_a_group_deleted_on_the_target_alone_is_carried_on(new_sites) -> None:
    sites = settled(new_sites)

    assert written_after(sites, lambda: delete(sites, "B")) == "write"
    assert left(sites).keys() == {"P", "B"}


def test_a_group_that_a_client_started_again_during_the_write_remains(new_sites) -> None:
    sites = settled(new_sites)

    def start_again() -> None:
        delete(sites, "P", "B")
        sites.commit("B", GROUP, "P.Payments", 30)

    assert written_after(sites, start_again) == "write"
    assert left(sites).keys() == {"B"}


def test_without_the_right_to_read_the_log_sync_works_on(new_sites, caplog) -> None:
    sites = settled(new_sites)
    target, table = sites.clusters["B"], sites.clusters["B"].compacted_topic

    def refuse(topic: str, partition: int = 0) -> object:
        if topic == CONSUMER_OFFSETS:
            raise AuthorizationError(f"reading {topic}", grant("Read", topic, "B"))
        return table(topic, partition)

    target.compacted_topic = refuse
    assert written_after(sites, lambda: delete(sites, "P", "B")) == "write"
    assert grant("Read", CONSUMER_OFFSETS, "B") in caplog.text


def test_a_group_deleted_while_it_is_created_is_deleted_there_too(sites) -> None:
    assert written_after(sites, lambda: delete(sites, "P")) == "not-written"
    assert left(sites) == {}


def test_a_group_that_reads_on_while_it_is_carried_over_is_written(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)

    def read_on(_: int) -> None:
        at = sites.committed("P", GROUP, "Payments")
        sites.commit("P", GROUP, "Payments", at + 1)

    with before_calls(sites, read_on):
        assert sync(sites.flow("P->B")).applied == 1


def rows(sites) -> list[Checkpoint]:
    table = sites.clusters["B"].compacted_topic(TOPIC)
    return [Checkpoint.decode(*row) for row in table.read().items()]


def test_a_checkpoint_lives_as_long_as_its_commit(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    emit(sites.flow("P->B"))
    delete(sites, "P")

    emit(sites.flow("P->B"))
    [marked] = rows(sites)
    assert (marked.downstream_offset, marked.is_forgotten) == (41, False)
    assert marked.gone_since_ms == sites.clock()
    sites.clock.advance(299_000)
    emit(sites.flow("P->B"))
    assert rows(sites) == [marked]
    sites.clock.advance(2_000)
    emit(sites.flow("P->B"))

    [forgotten] = rows(sites)
    assert (forgotten.downstream_offset, forgotten.is_forgotten) == (0, True)
    proof = read_proof(sites.clusters["B"], sites.flow("P->B").config.flow)
    assert proof is not None
    assert proof.unread == ()


def test_a_group_that_starts_again_lower_gets_a_checkpoint_from_its_new_commit(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    emit(sites.flow("P->B"))
    delete(sites, "P")
    for _ in range(2):
        emit(sites.flow("P->B"))
        sites.clock.advance(301_000)
    sites.commit("P", GROUP, "Payments", 3)
    emit(sites.flow("P->B"))

    assert [(one.downstream_offset, one.gone_since_ms) for one in rows(sites)] == [(4, 0)]


def test_a_group_or_topic_that_the_source_does_not_show_keeps_its_checkpoint(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sites.commit("P", "hidden", "Payments", 40)
    emit(sites.flow("P->B"))
    before = rows(sites)
    sites.clusters["P"]._groups.hide("hidden")
    sites.clusters["P"].delete_topic("Payments")
    for _ in range(2):
        emit(sites.flow("P->B"))
        sites.clock.advance(301_000)

    assert rows(sites) == before


def routed(sites, cluster: str, name: str = GROUP) -> None:
    """Lead the group's clients as a move has."""
    route = Route(1, cluster, "go", "m1", 1, decided=True, homes=("P",)).value()
    sites.clusters["B"].add_topic(internal_topics.ROUTING)
    table = sites.clusters["B"].compacted_topic(internal_topics.ROUTING)
    table.write({f"group:{name}".encode(): route})


@pytest.mark.parametrize(("cluster", "kept"), [("B", {"P"}), ("P", {"P", "B"})])
def test_a_group_deleted_where_its_route_leads_is_not_created_from_its_old_commit(
    new_sites, cluster: str, kept: set[str]
) -> None:
    sites = settled(new_sites)
    routed(sites, cluster)
    delete(sites, "B")

    assert "write" not in sync(sites.flow("P->B")).actions or cluster == "P"
    run(sites)
    assert left(sites).keys() == kept


def test_offsets_that_may_have_expired_where_the_route_leads_are_written_again(new_sites) -> None:
    """A group without members, as of a monthly job: it would begin by its auto.offset.reset."""

    def clocked():
        made = new_sites()
        made.clusters["B"]._clock = made.clock
        return made

    sites = settled(clocked)
    routed(sites, "B")
    sites.clock.advance(7 * 86_400_000)
    sites.clusters["B"].expire_group(GROUP)

    run(sites)

    assert left(sites).keys() == {"P", "B"}


def test_a_group_that_works_again_on_the_source_is_carried_over_whatever_its_route(
    new_sites,
) -> None:
    sites = settled(new_sites)
    routed(sites, "B")
    delete(sites, "B")
    sites.commit("P", GROUP, "Payments", 30)

    run(sites)

    assert left(sites).keys() == {"P", "B"}
