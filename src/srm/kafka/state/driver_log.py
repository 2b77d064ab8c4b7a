"""State topics of the driver: replication state in transactions, cleaning of maps, pauses."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

import confluent_kafka as confluent

from srm import errors
from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import COMMANDS, STATE_PARTITIONS, Pause, read_pause
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS, BlockKey, decode_block, decode_key
from srm.engine.cluster_ports import Cluster
from srm.engine.control.control_topics import until_not_fenced
from srm.engine.flows.target_topics import StateTopic
from srm.kafka.admin.clients import STATE_RECORDS, drain, open_reader, open_writer, position_after
from srm.kafka.state.writers import OVERTAKEN, KafkaStateLog
from srm.kafka.tables.topic_tail import KafkaTopicTail
from srm.kafka.wire.cluster import open_wire
from srm.kafka.wire.errors import kafka_errors, on_topic, on_transactional_id, translate
from srm.replication.claim import outbid
from srm.replication.driver import pausing
from srm.replication.driver.state_book import DriverLog, Key, LogRecord
from srm.replication.log_reader import LogReader, of_each_log

_TIMEOUT_S: Final = 10.0
_SLICE_S: Final = 0.5
_FETCH_WAIT_MS: Final = 500
"""Logs are followed permanently: an empty poll costs more than a late notice of the end."""

_POLL_S: Final = 1.0
_SILENCE_S: Final = 30.0
_FLUSH_S: Final = 30.0
_AT_ONCE: Final = 10_000
_SEAL_S: Final = 10.0
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


class KafkaDriverLog:
    """The state topic of one flow (a :class:`.DriverLog`), for one thread, connected when used."""

    def __init__(self, flow: Flow, props: ClusterClients) -> None:
        self._flow = flow
        self._topic = internal_topics.replication(flow.source)
        self._metrics = internal_topics.raw_metrics(flow.source)
        # All drivers of a flow share it: the latest to initialise it is the one.
        self._transactional_id = f"srm-driver-{flow}"
        self._where = f"{self._topic} on cluster {flow.target}"
        self._reading = f"reading {self._where}"
        self._props = props
        self._consumer: confluent.Consumer | None = None
        self._producer: confluent.Producer | None = None

    def read(self) -> list[LogRecord]:
        self._close_consumer()
        with closing(open_reader(self._props.consumer)) as reader:
            latest, positions = self._read_to_end(reader)
        self._follow(positions)
        return sorted(latest, key=lambda record: record.partition)

    def _read_to_end(self, consumer: confluent.Consumer) -> tuple[list[LogRecord], dict[int, int]]:
        start, places = confluent.OFFSET_BEGINNING, range(STATE_PARTITIONS)
        state = [confluent.TopicPartition(self._topic, number, start) for number in places]
        with kafka_errors(self._reading, on_topic("Read", self._topic)):
            for at in state:  # raises what keeps it from being read; these are last stable offsets
                consumer.get_watermark_offsets(at, _TIMEOUT_S, cached=False)
            consumer.assign(state)
        positions: dict[int, int] = {}
        latest: dict[tuple[int, bytes], LogRecord] = {}
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            for message in drain(consumer, _SLICE_S):
                position = position_after(message, self._reading)
                number = message.partition() or 0
                if message.error() is None:
                    record = _record(message)
                    latest[number, record.key] = record
                if position is not None:
                    positions[number] = position
            # Fetches know the high watermark: what others have open hides the records before it.
            ends = [consumer.get_watermark_offsets(at, cached=True)[1] for at in state]
            if all(positions.get(n, end - 1) >= end for n, end in enumerate(ends)):
                return [found for found in latest.values() if found.value is not None], positions
        raise errors.UnavailableError(
            f"{self._reading}: the end is not reached in time; retry, or abort what others have "
            "open in partition 0 (kafka-transactions.sh describe-producers, then abort)"
        )

    def _follow(self, positions: Mapping[int, int]) -> None:
        """Have :meth:`poll` continue from there, and with what is new of raw metrics."""
        self._consumer = open_reader(self._props.consumer, {"fetch.wait.max.ms": _FETCH_WAIT_MS})
        state = [confluent.TopicPartition(self._topic, *where) for where in positions.items()]
        with kafka_errors(self._reading, on_topic("Read", self._topic, self._metrics)):
            self._consumer.assign(
                [*state, confluent.TopicPartition(self._metrics, 0, confluent.OFFSET_END)]
            )

    def fence(self) -> None:
        """Shut out every older driver of the flow, aborting what it has left open."""
        self._drop_producer()
        more = {
            **STATE_RECORDS,
            "transactional.id": self._transactional_id,
            # An abandoned transaction hides the slots' reports until it is aborted.
            "transaction.timeout.ms": round(_TIMEOUT_S * 1000),
            "delivery.timeout.ms": round(_TIMEOUT_S * 1000),
        }
        producer = open_writer(self._props.producer, more)
        try:
            producer.init_transactions(_TIMEOUT_S)
        except confluent.KafkaException as error:
            raise self._failure(error, "taking over the driver's role in") from error
        self._producer = producer

    def poll(self, timeout_s: float) -> list[LogRecord]:
        if self._consumer is None:
            raise errors.UnavailableError(f"{self._reading}: not opened")
        records = []
        for message in drain(self._consumer, timeout_s):
            position_after(message, self._reading)  # raises what waiting does not cure
            if message.error() is None:
                records.append(_record(message))
        return records

    def publish(self, records: Mapping[bytes, bytes], deletions: Collection[Key] = ()) -> None:
        """UnavailableError: it is not known whether they were written; open the log again."""
        producer = self._producer
        if producer is None:
            raise errors.UnavailableError(f"writing {self._where}: not opened")
        try:
            producer.begin_transaction()
            for key, value in records.items():
                producer.produce(self._topic, value, key, partition=COMMANDS)
            for partition, key in deletions:
                producer.produce(self._topic, None, key, partition=partition)
            producer.commit_transaction(_TIMEOUT_S)
        except confluent.KafkaException as error:
            self._drop_producer()
            raise self._failure(error, "writing") from error

    def clear_maps(self, topics: Collection[CopiedTopic]) -> None:
        gone = {(topic.topic_id, topic.target_topic_id) for topic in topics}
        map_topic = internal_topics.offset_map(self._flow.source)
        log = KafkaStateLog(self._flow.target, self._props.producer)
        for partition in range(MAP_PARTITIONS):
            with KafkaTopicTail(self._props.consumer, map_topic, partition) as tail:
                for number, key in enumerate(_keys_about(gone, tail), 1):
                    log.write(map_topic, key, None, partition)
                    if number % _AT_ONCE == 0:
                        log.flush(_FLUSH_S)
            log.flush(_FLUSH_S)
        names = ", ".join(sorted({topic.topic for topic in topics}))
        _logger.info(
            "%s: the offset maps of topics that are gone are deleted: %s", self._flow, names
        )

    def close(self) -> None:
        self._close_consumer()
        self._drop_producer()

    def _failure(self, error: confluent.KafkaException, doing: str) -> errors.SrmError:
        of_id = on_transactional_id("Write", self._transactional_id)
        needs = on_topic("Write", self._topic) | of_id
        failure = translate(error.args[0], f"{doing} {self._where}", needs)
        if isinstance(failure, errors.FencedError) or error.args[0].code() in OVERTAKEN:
            return errors.FencedError(
                f"flow {self._flow} is driven by another replicator now, this one ends ({failure})"
            )
        is_unknown = error.args[0].retriable() or error.args[0].txn_requires_abort()
        if is_unknown and not isinstance(failure, errors.AuthorizationError):
            return errors.UnavailableError(str(failure))
        return failure

    def _close_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _drop_producer(self) -> None:
        # What it still holds is part of no committed transaction, and a fenced one cannot abort:
        # the transaction is ended by the next init_transactions or by its time-out.
        if self._producer is not None:
            self._producer.purge()
            self._producer = None


def _record(message: confluent.Message) -> LogRecord:
    key, partition = message.key() or b"", message.partition() or 0
    return LogRecord(message.topic() or "", key, message.value(), partition)


def _keys_about(gone: Collection[tuple[str, str]], tail: KafkaTopicTail) -> Iterator[bytes]:
    """Yield the keys of records about the topics, reading some thousand records at a time."""
    heard, sources = time.monotonic(), {topic_id for topic_id, _ in gone}
    while not tail.caught_up:
        for key, value in tail.poll(_POLL_S):
            heard = time.monotonic()
            if value is not None and _is_about(gone, sources, key, value):
                yield key
        if time.monotonic() - heard > _SILENCE_S:
            raise errors.UnavailableError(f"{tail.where}: no answer; retry")


def _is_about(
    gone: Collection[tuple[str, str]], sources: Collection[str], key: bytes, value: bytes
) -> bool:
    with suppress(errors.IntegrityError):
        found = decode_key(key)
        if found.topic_id in sources:  # else it need not be decoded
            whole = decode_block(key, value) if isinstance(found, BlockKey) else found
            return (whole.topic_id, whole.target_topic_id) in gone
    return False


class KafkaFlowSwitch:
    """Pauses, seals and resumes one flow (implements :class:`srm.engine.ports.FlowSwitch`).

    No I/O before the first call; on the target it needs the replicator's own rights.
    """

    def __init__(self, flow: Flow, target: Cluster, props: ClusterClients) -> None:
        self._flow = flow
        self._target = target
        self._props = props

    def pause(self, wanted: Pause, request: str | None = None) -> Pause | None:
        topic = internal_topics.replication(self._flow.source)
        if topic not in self._target.topics():
            raise errors.NotFoundError(
                f"flow {self._flow} has never copied anything: topic {topic} does not exist on "
                f"{self._flow.target}"
            )
        # Another id each time: a driver that lives knows by it that no other one has fenced it.
        new = replace(wanted, request=wanted.request or secrets.token_hex(8))
        return self._as_driver(lambda log: pausing.pause(log, new, request))

    def resume(
        self, decided: Mapping[bytes, bytes] = MappingProxyType({}), request: str | None = None
    ) -> bool:
        if self._pause_in_force() is None:
            return False
        return self._as_driver(lambda log: pausing.resume(log, decided, request))

    def leave(self, move_id: str) -> None:
        current = self._pause_in_force()
        if current is not None and move_id in current.moves:
            self._as_driver(lambda log: pausing.leave(log, move_id))

    def seal(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        if not copies:
            return {}
        ids = {name: found.topic_id for name, found in self._target.topics().items()}
        there = {copy: ids[copy.topic] for copy in sorted(copies) if copy.topic in ids}

        async def attempt(copy: LogReader) -> str:
            try:
                async with asyncio.timeout(_SEAL_S):
                    await outbid(copy, self._flow)
            except (errors.SrmError, TimeoutError) as error:
                return str(error) or f"no answer in {_SEAL_S:g} s"
            return ""

        wire = open_wire(self._flow.target, self._props.producer)
        return {copy: why for copy, why in of_each_log(wire, there, attempt).items() if why}

    def _pause_in_force(self) -> Pause | None:
        return read_pause(StateTopic(self._target, self._flow.source).read_commands())

    def _as_driver(self, act: Callable[[DriverLog], _T]) -> _T:
        """Act between two drivers; retry if another one starts, and once if a broker is lost."""
        lost: list[errors.SrmError] = []

        def attempt() -> _T:
            with closing(KafkaDriverLog(self._flow, self._props)) as log:
                try:
                    return act(log)
                except errors.UnavailableError as error:
                    if lost:
                        raise
                    lost.append(error)
                    raise errors.FencedError(str(error)) from error

        return until_not_fenced(f"taking flow {self._flow} from its driver", attempt)
