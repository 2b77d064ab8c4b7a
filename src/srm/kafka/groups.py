"""Offsets and members of the groups of one cluster."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from srm.domain.topics import TopicPartition
from srm.errors import GroupActiveError, SrmError, UsageError
from srm.kafka.clients import Clients, answer_of
from srm.kafka.errors import of_code, translate
from srm.kafka.group_descriptions import coordinator
from srm.kafka.rights import Needs, on_group, on_topic
from srm.kafka.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.group_messages import (
    DESCRIBE_CLASSIC,
    DESCRIBE_CONSUMER,
    FETCH_OFFSETS,
    LEAVE_GROUP,
)

_UNSTABLE_WAIT_S: Final = 2.0
_REMOVED: Final = "removed by srm for a move"
_ENDED: Final = "its program has ended"
_UNKNOWN_MEMBER: Final = 25
_UNSTABLE: Final = 88
_GONE: Final = frozenset(
    {_UNKNOWN_MEMBER, KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNSUPPORTED_VERSION}
)
"""The member or the group is absent, or the broker has no groups of that kind."""
_NO_GROUP: Final = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError._UNKNOWN_GROUP})  # noqa: SLF001 - local code


def committed(clients: Clients, group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group; an absent group has none.

    Offsets committed in a transaction become visible a moment after the transaction has ended:
    its markers are written asynchronously. So pending offsets are waited for, shortly. If they
    stay pending the transaction is still open, and the offsets before it are the committed ones.

    Not by librdkafka's admin client: some errors in the answer end the process (SIGSEGV in
    rd_kafka_cgrp_op, called by rd_kafka_handle_OffsetFetch; seen while a new cluster was creating
    its offsets topic).
    """
    deadline = time.monotonic() + _UNSTABLE_WAIT_S

    async def request(brokers: Brokers) -> dict[TopicPartition, int]:
        stable = time.monotonic() < deadline
        found = await _fetch_commits(clients, brokers, group, stable=stable)
        for place, _, code in found:
            if code:
                where = clients.where(f"{_reading(group)}: {place}")
                raise of_code(code, where, on_topic("Describe", place.topic))
        return {place: offset for place, offset, _ in found if offset >= 0}

    return clients.ask(_reading(group), request)


def pending(
    clients: Clients, group: str, also: Collection[TopicPartition]
) -> frozenset[TopicPartition]:
    """Return the partitions for which a transaction that commits offsets is undecided.

    Asked for all partitions, brokers name only those that have a committed offset already; so
    the others are asked for by name.
    """
    named: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(set(also)):
        named[partition.topic].append(partition.partition)

    async def request(brokers: Brokers) -> frozenset[TopicPartition]:
        found = await _fetch_commits(clients, brokers, group, stable=True)
        if named:
            found += await _fetch_commits(clients, brokers, group, list(named.items()), stable=True)
        for place, _, code in found:
            if code not in {0, _UNSTABLE, *UNKNOWN_TOPIC_CODES}:
                where = clients.where(f"{_reading(group)}: {place}")
                raise of_code(code, where, on_topic("Describe", place.topic))
        return frozenset(place for place, _, code in found if code == _UNSTABLE)

    return clients.ask(_reading(group), request)


def _reading(group: str) -> str:
    return f"reading offsets of group {group!r}"


async def _fetch_commits(
    clients: Clients,
    brokers: Brokers,
    group: str,
    topics: list[tuple[str, list[int]]] | None = None,
    *,
    stable: bool,
) -> list[tuple[TopicPartition, int, int]]:
    """Return offsets and error codes, of all partitions where no topics are given."""
    async with coordinator(clients, brokers, group) as node:
        answer = await brokers.ask(node, FETCH_OFFSETS([(group, topics)], stable))
        [found] = answer["groups"]
        if found["error_code"] not in {0, KafkaError.GROUP_ID_NOT_FOUND}:
            where = clients.where(_reading(group))
            raise of_code(found["error_code"], where, on_group("Describe", group))
        return [
            (TopicPartition(topic["topic"], p["partition"]), p["offset"], p["error_code"])
            for topic in found["topics"]
            for p in topic["partitions"]
        ]


def remove_static(clients: Clients, group: str, instance_ids: Collection[str]) -> None:
    """Remove members by their instance ids; see the engine's port (KIP-345, KIP-800)."""
    doing = f"removing static members of group {group!r}"
    needs = on_group("Read", group)

    async def request(brokers: Brokers) -> None:
        members = [("", instance_id, _REMOVED) for instance_id in sorted(set(instance_ids))]
        async with coordinator(clients, brokers, group) as node:
            answer = await brokers.ask(node, LEAVE_GROUP(group, members))
            _check_all([answer, *answer["members"]], clients.where(doing), needs)

    if instance_ids:
        clients.ask(doing, request, needs)


def remove_members(clients: Clients, group: str, goes: Callable[[str], bool]) -> None:
    """Remove the members whose client id is chosen; who is gone already does not matter.

    For members of which nobody is alive: the group waits for their session otherwise. One that is
    alive after all joins again.
    """
    doing = f"removing members of group {group!r}"
    needs = on_group("Read", group)

    async def request(brokers: Brokers) -> None:
        async with coordinator(clients, brokers, group) as node:
            members = []
            for describe in (DESCRIBE_CLASSIC, DESCRIBE_CONSUMER):
                question = describe([group], False)  # noqa: FBT003 - a field of the message
                if await brokers.serves(node, question):
                    [found] = (await brokers.ask(node, question))["groups"]
                    _check_all([found], clients.where(doing), on_group("Describe", group))
                    members += [m for m in found["members"] if goes(m["client_id"])]
            leaving = [(m["member"], m["instance_id"], _ENDED) for m in members]
            if leaving:
                answer = await brokers.ask(node, LEAVE_GROUP(group, leaving))
                _check_all([answer, *answer["members"]], clients.where(doing), needs)

    clients.ask(doing, request, needs)


def _check_all(answers: Collection[Mapping[str, Any]], where: str, needs: Needs) -> None:
    """Raise the first error of some answers that does not say that a member or group is absent."""
    for answer in answers:
        if (code := answer["error_code"]) and code not in _GONE:
            raise of_code(code, where, needs)


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
        answers = answer_of(futures[group], timeout_s).topic_partitions or []
        failed = [answer for answer in answers if answer.error is not None]
        if failed:
            raise _refusal_error(clients.where(doing), group, failed)

    clients.call(doing, request, on_group("Read", group))


def delete(clients: Clients, groups: Collection[str]) -> None:
    """Delete groups without members; see the engine's port.

    Raises:
        GroupActiveError: one has members; the others are deleted.
    """
    names = sorted(set(groups))
    if not names:
        return
    needs = on_group("Delete", *names)

    def request(timeout_s: float) -> None:
        futures = clients.admin().delete_consumer_groups(names, request_timeout=timeout_s)
        failed: list[SrmError] = []
        for name, future in futures.items():
            try:
                answer_of(future, timeout_s)
            except KafkaException as error:
                if error.args[0].code() not in _NO_GROUP:
                    where = clients.where(f"deleting group {name!r}")
                    failed.append(translate(error.args[0], where, on_group("Delete", name)))
        if failed:
            raise min(failed, key=lambda error: error.retriable)

    clients.call("deleting groups", request, needs)


def _place(answer: KafkaTopicPartition) -> str:
    return f"{answer.topic}-{answer.partition}"


def _refusal_error(where: str, group: str, failed: list[KafkaTopicPartition]) -> SrmError:
    """Make one error of the partitions that were refused; members matter most."""
    needs = {**on_group("Read", group), **on_topic("Read", *{a.topic for a in failed})}
    reasons = [(_place(a), translate(a.error, where, needs)) for a in failed]
    first = min(
        (error for _, error in reasons),
        key=lambda error: (not isinstance(error, GroupActiveError), error.retriable),
    )
    return type(first)(f"{first}; partitions: {', '.join(name for name, _ in reasons)}")
