"""Following all partitions of ``__consumer_offsets``: one consumer, from given offsets on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from srm.domain.groups.offset_commits import TOPIC
from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.admin.clients import ClientLog, is_stranded, reader_props
from srm.kafka.admin.errors import kafka_errors
from srm.kafka.admin.polling import drain, position_after
from srm.kafka.wire.rights import on_topic

_FETCH_WAIT_MS: Final = 500
_SILENCE_S: Final = 60.0


class KafkaCommitTail:
    """Returns records of committed transactions and of plain commits as they arrive.

    Args:
        consumer_props: librdkafka properties of a consumer of the cluster.
        starts: where to begin, by partition.
    """

    def __init__(
        self, consumer_props: Mapping[str, str], starts: Mapping[TopicPartition, int]
    ) -> None:
        self._starts = starts
        props = {
            **reader_props(consumer_props),
            "fetch.wait.max.ms": _FETCH_WAIT_MS,
            "enable.partition.eof": False,
        }
        self._where = f"following {TOPIC}"
        with kafka_errors(self._where, on_topic("Read", TOPIC)):
            self._consumer = Consumer(props, logger=ClientLog())

    def __enter__(self) -> Self:
        with kafka_errors(self._where, on_topic("Read", TOPIC)):
            self._consumer.assign(
                [KafkaTopicPartition(p.topic, p.partition, at) for p, at in self._starts.items()]
            )
        self._heard = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        """Return new keys and values, waiting so long for the first.

        Raises:
            UnavailableError: the consumer knows no broker any more: open another one.
            SrmError: the cluster refuses the read.
        """
        pairs = []
        for message in drain(self._consumer, timeout_s):
            position_after(message, self._where)  # raises what waiting does not cure
            if message.error() is None and (key := message.key()) is not None:
                pairs.append((key, message.value()))
        now = time.monotonic()
        if pairs:
            self._heard = now
        elif now - self._heard > _SILENCE_S:
            self._heard = now
            if is_stranded(self._consumer, TOPIC):
                raise UnavailableError(f"{self._where}: no broker answers; retry")
        return pairs
