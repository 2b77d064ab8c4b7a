"""The internal topics as a slot uses them: its assignment, its starting points, its reports."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from srm.domain import internal_topics
from srm.domain.map_records import (
    BlockKey,
    MapBlock,
    decode_block,
    decode_block_key,
    map_partition,
)
from srm.domain.replication_records import (
    AssignedPartition,
    Assignment,
    SlotReport,
)
from srm.domain.replication_state import decode_state
from srm.domain.topics import Flow
from srm.engine.ports import Cluster
from srm.errors import AuthorizationError, IntegrityError, SrmError, UnavailableError
from srm.kafka.clients import STATE_RECORDS, ClientLog, is_stranded
from srm.kafka.errors import kafka_errors, translate
from srm.kafka.rights import CLUSTER, on_cluster, on_topic
from srm.kafka.tail import KafkaTopicTail
from srm.replication.slot.map_cut import cut_state
from srm.replication.slot.resume import Start
from srm.replication.slot.slot import Predecessor
from srm.replication.slot.starts import starts

logger = logging.getLogger(__name__)

_ADMIN_S: Final = 20.0
_SETTINGS_S: Final = 5.0  # a claim waits for it


class KafkaStateLog:
    """Fire-and-forget writes through one idempotent producer (implements StateLog).

    Some errors are the end of such a producer, a missing right among them, and so is being
    stranded: what it holds is lost, :meth:`flush` and :meth:`failure` tell why, and the next write
    begins with a new one.
    """

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self._where = f"writing state to cluster {alias}"
        self._properties = {
            "linger.ms": 0,
            **properties,
            **STATE_RECORDS,
            "acks": "all",
            "enable.idempotence": True,
            "allow.auto.create.topics": False,
        }
        self._failure: SrmError | None = None
        self._topic = ""
        self._producer = self._new_producer()

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """See the port."""
        self._topic = topic
        try:
            self._producer.produce(
                topic, value, key, partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(0)  # serves callbacks of a log that nobody flushes
        except BufferError as error:
            raise UnavailableError(f"{self._where}: the queue is full") from error
        except KafkaException as error:
            self._failed(self._real(error.args[0]), topic)

    def flush(self, timeout_s: float) -> None:
        """See the port."""
        try:
            left = self._producer.flush(timeout_s)
        except KafkaException as error:
            self._failed(error.args[0], "that is written")
            left = 0
        failure = self.failure()
        if failure is not None:
            raise failure
        if left:
            self._leave_stranded()
            raise UnavailableError(f"{self._where}: {left} records not acknowledged in time")

    def failure(self) -> SrmError | None:
        """See the port."""
        failure, self._failure = self._failure, None
        if isinstance(failure, UnavailableError):
            self._leave_stranded()
        return failure

    def _leave_stranded(self) -> None:
        if is_stranded(self._producer, self._topic):
            self._producer.purge()
            self._producer = self._new_producer()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed(error, message.topic() or "")

    def _failed(self, error: KafkaError, topic: str) -> None:
        if self._failure is None:
            without_topic = f"Write on topic {topic}, or IdempotentWrite on the cluster"
            needs = {**on_topic("Write", topic), CLUSTER: without_topic}
            self._failure = translate(error, self._where, needs)
        if error.fatal():
            self._producer = self._new_producer()

    def _real(self, error: KafkaError) -> KafkaError:
        """Return the error behind "fatal error", which is told to whoever serves callbacks next."""
        if error.code() == KafkaError._FATAL:  # noqa: SLF001 - librdkafka's local codes are so named
            try:
                self._producer.poll(0)
            except KafkaException as fatal:
                return fatal.args[0]
        return error

    def _new_producer(self) -> Producer:
        with kafka_errors(self._where):
            return Producer(self._properties, logger=ClientLog())


class KafkaAssignmentFeed:
    """Follows ``assignment:<slot>`` (implements AssignmentFeed); for one thread."""

    def __init__(self, flow: Flow, slot: str, consumer_props: Mapping[str, str]) -> None:
        self._key = f"assignment:{slot}".encode()
        self._sizes: dict[bytes, int] = {}
        self._tail = KafkaTopicTail(consumer_props, internal_topics.replication(flow.source))
        self._pause = threading.Event()

    def poll(self, timeout_s: float) -> Assignment | None:
        """See the port; a cluster that does not answer looks like no news."""
        started = time.monotonic()
        try:
            records = self._tail.poll(timeout_s)
        except SrmError as error:
            logger.warning("assignment cannot be followed: %s", error)
            self._pause.wait(max(0.0, timeout_s - (time.monotonic() - started)))
            return None
        newest = None
        for key, value in records:
            if not key.startswith(b"assignment:"):
                continue
            assignment = None if value is None else Assignment.decode(value)
            self._sizes[key] = 0 if assignment is None else len(assignment.partitions)
            if key == self._key and assignment is not None:
                newest = assignment
        return newest

    def share(self) -> float:
        """See the port."""
        return self._sizes.get(self._key, 0) / max(1, sum(self._sizes.values()))

    def close(self) -> None:
        """Close the consumer."""
        self._tail.close()


class KafkaStartReader:
    """Reads where partitions were left from the offset map (implements StartReader)."""

    def __init__(self, flow: Flow, target: Cluster) -> None:
        self._flow = flow
        self._target = target

    def load(
        self, partitions: Sequence[AssignedPartition]
    ) -> Mapping[AssignedPartition, Start | SrmError]:
        """See the port."""
        return starts(partitions, *self._read(partitions))

    def cut(self, assigned: AssignedPartition, target_end: int) -> Start:
        """See the port."""
        blocks, reports, damaged = self._read([assigned])
        state = cut_state(assigned, blocks, reports, target_end)
        number = map_partition(assigned.topic, assigned.partition)
        map_topic = internal_topics.offset_map(self._flow.source)
        table = self._target.compacted(map_topic, number)
        # Deleted from the end on: a crash in between leaves a map that is whole as far as it goes.
        for key in sorted(state.removed, key=lambda key: key.target_start, reverse=True):
            table.write({key.encode(): None})
        if state.changed:
            table.write({block.key(): block.value() for block in state.changed})
        former = [b for b in blocks if b.topic_id != assigned.topic_id]
        found = starts([assigned], [*former, *state.blocks], state.reports, damaged)
        return found.get(assigned) or Start(0, 0, has_position=False)

    def _read(
        self, partitions: Sequence[AssignedPartition]
    ) -> tuple[list[MapBlock], Sequence[SlotReport], list[BlockKey]]:
        source = self._flow.source
        state = self._target.compacted(internal_topics.replication(source)).read()
        reports = decode_state(state).reports
        # Reports first: a position is written after its blocks, so it has to be read before them.
        map_topic = internal_topics.offset_map(source)
        blocks: list[MapBlock] = []
        damaged: list[BlockKey] = []
        for number in sorted({map_partition(p.topic, p.partition) for p in partitions}):
            table = self._target.compacted(map_topic, number).read()
            for key, value in table.items():
                try:
                    blocks.append(decode_block(key, value))
                except IntegrityError as error:
                    logger.warning("resume finds again what is in the logs: %s", error)
                    with suppress(IntegrityError):
                        damaged.append(decode_block_key(key))
        return blocks, reports, damaged

    def predecessor(self, slot: str) -> Predecessor:
        """See the port."""
        table = self._target.compacted(internal_topics.replication(self._flow.source)).read()
        state = decode_state(table)
        return Predecessor(
            tuple(e for report in state.reports if report.slot == slot for e in report.positions),
            tuple(entry for entry in state.notes if entry.slot == slot),
        )


def broker_configs(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the configs of the brokers; empty when srm has no right to see them.

    Where they differ in a number, the smallest counts. A broker that does not answer leads nothing
    now: the others are enough.

    Raises:
        SrmError: no broker answers: how long the cluster remembers producers is not known.
    """
    try:
        admin = AdminClient(dict(properties), logger=ClientLog())
        nodes = admin.list_topics(timeout=_ADMIN_S).brokers
        if not nodes:
            raise UnavailableError("reading broker settings: the cluster names no broker yet")
        # One call for each: librdkafka takes only one broker a call.
        asked = [
            future
            for node in nodes
            for future in admin.describe_configs(
                [ConfigResource(ConfigResource.Type.BROKER, str(node))],
                request_timeout=_SETTINGS_S,
            ).values()
        ]
        return _smallest(_answers(asked))
    except KafkaException as error:
        reason = translate(error, "reading broker settings", on_cluster("DescribeConfigs"))
        if not isinstance(reason, AuthorizationError):
            raise reason from error
        logger.warning("assuming Kafka's defaults: %s", reason)
    return {}


def _answers(asked: Sequence[Future[dict[str, ConfigEntry]]]) -> list[dict[str, ConfigEntry]]:
    """Wait for all; return what was answered.

    Raises:
        KafkaException: nobody has answered.
    """
    found, failed = [], []
    for future in asked:
        try:
            found.append(future.result())
        except KafkaException as error:
            failed.append(error)
    if not found:
        raise failed[0]
    return found


def _smallest(brokers: Sequence[Mapping[str, ConfigEntry]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entries in brokers:
        for name, entry in entries.items():
            value = entry.value
            if not value:
                continue
            known = found.get(name, value)
            both_numbers = known.isdecimal() and value.isdecimal()
            found[name] = min(known, value, key=int) if both_numbers else known
    return found
