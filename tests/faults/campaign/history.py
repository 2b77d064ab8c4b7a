"""The ledger of a seed: what the source has held, and what faults have destroyed on either side.

Whoever destroys something writes it down here with its offsets. What may be missing on the target,
and what has to be told, follows from this and from the two logs alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.faults.campaign.aborted import replicated_aborts
from tests.faults.campaign.brokers import Pair

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.record_headers import RecordSettings
from srm_lab.testing.logs import LoggedRecord, read_logs

Records = dict[int, LoggedRecord]


@dataclass(frozen=True, slots=True)
class Item:
    """One committed source record, by the life of its topic and the truncations before it.

    ``gone``: a truncation has taken it.
    """

    life: int
    generation: int
    offset: int
    record: LoggedRecord
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Truncation:
    """The source lost everything from ``at`` on: those records, with their generations.

    Slots had reported everything below ``reported`` as copied.
    """

    at: int
    gone: dict[int, tuple[int, LoggedRecord]]
    reported: int


@dataclass
class Life:
    """One topic id of a source topic, as long as it existed. Keys are partition numbers.

    ``deleted`` is the offset below which DeleteRecords has taken everything away, ``compacted``
    are the offsets of records that the source has compacted away. ``aborted`` are those of records
    of aborted transactions, which the source's brokers may give to readers as if they were not.
    """

    topic_id: str
    target_topic_id: str
    records: dict[int, Records] = field(default_factory=dict)
    deleted: dict[int, int] = field(default_factory=dict)
    truncations: dict[int, list[Truncation]] = field(default_factory=dict)
    compacted: dict[int, set[int]] = field(default_factory=dict)
    aborted: dict[int, set[int]] = field(default_factory=dict)
    _generations: dict[int, dict[int, int]] = field(default_factory=dict)

    def take(self, partition: int, records: Iterable[tuple[int, LoggedRecord]]) -> None:
        """Remember committed records."""
        known = self.records.setdefault(partition, {})
        generations = self._generations.setdefault(partition, {})
        for offset, record in records:
            known[offset] = record
            generations.setdefault(offset, len(self.truncations.get(partition, [])))

    def take_aborted(self, partition: int, records: Mapping[int, LoggedRecord]) -> None:
        """Remember records that may have been copied, and need not have been."""
        self.take(partition, records.items())
        self.aborted.setdefault(partition, set()).update(records)

    def truncate(self, partition: int, at: int, reported: int) -> int:
        """Note that everything from an offset on is gone; return how many records that were."""
        records = self.records.setdefault(partition, {})
        generations = self._generations.setdefault(partition, {})
        gone = {
            offset: (generations.pop(offset), records.pop(offset))
            for offset in [offset for offset in records if offset >= at]
        }
        self.truncations.setdefault(partition, []).append(Truncation(at, gone, reported))
        return len(gone)

    def items(self, partition: int, number: int) -> list[Item]:
        """Return every record that there ever was, in the order in which they were written."""
        generations = self._generations.get(partition, {})
        found = [
            Item(number, generations[offset], offset, record)
            for offset, record in self.records.get(partition, {}).items()
        ]
        found += [
            Item(number, generation, offset, record, gone=True)
            for truncation in self.truncations.get(partition, [])
            for offset, (generation, record) in truncation.gone.items()
        ]
        return sorted(found, key=lambda item: (item.generation, item.offset))


@dataclass(frozen=True, slots=True)
class Refusals:
    """The target has refused records above a size for a while.

    Those from ``first`` on, of the source, were not copied when it began; ``end`` is where the
    source ended when it was over, None while it lasts.
    """

    limit: int
    first: int
    end: int | None = None

    def may_refuse(self, offset: int, record: LoggedRecord) -> bool:
        """Whether the target may have refused the record alone."""
        size = len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
        # Its batch is larger than what is in it; smaller only where it is compressed.
        return size + 200 >= self.limit and offset >= self.first and offset < (self.end or 1 << 62)


@dataclass
class TopicHistory:
    """The lives of one source topic since its remote topic was created.

    ``trimmed`` is the target offset below which the target has lost its records, and ``kept`` what
    they were. ``interrupted``: an owner came to its end without a last report, two were at work, or
    the target left appends without an answer, so what was copied since the last report is known
    from the logs alone.
    """

    name: str
    remote: str
    partitions: list[AssignedPartition]
    compacted: bool
    remote_configs: Mapping[str, str]
    lives: list[Life] = field(default_factory=list)
    settings: RecordSettings = field(default_factory=RecordSettings)
    kept: dict[int, Records] = field(default_factory=dict)
    trimmed: dict[int, int] = field(default_factory=dict)
    target_cuts: dict[int, list[int]] = field(default_factory=dict)
    refusals: dict[int, list[Refusals]] = field(default_factory=dict)
    interrupted: bool = False
    remote_recreated: bool = False
    buried: list[Life] = field(default_factory=list)

    @property
    def keeps_timestamps(self) -> bool:
        """Whether the remote topic stores the records' own timestamps."""
        return self.remote_configs.get("message.timestamp.type") != "LogAppendTime"

    @property
    def target_compacts(self) -> bool:
        """Whether the target compacts the remote topic."""
        return "compact" in self.remote_configs.get("cleanup.policy", "")

    @property
    def life(self) -> Life:
        """The current life."""
        return self.lives[-1]

    def begin_refusals(self, partition: int, limit: int, copied: int) -> None:
        """Note that the target refuses records above a size from now on.

        Args:
            partition: of the topic.
            limit: bytes of a record.
            copied: up to where the source is copied by what its owner has told. That may be of
                before the source lost its end, even where it was told afterwards: what was written
                in its place is yet to be copied then.
        """
        cuts = [cut.at for cut in self.life.truncations.get(partition, [])]
        refusals = Refusals(limit, min([copied, *cuts]))
        self.refusals.setdefault(partition, []).append(refusals)

    def truncate(self, partition: int, at: int, copied: int) -> int:
        """Note that the source has lost its end; return how many records that were.

        What is written in its place is copied while the target refuses what it does.
        """
        refusals = self.refusals.get(partition, [])
        if refusals and refusals[-1].end is None:
            refusals[-1] = replace(refusals[-1], first=min(refusals[-1].first, at))
        return self.life.truncate(partition, at, copied)

    def is_filtered(self, record: LoggedRecord) -> bool:
        """Whether the flow's settings leave the record out."""
        return any(
            re.fullmatch(pattern, name)
            for pattern in self.settings.exclude_headers
            for name, _ in record.headers
        )

    def snapshot(self, pair: Pair) -> None:
        """Read everything the source holds now."""
        places = [(self.name, partition.partition) for partition in self.partitions]
        for (_, number), records in read_logs(pair.source_bootstrap, places).items():
            self.life.take(number, records)
            aborted = replicated_aborts(pair.source, self.name, number)
            self.life.take_aborted(number, aborted)

    def begin_life(self, partitions: list[AssignedPartition], *, same_target: bool) -> None:
        """Note that the topic exists under a new id, on the source or on the target."""
        self.partitions = partitions
        if not same_target:
            self.remote_recreated = bool(self.lives)
            self.buried = [*self.buried, *self.lives]
            self.lives = []
            self.kept, self.trimmed, self.target_cuts = {}, {}, {}
        self.lives.append(Life(partitions[0].topic_id, partitions[0].target_topic_id))

    def trim_target(
        self, partition: int, before: int, held: Iterable[tuple[int, LoggedRecord]]
    ) -> None:
        """Note that the target loses its records below an offset."""
        kept = self.kept.setdefault(partition, {})
        kept.update((offset, record) for offset, record in held if offset < before)
        self.trimmed[partition] = max(before, self.trimmed.get(partition, 0))

    def cut_target(self, partition: int, at: int) -> None:
        """Note that the target has lost its records from an offset on: they have to come again."""
        self.target_cuts.setdefault(partition, []).append(at)
        kept = self.kept.get(partition, {})
        for offset in [offset for offset in kept if offset >= at]:
            del kept[offset]
