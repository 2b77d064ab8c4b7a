"""The state topic of a flow, ``__srm-replication.<SOURCE>``, as one table."""

from __future__ import annotations

from collections.abc import Mapping

from srm.domain.flow_state.replication_records import COMMANDS, REPORTS
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster


class StateTopic:
    """Records of a flow's state topic by key, from both partitions."""

    def __init__(self, target: Cluster, source: str) -> None:
        topic = internal_topics.replication(source)
        self._commands = target.compacted_topic(topic, COMMANDS)
        self._reports = target.compacted_topic(topic, REPORTS)

    def read(self) -> dict[bytes, bytes]:
        """Return all records; a missing topic or partition reads empty."""
        return {**self._commands.read(), **self._reports.read()}

    def read_commands(self) -> dict[bytes, bytes]:
        """Return the driver's heartbeat and the requests to it."""
        return self._commands.read()

    def write(self, records: Mapping[bytes, bytes | None]) -> None:
        """Write to the partition of commands and wait for the acknowledgement."""
        self._commands.write(records)
