"""Offsets and messages are those of one stay, and of the partitions a member has."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from srm.client.membership import Membership


class Native:
    """What a member asks of confluent-kafka's consumer, from lists."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.stored: list[TopicPartition] = []
        self.commits_by_itself = False
        self.committed_offsets: dict[tuple[str, int], int] = {}
        self.positions: dict[int, int] = {}

    def consume(self, count: int, _timeout: float) -> list[Message]:
        found, self.messages = self.messages[:count], self.messages[count:]
        return found

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(p.topic, p.partition, self.positions[p.partition]) for p in partitions
        ]

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored += offsets

    def commit(
        self, *, asynchronous: bool, offsets: list[TopicPartition] | None = None
    ) -> list[TopicPartition]:
        assert not asynchronous
        if offsets is None and self.commits_by_itself:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))
        return self.stored if offsets is None else offsets

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        offsets = self.committed_offsets
        return [
            TopicPartition(p.topic, p.partition, offsets.get((p.topic, p.partition), -1001))
            for p in partitions
        ]


def message(partition: int, offset: int) -> Message:
    return Message(topic="T", partition=partition, offset=offset, value=b"v")


def member(*messages: Message, commits: bool = True) -> tuple[Membership, Any]:
    native = Native(list(messages))
    made = Membership(native, "P", 1, "g", commits=commits)
    made.gain([TopicPartition("T", 0), TopicPartition("T", 1)])
    return made, native


def test_messages_of_a_partition_that_is_lost_while_a_batch_fills_are_not_handed_over() -> None:
    """Whoever has the partition next reads them; with this member twice, were they kept."""
    made, _ = member(message(0, 5), message(1, 7), message(0, 6))
    made.fetch(3, 0.0)
    made.lose([TopicPartition("T", 0)])

    assert [(m.partition(), m.offset()) for m in made.take(3)] == [(1, 7)]
    assert not made.has_handed_over([TopicPartition("T", 0, 6)])
    assert made.has_handed_over([TopicPartition("T", 1, 8)])
    assert not made.has_handed_over([TopicPartition("T", 1, 9)])


def test_a_position_is_after_the_last_message_handed_over_not_after_a_marker() -> None:
    """Librdkafka's is after both, and a commit of it would pass for one of an earlier stay."""
    made, native = member(message(0, 5), message(1, 7))
    made.fetch(2, 0.0)
    made.take(1)
    native.positions = {0: 7, 1: 8}
    positions = made.position([TopicPartition("T", 0), TopicPartition("T", 1)])

    assert [one.offset for one in positions] == [6, OFFSET_INVALID]
    assert made.has_handed_over(positions)


def test_the_last_message_of_each_partition_is_stored_and_what_others_have_is_lost() -> None:
    made, native = member(*(message(p, o) for o in (1, 2) for p in (0, 1)))
    made.fetch(4, 0.0)
    batch = made.take(4)
    made.lose([TopicPartition("T", 1)])

    assert made.process(batch) == {"T-1": 2}
    assert [(p.partition, p.offset) for p in native.stored] == [(0, 3)]


def test_an_earlier_message_does_not_take_a_partition_back() -> None:
    made, native = member(message(0, 1), message(0, 2))
    made.fetch(2, 0.0)
    first, second = made.take(2)
    made.process([second])
    made.process([first])

    assert [p.offset for p in native.stored] == [3]


def test_what_is_not_committed_is_counted_from_what_was_processed_or_handed_over() -> None:
    places = [TopicPartition("T", 0), TopicPartition("T", 1)]
    for commits, count in ((True, 1), (False, 3)):
        made, native = member(*(message(0, o) for o in range(5)), commits=commits)
        made.fetch(5, 0.0)
        batch = made.take(5)
        made.process(batch[:3])
        native.committed_offsets = {("T", 0): 2}

        assert made.count_uncommitted(places) == {"T-0": count}


def test_a_store_that_fails_for_want_of_the_partition_is_no_error() -> None:
    made, native = member(message(0, 1), message(0, 2))
    made.fetch(2, 0.0)

    def refuse(**_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))

    native.store_offsets = refuse
    assert made.process(made.take(2)) == {}


def test_what_was_processed_since_the_last_known_commit_is_counted_without_asking() -> None:
    made, native = member(*(message(0, o) for o in range(40, 45)), message(1, 7))
    made.fetch(6, 0.0)
    batch = made.take(6)
    made.process(batch[:2])
    made.commit()
    made.process(batch[2:4])
    native.committed = None

    assert made.count_unconfirmed(made.assignment) == {"T-0": 2}
    made.process(batch[5:])
    assert made.count_unconfirmed(made.assignment) == {"T-0": 2, "T-1": 1}
    made.confirm([TopicPartition("T", 0, 44)])
    assert made.count_unconfirmed(made.assignment) == {"T-1": 1}


def test_what_could_not_be_committed_at_a_rebalance_is_remembered_until_it_is_read_again() -> None:
    made, _ = member(message(0, 40), message(1, 7))
    made.fetch(2, 0.0)
    made.process(made.take(2))
    made.lose_unsure(made.assignment)

    assert made.assignment == []
    assert made.unsure == {"T-0": 1, "T-1": 1}
    made.gain([TopicPartition("T", 1)])
    assert made.unsure == {"T-0": 1}


def test_what_an_automatic_commit_took_along_is_committed_before_a_commit_returns() -> None:
    made, native = member(message(0, 40), message(1, 7))
    native.commits_by_itself = True
    with pytest.raises(KafkaException):
        made.commit()
    made.fetch(2, 0.0)
    made.process(made.take(2))
    made.confirm([TopicPartition("T", 0, 41)])

    assert [(one.partition, one.offset) for one in made.commit()] == [(1, 8)]
    with pytest.raises(KafkaException):
        made.commit()
