"""What the source has held, kept from before faults destroyed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from srm.domain.replication_records import AssignedPartition
from srm.testing.logs import LoggedRecord, read_logs

Records = dict[int, LoggedRecord]


@dataclass
class Life:
    """One topic id of a source topic, as long as it existed. Keys are partition numbers.

    ``deleted`` is the offset below which DeleteRecords has taken everything away. ``truncated``
    holds what a truncation has taken away, and the offset it cut at.
    """

    topic_id: str
    target_topic_id: str
    records: dict[int, Records] = field(default_factory=dict)
    deleted: dict[int, int] = field(default_factory=dict)
    truncated: dict[int, tuple[int, Records]] = field(default_factory=dict)

    def take(self, partition: int, records: list[tuple[int, LoggedRecord]]) -> None:
        """Remember committed records."""
        self.records.setdefault(partition, {}).update(records)


@dataclass
class TopicHistory:
    """The lives of one source topic since its remote topic was created."""

    name: str
    remote: str
    partitions: list[AssignedPartition]
    compacted: bool
    remote_configs: Mapping[str, str]
    lives: list[Life] = field(default_factory=list)

    @property
    def keeps_timestamps(self) -> bool:
        """Whether the remote topic stores the records' own timestamps."""
        return self.remote_configs.get("message.timestamp.type") != "LogAppendTime"

    @property
    def life(self) -> Life:
        """The current life."""
        return self.lives[-1]

    def snapshot(self, source: str) -> None:
        """Read everything the source holds now."""
        places = [(self.name, partition.partition) for partition in self.partitions]
        for (_, number), records in read_logs(source, places).items():
            self.life.take(number, records)

    def begin_life(self, partitions: list[AssignedPartition], *, same_target: bool) -> None:
        """Note that the topic exists under a new id, on the source or on the target."""
        self.partitions = partitions
        if not same_target:
            self.lives = []
        self.lives.append(Life(partitions[0].topic_id, partitions[0].target_topic_id))
