"""Following partitions of topics, for readers that live long: any topic, commits, raw metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final, Self

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from srm.domain.names import internal_topics
from srm.domain.names.internal_topics import CONSUMER_OFFSETS as COMMITS
from srm.domain.names.topics import Flow, TopicPartition
from srm.errors import UnavailableError
from srm.kafka.admin.clients import drain, is_stranded, open_reader, position_after
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.errors import OWN_PRINCIPAL, kafka_errors, on_topic, translate

_SILENCE_S: Final = 20.0
_COMMIT_SILENCE_S: Final = 60.0
MOST_BYTES: Final = 32 * 1024 * 1024
"""Amount of raw metrics that one process counts with the time and CPU of a Spark start."""
_METRICS_TIMEOUT_S: Final = 60.0
SOON: Final[Mapping[str, object]] = {"fetch.wait.max.ms": 200, "fetch.min.bytes": 1}
SELDOM: Final[Mapping[str, object]] = {"fetch.wait.max.ms": 5_000, "fetch.min.bytes": 1 << 20}
PATIENT: Final[Mapping[str, object]] = {"fetch.wait.max.ms": 5_000, "fetch.min.bytes": 1}
_logger = logging.getLogger(__name__)


class KafkaTopicTail:
    """Reads one partition from its start, or a time, and continues as records arrive.

    One thread at a time. The topic may be created later. Records of aborted transactions are not
    seen. A cluster that does not answer for a while only delays; :meth:`poll` raises an error that
    waiting does not cure.

    ``since_ms``: begin with the first record whose timestamp is this or later. ``fetching``: how
    long and for how much a broker waits with its answer; the end of a log that ends with a
    transaction marker is seen so late. ``later``: the same once it has caught up, with a consumer
    of its own, so that the end is reached soon and news alone is answered after it. ``principal``:
    whose rights an error names.

    ``caught_up``: all records at the first successful look were returned, or the topic does not
    exist.
    ``rewound``: records were returned again because the log lost some returned ones.
    """

    def __init__(
        self,
        props: Mapping[str, str],
        topic: str,
        partition: int = 0,
        *,
        since_ms: int | None = None,
        fetching: Mapping[str, object] = SOON,
        later: Mapping[str, object] | None = None,
        principal: str = OWN_PRINCIPAL,
    ) -> None:
        # After a transaction marker at the end, the end is only seen by one fetch more.
        self._props = props
        self._fetching = fetching, fetching if later is None else later
        self._opened: Mapping[str, object] = fetching
        self._principal = principal
        self._since_ms = since_ms
        self._topic = topic
        self._partition = partition
        self._consumer: Consumer | None = None
        self._assigned = False
        self._next: int | None = None
        self._heard = 0.0
        self._end: int | None = None
        self.caught_up = False
        self.rewound = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def where(self) -> str:
        return f"following {self._topic}-{self._partition}"

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._assigned = False
        if consumer is not None:
            consumer.close()

    def read_to_end(self, timeout_s: float) -> tuple[list[tuple[bytes, bytes | None]], bool]:
        """Read on to where the log ends now; return what is new, and whether the end was reached.

        The end is the high watermark: while a transaction is open it is not reached. The end of a
        topic that does not exist is.
        """
        deadline, (soon, later) = time.monotonic() + timeout_s, self._fetching
        self._fetching = soon, soon
        try:
            return self._read_to(self._high_watermark(timeout_s), deadline)
        finally:
            self._fetching = soon, later

    def _read_to(
        self, end: int | None, deadline: float
    ) -> tuple[list[tuple[bytes, bytes | None]], bool]:
        pairs: list[tuple[bytes, bytes | None]] = []
        while end is not None:
            left = deadline - time.monotonic()
            if (self._next or 0) >= end:
                return pairs, True
            if left <= 0:
                return pairs, False
            pairs += self.poll(min(left, 0.1))
        return pairs, False

    def _high_watermark(self, timeout_s: float) -> int | None:
        """Return the end of the log; 0 for an empty or absent one, None without an answer."""
        partition = KafkaTopicPartition(self._topic, self._partition)
        consumer = open_reader(self._props, {"isolation.level": "read_uncommitted"})
        try:
            start, end = consumer.get_watermark_offsets(partition, timeout=timeout_s, cached=False)
        except KafkaException as error:
            if error.args[0].code() in UNKNOWN_TOPIC_CODES:
                return 0
            if not translate(error, self.where).retriable:
                needs = on_topic("Read", self._topic)
                raise translate(error, self.where, needs, self._principal) from error
            return None
        finally:
            consumer.close()
        return end if end > start else 0

    def poll(self, timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        """Return new (key, value) pairs in order, waiting up to ``timeout_s`` for the first.

        The end of the log ends the wait. Records without a key are skipped.
        """
        deadline = time.monotonic() + timeout_s
        behind = not self.caught_up
        with kafka_errors(self.where, on_topic("Read", self._topic), self._principal):
            consumer = self._open()
            while True:
                left = max(0.0, deadline - time.monotonic())
                if time.monotonic() - self._heard > _SILENCE_S:
                    self._heard = time.monotonic()
                    if is_stranded(consumer, self._topic):
                        self.close()
                        consumer = self._open()
                if not self._assigned:
                    self._look(consumer, left)
                    left = min(left, 1.0)
                pairs = self._take(consumer, left)
                if pairs or (behind and self.caught_up) or time.monotonic() >= deadline:
                    return pairs

    def _open(self) -> Consumer:
        wanted = self._fetching[self.caught_up]
        if wanted is not self._opened:
            self.close()
        if self._consumer is None:
            self._consumer, self._opened = open_reader(self._props, wanted), wanted
            self._heard = time.monotonic()
        return self._consumer

    def _look(self, consumer: Consumer, left_s: float) -> None:
        """Assign the partition if it exists; retry a cluster that does not answer."""
        partition = KafkaTopicPartition(self._topic, self._partition)
        timeout_s = max(1.0, left_s)
        try:
            start, end = consumer.get_watermark_offsets(partition, timeout=timeout_s, cached=False)
            start = max(start, self._next or self._first(consumer, end, timeout_s))
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() in UNKNOWN_TOPIC_CODES:
                self.caught_up = self.caught_up or self._absent(consumer, timeout_s)
                return
            if not translate(error, self.where).retriable:
                raise
            _logger.debug("%s: %s", self.where, cause)
            return
        self._end = end
        self.caught_up = self.caught_up or start >= end
        partition.offset = start
        consumer.assign([partition])
        self._assigned = True

    def _first(self, consumer: Consumer, end: int, timeout_s: float) -> int:
        """Return the offset to begin with: 0, or that of a time."""
        if self._since_ms is None:
            return 0
        wanted = KafkaTopicPartition(self._topic, self._partition, self._since_ms)
        [found] = consumer.offsets_for_times([wanted], timeout=timeout_s)
        if found.error is not None:
            raise KafkaException(found.error)
        # A negative offset says that no record is that young.
        return int(found.offset) if found.offset >= 0 else end

    def _absent(self, consumer: Consumer, timeout_s: float) -> bool:
        """Separate a topic that does not exist from one that has no leader for a moment."""
        topic = consumer.list_topics(self._topic, timeout=timeout_s).topics[self._topic]
        if topic.error is not None and topic.error.code() not in UNKNOWN_TOPIC_CODES:
            raise KafkaException(topic.error)
        return self._partition not in topic.partitions

    def _take(self, consumer: Consumer, wait_s: float) -> list[tuple[bytes, bytes | None]]:
        pairs: list[tuple[bytes, bytes | None]] = []
        for message in drain(consumer, wait_s):
            position = position_after(message, self.where, self._principal)
            if position is None:
                continue
            self.rewound = self.rewound or position < (self._next or 0)
            self._next, self._heard = position, time.monotonic()
            if message.error() is None and message.key() is not None:
                pairs.append((message.key(), message.value()))
            if self._end is not None and position >= self._end:
                self.caught_up = True
        return pairs


class KafkaCommitTail:
    """Returns records of committed transactions and of plain commits as they arrive."""

    def __init__(self, props: Mapping[str, str], starts: Mapping[TopicPartition, int]) -> None:
        settings = {"fetch.wait.max.ms": 500, "enable.partition.eof": False}
        self._where = f"following {COMMITS}"
        with kafka_errors(self._where, on_topic("Read", COMMITS)):
            self._consumer = open_reader(props, settings)
            self._consumer.assign([KafkaTopicPartition(*p, at) for p, at in starts.items()])
        self._heard = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        """UnavailableError: the consumer knows no broker any more: open another one."""
        pairs = []
        for message in drain(self._consumer, timeout_s):
            position_after(message, self._where)  # raises what waiting does not cure
            if message.error() is None and (key := message.key()) is not None:
                pairs.append((key, message.value()))
        now = time.monotonic()
        if pairs:
            self._heard = now
        elif now - self._heard > _COMMIT_SILENCE_S:
            self._heard = now
            if is_stranded(self._consumer, COMMITS):
                raise UnavailableError(f"{self._where}: no broker answers; retry")
        return pairs


def follow_raw_metrics(flow: Flow, props: Mapping[str, str], since_ms: int) -> KafkaTopicTail:
    """Follow the raw metrics of a flow from a time, with few requests: news may come late."""
    topic = internal_topics.raw_metrics(flow.source)
    return KafkaTopicTail(props, topic, since_ms=since_ms, fetching=SELDOM)


def read_raw_metrics(flow: Flow, props: Mapping[str, str], since_ms: int) -> list[bytes] | None:
    """Return the values of the raw metrics since a time, None where they are more than so much."""
    topic = internal_topics.raw_metrics(flow.source)
    found: list[bytes] = []
    size = 0
    deadline = time.monotonic() + _METRICS_TIMEOUT_S
    with KafkaTopicTail(props, topic, since_ms=since_ms) as tail:
        while not tail.caught_up:
            new = [value for _, value in tail.poll(1.0) if value]
            found += new
            size += sum(map(len, new))
            if size > MOST_BYTES:
                return None
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{topic} on cluster {flow.target}: its end is not reached in "
                    f"{_METRICS_TIMEOUT_S:.0f} s; retry"
                )
    return found
