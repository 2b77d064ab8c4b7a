"""What the driver deletes of a flow's state: only what can be of no more use."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.replication.driving import STATE, TARGET_ID, TOPIC_ID, Lab

from srm.domain.flow_state.replication_records import (
    COMMANDS,
    REPORTS,
    AssignedPartition,
    Incarnation,
    PartitionNotes,
    PartitionPosition,
    PartitionStatus,
)
from srm.domain.flow_state.replication_state import CopiedTopic, GoneTopics
from srm.domain.names.topics import topic_id_text
from srm.domain.offset_map.offset_map import Position
from srm.engine.cluster_ports import TopicDescription
from srm.replication.driver.discovery import GONE_S, Discovered, GoneWatch, Side

OTHER_ID = topic_id_text(bytes([7]) * 16)
SECOND = Incarnation(2, "bb")


def position(at: int, epoch: int = 0, number: int = 0, **changes: str) -> PartitionPosition:
    entry = PartitionPosition(TOPIC_ID, number, TARGET_ID, Position(at, at, at), 7, epoch)
    return replace(entry, **changes)  # type: ignore[arg-type]


def copying(*topics: tuple[str, str, str]) -> Discovered:
    partitions = tuple(
        AssignedPartition(name, 0, source, f"P.{name}", target) for name, source, target in topics
    )
    return Discovered(partitions, (), "cluster-p", "cluster-b")


ORDERS = ("orders", TOPIC_ID, TARGET_ID)


class Cleaned(Lab):
    """A driver, and what is gone as the test has it."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = GoneTopics()
        self.only = self.driver(slots=2)
        self.only.discovered = copying(ORDERS)

    def run(self, seconds: int = 12) -> None:
        for _ in range(seconds):
            self.second(self.only, "0", "1")
            self.only._term.cleaning.look(lambda _copied: self.gone, self.only._clear)

    def status(self, topic: str) -> None:
        status = PartitionStatus(topic, 0, "copying")
        self.topic.append(status.key(), status.value(), partition=REPORTS)

    def note(self, topic: str, topic_id: str) -> bytes:
        notes = PartitionNotes("0", topic, 0, topic_id).with_loss(0, 1, "gone", 0)
        self.topic.append(notes.key(), notes.value(), partition=REPORTS)
        return notes.key()


@pytest.fixture
def lab() -> Cleaned:
    return Cleaned()


def test_the_last_position_of_a_partition_that_left_stays_until_its_new_owner_tells_as_much(
    lab: Cleaned,
) -> None:
    left = lab.tell("0", position(100, epoch=3), name="left-0")
    lab.tell("1", position(90, epoch=2))
    lab.run()
    assert left in lab.topic.standing()

    lab.tell("1", position(90, epoch=4))
    lab.run()

    assert left not in lab.topic.standing()
    assert b"slot:1:1-aa:0" in lab.topic.standing()


def test_a_dead_process_is_forgotten_once_its_successor_tells_all_that_it_told(
    lab: Cleaned,
) -> None:
    first = lab.tell("0", position(100), position(50, number=1))
    for _ in range(6):
        lab.beat("0", SECOND)
        lab.run(1)
    lab.tell("0", position(100), incarnation=SECOND)
    lab.beat("0", SECOND)
    lab.run()
    assert first in lab.topic.standing()

    lab.tell("0", position(100), position(51, number=1), incarnation=SECOND)
    lab.second(lab.only)
    for _ in range(12):
        lab.second(lab.only, "1")

    assert first not in lab.topic.standing()
    assert b"slot:0:1-aa" not in lab.topic.standing()
    assert b"slot:0:2-bb" in lab.topic.standing()


def test_slots_that_are_no_more_are_forgotten_once_others_tell_their_positions(
    lab: Cleaned,
) -> None:
    lab.beat("7")
    gone = lab.tell("7", position(100))
    lab.run()
    assert gone in lab.topic.standing()

    lab.tell("1", position(100))
    lab.run()

    assert gone not in lab.topic.standing()
    assert b"slot:7:1-aa" not in lab.topic.standing()


def test_of_a_topic_that_is_gone_on_both_sides_nothing_is_left(lab: Cleaned) -> None:
    lab.run(2)
    [record] = [key for key in lab.topic.standing(COMMANDS) if key.startswith(b"copied:")]
    left = lab.tell("0", position(100), name="left-0")
    lab.status("orders")
    note = lab.note("orders", TOPIC_ID)
    lab.only.discovered = Discovered((), (), "cluster-p", "cluster-b")
    lab.run()
    assert {left, note, b"status:orders-0"} <= set(lab.topic.standing())

    lab.gone = GoneTopics(frozenset({TOPIC_ID}), frozenset({TARGET_ID}))
    lab.run(20)

    assert not {left, note, b"status:orders-0"} & set(lab.topic.standing())
    assert [topic.topic for topic in lab.topic.cleared] == ["orders"]
    assert record not in lab.topic.standing(COMMANDS)


def test_a_pair_of_topics_says_whether_it_is_copied_now(lab: Cleaned) -> None:
    def active() -> list[bool]:
        rows = {one.key: one.value for one in lab.topic.records if one.partition == COMMANDS}
        pairs = (value for key, value in rows.items() if key.startswith(b"copied:"))
        return [CopiedTopic.decode(value or b"").active for value in pairs]

    lab.run(2)
    assert active() == [True]

    lab.only.discovered = Discovered((), (), "cluster-p", "cluster-b")
    lab.run(2)
    assert active() == [False]

    lab.only.discovered = copying(ORDERS)
    lab.run(2)
    assert active() == [True]


def test_a_decision_about_records_of_others_goes_with_the_remote_topic_that_held_them(
    lab: Cleaned,
) -> None:
    lab.run(2)
    of_topic = lab.note("orders", TOPIC_ID)
    decided = PartitionNotes.after_others(lab.only.discovered.partitions[0], "ann", 0)
    lab.topic.append(decided.key(), decided.value())
    lab.run()
    assert decided.key() in lab.topic.standing(COMMANDS)

    lab.gone = GoneTopics(target=frozenset({TARGET_ID}))
    lab.only.discovered = copying(("orders", TOPIC_ID, OTHER_ID))
    lab.run(20)

    assert decided.key() not in lab.topic.standing(COMMANDS)
    assert of_topic in lab.topic.standing()


def test_while_the_remote_topic_stands_the_next_self_of_a_topic_can_find_where_the_copy_ends(
    lab: Cleaned,
) -> None:
    lab.run(2)
    left = lab.tell("0", position(100), name="left-0")
    lab.status("orders")
    lab.gone = GoneTopics(source=frozenset({TOPIC_ID}))
    lab.only.discovered = copying(("orders", OTHER_ID, TARGET_ID))
    lab.run(20)
    assert left in lab.topic.standing()
    assert b"status:orders-0" in lab.topic.standing()
    assert lab.topic.cleared == []

    lab.tell("1", position(5, topic_id=OTHER_ID))
    lab.run(20)

    assert left not in lab.topic.standing()
    assert [topic.topic_id for topic in lab.topic.cleared] == [TOPIC_ID]
    assert lab.discovery.forgotten == lab.topic.cleared
    records = [key for key in lab.topic.standing(COMMANDS) if key.startswith(b"copied:")]
    assert records == [f"copied:{OTHER_ID}:{TARGET_ID}".encode()]


def test_a_former_remote_topic_stays_known_until_the_next_one_is_claimed(lab: Cleaned) -> None:
    """A batch to it may still reach the next one by name: reports tell whose it is."""
    lab.run(2)
    left = lab.tell("0", position(100), name="left-0")
    lab.gone = GoneTopics(target=frozenset({TARGET_ID}))
    lab.only.discovered = copying(("orders", TOPIC_ID, OTHER_ID))
    lab.run(20)
    assert left in lab.topic.standing()

    begun = replace(position(0, target_topic_id=OTHER_ID), producer_id=-1, producer_epoch=-1)
    lab.tell("1", begun)
    lab.run(20)
    assert left in lab.topic.standing()
    assert lab.topic.cleared == []

    lab.tell("1", position(1, target_topic_id=OTHER_ID))
    lab.run(20)

    assert left not in lab.topic.standing()
    assert [topic.target_topic_id for topic in lab.topic.cleared] == [TARGET_ID]
    records = [key for key in lab.topic.standing(COMMANDS) if key.startswith(b"copied:")]
    assert records == [f"copied:{TOPIC_ID}:{OTHER_ID}".encode()]


def test_a_remote_topic_that_is_not_created_again_is_forgotten_with_its_source(
    lab: Cleaned,
) -> None:
    lab.run(2)
    left = lab.tell("0", position(100), name="left-0")
    lab.gone = GoneTopics(target=frozenset({TARGET_ID}))
    lab.only.discovered = Discovered((), (), "cluster-p", "cluster-b")
    lab.run(20)
    assert left in lab.topic.standing()

    lab.gone = GoneTopics(frozenset({TOPIC_ID}), frozenset({TARGET_ID}))
    lab.run(20)

    assert left not in lab.topic.standing()
    assert [topic.topic_id for topic in lab.topic.cleared] == [TOPIC_ID]
    assert not [key for key in lab.topic.standing(COMMANDS) if key.startswith(b"copied:")]


def test_a_driver_that_is_killed_before_the_map_is_deleted_has_the_next_one_do_it(
    lab: Cleaned,
) -> None:
    lab.run(2)
    lab.gone = GoneTopics(frozenset({TOPIC_ID}), frozenset({TARGET_ID}))
    lab.only.discovered = Discovered((), (), "cluster-p", "cluster-b")
    lab.only = lab.driver("second")
    lab.only.discovered = Discovered((), (), "cluster-p", "cluster-b")

    lab.run(20)

    assert [topic.topic for topic in lab.topic.cleared] == ["orders"]
    assert not [key for key in lab.topic.standing(COMMANDS) if key.startswith(b"copied:")]


def test_damaged_records_are_skipped_by_a_driver_that_starts_and_by_one_that_runs(
    lab: Cleaned,
) -> None:
    def damage() -> None:
        for partition, key in (
            (COMMANDS, b"assignment:0"),
            (COMMANDS, b"copied:x"),
            (COMMANDS, b"slot:5"),
            (REPORTS, b"slot:0:1-aa:9"),
            (REPORTS, b"slot:1:1-aa"),
            (REPORTS, b"status:orders-1"),
            (REPORTS, b"notes:0:orders-1"),
        ):
            lab.topic.append(key, b"\x04damaged", partition=partition)

    lab.run(2)
    damage()
    lab.run(2)
    damage()
    lab.topic.append(b"driver", b"damaged")

    lab.only = lab.driver("second")
    lab.only.discovered = copying(ORDERS)
    lab.run(2)

    assert lab.topic.records[-1].topic == STATE
    assert len(lab.only.discovered.partitions) == 1
    told = lab.topic.assignments
    assert sum(len(found.partitions) for found in told().values()) == 1


COPIED = CopiedTopic("orders", TOPIC_ID, "P.orders", TARGET_ID, "cluster-p", "cluster-b")


class Watched:
    """A watch over clusters that the test describes, on its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watch = GoneWatch(lambda: self.now)

    def look(
        self,
        after_s: float,
        source: str | None = None,
        target: str | None = TARGET_ID,
        *,
        cluster: str = "cluster-p",
        hidden: bool = False,
    ) -> GoneTopics:
        self.now += after_s
        sources = {"orders": TopicDescription("orders", source, 1)} if source else {}
        targets = {"P.orders": TopicDescription("P.orders", target, 1)} if target else {}
        return self.watch.look(
            [COPIED],
            Side(cluster, sources, lambda _topic: hidden),
            Side("cluster-b", targets, lambda _topic: hidden),
        )


def test_a_topic_is_gone_after_it_was_missing_for_long_in_several_looks() -> None:
    watched = Watched()

    assert watched.look(0) == watched.look(GONE_S) == GoneTopics()
    assert watched.look(1) == GoneTopics(source=frozenset({TOPIC_ID}))
    assert watched.look(0, target=None).target == frozenset()


def test_a_topic_is_forgotten_once_its_record_is_deleted() -> None:
    """Topics come and go for years: the driver keeps none that no record names any more."""
    watched = Watched()
    for _ in range(3):
        watched.look(GONE_S, target=None)
    no_topics = Side("cluster-p", {}, bool)

    watched.watch.look([], no_topics, no_topics)

    assert not watched.watch._missed


def test_a_topic_that_is_invisible_for_a_moment_is_not_gone() -> None:
    watched = Watched()
    for _ in range(5):
        watched.look(GONE_S / 2)
        assert watched.look(1, source=TOPIC_ID) == GoneTopics()
    assert watched.look(GONE_S / 2) == GoneTopics()


def test_a_topic_that_srm_may_not_see_is_not_gone_unless_its_name_has_another_id() -> None:
    watched = Watched()
    for _ in range(5):
        assert watched.look(GONE_S, hidden=True) == GoneTopics()

    assert watched.look(1, OTHER_ID, hidden=True) == GoneTopics(source=frozenset({TOPIC_ID}))


def test_a_topic_is_not_gone_because_the_address_leads_to_another_cluster() -> None:
    watched = Watched()

    for _ in range(5):
        assert watched.look(GONE_S, cluster="rebuilt") == GoneTopics()
