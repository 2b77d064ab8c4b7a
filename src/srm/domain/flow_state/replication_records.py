"""Records of the topic ``srm-replication.<SOURCE>.internal``: who copies what, and how far it is.

=========  ====================  =============================  ==================================
partition  key                   written by                     value
=========  ====================  =============================  ==================================
0          driver                driver, every second           :class:`DriverHeartbeat`, JSON
0          request               whoever asks it to end         :class:`DriverRequest`, JSON
0          assignment:<slot>     driver, in a transaction       :class:`Assignment`, JSON
0          copied:<id>:<id>      driver, with the assignment    :class:`.CopiedTopic`, JSON
0          pause                 an unplanned failover          :class:`.Pause`, JSON
0          notes:<id>:<t>-<n>    an operator's decision         :class:`.PartitionNotes`, JSON
1          slot:<slot>:...       slot, every second             :mod:`.slot_records`, packed
1          status:<topic>-<n>    slot, when it changes          :class:`PartitionStatus`, JSON
1          notes:<slot>:<t>-<n>  slot, when it changes          :class:`.PartitionNotes`, JSON
=========  ====================  =============================  ==================================

So a slot, which has to know what it is told, does not read what all the others report.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal, get_args

from srm.domain.offset_map.offset_map import Position
from srm.domain.text import json_records
from srm.domain.text.json_records import decoding
from srm.errors import message

DRIVER_KEY = b"driver"
REQUEST_KEY = b"request"
ASSIGNMENT_PREFIX = b"assignment:"
SLOT_PREFIX = b"slot:"
STATUS_PREFIX = b"status:"

COMMANDS = 0
"""Partition of what the driver says, and of what it is asked."""
REPORTS = 1
"""Partition of what slots say."""
STATE_PARTITIONS = 2

State = Literal["claiming", "copying", "waiting", "stopped"]
AT_REST: Final[frozenset[State]] = frozenset({"waiting", "stopped"})
"""States of a partition that does not go on."""
Action = Literal["stop", "restart"]

CopyId = tuple[str, int, str]
"""Source topic id, partition number, target topic id: what a position is about."""
HeldBack = tuple[str, int, int]
"""Remote topic id, partition, and the end of a source's log behind an open transaction."""


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
        """What tells this copy from one between topics that had the same names before."""
        return self.topic_id, self.partition, self.target_topic_id


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One process that is a slot: its ``number`` is larger than all that it found when it started.

    It is the epoch milliseconds of that moment, unless an equal or larger one was found. Those of
    one slot are ordered: the largest one started last. Two that start at the same moment may have
    the same number; then the ``token``, which is random, decides.
    """

    number: int
    token: str

    def __str__(self) -> str:
        """Show it as it stands in keys: without a colon."""
        return f"{self.number}-{self.token}"

    @classmethod
    def parse(cls, text: str) -> Incarnation:
        """Read what :meth:`__str__` shows.

        Raises:
            ValueError: the text is not that.
        """
        number, token = text.split("-", 1)
        if ":" in token:
            raise ValueError(text)
        return cls(int(number), token)


NOBODY = Incarnation(0, "")
"""Before a process knows who it is."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one slot copies from ``generation`` on.

    ``incarnation`` is the process that is meant, the last one to start that the driver knows of: an
    older one that still runs (on an executor that Spark has lost sight of, say) is not.
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
            for _, (first, *rest) in groupby(self.partitions, _topics_of)
        ]
        value: dict[str, Any] = {"slot": self.slot, "generation": self.generation}
        value["topics"] = topics
        if self.incarnation is not None:
            value["incarnation"] = str(self.incarnation)
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Assignment:
        """Decode a record value.

        Raises:
            IntegrityError: the value is not an assignment.
        """
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


def _topics_of(assigned: AssignedPartition) -> tuple[str, str, str, str]:
    return assigned.topic, assigned.topic_id, assigned.target_topic, assigned.target_topic_id


@dataclass(frozen=True, slots=True)
class DriverHeartbeat:
    """Sign of life of the replicator application; ``pid`` and ``host`` are for people.

    ``started_after`` is the id of the request that stood when the application started: any other
    one is meant for it. ``ended`` is true in the last heartbeat of one that ended in good order:
    its slots have stopped. ``started_ms`` is when it began, 0: not told. One that a request to stop
    has ended says in the heartbeats of all its flows who asked, ``stopped_by``, and in the state
    topic of which flow the request is, ``stopped_flow``. ``flows`` are all flows of the
    application, also those whose clusters do not answer yet.
    """

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

    def value(self) -> bytes:
        """Encode the record value."""
        return json_records.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> DriverHeartbeat:
        """Decode a record value.

        Raises:
            IntegrityError: the value is not a driver heartbeat.
        """
        found = json_records.decode(cls, "driver heartbeat", value)
        return replace(found, flows=tuple(found.flows))


@dataclass(frozen=True, slots=True)
class DriverRequest:
    """Asks the application that drives a flow to end; obeyed by those that started before it.

    Before and after are the order in the log, not that of clocks: an application notes the
    ``request`` (a unique id) that stands when it starts and obeys any other one. After a "stop"
    supervision starts no application until a "restart" is asked for or somebody has started one by
    hand. ``by`` is for people.
    """

    request: str
    action: Action
    by: str
    time_ms: int

    def value(self) -> bytes:
        """Encode the record value."""
        return json_records.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> DriverRequest:
        """Decode a record value.

        Raises:
            IntegrityError: the value is not a request that this version knows.
        """
        found = json_records.decode(cls, "driver request", value)
        with decoding("driver request", value):
            if found.action not in get_args(Action):
                raise ValueError(found.action)
            return found


@dataclass(frozen=True, slots=True)
class MapEnd:
    """The end of a partition's offset map: what a reader has to find, or knows to be missing.

    ``target_start`` and ``owner`` are those of the last block's key. The places are offsets in the
    partition of the map topic, -1 where not known: of the last block as it was last written, and of
    the newest index record.
    """

    target_start: int
    owner: tuple[int, int]
    place: int = -1
    index_place: int = -1


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Position of one partition, with the epoch of the claim it was written under (-1: none).

    The leader epochs are those of the batches before the position, -1 if not known.
    """

    topic_id: str
    partition: int
    target_topic_id: str
    position: Position
    source_leader_epoch: int
    producer_id: int
    producer_epoch: int
    target_leader_epoch: int = -1
    map_end: MapEnd | None = None

    @property
    def copy_id(self) -> CopyId:
        """The same as that of the :class:`AssignedPartition`."""
        return self.topic_id, self.partition, self.target_topic_id


@dataclass(frozen=True, slots=True)
class SlotReport:
    """A slot as its records tell it: how far each partition is that it copies.

    ``incarnation`` is the process that started last, whose ``positions`` these are. ``former`` are
    what other processes of the slot told last, and positions of partitions that the slot copies no
    more: they count where nobody has told anything newer. ``source_heard_ms`` is when any process
    of the slot last had an answer of the source for all that it copied, by the clock of
    ``time_ms``; 0 where that is not known. ``source_growth`` is the most that the source grew by
    then, in offsets a second. ``held_back`` are the ends of logs of the source that go on behind an
    open transaction, as they were last told.
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
class PartitionStatus:
    """State of one partition; a stopped one has a reason and, after a loss, the lost range.

    The reason says what to do as well; ``action`` is only that, empty where nothing is known or the
    record was written before there was such a field. ``time_ms`` is when the state began: of one
    that rests, when it last went on, through all that was tried since, and by whomever.
    """

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
        """The reason without the partition, where that stands beside it."""
        return self.reason.removeprefix(f"{self.topic}-{self.partition}: ")

    @property
    def what(self) -> str:
        """The reason without the partition and what is to be done, where those stand beside it."""
        return self.why.removesuffix(message("", self.action)) if self.action else self.why

    def key(self) -> bytes:
        """Encode the record key."""
        return STATUS_PREFIX + f"{self.topic}-{self.partition}".encode()

    def value(self) -> bytes:
        """Encode the record value."""
        return json_records.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> PartitionStatus:
        """Decode a record value.

        Raises:
            IntegrityError: the value is not a status.
        """
        return json_records.decode(cls, "status", value)
