"""First and last offsets of partitions, and where a time begins in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.admin import topics
from srm.kafka.admin.clients import Clients, answer_of
from srm.kafka.admin.errors import translate
from srm.kafka.wire.rights import on_topic

# librdkafka keeps the epoch it knows after a restart of the broker, and the higher one of a topic
# that is re-created under the same name, for as long as it lives.
_OTHER_EPOCH = {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH}

# _NOENT ("no leaders found") is the answer when not one of the partitions has a leader, which is
# also the case when not one of them exists.
_UNKNOWN = topics.UNKNOWN_TOPIC_CODES | {KafkaError._NOENT}  # noqa: SLF001 - local code


def log_starts(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset each partition still holds."""
    return _offsets(clients, partitions, OffsetSpec.earliest())


def log_ends(clients: Clients, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the last stable offset of each partition."""
    return _offsets(clients, partitions, OffsetSpec.latest())


def high_watermarks(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the offset after each partition's last record, whatever transactions are open."""
    return _offsets(
        clients, partitions, OffsetSpec.latest(), isolation=IsolationLevel.READ_UNCOMMITTED
    )


def newest_times(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the largest timestamp of each partition that holds a record (KIP-734)."""
    specs = dict.fromkeys(partitions, OffsetSpec.max_timestamp())
    found = _list(clients, specs, IsolationLevel.READ_UNCOMMITTED, may_be_none=True)
    return {p: answer.timestamp for p, answer in found.items() if answer.offset >= 0}


def offsets_at(clients: Clients, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return where a time begins in each partition that holds a record so late (KIP-79)."""
    specs = {p: OffsetSpec.for_timestamp(time_ms) for p, time_ms in times.items()}
    found = _list(clients, specs, IsolationLevel.READ_UNCOMMITTED, may_be_none=True)
    return {p: answer.offset for p, answer in found.items() if answer.offset >= 0}


def _offsets(
    clients: Clients,
    partitions: Collection[TopicPartition],
    spec: OffsetSpec,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[TopicPartition, int]:
    found = _list(clients, dict.fromkeys(partitions, spec), isolation)
    return {p: answer.offset for p, answer in found.items()}


def _list(
    clients: Clients,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    *,
    may_be_none: bool = False,
) -> dict[TopicPartition, ListOffsetsResultInfo]:
    """Ask for one offset of each partition; ``may_be_none``: -1 is an answer."""
    if not specs:
        return {}
    wanted = {KafkaTopicPartition(p.topic, p.partition): specs[p] for p in sorted(specs)}

    def request(timeout_s: float) -> dict[TopicPartition, ListOffsetsResultInfo]:
        found: dict[TopicPartition, ListOffsetsResultInfo] = {}
        unknown: list[TopicPartition] = []
        futures = clients.admin().list_offsets(
            wanted, isolation_level=isolation, request_timeout=timeout_s
        )
        for raw, future in futures.items():
            partition = TopicPartition(raw.topic, raw.partition)
            try:
                answer = answer_of(future, timeout_s)
            except KafkaException as error:
                code = error.args[0].code()
                if code in _OTHER_EPOCH:
                    clients.discard_admin()  # it keeps to what it knew
                if code not in _UNKNOWN:
                    where = clients.where(f"listing offsets of {partition}")
                    raise translate(error, where, on_topic("Describe", raw.topic)) from error
                unknown.append(partition)
            else:
                # librdkafka returns this without an error, also if the connection breaks
                if answer.offset < 0 and not may_be_none:
                    raise UnavailableError(
                        f"{clients.where(f'listing offsets of {partition}')}: no answer; retry"
                    )
                found[partition] = answer
        _require_absent(clients, unknown)
        return found

    return clients.call("listing offsets", request)


def _require_absent(clients: Clients, unknown: list[TopicPartition]) -> None:
    """Separate partitions that do not exist from those without a leader or without access."""
    found = topics.describe(clients, {p.topic for p in unknown})
    leaderless = [
        str(p) for p in unknown if p.topic in found and p.partition < found[p.topic].partitions
    ]
    if leaderless:
        raise UnavailableError(
            f"listing offsets on cluster {clients.alias}: no leader yet for {', '.join(leaderless)}"
        )
