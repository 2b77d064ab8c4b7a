"""Offsets and members of the groups of one cluster."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from srm.domain.topics import TopicPartition
from srm.errors import GroupActiveError, SrmError, UsageError
from srm.kafka.clients import Clients
from srm.kafka.errors import of_code, translate
from srm.kafka.group_descriptions import coordinator
from srm.kafka.rights import Needs, on_group, on_topic
from srm.kafka.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.group_messages import FETCH_OFFSETS, LEAVE_GROUP

_UNSTABLE_WAIT_S: Final = 2.0
_REMOVED: Final = "removed by srm for a move"
_UNKNOWN_MEMBER: Final = 25
_GONE: Final = frozenset({_UNKNOWN_MEMBER, KafkaError.GROUP_ID_NOT_FOUND})


def committed(clients: Clients, group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group; an absent group has none.

    Offsets committed in a transaction become visible a moment after the transaction has ended:
    its markers are written asynchronously. So pending offsets are waited for, shortly. If they
    stay pending the transaction is still open, and the offsets before it are the committed ones.
    """
    deadline = time.monotonic() + _UNSTABLE_WAIT_S
    doing = f"reading offsets of group {group!r}"

    def request(timeout_s: float) -> dict[TopicPartition, int]:
        stable = time.monotonic() < deadline
        futures = clients.admin().list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=stable, request_timeout=timeout_s
        )
        answers = futures[group].result().topic_partitions or []
        offsets: dict[TopicPartition, int] = {}
        for answer in answers:
            if answer.error is not None:
                where = f"{clients.where(doing)}: {_place(answer)}"
                raise translate(answer.error, where, on_topic("Describe", answer.topic))
            if answer.offset >= 0:
                offsets[TopicPartition(answer.topic, answer.partition)] = answer.offset
        return offsets

    return clients.call(doing, request, on_group("Describe", group))


def pending(
    clients: Clients, group: str, also: Collection[TopicPartition]
) -> frozenset[TopicPartition]:
    """Return the partitions for which a transaction that commits offsets is undecided.

    Asked for all partitions, brokers name only those that have a committed offset already; so
    the others are asked for by name.
    """
    doing = f"reading offsets of group {group!r}"
    needs = on_group("Describe", group)
    named: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(set(also)):
        named[partition.topic].append(partition.partition)

    async def request(brokers: Brokers) -> frozenset[TopicPartition]:
        node = await coordinator(clients, brokers, group)
        undecided: set[TopicPartition] = set()
        for topics in [None, list(named.items())] if named else [None]:
            asked = FETCH_OFFSETS([(group, topics)], True)  # noqa: FBT003 - a field of the message
            answer = await brokers.ask(node, asked)
            undecided.update(_undecided(answer["groups"][0], clients.where(doing), needs))
        return frozenset(undecided)

    return clients.ask(doing, request, needs)


def _undecided(answer: Mapping[str, Any], where: str, needs: Needs) -> Iterator[TopicPartition]:
    if answer["error_code"] not in {0, KafkaError.GROUP_ID_NOT_FOUND}:
        raise of_code(answer["error_code"], where, needs)
    for topic in answer["topics"]:
        for found in topic["partitions"]:
            if found["error_code"] == KafkaError.UNSTABLE_OFFSET_COMMIT:
                yield TopicPartition(topic["topic"], found["partition"])
            elif found["error_code"] not in {0, *UNKNOWN_TOPIC_CODES}:
                raise of_code(found["error_code"], where, on_topic("Describe", topic["topic"]))


def remove_static(clients: Clients, group: str, instance_ids: Collection[str]) -> None:
    """Remove members by their instance ids; see the engine's port (KIP-345, KIP-800)."""
    doing = f"removing static members of group {group!r}"
    needs = on_group("Read", group)

    async def request(brokers: Brokers) -> None:
        node = await coordinator(clients, brokers, group)
        members = [("", instance_id, _REMOVED) for instance_id in sorted(set(instance_ids))]
        answer = await brokers.ask(node, LEAVE_GROUP(group, members))
        for code in (answer["error_code"], *[m["error_code"] for m in answer["members"]]):
            if code and code not in _GONE:
                raise of_code(code, clients.where(doing), needs)

    if instance_ids:
        clients.ask(doing, request, needs)


def commit_idle(clients: Clients, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets of a group without members; the broker refuses them if there are members.

    Raises:
        GroupActiveError: the group has members.
    """
    if not offsets:
        return
    negative = [str(partition) for partition, offset in offsets.items() if offset < 0]
    if negative:
        raise UsageError(f"group {group!r}: negative offset for {', '.join(sorted(negative))}")
    wanted = [KafkaTopicPartition(p.topic, p.partition, o) for p, o in sorted(offsets.items())]
    doing = f"writing offsets of group {group!r}"

    def request(timeout_s: float) -> None:
        futures = clients.admin().alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=timeout_s
        )
        answers = futures[group].result().topic_partitions or []
        failed = [answer for answer in answers if answer.error is not None]
        if failed:
            raise _refused(clients.where(doing), group, failed)

    clients.call(doing, request, on_group("Read", group))


def _place(answer: KafkaTopicPartition) -> str:
    return f"{answer.topic}-{answer.partition}"


def _refused(where: str, group: str, failed: list[KafkaTopicPartition]) -> SrmError:
    """Make one error of the partitions that were refused; members matter most."""
    needs = {**on_group("Read", group), **on_topic("Read", *{a.topic for a in failed})}
    reasons = [(_place(a), translate(a.error, where, needs)) for a in failed]
    first = min(
        (error for _, error in reasons),
        key=lambda error: (not isinstance(error, GroupActiveError), error.retriable),
    )
    return type(first)(f"{first}; partitions: {', '.join(name for name, _ in reasons)}")
