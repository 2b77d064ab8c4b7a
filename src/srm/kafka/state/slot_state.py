"""The assignment that a slot follows, and settings of the brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import wait
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from srm.domain.flow_state.anomalies import KEY_PREFIX as NOTES_PREFIX
from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.replication_records import (
    ASSIGNMENT_PREFIX,
    COMMANDS,
    DRIVER_KEY,
    Assignment,
    DriverHeartbeat,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.errors import AuthorizationError, IntegrityError, UnavailableError
from srm.kafka.admin.clients import ClientLog
from srm.kafka.admin.errors import translate
from srm.kafka.wire.rights import on_cluster
from srm.replication.batches.batch import batches, convert
from srm.replication.batches.records import LoopShare, records_of
from srm.replication.log_reader import LogReader, OutOfRangeError
from srm.replication.ports import Wire
from srm.replication.takeover import data_batches

logger = logging.getLogger(__name__)

_ADMIN_S: Final = 20.0
_SETTINGS_S: Final = 5.0  # a claim waits for it


class KafkaAssignmentFeed:
    """Follows ``assignment:<slot>`` (implements AssignmentFeed); for one event loop.

    Reads the log itself: a consumer passes a marker at the end a poll late, and claims wait for it.
    """

    def __init__(self, flow: Flow, slot: str, wire: Wire) -> None:
        self._key = ASSIGNMENT_PREFIX + slot.encode()
        self._sizes: dict[bytes, int] = {}
        self._decided: list[PartitionNotes] = []
        self._wire = wire
        self._log = TopicPartition(internal_topics.replication(flow.source), COMMANDS)
        self._reader: LogReader | None = None
        self.driver: DriverHeartbeat | None = None
        self._may_be_replaced = True
        self.position = 0

    async def poll(self, timeout_s: float) -> Assignment | None:
        """See the port."""
        reader, before = await self._log_reader(), self.position
        try:
            fetched = await reader.fetch(before, wait_ms=round(timeout_s * 1000))
        except OutOfRangeError as error:
            logger.warning("read again from its start: %s", error)
            self.position = error.log_start
            return None
        except UnavailableError:
            self._may_be_replaced = True  # perhaps: its name may lead to another topic
            raise
        records, turns = list[tuple[bytes, bytes | None]](), LoopShare()
        for batch in data_batches(fetched, read_committed=True):
            if batch.record_count and batch.last_offset >= before:
                async for piece in records_of(batch, turns, before):
                    records += ((bytes(r.key), r.value) for r in piece if r.key is not None)
        newest = await asyncio.to_thread(self._take, records) if records else None
        read = batches(fetched.records, convert)
        self.position = max((batch.last_offset + 1 for batch in read), default=before)
        return newest

    async def end(self) -> int:
        """See the port."""
        _, end = await self._wire.log_range(self._log)
        return end

    async def _log_reader(self) -> LogReader:
        if self._reader is None or self._may_be_replaced:
            topic_id = await self._wire.topic_id(self._log.topic)
            if topic_id is None:
                raise UnavailableError(f"{self._log.topic} on {self._wire.alias} does not exist")
            if self._reader is None or self._reader.topic_id != topic_id:
                self._reader = LogReader(self._wire, self._log, topic_id, read_committed=True)
                self.position = 0
            self._may_be_replaced = False
        return self._reader

    def _take(self, records: Iterable[tuple[bytes, bytes | None]]) -> Assignment | None:
        """Take records in, and return the newest assignment among them; large ones take long."""
        newest = None
        for key, value in records:
            try:
                if key.startswith(NOTES_PREFIX) and value is not None:
                    self._decided.append(PartitionNotes.decode(value))
                if key == DRIVER_KEY and value is not None:
                    self.driver = DriverHeartbeat.decode(value)
                if not key.startswith(ASSIGNMENT_PREFIX):
                    continue
                assignment = None if value is None else Assignment.decode(value)
            except IntegrityError as error:
                logger.warning("skipped: %s", error)
                continue
            self._sizes[key] = 0 if assignment is None else len(assignment.partitions)
            if key == self._key and assignment is not None:
                newest = assignment
        return newest

    def take_decisions(self) -> Collection[PartitionNotes]:
        """See the port."""
        decided, self._decided = self._decided, []
        return decided

    def share(self) -> float:
        """See the port."""
        return self._sizes.get(self._key, 0) / max(1, sum(self._sizes.values()))


def broker_configs(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the configs of the brokers; empty when srm has no right to see them.

    Where brokers differ in a number, the smallest counts. A silent broker is skipped while others
    answer: it may be frozen, and the next query follows soon.
    """
    try:
        admin = AdminClient(dict(properties), logger=ClientLog())
        nodes = admin.list_topics(timeout=_ADMIN_S).brokers
        if not nodes:
            raise UnavailableError("reading broker settings: the cluster names no broker yet")
        answers = []
        for node in nodes:  # librdkafka takes one broker per call: each answers for itself
            resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
            answers += admin.describe_configs([resource], request_timeout=_SETTINGS_S).values()
        wait(answers)
        heard = [answer.result() for answer in answers if answer.exception() is None]
        return _smallest(heard or [answer.result() for answer in answers])
    except KafkaException as error:
        reason = translate(error, "reading broker settings", on_cluster("DescribeConfigs"))
        if not isinstance(reason, AuthorizationError):
            raise reason from error
        logger.warning("assuming Kafka's defaults: %s", reason)
    return {}


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
