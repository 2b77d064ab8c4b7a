"""Consumer groups of one cluster: classic ones and those of KIP-848 ("consumer")."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import ConsumerGroupDescription

from srm.domain.topics import TopicPartition
from srm.engine.ports import GroupDescription, GroupState
from srm.errors import GroupActiveError, SrmError, UsageError
from srm.kafka.clients import Clients
from srm.kafka.errors import translate
from srm.kafka.rights import on_cluster, on_group, on_topic

_UNSTABLE_WAIT_S: Final = 2.0
_STATES_OF_ERRORS: Final[Mapping[int, GroupState]] = {
    KafkaError.GROUP_ID_NOT_FOUND: "dead",
    # "not a consumer group": librdkafka has looked at its protocol type.
    KafkaError._INVALID_ARG: "unknown",  # noqa: SLF001 - librdkafka's local codes are named so
}


def describe(clients: Clients, names: Collection[str] | None) -> dict[str, GroupDescription]:
    """Describe all consumer groups, or the named ones; an absent group is ``dead``.

    A named group that is no consumer group (one of Kafka Connect's, say) is ``unknown``: it is
    somebody else's, and the others are described all the same.
    """
    wanted = sorted(set(_listed(clients) if names is None else names))
    if not wanted:
        return {}

    def request(timeout_s: float) -> dict[str, GroupDescription]:
        found: dict[str, GroupDescription] = {}
        futures = clients.admin().describe_consumer_groups(wanted, request_timeout=timeout_s)
        for name, future in futures.items():
            try:
                found[name] = _description(name, future.result())
            except KafkaException as error:
                state = _STATES_OF_ERRORS.get(error.args[0].code())
                if state is None:
                    where = clients.where(f"describing group {name!r}")
                    raise translate(error, where, on_group("Describe", name)) from error
                found[name] = GroupDescription(name, state)
        return found

    return clients.call("describing groups", request)


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


def _listed(clients: Clients) -> list[str]:
    """Names of all consumer groups; librdkafka leaves out those of other protocols."""

    def request(timeout_s: float) -> list[str]:
        result = clients.admin().list_consumer_groups(request_timeout=timeout_s).result()
        for error in result.errors or []:
            # A broker that does not answer hides the groups it coordinates.
            raise translate(error, clients.where("listing groups"), on_cluster("Describe"))
        return [listing.group_id for listing in result.valid or []]

    return clients.call("listing groups", request)


def _description(name: str, raw: ConsumerGroupDescription) -> GroupDescription:
    members = tuple(sorted(f"{m.client_id}@{m.host.lstrip('/')}" for m in raw.members))
    kind = getattr(raw, "type", None)
    return GroupDescription(
        name,
        _state(raw.state, has_members=bool(members)),
        "consumer" if kind is ConsumerGroupType.CONSUMER else "classic",
        members,
    )


def _state(state: ConsumerGroupState, *, has_members: bool) -> GroupState:
    """Map a state; KIP-848's assigning and reconciling are UNKNOWN to librdkafka."""
    if has_members:
        return "active"
    if state is ConsumerGroupState.EMPTY:
        return "empty"
    if state is ConsumerGroupState.DEAD:
        return "dead"
    return "unknown" if state is ConsumerGroupState.UNKNOWN else "active"


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
