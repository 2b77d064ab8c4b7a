"""Records of ``__srm-replication.<SOURCE>``: assignments, heartbeats, positions, statuses.

=========  ====================  =============================  ==================================
partition  key                   written by                     value
=========  ====================  =============================  ==================================
0          driver                driver, every second           :class:`DriverHeartbeat`, JSON
0          request               client that stops the driver    :class:`DriverRequest`, JSON
0          settings              driver, when they change       the flow's settings in force, JSON
0          assignment:<slot>     driver, in a transaction       :class:`Assignment`, JSON
0          copied:<id>:<id>      driver, with the assignment    :class:`.CopiedTopic`, JSON
0          pause                 an unplanned failover          :class:`.Pause`, JSON
0          notes:<id>:<t>-<n>    an operator's decision         :class:`.PartitionNotes`, JSON
1          slot:<slot>:...       slot, every second             :mod:`.slot_records`, packed
1          status:<topic>-<n>    slot, when it changes          :class:`PartitionStatus`, JSON
1          notes:<slot>:<t>-<n>  slot, when it changes          :class:`.PartitionNotes`, JSON
=========  ====================  =============================  ==================================

So a slot follows its commands without reading the reports of other slots.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal, get_args

from srm.domain.offset_map.lineage import UNKNOWN, Lineage
from srm.domain.offset_map.map_records import CopyId, MapEnd
from srm.domain.offset_map.offset_map import Position
from srm.domain.text.json_records import JsonRecord, decoding
from srm.errors import UsageError, message

DRIVER_KEY = b"driver"
REQUEST_KEY = b"request"
SETTINGS_KEY = b"settings"
ASSIGNMENT_PREFIX = b"assignment:"
SLOT_PREFIX = b"slot:"
STATUS_PREFIX = b"status:"

_TOPICS: Final = attrgetter("topic", "topic_id", "target_topic", "target_topic_id")

COMMANDS = 0
"""Partition of driver records and of requests to the driver."""
REPORTS = 1
"""Partition of slot reports."""
STATE_PARTITIONS = 2

State = Literal["claiming", "copying", "waiting", "stopped"]
AT_REST: Final[frozenset[State]] = frozenset({"waiting", "stopped"})
"""States of a partition that makes no progress."""
Action = Literal["stop", "restart"]
Duty = Literal["checkpoints", "group-offsets", "topics"]
DUTIES: Final[tuple[Duty, ...]] = get_args(Duty)
"""Work of a driver besides the copy; each may be left to a scheduler."""
COMMITS: Final = "commits"
"""Among the duties of a heartbeat: commits are carried over as they come."""


def parse_duties(text: str) -> frozenset[Duty]:
    """Return the duties of a list that is separated by commas."""
    named = frozenset(name for part in text.split(",") if (name := part.strip()))
    if unknown := sorted(named.difference(DUTIES)):
        raise UsageError(f"--without: {', '.join(unknown)} is none of {', '.join(DUTIES)}")
    return frozenset(duty for duty in DUTIES if duty in named)


HeldBack = tuple[str, int, int]
"""Remote topic id, partition, end of a source log held back by an open transaction."""


@dataclass(frozen=True, slots=True, order=True)
class AssignedPartition:
    """One source partition to copy, both topics by name and id."""

    topic: str
    partition: int
    topic_id: str
    target_topic: str
    target_topic_id: str

    @property
    def copy_id(self) -> CopyId:
        """Identity of this copy, which differs from copies of former topics with these names."""
        return self.topic_id, self.partition, self.target_topic_id


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One process of a slot; the largest incarnation of a slot started last.

    ``number`` is the start time in epoch milliseconds, or one more than the largest number found.
    ``token`` is random. It decides between processes that started in the same millisecond.
    """

    number: int
    token: str

    def __str__(self) -> str:
        """Return the form used in keys, without a colon."""
        return f"{self.number}-{self.token}"

    @classmethod
    def parse(cls, text: str) -> Incarnation:
        """Parse the form that :meth:`__str__` returns."""
        number, token = text.split("-", 1)
        if ":" in token:
            raise ValueError(text)
        return cls(int(number), token)


NOBODY = Incarnation(0, "")
"""Placeholder until a process knows its incarnation."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions that one slot copies from ``generation`` on.

    ``incarnation`` is the addressed process, the last one started that the driver knows. An older
    process that still runs, for example on an executor that Spark lost, ignores the assignment.
    """

    slot: str
    generation: int
    partitions: tuple[AssignedPartition, ...]
    incarnation: Incarnation | None = None

    def key(self) -> bytes:
        """Encode the record key."""
        return ASSIGNMENT_PREFIX + self.slot.encode()

    def value(self) -> bytes:
        """Encode the record value: each topic once, with the numbers of its partitions."""
        topics = [
            {
                "topic": first.topic,
                "topic_id": first.topic_id,
                "target_topic": first.target_topic,
                "target_topic_id": first.target_topic_id,
                "partitions": [first.partition, *(p.partition for p in rest)],
            }
            for _, (first, *rest) in groupby(self.partitions, _TOPICS)
        ]
        value: dict[str, Any] = {"slot": self.slot, "generation": self.generation}
        value["topics"] = topics
        if self.incarnation is not None:
            value["incarnation"] = str(self.incarnation)
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Assignment:
        """Decode a record value."""
        with decoding("assignment", value):
            raw = json.loads(value)
            partitions = tuple(
                AssignedPartition(partition=number, **names)
                for names in raw["topics"]
                for number in names.pop("partitions")
            )
            meant = raw.get("incarnation")
            incarnation = None if meant is None else Incarnation.parse(meant)
            return cls(raw["slot"], raw["generation"], partitions, incarnation)


@dataclass(frozen=True, slots=True)
class DriverHeartbeat(JsonRecord):
    """Heartbeat of the replicator application; ``pid`` and ``host`` are informational.

    ``started_after`` is the id of the request in force at startup. The application obeys any other.
    ``ended`` is true in the last heartbeat of a clean end, after its slots have stopped.
    ``started_ms`` is the start time, 0 if unknown.
    ``stopped_by`` is the user whose request stopped it, ``stopped_flow`` the flow whose topic holds
    it.
    ``flows`` are all flows of the application, also those whose clusters do not answer yet.
    ``duties`` are those of :data:`DUTIES` that this driver does for its flow, and `COMMITS`.
    ``troubles`` say which of them fail, and why.
    """

    KIND = "driver heartbeat"
    driver: str
    application_id: str
    host: str
    pid: int
    time_ms: int
    started_after: str = ""
    ended: bool = False
    started_ms: int = 0
    stopped_by: str = ""
    stopped_flow: str = ""
    flows: tuple[str, ...] = ()
    duties: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverRequest(JsonRecord):
    """Request to end the application of a flow; applications started before it obey.

    The order in the log decides, not the clocks. An application remembers the ``request`` (a unique
    id) in force at its start and obeys any other. After a "stop", supervision starts no application
    until a "restart" request or a manual start. ``by`` is informational.
    """

    KIND = "driver request"
    request: str
    action: Action
    by: str
    time_ms: int

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise ValueError(self.action)


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Position of one partition, with claim (-1: none) and the lineages of both logs before it."""

    topic_id: str
    partition: int
    target_topic_id: str
    position: Position
    producer_id: int
    producer_epoch: int
    source_lineage: Lineage = UNKNOWN
    target_lineage: Lineage = UNKNOWN
    map_end: MapEnd | None = None

    @property
    def copy_id(self) -> CopyId:
        """Identity of the copy, as in :class:`AssignedPartition`."""
        return self.topic_id, self.partition, self.target_topic_id


@dataclass(frozen=True, slots=True)
class SlotReport:
    """State of a slot, decoded from its records.

    ``incarnation`` is the process that started last, ``positions`` are its positions.
    ``former`` are older positions, which count only without a newer report. They are from other
    processes of the slot, or from partitions that the slot no longer copies.
    ``source_heard_ms`` is the last answer of the source to any process of the slot for all its
    partitions, by the clock of ``time_ms``; 0 if unknown.
    ``source_growth`` is the largest growth of the source until then, in offsets a second.
    ``held_back`` are the last reported ends of source logs with an open transaction.
    """

    slot: str
    generation: int
    time_ms: int
    positions: tuple[PartitionPosition, ...]
    incarnation: Incarnation | None = None
    former: tuple[PartitionPosition, ...] = ()
    source_heard_ms: int = 0
    source_growth: int = 0
    held_back: tuple[HeldBack, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionStatus(JsonRecord):
    """State of one partition; a stopped one has a reason and, after a loss, the lost range.

    ``reason`` includes the action. ``action`` is empty if unknown or in records of old versions.
    ``time_ms`` is the start of the state. For a waiting or stopped partition it is the
    last time of progress, through all retries since, by any slot.
    """

    KIND = "status"
    topic: str
    partition: int
    state: State
    reason: str = ""
    lost_from: int | None = None
    lost_to: int | None = None
    time_ms: int = 0
    action: str = ""

    @property
    def why(self) -> str:
        """Reason without the partition, for use next to the partition's name."""
        return self.reason.removeprefix(f"{self.topic}-{self.partition}: ")

    @property
    def what(self) -> str:
        """Reason without partition and action, for use next to both."""
        return self.why.removesuffix(message("", self.action)) if self.action else self.why

    def key(self) -> bytes:
        """Encode the record key."""
        return STATUS_PREFIX + f"{self.topic}-{self.partition}".encode()
