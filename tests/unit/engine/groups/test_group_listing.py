"""Which groups a run works on, and how often the source is asked for them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from srm.domain.names import internal_topics
from srm.engine.groups.checkpoints import GROUPS_KEY, emit, selected_groups
from srm.engine.groups.group_sync import sync
from srm.errors import UnavailableError

MINUTE = timedelta(minutes=1)


def test_without_an_interval_each_run_lists_the_groups_and_nothing_is_kept(sites):
    sites.commit("P", "billing", "Payments", 40)
    emit(sites.flow("P->B"))
    sites.commit("P", "audit", "Payments", 10)

    assert emit(sites.flow("P->B")).groups == 2
    table = sites.clusters["B"].compacted_topic(internal_topics.replication("P"))
    assert GROUPS_KEY not in table.read()


def test_a_new_group_is_seen_when_the_interval_is_over(sites):
    sites.change("P->B", refresh_groups_interval=MINUTE)
    sites.commit("P", "billing", "Payments", 40)
    first = emit(sites.flow("P->B"))
    sites.commit("P", "audit", "Payments", 10)

    sites.clock.advance(59_999)
    before = emit(sites.flow("P->B"))
    sites.clock.advance(1)
    after = emit(sites.flow("P->B"))

    assert (first.groups, before.groups, after.groups) == (1, 1, 2)


def test_group_sync_works_on_the_groups_of_the_same_listing(sites):
    sites.change("P->B", refresh_groups_interval=MINUTE)
    sites.commit("P", "billing", "Payments", 40)
    emit(sites.flow("P->B"))
    sites.commit("P", "audit", "Payments", 10)

    assert {decision.group for decision in sync(sites.flow("P->B")).decisions} == {"billing"}


def test_changed_lists_count_at_once(sites):
    sites.change("P->B", refresh_groups_interval=MINUTE, groups=("billing",))
    sites.commit("P", "billing", "Payments", 40)
    sites.commit("P", "audit", "Payments", 10)
    emit(sites.flow("P->B"))

    sites.change("P->B", groups=("billing", "audit"))

    assert emit(sites.flow("P->B")).groups == 2


def test_a_dry_run_keeps_nothing_and_a_damaged_listing_is_made_again(sites):
    sites.change("P->B", refresh_groups_interval=MINUTE)
    sites.commit("P", "billing", "Payments", 40)
    table = sites.clusters["B"].compacted_topic(internal_topics.replication("P"))

    emit(sites.flow("P->B"), dry_run=True)
    kept = GROUPS_KEY in table.read()
    emit(sites.flow("P->B"))
    table.write({GROUPS_KEY: b"{}"})

    assert not kept
    assert selected_groups(sites.flow("P->B")) == ("billing",)


def test_more_groups_than_a_record_has_room_for_are_listed_each_time(sites):
    sites.change("P->B", refresh_groups_interval=MINUTE)
    for number in range(1_000):
        sites.commit("P", f"{number:01000}", "Payments", 40)

    assert len(selected_groups(sites.flow("P->B"), remember=True)) == 1_000
    sites.commit("P", "audit", "Payments", 10)
    assert "audit" in selected_groups(sites.flow("P->B"), remember=True)


def test_a_group_that_is_not_listed_but_named_is_asked_for(sites):
    sites.change("P->B", groups=("hidden", "bill.*"))

    assert "hidden" in selected_groups(sites.flow("P->B"))


def test_a_source_that_does_not_list_its_groups_keeps_no_known_one_from_its_checkpoint(
    sites, monkeypatch
):
    sites.change("P->B", refresh_groups_interval=MINUTE)
    sites.commit("P", "billing", "Payments", 40)
    emit(sites.flow("P->B"))
    sites.clock.advance(60_000)
    sites.commit("P", "billing", "Payments", 41)
    cluster = type(sites.clusters["P"])
    groups = cluster.groups

    def hang(self, names=None):
        if names is None:
            raise UnavailableError("a broker hangs")
        return groups(self, names)

    monkeypatch.setattr(cluster, "groups", hang)

    assert emit(sites.flow("P->B")).groups == 1
    sites.change("P->B", groups=("other",))
    with pytest.raises(UnavailableError):
        emit(sites.flow("P->B"))
