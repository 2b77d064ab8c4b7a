"""Pauses a flow on its target and fences every process that still writes to the copies."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

from srm.domain.flow_state.pause import Pause, read_pause
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import Cluster
from srm.engine.control.control_records import until_not_fenced
from srm.engine.flows.state_topic import StateTopic
from srm.errors import NotFoundError, SrmError
from srm.kafka.state.driver_log import KafkaDriverLog
from srm.kafka.wire.cluster import open_wire
from srm.replication.claim import outbid
from srm.replication.driver import pausing
from srm.replication.driver.state_book import DriverLog
from srm.replication.log_reader import LogReader, of_each_log

_SEAL_S: Final = 10.0
_T = TypeVar("_T")


class KafkaFlowSwitch:
    """Pauses, seals and resumes one flow (implements :class:`srm.engine.ports.FlowSwitch`).

    No I/O before the first call; on the target it needs the replicator's own rights.
    """

    def __init__(
        self,
        flow: Flow,
        target: Cluster,
        consumer_props: Mapping[str, str],
        producer_props: Mapping[str, str],
    ) -> None:
        self._flow = flow
        self._target = target
        self._consumer_props = dict(consumer_props)
        self._producer_props = dict(producer_props)

    def pause(self, wanted: Pause, request: str | None = None) -> None:
        """See the port."""
        topic = internal_topics.replication(self._flow.source)
        if topic not in self._target.partition_counts():
            raise NotFoundError(
                f"flow {self._flow} has never copied anything: topic {topic} does not exist on "
                f"{self._flow.target}"
            )
        # Another id each time: a driver that lives knows by it that no other one has fenced it.
        new = replace(wanted, request=wanted.request or secrets.token_hex(8))
        self._as_driver(lambda log: pausing.pause(log, new, request))

    def resume(
        self, decided: Mapping[bytes, bytes] = MappingProxyType({}), request: str | None = None
    ) -> bool:
        """See the port."""
        if self._standing() is None:
            return False
        return self._as_driver(lambda log: pausing.resume(log, decided, request))

    def leave(self, move_id: str) -> None:
        """See the port."""
        standing = self._standing()
        if standing is not None and move_id in standing.moves:
            self._as_driver(lambda log: pausing.leave(log, move_id))

    def seal(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """See the port."""
        if not copies:
            return {}
        ids = {name: found.topic_id for name, found in self._target.topics().items()}
        there = {copy: ids[copy.topic] for copy in sorted(copies) if copy.topic in ids}

        async def attempt(copy: LogReader) -> str:
            try:
                async with asyncio.timeout(_SEAL_S):
                    await outbid(copy, self._flow)
            except (SrmError, TimeoutError) as error:
                return str(error) or f"no answer in {_SEAL_S:g} s"
            return ""

        wire = open_wire(self._flow.target, self._producer_props)
        return {copy: why for copy, why in of_each_log(wire, there, attempt).items() if why}

    def _standing(self) -> Pause | None:
        return read_pause(StateTopic(self._target, self._flow.source).read_commands())

    def _as_driver(self, act: Callable[[DriverLog], _T]) -> _T:
        """Act between two drivers; retry if another one starts, as a live one may do."""

        def attempt() -> _T:
            log = KafkaDriverLog(self._flow, self._consumer_props, self._producer_props)
            try:
                return act(log)
            finally:
                log.close()

        return until_not_fenced(f"taking flow {self._flow} from its driver", attempt)
