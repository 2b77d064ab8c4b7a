"""Translated offsets as CSV for kafka-consumer-groups."""

from __future__ import annotations

import pytest

from srm.domain.groups.mm2_records import Checkpoint, ConnectOffset
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.groups.offsets_export import (
    checkpoints,
    read_mm2_positions,
    to_csv,
    write_mm2_positions,
)
from srm.errors import NotFoundError
from srm_lab.testing.fake_cluster import FakeCluster

FLOW = Flow("P", "B")


def cluster_with(*records: Checkpoint, separator: str = ".") -> FakeCluster:
    target = FakeCluster("B")
    topic = internal_topics.checkpoints("P", separator)
    target.add_topic(topic)
    for name in {record.topic_partition.topic for record in records}:
        target.add_topic(name, 11)
        for number in range(11):
            target.produce(name, number, 20)
    for record in records:
        target.compacted_topic(topic).write({record.key(): record.value()})
    return target


def checkpoint(group: str, topic: str, partition: int, offset: int) -> Checkpoint:
    return Checkpoint(group, TopicPartition(topic, partition), offset + 1000, offset)


def test_one_group_has_three_columns_and_the_offsets_of_the_target() -> None:
    target = cluster_with(
        checkpoint("g", "P.Payments", 10, 7),
        checkpoint("g", "P.Payments", 2, 5),
        checkpoint("other", "P.Payments", 0, 1),
    )

    text = to_csv(checkpoints(target, FLOW, "g"), with_group=False)

    assert text == "P.Payments,2,5\nP.Payments,10,7\n"


def test_all_groups_have_four_columns() -> None:
    target = cluster_with(checkpoint("h", "t", 0, 1), checkpoint("g", "t", 0, 2))

    assert to_csv(checkpoints(target, FLOW), with_group=True) == "g,t,0,2\nh,t,0,1\n"


def test_the_latest_checkpoint_of_a_partition_counts() -> None:
    target = cluster_with(checkpoint("g", "t", 0, 9), checkpoint("g", "t", 0, 3))

    assert [c.downstream_offset for c in checkpoints(target, FLOW)] == [3]


def test_a_group_name_with_a_comma_is_quoted() -> None:
    target = cluster_with(checkpoint('a,"b"', "t", 0, 1))

    assert to_csv(checkpoints(target, FLOW), with_group=True) == '"a,""b""",t,0,1\n'


def test_the_topic_follows_the_separator_of_the_policy() -> None:
    target = cluster_with(checkpoint("g", "t", 0, 1), separator="_")

    assert len(checkpoints(target, FLOW, separator="_")) == 1


def test_a_record_that_is_no_checkpoint_is_skipped() -> None:
    target = cluster_with(checkpoint("g", "t", 0, 1))
    target.compacted_topic(internal_topics.checkpoints("P")).write({b"x": b"y"})

    assert len(checkpoints(target, FLOW)) == 1


def test_an_unknown_group_is_answered_with_those_there_are() -> None:
    target = cluster_with(*(checkpoint(f"g{number}", "t", 0, 1) for number in range(10)))

    with pytest.raises(NotFoundError, match=r"no checkpoint of group 'x'.* g0, g1.* and 2 more"):
        checkpoints(target, FLOW, "x")


def test_no_checkpoints_at_all_are_not_an_empty_file() -> None:
    with pytest.raises(NotFoundError, match=r"P\.checkpoints\.internal on cluster B holds no"):
        checkpoints(FakeCluster("B"), FLOW)


def test_each_connector_of_the_flow_continues_at_the_position_that_is_written() -> None:
    target, topic, place = FakeCluster("B"), "connect-offsets", TopicPartition("Payments", 0)
    target.add_topic(topic, 3)
    for number, (name, offset) in enumerate((("of-2024", 500), ("of-2026", 300))):
        stored = ConnectOffset(name, "P", place, offset)
        target.compacted_topic(topic, number).write({stored.key(): stored.value()})

    write_mm2_positions(target, topic, FLOW, {place: 901, TopicPartition("Orders", 0): 7})

    found = {
        (one.connector, one.partition.topic): one.offset
        for number in range(3)
        for key, value in target.compacted_topic(topic, number).read().items()
        if (one := ConnectOffset.decode(key, value)) is not None
    }
    written = {"Payments": 900, "Orders": 6}
    names = "of-2024", "of-2026"
    assert found == {(name, at): n for name in names for at, n in written.items()}
    assert read_mm2_positions(target, topic, FLOW)[place] == 900
