"""Compacted topics of the fake cluster: tables, state logs and offset maps."""

from __future__ import annotations

import base64
import uuid
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from srm.clock import now_ms
from srm.domain.flow_state.replication_records import PartitionNotes, PartitionStatus, SlotReport
from srm.domain.names.topics import TopicPartition, topic_id_text
from srm.domain.offset_map.map_loader import Answers, Wanted, WantedOffsets, load, unread
from srm.domain.offset_map.map_records import (
    Entries,
    IndexEntry,
    IndexKey,
    IndexKind,
    IndexRecord,
    MapBlock,
    MapEnd,
)
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.cluster_ports import Row, Stamped
from srm.engine.ports import FlowMaps
from srm.errors import FencedError, NotFoundError, SrmError, UnavailableError, UsageError
from srm.replication.ports import Place, WriteResult

LARGEST_RECORD: Final = 999_964
"""Key and value that librdkafka accepts together: 1,000,000 bytes less 36 for the record."""
_LARGEST_STATE: Final = 128 << 20


@dataclass
class FakePartition:
    """One partition: its first offset, the one after its last, and keyed records if it has any.

    ``places`` are the offsets of the records, ``times`` pairs of the first offset and the
    timestamp of what was produced together. ``contents`` are records with contents of their own,
    all others are alike. The offsets in ``holes`` have no record (a marker, for example), those in
    ``aborted`` were never committed. ``epochs`` are pairs of first offset and leader epoch.
    """

    start: int = 0
    end: int = 0
    records: list[tuple[bytes, bytes | None, int]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    contents: dict[int, ComparedRecord] = field(default_factory=dict)
    holes: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    def truncate(self, end: int) -> None:
        """Lose the end of the log; what is written from now on has another leader epoch."""
        self.end = min(self.end, end)
        self.epochs = [(at, epoch) for at, epoch in self.epochs if at < self.end or not at]
        self.epochs.append((self.end, self.epochs[-1][1] + 1))

    def epoch_end(self, epoch: int) -> int:
        """Return where a later leader epoch begins, or the log end; -1 for an unknown epoch."""
        if epoch not in {known for _, known in self.epochs}:
            return -1
        return next((at for at, later in self.epochs if later > epoch), self.end)

    def mark(self, markers: int = 1) -> None:
        """Add markers at the end."""
        self.holes.update(range(self.end, self.end + markers))
        self.end += markers

    def first_record(self, offset: int, end: int, *, committed: bool) -> ComparedRecord | None:
        """Return the first record at or after an offset, before an end."""
        for at in range(max(offset, self.start), end):
            if at not in self.holes and not (committed and at in self.aborted):
                return self.contents.get(at, ComparedRecord(at, None, b"", (), 0))
        return None

    def grow(self, records: int, timestamp_ms: int) -> None:
        """Add records without keys at the end, with their timestamp."""
        self.times.append((self.end, timestamp_ms))
        self.end += records

    def append(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Add a keyed record at the end, with its timestamp."""
        self.records.append((key, value, timestamp_ms))
        self.places.append(self.end)
        self.grow(1, timestamp_ms)

    def at(self, offsets: Collection[int]) -> dict[int, Row]:
        """Return the keyed records at these offsets."""
        found: dict[int, Row] = {}
        for offset in offsets:
            index = bisect_left(self.places, offset)
            if index < len(self.places) and self.places[index] == offset >= self.start:
                key, value, _ = self.records[index]
                found[offset] = key, value
        return found

    def rows(self) -> list[tuple[int, bytes, bytes | None]]:
        """Return the keyed records that the log still holds, with their offsets."""
        pairs = zip(self.places, self.records, strict=True)
        return [(place, key, value) for place, (key, value, _) in pairs if place >= self.start]

    def compact(self) -> None:
        """Retain only the latest record of each key, at its offset; the last one of all stays."""
        latest = {key: index for index, (key, _, _) in enumerate(self.records)}
        kept = sorted(latest.values())
        self.records = [self.records[index] for index in kept]
        self.places = [self.places[index] for index in kept]


@dataclass
class FakeTopic:
    """One topic: its id, its partitions, what was set on it, and how many replicas it has."""

    topic_id: str
    partitions: list[FakePartition]
    configs: dict[str, str]
    replicas: int = 1


def random_id() -> str:
    """Return an id as Kafka makes them for clusters and topics."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def system_clock() -> int:
    """Epoch milliseconds by the system clock."""
    return now_ms()


class FakeCompactedTopic:
    """One partition of a compacted topic (implements the engine's CompactedTopic).

    ``name``: topic and partition, for messages. ``find``: returns the partition, None while it does
    not exist; raises when the cluster is down. ``clock``: epoch milliseconds, for the timestamps of
    records. ``stamped``: whether the topic has ``message.timestamp.type=LogAppendTime``.
    ``limit``: its ``max.message.bytes``, of a compressed record.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[str], FakePartition | None],
        clock: Callable[[], int] = system_clock,
        *,
        stamped: bool = False,
        limit: int = 1048588,
    ) -> None:
        self._name = name
        self._find = find
        self._clock = clock
        self._stamped = stamped
        self._limit = limit

    def read(self) -> dict[bytes, bytes]:
        """Return the latest value of each key; no topic reads empty."""
        return {key: rows[-1].value for key, rows in self.read_history().items()}

    def read_stamped(self) -> dict[bytes, Stamped]:
        """Return what :meth:`read` returns, with timestamps."""
        return {key: rows[-1] for key, rows in self.read_history().items()}

    def read_history(self) -> dict[bytes, tuple[Stamped, ...]]:
        """Return all values of each key since its last tombstone, oldest first."""
        partition = self._find(f"reading {self._name}")
        table: dict[bytes, tuple[Stamped, ...]] = {}
        for key, value, timestamp_ms in partition.records if partition else ():
            rows = table.pop(key, ())
            if value is not None:
                table[key] = (*rows, Stamped(value, timestamp_ms, by_broker=self._stamped))
        return table

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Show all records; no topic has none."""
        partition = self._find(f"reading {self._name}")
        for place, key, value in partition.rows() if partition else ():
            visit(place, key, value)

    def at(self, offsets: Collection[int]) -> dict[int, Row]:
        """Return the records at these offsets; offsets without a record are left out."""
        partition = self._find(f"reading places of {self._name}")
        return partition.at(offsets) if partition else {}

    def write(
        self, records: Mapping[bytes, bytes | None], largest: int = LARGEST_RECORD
    ) -> int | None:
        """Append in the given order; None is a tombstone.

        NotFoundError: the topic does not exist. UsageError: a record is too large; those before it
        were written.
        """
        if not records:
            return None
        partition, stamp = self.require(), self._clock()
        for key, value in records.items():
            size = len(key) + len(value or b"")
            if size > largest or (size > self._limit and self._is_refused(value or b"")):
                raise UsageError(f"writing {self._name}: Message size too large")
            partition.append(key, value, stamp)
        return stamp if self._stamped else None

    def _is_refused(self, value: bytes) -> bool:
        return len(zlib.compress(value, 1)) > self._limit

    def require(self) -> FakePartition:
        """Return the partition.

        NotFoundError: the topic does not exist.
        """
        partition = self._find(f"writing {self._name}")
        if partition is None:
            raise NotFoundError(f"writing {self._name}: unknown topic or partition")
        return partition


class FakeControlWriter:
    """A fenced writer in memory (implements the engine's ControlWriter).

    ``name``: transactional id and cluster, for messages. ``topic``: gives access to partition 0 of
    a topic; fails when the cluster is down. ``epochs``: the latest epoch of each transactional id,
    shared by all writers of a cluster. ``transactional_id``: whose epoch is raised by this.
    """

    def __init__(
        self,
        name: str,
        topic: Callable[[str], FakeCompactedTopic],
        epochs: dict[str, int],
        transactional_id: str,
    ) -> None:
        self._name = name
        self._topic = topic
        self._epochs = epochs
        self._id = transactional_id
        self._epoch = epochs.get(transactional_id, 0) + 1
        epochs[transactional_id] = self._epoch

    def write(
        self,
        tables: Mapping[str, Mapping[bytes, bytes | None]],
        before_commit: Callable[[], None] = lambda: None,
    ) -> dict[str, int]:
        """Write records by topic, all or none; None is a tombstone.

        FencedError: a newer writer was opened. NotFoundError: a topic does not exist.
        """
        named = {name: records for name, records in tables.items() if records}
        places = {name: self._topic(name) for name in named}
        self._require_newest()
        for place in places.values():
            place.require()
        before_commit()
        self._require_newest()
        stamps = {
            name: places[name].write(records, _LARGEST_STATE) for name, records in named.items()
        }
        return {name: time_ms for name, time_ms in stamps.items() if time_ms is not None}

    def close(self) -> None:
        """Drop the writer."""

    def _require_newest(self) -> None:
        if self._epochs[self._id] != self._epoch:
            raise FencedError(f"writing as {self._name}: a newer step of a move is at work")


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """One record, as it was handed over."""

    place: Place
    key: bytes
    value: bytes | None


class FakeStateLog:
    """Keeps what is written (implements the data plane's StateLog).

    ``records``: all records that were acknowledged, in order. ``unreachable``: places that are
    unreachable: a record written there is delayed until they are back. ``refused``: places that
    refuse records, with the reason.
    """

    def __init__(self) -> None:
        self.records: list[WrittenRecord] = []
        self.unreachable: set[Place] = set()
        self.refused: dict[Place, SrmError] = {}
        self._on_their_way: list[WrittenRecord] = []
        self._failed: dict[Place, SrmError] = {}
        self._ends: Counter[Place] = Counter()
        self._offsets = defaultdict[Place, dict[bytes, int]](dict)

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """See the port."""
        self._on_their_way.append(WrittenRecord((topic, partition), key, value))
        self._deliver()

    def waiting(self, place: Place) -> int:
        """See the port; nothing arrives by counting, as in a producer that is not polled."""
        return sum(record.place == place for record in self._on_their_way)

    def settle(self, places: Collection[Place], timeout_s: float) -> WriteResult:
        """See the port; does not wait, as nothing changes in the meantime."""
        del timeout_s
        self._deliver()
        failed = {p: self._failed.pop(p) for p in places if p in self._failed}
        pending = frozenset(p for p in places if p not in failed and self.waiting(p))
        offsets = {p: self._offsets.pop(p) for p in places if p in self._offsets}
        return WriteResult(failed, pending, offsets)

    def flush(self, timeout_s: float) -> None:
        """See the port."""
        places = {record.place for record in self._on_their_way} | self._failed.keys()
        settled = self.settle(places, timeout_s)
        for failure in settled.failed.values():
            raise failure
        if settled.pending:
            raise UnavailableError(f"not acknowledged: {sorted(settled.pending)}")

    def table(self, place: Place) -> dict[bytes, bytes]:
        """Return the latest value of each key of a place."""
        rows = {record.key: record.value for record in self.records if record.place == place}
        return {key: value for key, value in rows.items() if value is not None}

    def _deliver(self) -> None:
        late = []
        for record in self._on_their_way:
            place = record.place
            if place in self.unreachable:
                late.append(record)
            elif place in self.refused:
                self._failed[place] = self.refused[place]
            else:
                self.records.append(record)
                self._offsets[place][record.key] = self._ends[place]
                self._ends[place] += 1
        self._on_their_way = late


class FakeMapReader:
    """Holds the maps of one flow (implements the engine's MapReader)."""

    def __init__(self, maps: Mapping[TopicPartition, OffsetMap] | None = None) -> None:
        self.maps: dict[TopicPartition, OffsetMap] = dict(maps or {})
        self.errors: dict[TopicPartition, str] = {}
        self.reports: tuple[SlotReport, ...] = ()
        self.statuses: dict[TopicPartition, PartitionStatus] = {}
        self.notes: dict[TopicPartition, tuple[PartitionNotes, ...]] = {}

    def put(
        self, partition: TopicPartition, runs: Iterable[Run], position: Position | None = None
    ) -> None:
        """Replace the map of one source partition.

        IntegrityError: the runs contradict each other.
        """
        self.maps[partition] = OffsetMap.of(runs, position)

    def load(self, topics: Collection[str], wanted: WantedOffsets | None = None) -> FlowMaps:
        """Return what the test stated about the given source topics, as little as was requested.

        With offsets, a map is a window around them: a caller that forgot one gets an error.
        """
        return FlowMaps(
            {
                p: known if wanted is None else _window(known, wanted.get(p))
                for p, known in self.maps.items()
                if p.topic in topics
            },
            self.reports,
            {p: status for p, status in self.statuses.items() if p.topic in topics},
            {p: reason for p, reason in self.errors.items() if p.topic in topics},
            {p: notes for p, notes in self.notes.items() if p.topic in topics},
        )


_ID: Final = topic_id_text(bytes(16))
_COPY: Final = (_ID, 0, _ID)
_RUNS_PER_BLOCK: Final = 2


def _window(known: OffsetMap, wanted: Wanted | None) -> OffsetMap:
    """Return a map around what is wanted, as if it had been written in the smallest of blocks."""
    if wanted is None:
        return OffsetMap() if known.position is None else unread(known.position)
    runs = known.runs
    blocks = [
        MapBlock("", *_COPY, (), runs[at : at + _RUNS_PER_BLOCK], open_end=False, owner=(0, at))
        for at in range(0, len(runs), _RUNS_PER_BLOCK)
    ]
    if not blocks:
        return known
    rows = [(block.key(), block.value()) for block in blocks]
    entries = Entries.of(IndexEntry.of_block(block, at) for at, block in enumerate(blocks[:-1]))
    chunk = IndexRecord(IndexKey(IndexKind.CHUNK, *_COPY, (0, 0)), entries)
    rows.append((chunk.key.encode(), chunk.value()))
    end = MapEnd(blocks[-1].block_key.target_start, blocks[-1].owner, len(blocks) - 1, len(blocks))
    steps = load(_COPY, end, known.position, wanted)
    needs = next(steps)
    try:
        while True:
            answers: Answers = {need: rows[need.place] for need in needs}
            needs = steps.send(answers)
    except StopIteration as stop:
        found: OffsetMap = stop.value.offset_map
        return found
