"""Groups of a flow: all of them at intervals, new commits as they come."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.domain.groups.test_offset_commits import key, value
from tests.unit.engine.conftest import (  # noqa: F401 -- fixtures
    TwoSites,
    new_sites,
    sites,
    two_site_configs,
)
from tests.unit.engine.one_name import BACK, THERE, OneName
from tests.unit.replication.driver.test_duties import Charge

from srm.domain.flow_state.replication_records import COMMITS, REPORTS
from srm.domain.names import internal_topics
from srm.domain.names.internal_topics import CONSUMER_OFFSETS
from srm.domain.names.topics import TopicPartition, topic_id_bytes
from srm.domain.text.amount import grant
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ListChange
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.emission import tables_of
from srm.errors import AuthorizationError, SrmError, UnavailableError
from srm.replication.driver import duties
from srm.replication.driver.duties import GroupDuty
from srm_lab.testing.fake_cluster import FakeCluster

GROUP = "billing"


class Lab:
    """Two sites, the duty of P->B, and the commits that it reads."""

    def __init__(self, sites: TwoSites) -> None:  # noqa: F811
        self.now = 0.0
        self.sites = sites
        self.charge = Charge()
        self.records: list[tuple[bytes, bytes | None]] = []
        self.opened: list[Mapping[TopicPartition, int]] = []
        self.failure: SrmError | None = None
        sites.change("P->B", emit_checkpoints_interval=timedelta(seconds=60))
        self.duty = self.new_duty()

    def new_duty(self) -> GroupDuty:
        driver, context = self.charge.as_driver(), self.sites.flow("P->B")
        return GroupDuty(driver, context, self.open, lambda: self.now)

    @contextmanager
    def open(self, starts: Mapping[TopicPartition, int]) -> Iterator[Lab]:
        self.opened.append(starts)
        yield self

    def poll(self, timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        self.now += timeout_s
        if self.failure is not None:
            raise self.failure
        found, self.records = self.records, []
        return found

    def follow(self) -> None:
        """Give the source the topic of commits, and emit all groups once."""
        self.sites.clusters["P"].add_topic(CONSUMER_OFFSETS, 2)
        self.duty.step()
        self.duty.step()

    def commit(
        self, offset: int, topic: str = "Payments", topic_id: str = "", group: str = GROUP
    ) -> None:
        self.sites.commit("P", group, topic, offset)
        tagged = b"\1\0\x10" + topic_id_bytes(topic_id) if topic_id else b"\0"
        record = value(offset, version=4, tagged=tagged)
        self.records.append((key(group, TopicPartition(topic, 0)), record))

    def steps(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            wait_s = self.duty.step()
            self.now += wait_s

    @property
    def emitted(self) -> int:
        return len(self.sites.clusters["B"].compacted_topic("P.checkpoints.internal").read())

    @property
    def place(self) -> int | None:
        return self.sites.committed("B", GROUP, "P.Payments")


@pytest.fixture
def lab(sites: TwoSites) -> Lab:  # noqa: F811
    return Lab(sites)


def test_checkpoints_come_at_their_interval_and_offsets_of_groups_after_them(lab: Lab) -> None:
    lab.sites.commit("P", GROUP, "Payments", 40)
    lab.duty.step()
    assert (lab.emitted, lab.place) == (1, 41)

    lab.sites.commit("P", GROUP, "Payments", 50)
    lab.now = 59.0
    lab.duty.step()
    assert lab.place == 41
    lab.now = 60.0
    lab.duty.step()
    assert lab.place == 51


def test_checkpoints_and_offsets_of_groups_come_from_one_look(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a group that sync writes or creates is read again, as it may have been deleted."""
    read: list[tuple[str, ...]] = []
    source = lab.sites.clusters["P"]
    commits_of = source.commits_of
    monkeypatch.setattr(source, "commits_of", lambda g: read.append(tuple(g)) or commits_of(g))
    lab.sites.commit("P", GROUP, "Payments", 40)

    lab.duty.step()

    assert (read, lab.emitted, lab.place) == ([(GROUP,)] * 3, 1, 41)

    lab.now = 60.0
    lab.duty.step()

    assert len(read) == 4


def test_offsets_of_groups_have_a_look_of_their_own_after_a_doubtful_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A translation that is wrong once only is of a log that has changed in between."""
    emit = duties.emission.emit

    def emit_doubtful(*given: Any, **named: Any) -> Any:
        emitted = emit(*given, **named)
        lab.sites.commit("P", GROUP, "Payments", 50)
        return replace(emitted, proof=replace(emitted.proof, withheld=1))

    monkeypatch.setattr(duties.emission, "emit", emit_doubtful)
    lab.sites.commit("P", GROUP, "Payments", 40)

    lab.duty.step()

    assert lab.place == 51


def test_a_group_that_the_target_hides_is_warned_about_once(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.sites.clusters["B"].hide_group(GROUP)
    lab.sites.commit("P", GROUP, "Payments", 40)
    for _ in range(3):
        lab.duty.step()
        lab.now += 60

    assert [r.getMessage() for r in caplog.records if GROUP in r.getMessage()] == [
        f"P->B: group {GROUP}: grant Describe on group {GROUP}"
    ]


def test_the_first_step_reads_the_tables_that_are_read_ahead(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = set[tuple[str, str, int]]()
    table_of = FakeCluster.compacted_topic

    def table(cluster: FakeCluster, topic: str, partition: int = 0) -> Any:
        found = table_of(cluster, topic, partition)
        rows = found.read_history

        def read_history() -> Any:
            read.add((cluster.alias, topic, partition))
            return rows()

        monkeypatch.setattr(found, "read_history", read_history)
        return found

    monkeypatch.setattr(FakeCluster, "compacted_topic", table)
    lab.sites.clusters["P"].add_topic(CONSUMER_OFFSETS, 1)
    lab.commit(40)

    lab.duty.step()

    ahead = tables_of(lab.duty.context.config)
    maps = ("B", "__srm-replication.P", REPORTS)  # which are read otherwise here
    assert lab.place == 41
    assert read | {maps} == {(alias, *place) for alias in "PB" for place in ahead[alias]}


def test_offsets_of_groups_have_an_interval_of_their_own_if_that_is_set(lab: Lab) -> None:
    lab.sites.change("P->B", sync_group_offsets_interval=timedelta(seconds=10))
    duty = lab.new_duty()
    duty.step()
    lab.sites.commit("P", GROUP, "Payments", 40)
    lab.now = 10.0

    duty.step()

    assert (lab.emitted, lab.place) == (0, 41)


@pytest.mark.parametrize(
    ("duties", "expected"),
    [
        ({"checkpoints", "topics"}, (1, None)),
        ({"group-offsets"}, (0, 41)),
        ({"topics"}, (0, None)),
    ],
)
def test_what_something_else_does_is_left_to_it(
    lab: Lab, duties: set[str], expected: tuple[int, int | None]
) -> None:
    lab.charge.duties = frozenset(duties)
    lab.follow()
    lab.commit(40)

    lab.steps(2)

    assert (lab.emitted, lab.place) == expected


def test_lists_of_srm_control_count_within_seconds(lab: Lab) -> None:
    lab.sites.change("P->B", groups=())
    lab.duty = lab.new_duty()
    lab.sites.commit("P", GROUP, "Payments", 40)
    lab.duty.step()
    assert lab.emitted == 0
    context = lab.sites.flow("P->B")
    ensure_compacted(context.target, internal_topics.control("P"), replication_factor=1)
    change = ListChange(add=(GROUP,))
    control_lists.change(context.target, context.config.flow, "groups", change, 1)

    lab.steps(4)

    assert (lab.emitted, lab.place) == (1, 41)


def test_a_commit_is_carried_over_as_it_comes(lab: Lab) -> None:
    lab.follow()
    assert lab.opened == [
        {TopicPartition(CONSUMER_OFFSETS, 0): 0, TopicPartition(CONSUMER_OFFSETS, 1): 0}
    ]
    assert COMMITS in lab.charge.duties

    lab.commit(40)
    lab.steps(2)

    assert (lab.emitted, lab.place) == (1, 41)


def test_groups_without_new_commits_are_not_read(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.sites.commit("P", "idle", "Payments", 10)
    lab.follow()
    read: list[tuple[str, ...]] = []
    source = lab.sites.clusters["P"]
    commits_of = source.commits_of
    monkeypatch.setattr(source, "commits_of", lambda g: read.append(tuple(g)) or commits_of(g))
    lab.commit(40)
    lab.commit(41)

    lab.steps(5)

    assert set(read) == {(GROUP,)}
    assert lab.place == 42


def test_a_commit_that_the_copy_has_not_reached_is_tried_again(lab: Lab) -> None:
    lab.follow()
    lab.sites.produce("P", 10)
    lab.commit(105)
    lab.steps(2)
    assert lab.place == 101, "so far as the copy is"

    lab.sites.copy("P->B")
    lab.steps(2)

    assert lab.place == 106


def test_a_commit_from_before_the_copy_began_is_there_soon_after_it_begins(sites: TwoSites) -> None:  # noqa: F811
    lab = Lab(sites)
    lab.sites.produce("P", 10)
    lab.sites.commit("P", GROUP, "Payments", 105)
    lab.follow()
    lab.steps(20)
    assert lab.place == 101

    lab.sites.copy("P->B")
    lab.steps(10)

    assert lab.place == 106, "within a half of the time that it has waited"


def test_a_commit_waits_for_a_copy_that_does_not_exist_yet(lab: Lab) -> None:
    lab.follow()
    lab.sites.clusters["B"].delete_topic("P.Payments")
    lab.commit(40)
    lab.steps(3)
    assert lab.place is None

    lab.sites.clusters["B"].add_topic("P.Payments")
    lab.sites.clusters["B"].produce("P.Payments", 0, 101)
    lab.steps(3)

    assert lab.place == 41


def test_hundreds_of_groups_do_not_hold_up_the_next_commit(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent_s, source = 0.0, lab.sites.clusters["P"]
    commits_of = source.commits_of

    def costly(groups: Collection[str]) -> Any:
        nonlocal spent_s
        spent_s += 0.02 + 0.0015 * len(groups)
        return commits_of(groups)

    monkeypatch.setattr(source, "commits_of", costly)
    monkeypatch.setattr(duties.time, "thread_time", lambda: spent_s)
    lab.follow()
    for number in range(400):
        lab.commit(number % 100, group=f"g{number}")
    lab.steps(2)
    lab.commit(40)

    lab.steps(3)

    assert lab.place == 41


def test_a_commit_in_a_former_topic_of_the_name_is_dropped(lab: Lab) -> None:
    lab.follow()
    lab.commit(40, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    lab.steps(2)
    assert (lab.emitted, lab.place) == (0, None)

    lab.commit(41, topic_id=lab.sites.clusters["P"].topics()["Payments"].topic_id)
    lab.steps(2)
    assert (lab.emitted, lab.place) == (1, 42)


def test_commits_from_before_the_log_is_read_are_carried_over_at_once(lab: Lab) -> None:
    lab.duty.step()
    lab.sites.commit("P", GROUP, "Payments", 40)
    lab.sites.clusters["P"].add_topic(CONSUMER_OFFSETS, 1)

    lab.steps(2)

    assert lab.place == 41


def test_a_source_that_does_not_show_its_commits_has_the_interval(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = lab.sites.clusters["P"]
    cluster.add_topic(CONSUMER_OFFSETS, 1)
    cluster.rights.take("Read", CONSUMER_OFFSETS)
    lab.steps(30)
    lab.sites.commit("P", GROUP, "Payments", 40)
    lab.steps(25)

    assert (lab.opened, lab.place) == ([], None)
    assert COMMITS not in lab.charge.duties
    [said] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert said == (
        "P->B: commits on P are translated every 60 s, not at once: "
        + grant("Read", CONSUMER_OFFSETS, "P")
    )
    lab.steps(10)
    assert lab.place == 41


def test_a_right_that_is_withdrawn_ends_it_and_a_failure_begins_it_again(lab: Lab) -> None:
    lab.follow()
    lab.failure = AuthorizationError("not allowed")
    lab.duty.step()
    assert COMMITS not in lab.charge.duties

    lab.failure = None
    lab.steps(12)
    assert COMMITS in lab.charge.duties
    lab.failure = UnavailableError("no broker answers")
    with pytest.raises(UnavailableError):
        lab.steps(2)
    assert COMMITS not in lab.charge.duties
    lab.failure = None
    lab.steps(12)
    assert len(lab.opened) == 3


def test_where_both_flows_copy_into_one_name_no_record_of_the_target_is_skipped(
    tmp_path: Path,
) -> None:
    one = OneName(tmp_path)
    one.record(THERE, BACK)
    one.commit(100)
    duty = GroupDuty(Charge().as_driver(), one.context(), no_commits, lambda: 0.0)

    duty.step()

    assert one.synced == 0


@contextmanager
def no_commits(_starts: Mapping[TopicPartition, int]) -> Iterator[Any]:
    yield None
