"""The internal topics as a slot uses them: its assignment, its starting points, its reports."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import wait
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from srm.domain import internal_topics
from srm.domain.partition_notes import KEY_PREFIX as NOTES_PREFIX
from srm.domain.partition_notes import PartitionNotes
from srm.domain.replication_records import (
    ASSIGNMENT_PREFIX,
    COMMANDS,
    Assignment,
)
from srm.domain.replication_state import decode_state
from srm.domain.topics import Flow
from srm.engine.ports import Cluster
from srm.engine.state_topic import StateTopic
from srm.errors import AuthorizationError, IntegrityError, SrmError, UnavailableError
from srm.kafka.clients import ClientLog
from srm.kafka.errors import translate
from srm.kafka.map_starts import MapStarts
from srm.kafka.rights import on_cluster
from srm.kafka.tail import KafkaTopicTail
from srm.replication.slot.slot import Predecessor

logger = logging.getLogger(__name__)

_ADMIN_S: Final = 20.0
_SETTINGS_S: Final = 5.0  # a claim waits for it
_FETCH_WAIT_MS: Final = 1000
"""An assignment ends the wait, and nobody asks where the log of assignments ends."""


class KafkaAssignmentFeed:
    """Follows ``assignment:<slot>`` (implements AssignmentFeed); for one thread."""

    def __init__(self, flow: Flow, slot: str, consumer_props: Mapping[str, str]) -> None:
        self._key = ASSIGNMENT_PREFIX + slot.encode()
        self._sizes: dict[bytes, int] = {}
        self._decided: list[PartitionNotes] = []
        topic = internal_topics.replication(flow.source)
        self._tail = KafkaTopicTail(consumer_props, topic, COMMANDS, fetch_wait_ms=_FETCH_WAIT_MS)
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
            try:
                if key.startswith(NOTES_PREFIX) and value is not None:
                    self._decided.append(PartitionNotes.decode(value))
                if not key.startswith(ASSIGNMENT_PREFIX):
                    continue
                assignment = None if value is None else Assignment.decode(value)
            except IntegrityError as error:
                logger.warning("passed over: %s", error)
                continue
            self._sizes[key] = 0 if assignment is None else len(assignment.partitions)
            if key == self._key and assignment is not None:
                newest = assignment
        return newest

    def decided(self) -> Collection[PartitionNotes]:
        """See the port."""
        decided, self._decided = self._decided, []
        return decided

    def share(self) -> float:
        """See the port."""
        return self._sizes.get(self._key, 0) / max(1, sum(self._sizes.values()))

    def close(self) -> None:
        """Close the consumer."""
        self._tail.close()


class KafkaStartReader(MapStarts):
    """Reads what a flow's target knows of slots and their partitions (implements StartReader)."""

    def __init__(self, flow: Flow, target: Cluster) -> None:
        super().__init__(flow, target)
        self._flow = flow
        self._target = target

    def predecessor(self, slot: str) -> Predecessor:
        """See the port."""
        state = decode_state(StateTopic(self._target, self._flow.source).read())
        seen = [report.incarnation for report in state.reports if report.slot == slot]
        meant = [entry.incarnation for entry in state.assignments if entry.slot == slot]
        return Predecessor(
            tuple(found for found in (*seen, *meant) if found is not None),
            tuple(entry for entry in state.notes if entry.slot == slot),
        )


def broker_configs(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the configs of the brokers; empty when srm has no right to see them.

    Where they differ in a number, the smallest counts. One that does not answer is left out, if
    others do: it may be frozen, and is asked again soon.

    Raises:
        SrmError: no broker answers: how long the cluster remembers producers is not known.
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
