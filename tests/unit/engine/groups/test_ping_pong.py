"""Both flows at work on one group: no echo, no drift, no rewind undone.

Each site has Payments and the other's replica; the flows P->B and B->P emit and sync in turn, as
they do in production, where neither knows when the other runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srm.engine.groups.checkpoints import emit
from srm.engine.groups.group_sync import sync
from srm_lab.testing.fake_consumer import FakeConsumer

GROUP = "billing"
FLOWS = ("P->B", "B->P")


def run(sites, *flows: str) -> None:
    for flow in flows or FLOWS:
        emit(sites.flow(flow))
        sync(sites.flow(flow))


def positions(sites) -> dict[str, int | None]:
    """Return the group's place in the payments of P, as records, on either site."""
    there = sites.committed("B", GROUP, "P.Payments")
    return {
        "P": sites.committed("P", GROUP, "Payments"),
        "B": None if there is None else there - 1,  # the replica begins with a marker
    }


def commits(sites) -> int:
    return sum(len(cluster.commits) for cluster in sites.clusters.values())


def test_progress_goes_over_and_does_not_come_back(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    run(sites)
    written = commits(sites)

    for _ in range(3):
        run(sites)

    assert positions(sites) == {"P": 40, "B": 40}
    assert commits(sites) == written


def test_failover_and_failback_without_a_record_read_twice(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    run(sites)
    sites.commit("B", GROUP, "P.Payments", 71)
    run(sites)
    assert positions(sites) == {"P": 70, "B": 70}

    sites.commit("P", GROUP, "Payments", 90)
    run(sites)

    assert positions(sites) == {"P": 90, "B": 90}


def test_payments_of_the_backup_follow_the_same_way(sites) -> None:
    sites.commit("B", GROUP, "Payments", 20)
    run(sites)
    assert sites.committed("P", GROUP, "B.Payments") == 20

    sites.commit("P", GROUP, "B.Payments", 33)
    run(sites)

    assert sites.committed("B", GROUP, "Payments") == 33


@pytest.mark.parametrize("order", [FLOWS, FLOWS[::-1]])
def test_an_operators_rewind_on_the_primary_is_not_undone_by_the_backup(sites, order) -> None:
    """The hazard of 2.3: the old position lives on in the backup, as our own write."""
    sites.commit("P", GROUP, "Payments", 80)
    run(sites)
    sites.commit("P", GROUP, "Payments", 5)

    for _ in range(3):
        run(sites, *order)

    assert positions(sites) == {"P": 5, "B": 5}


@pytest.mark.parametrize("order", [FLOWS, FLOWS[::-1]])
def test_a_rewind_is_not_undone_by_progress_made_earlier_on_the_backup(sites, order) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    run(sites)
    sites.commit("B", GROUP, "P.Payments", 71)
    run(sites)
    sites.commit("P", GROUP, "Payments", 5)

    for _ in range(3):
        run(sites, *order)

    assert sites.committed("P", GROUP, "Payments") == 5


def test_a_rewind_to_exactly_the_position_before_our_write_is_respected(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    run(sites)
    sites.commit("B", GROUP, "P.Payments", 71)
    run(sites)
    sites.commit("P", GROUP, "Payments", 40)

    for _ in range(3):
        run(sites)

    assert sites.committed("P", GROUP, "Payments") == 40


def test_a_rewind_on_the_backup_of_a_group_that_lives_on_the_primary_stays_there(sites) -> None:
    sites.commit("P", GROUP, "Payments", 80)
    run(sites)
    sites.commit("B", GROUP, "P.Payments", 11)

    for _ in range(3):
        run(sites)

    # On B the operator's word counts; on P it is older than the group's own progress there.
    assert positions(sites) == {"P": 80, "B": 10}


def test_after_a_rewind_the_group_goes_on_and_is_carried_over_again(sites) -> None:
    sites.commit("P", GROUP, "Payments", 80)
    run(sites)
    sites.commit("P", GROUP, "Payments", 5)
    run(sites)
    sites.commit("P", GROUP, "Payments", 95)
    run(sites)

    assert positions(sites) == {"P": 95, "B": 95}


def test_a_consumer_that_restarts_where_we_put_it_is_no_progress(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    run(sites)
    sites.commit("B", GROUP, "P.Payments", 41)
    sites.commit("P", GROUP, "Payments", 5)
    run(sites)

    assert positions(sites) == {"P": 5, "B": 5}


def test_offsets_that_expired_on_one_site_are_written_again(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    run(sites)
    sites.clusters["B"].expire_group(GROUP)
    run(sites)

    assert positions(sites) == {"P": 40, "B": 40}


def test_a_group_in_use_on_both_sites_is_never_touched(sites) -> None:
    for alias, topic, offset in (("P", "Payments", 40), ("B", "P.Payments", 20)):
        sites.clusters[alias].join(GROUP, f"app-{alias}")
        sites.commit(alias, GROUP, topic, offset)
    run(sites)

    assert positions(sites) == {"P": 40, "B": 19}
    assert commits(sites) == 0


@dataclass
class Reader:
    """A group that reads P's payments on either site, and what it has read so far."""

    sites: object
    seen: set[int] = field(default_factory=set)

    def stands(self, alias: str) -> int:
        """Say how many of P's payments lie before the group's commit on a site."""
        if alias == "P":
            return self.sites.committed("P", GROUP, "Payments") or 0
        place = self.sites.committed("B", GROUP, "P.Payments") or 0
        return sum(target < place for _, target in self.sites.pairs("P->B"))

    def read(self, alias: str, count: int) -> None:
        topic = "Payments" if alias == "P" else "P.Payments"
        originals = {target: source for source, target in self.sites.pairs("P->B")}
        consumer = FakeConsumer(
            *(self.sites.clusters[alias], GROUP, [topic]), reset="earliest", subscribes=False
        )
        read = [offset for _, offset in consumer.poll(count)]
        self.seen.update(read if alias == "P" else (originals[offset] for offset in read))
        if read:
            consumer.commit()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.sampled_from("PB"), st.integers(1, 40)),
        st.tuples(st.just("produce"), st.integers(1, 20), st.integers(0, 2)),
        st.tuples(st.just("late"), st.integers(1, 20), st.integers(0, 20)),
        st.tuples(st.just("run"), st.sampled_from(FLOWS), st.just(0)),
    ),
    max_size=14,
)


@settings(deadline=None, max_examples=60)
@given(steps)
def test_whatever_happens_nothing_is_skipped_and_both_sites_agree_in_the_end(
    new_sites: Callable[[], object], history: list[tuple[str, object, object]]
) -> None:
    """Round-trip drift: every commit on either site has all records before it read by the group."""
    sites = new_sites()
    sites.produce("P", 30)
    sites.produce("B", 1)
    sites.copy("P->B", claim=1)
    sites.copy("B->P")
    reader = Reader(sites)
    for kind, first, second in history:
        if kind == "read":
            reader.read(first, second)
        elif kind == "produce":
            sites.produce("P", first)
            sites.copy("P->B", claim=second)
        elif kind == "late":
            sites.produce("P", first)
            sites.copy("P->B", records=min(first, second))
        else:
            run(sites, first)
        _nothing_is_skipped(sites, reader)
    sites.copy("P->B")
    for _ in range(3):
        run(sites)
        _nothing_is_skipped(sites, reader)
    written = commits(sites)
    run(sites)

    assert commits(sites) == written
    _both_agree(reader)


def _nothing_is_skipped(sites, reader: Reader) -> None:
    on_p = sites.committed("P", GROUP, "Payments") or 0
    on_b = sites.committed("B", GROUP, "P.Payments") or 0
    assert set(range(on_p)) <= reader.seen
    assert {source for source, target in sites.pairs("P->B") if target < on_b} <= reader.seen


def _both_agree(reader: Reader) -> None:
    if reader.seen:
        end = max(reader.seen) + 1
        assert {alias: reader.stands(alias) for alias in "PB"} == {"P": end, "B": end}
