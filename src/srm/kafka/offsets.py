"""First and last offsets of partitions."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import OffsetSpec

from srm.domain.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka import topics
from srm.kafka.clients import Clients
from srm.kafka.errors import translate
from srm.kafka.rights import on_topic

# _NOENT ("no leaders found") is the answer when not one of the partitions has a leader, which is
# also the case when not one of them exists.
_UNKNOWN = topics.UNKNOWN_TOPIC_CODES | {KafkaError._NOENT}  # noqa: SLF001 - local code


def log_starts(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset each partition still holds."""
    return _list(clients, partitions, OffsetSpec.earliest())


def log_ends(clients: Clients, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the last stable offset of each partition."""
    return _list(clients, partitions, OffsetSpec.latest())


def high_watermarks(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the offset after each partition's last record, whatever transactions are open."""
    return _list(clients, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)


def _list(
    clients: Clients,
    partitions: Collection[TopicPartition],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    wanted = {KafkaTopicPartition(p.topic, p.partition): spec for p in sorted(set(partitions))}

    def request(timeout_s: float) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        unknown: list[TopicPartition] = []
        futures = clients.admin().list_offsets(
            wanted, isolation_level=isolation, request_timeout=timeout_s
        )
        for raw, future in futures.items():
            partition = TopicPartition(raw.topic, raw.partition)
            try:
                offset = future.result().offset
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.FENCED_LEADER_EPOCH:
                    clients.discard_admin()  # the broker was started again meanwhile
                if code not in _UNKNOWN:
                    where = clients.where(f"listing offsets of {partition}")
                    raise translate(error, where, on_topic("Describe", raw.topic)) from error
                unknown.append(partition)
            else:
                if offset < 0:  # librdkafka's answer when the connection breaks meanwhile: no error
                    raise UnavailableError(
                        f"{clients.where(f'listing offsets of {partition}')}: no answer; retry"
                    )
                found[partition] = offset
        _require_absent(clients, unknown)
        return found

    return clients.call("listing offsets", request)


def _require_absent(clients: Clients, unknown: list[TopicPartition]) -> None:
    """Tell partitions that do not exist from those without a leader, or that srm may not see."""
    found = topics.describe(clients, {p.topic for p in unknown})
    leaderless = [
        str(p) for p in unknown if p.topic in found and p.partition < found[p.topic].partitions
    ]
    if leaderless:
        raise UnavailableError(
            f"listing offsets on cluster {clients.alias}: no leader yet for {', '.join(leaderless)}"
        )
