"""Records of ``__srm-replication.<SOURCE>``: assignments, heartbeats, positions, statuses, notes.

=========  ====================  =============================  ==================================
partition  key                   written by                     value
=========  ====================  =============================  ==================================
0          driver                driver, every second           :class:`DriverHeartbeat`, JSON
0          request               client that stops the driver    :class:`DriverRequest`, JSON
0          settings              driver, when they change       the flow's settings in force, JSON
0          assignment:<slot>     driver, in a transaction       :class:`Assignment`, JSON
0          copied:<id>:<id>      driver, with the assignment    :class:`.CopiedTopic`, JSON
0          pause                 an unplanned failover          :class:`Pause`, JSON
0          notes:<id>:<t>-<n>    an operator's decision         :class:`PartitionNotes`, JSON
1          slot:<slot>:...       slot, every second             :mod:`.slot_records`, packed
1          status:<topic>-<n>    slot, when it changes          :class:`PartitionStatus`, JSON
1          notes:<slot>:<t>-<n>  slot, when it changes          :class:`PartitionNotes`, JSON
=========  ====================  =============================  ==================================

So a slot follows its commands without reading the reports of other slots.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Final, Literal, get_args

from srm.domain.offset_map.map_records import CopyId, MapEnd
from srm.domain.offset_map.offset_map import Position
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage, both_ends
from srm.domain.text.amount import amount, utc
from srm.domain.text.documents import Document, decoding
from srm.errors import IntegrityError, UsageError, message

DRIVER_KEY = b"driver"
REQUEST_KEY = b"request"
SETTINGS_KEY = b"settings"
ASSIGNMENT_PREFIX = b"assignment:"
SLOT_PREFIX = b"slot:"
STATUS_PREFIX = b"status:"

_NAMES: Final = ("topic", "topic_id", "target_topic", "target_topic_id")

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
"""Among the duties of a heartbeat: commits are translated at once."""
CARRYING: Final = "checkpoints and group offsets"
"""Name of the troubles of carrying commits over, in a heartbeat."""


def parse_duties(text: str) -> frozenset[Duty]:
    named = frozenset(name for part in text.split(",") if (name := part.strip()))
    if unknown := sorted(named.difference(DUTIES)):
        raise UsageError(f"--without: {', '.join(unknown)} is not one of {', '.join(DUTIES)}")
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

    ``number`` is the start time in epoch milliseconds, or one more than the largest number found;
    the random ``token`` decides between processes that started in the same millisecond.
    """

    number: int
    token: str

    def __str__(self) -> str:
        """Return the form used in keys, without a colon."""
        return f"{self.number}-{self.token}"

    @classmethod
    def parse(cls, text: str) -> Incarnation:
        number, token = text.split("-", 1)
        if ":" in token:
            raise ValueError(text)
        return cls(int(number), token)


NO_INCARNATION = Incarnation(0, "")
"""Placeholder until a process knows its incarnation."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions that one slot copies from ``generation`` on.

    Only the addressed process obeys, the last one that the driver knows: Spark may have lost an
    executor that still runs.
    """

    slot: str
    generation: int
    partitions: tuple[AssignedPartition, ...]
    incarnation: Incarnation | None = None

    def key(self) -> bytes:
        return ASSIGNMENT_PREFIX + self.slot.encode()

    def value(self) -> bytes:
        """Encode the record value: each topic once, with the numbers of its partitions."""
        topics = [
            dict(zip(_NAMES, names, strict=True)) | {"partitions": [p.partition for p in some]}
            for names, some in groupby(self.partitions, attrgetter(*_NAMES))
        ]
        value = {"slot": self.slot, "generation": self.generation, "topics": topics}
        if self.incarnation is not None:
            value["incarnation"] = str(self.incarnation)
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Assignment:
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
class DriverHeartbeat(Document):
    """Heartbeat of the replicator application; ``pid`` and ``host`` are informational.

    ``started_after`` is the id of the request in force at startup. The application obeys any other.
    ``ended`` is true in the last heartbeat of a clean end, after its slots have stopped: by the
    request of user ``stopped_by`` in the topic of ``stopped_flow``. ``flows`` are all flows of the
    application, also those whose clusters do not answer yet. ``duties`` are those of :data:`DUTIES`
    that it does for its flow, and `COMMITS`; ``troubles`` say which of them fail, and why.
    ``pending``: some of the topics that have no complete copy on the target.
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
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverRequest(Document):
    """Request to end the application of a flow; applications started before it obey.

    The order in the log decides, not the clocks: an application remembers the id ``request`` in
    force at its start and obeys any other. After a "stop", supervision starts no application until
    a "restart" request or a manual start.
    """

    KIND = "driver request"
    request: str
    action: Action
    by: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Position of one partition, with claim (-1: none) and the lineages of both logs before it."""

    topic_id: str
    partition: int
    target_topic_id: str
    position: Position
    producer_id: int
    producer_epoch: int
    source_lineage: Lineage = UNKNOWN_LINEAGE
    target_lineage: Lineage = UNKNOWN_LINEAGE
    map_end: MapEnd | None = None

    @property
    def copy_id(self) -> CopyId:
        return self.topic_id, self.partition, self.target_topic_id

    @property
    def may_have_written(self) -> bool:
        """True after a claim: the first one is reported at offset 0, before its first batch."""
        return self.position.target_next > 0 or self.producer_id >= 0


@dataclass(frozen=True, slots=True)
class SlotReport:
    """State of a slot: ``positions`` of the ``incarnation`` that started last.

    ``former`` positions are of other processes, or of partitions that the slot no longer copies,
    and count only without a newer report. ``source_heard_ms`` is the last answer of the source for
    all its partitions, by the clock of ``time_ms`` (0: unknown). ``source_growth`` is the largest
    growth of the source until then, in offsets a second. ``held_back`` are ends of source logs with
    an open transaction. ``host`` is where the process runs.
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
    host: str = ""


@dataclass(frozen=True, slots=True)
class PartitionStatus(Document):
    """State of one partition; a stopped one has a reason and, after a loss, the lost range.

    ``reason`` includes the action. ``time_ms`` is the start of the state. For a waiting or stopped
    partition it is the last time of progress, through all retries since, by any slot.
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
        return STATUS_PREFIX + f"{self.topic}-{self.partition}".encode()


NOTES_PREFIX = b"notes:"

Decision = Literal["", "keep", "discard", "cut", "after"]
"""Decision about the range of a note: kept on the source for groups that fail back (``keep``); kept
there, but skipped by them (``discard``); copied, but gone from the source (``cut``). ``after`` has
no range: the copy begins after the foreign records in the remote topic."""


@dataclass(frozen=True, slots=True)
class PartitionNotes(Document):
    """Notes of one slot, or a decision of an operator, about the copy of one topic id.

    Each writer has its own keys, so none overwrites another's notes. Ranges are source offsets,
    [from, to). ``lost`` counts all offsets that can never be copied, in ``ranges`` ranges;
    ``lost_from`` to ``lost_to`` is the newest (adjoining ones are one), ``loss`` its reason.
    ``strange`` is the newest anomaly that is not a loss. Records before target offset ``begins``
    belong to a former topic with this name. ``cuts`` are the newest source offsets at which the
    source lost its end, each with the target offset at which the copies of that end.

    A ``decision`` has one range, and a unique ``slot``. The copied part of a ``cut`` ends at
    ``target_next``. ``epoch`` is the leader epoch of the last batch before the range's end, -1 if
    unknown: a truncated log reuses offsets, so a decision counts as far as the log still holds that
    epoch. ``over`` has new ends of shortened decisions, by ``slot``.
    """

    KIND = "notes of a partition"
    slot: str
    topic: str
    partition: int
    topic_id: str
    lost: int = 0
    ranges: int = 0
    lost_from: int | None = None
    lost_to: int | None = None
    loss: str = ""
    strange: str = ""
    time_ms: int = 0
    begins: int | None = None
    decision: Decision = ""
    target_next: int | None = None
    target_topic_id: str = ""
    epoch: int = -1
    over: Mapping[str, int] = field(default_factory=dict, hash=False)
    cuts: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_decision(
        cls,
        decision: Decision,
        request: str,
        partition: tuple[str, int, str],
        offsets: tuple[int, int],
        why: str,
        now_ms: int,
        target_next: int | None = None,
        epoch: int = -1,
    ) -> PartitionNotes:
        """Note a decision about source offsets [from, to); ``why`` names the user."""
        topic, number, topic_id = partition
        noted = cls(f"{decision}-{request}", topic, number, topic_id)
        noted = noted.with_loss(*offsets, why, now_ms)
        return replace(noted, decision=decision, target_next=target_next, epoch=epoch)

    @classmethod
    def after_others(cls, assigned: AssignedPartition, by: str, now_ms: int) -> PartitionNotes:
        """Note the decision to copy after the foreign records in a remote topic."""
        topic_id, number, target_id = assigned.copy_id
        decided = cls(f"after-{target_id}", assigned.topic, number, topic_id)
        decided = replace(decided, decision="after", target_topic_id=target_id)
        text = f"the copy begins after the records of others in {assigned.target_topic} (by {by})"
        return decided.with_anomaly(text, now_ms)

    @property
    def copy_id(self) -> CopyId:
        """Copy that a decision ``after`` is about."""
        return self.topic_id, self.partition, self.target_topic_id

    @property
    def left_out(self) -> tuple[int, int] | None:
        """Range of source offsets that a decision excludes from copying."""
        if self.decision not in {"keep", "discard"}:
            return None
        return self.lost_from or 0, self.lost_to or 0

    def up_to(self, end: int) -> PartitionNotes | None:
        if self.left_out is None:
            return self
        start, known_end = self.left_out
        if start >= min(end, known_end):
            return None
        return self if end >= known_end else replace(self, lost_to=end, lost=end - start)

    def with_over(self, over: Mapping[str, int]) -> PartitionNotes:
        return replace(self, over={**self.over, **over})

    def with_loss(self, lost_from: int, lost_to: int, what: str, now_ms: int) -> PartitionNotes:
        adjoins = self.lost_to == lost_from
        return replace(
            self,
            lost=self.lost + lost_to - lost_from,
            ranges=self.ranges + (not adjoins),
            lost_from=self.lost_from if adjoins else lost_from,
            lost_to=lost_to,
            loss=what,
            time_ms=now_ms,
        )

    def with_cut(self, source_offset: int, target_next: int) -> PartitionNotes:
        return replace(self, cuts=(*self.cuts, (source_offset, target_next))[-20:])

    def with_anomaly(self, what: str, now_ms: int) -> PartitionNotes:
        """Note an anomaly that is not a loss; only the newest is kept."""
        return replace(self, strange=what, time_ms=now_ms)

    def with_begin(self, target_offset: int, now_ms: int) -> PartitionNotes:
        """Note that records before a target offset belong to a former topic with this name."""
        return replace(self, begins=target_offset, time_ms=self.time_ms or now_ms)

    @property
    def text(self) -> str:
        """Losses and anomalies in one line, with the time of the newest note."""
        texts = []
        newest = both_ends(self.lost_from or 0, self.lost_to or 0)
        if self.decision and self.lost:
            texts.append(f"{amount(self.lost, 'source offset')}, {newest}, {self.loss}")
        elif self.lost:
            offsets = "source offset" if self.lost == 1 else "source offsets"
            ranges = f" in {self.ranges} ranges, the last one" if self.ranges > 1 else ","
            texts.append(f"lost {self.lost} {offsets}{ranges} {newest}: {self.loss}")
        if self.strange:
            texts.append(self.strange)
        if not texts:
            return ""
        return f"{'; '.join(texts)} ({utc(self.time_ms)})"

    def key(self) -> bytes:
        return NOTES_PREFIX + f"{self.slot}:{self.topic}-{self.partition}".encode()


def in_force(notes: Iterable[PartitionNotes]) -> tuple[PartitionNotes, ...]:
    """Return the notes of one partition, with decisions shortened to the ends that slots found."""
    known = tuple(notes)
    ends: dict[str, int] = {}
    for note in known:
        ends |= {name: min(end, ends.get(name, end)) for name, end in note.over.items()}
    counting = (note.up_to(ends.get(note.slot, sys.maxsize)) for note in known)
    return tuple(note for note in counting if note is not None)


def begin_of_copy(notes: Collection[PartitionNotes]) -> int | None:
    """Return the largest noted offset where a re-created topic's copy begins, None if unknown."""
    return max((entry.begins for entry in notes if entry.begins is not None), default=None)


def with_notes(
    status: PartitionStatus | None, notes: Collection[PartitionNotes]
) -> PartitionStatus | None:
    """Append notes in force to a partition's status; a stopped one keeps what stopped it."""
    ordered = sorted(in_force(notes), key=lambda entry: entry.time_ms)
    if not ordered:
        return status
    # Discarded records are not missing.
    missing = [n for n in ordered if n.lost and n.decision != "discard"]
    newest = missing[-1] if missing else replace(ordered[-1], lost_from=None, lost_to=None)
    status = status or PartitionStatus(newest.topic, newest.partition, "copying")
    texts = [status.reason, *(entry.text for entry in ordered)]
    if (begins := begin_of_copy(notes)) is not None:
        texts.append(
            f"the topic was re-created: its copy begins at target offset {begins}, earlier "
            "records belong to the former topic"
        )
    status = replace(status, reason="; ".join(text for text in texts if text))
    if status.state == "stopped":
        return status
    return replace(status, lost_from=newest.lost_from, lost_to=newest.lost_to)


PAUSE_KEY: Final = b"pause"


@dataclass(frozen=True, slots=True)
class Pause(Document):
    """Pause of a flow: all copying stops, so that a returning source is not copied unasked.

    Several moves may abandon one source: ``move_id`` (empty for an operator) and ``joined`` share
    its pause until the last one leaves it, or a decision about the source's records deletes it.
    ``request`` is a unique id.
    """

    KIND = "pause"
    request: str
    by: str
    reason: str
    time_ms: int
    move_id: str = ""
    joined: tuple[str, ...] = ()

    @property
    def moves(self) -> tuple[str, ...]:
        return (*([self.move_id] if self.move_id else []), *self.joined)

    def joined_by(self, other: Pause) -> Pause:
        """Return the pause with the moves of both and the first one's reason."""
        new = (move_id for move_id in other.moves if move_id not in self.moves)
        return replace(self, request=other.request, joined=(*self.joined, *new))

    def without(self, move_id: str) -> Pause | None:
        """Return the pause without a move, None if no other move relies on it."""
        joined = tuple(one for one in self.joined if one != move_id)
        if self.move_id != move_id:
            return replace(self, joined=joined)
        return replace(self, move_id=joined[0], joined=joined[1:]) if joined else None


def read_pause(records: Mapping[bytes, bytes]) -> Pause | None:
    """Return a flow's pause, None without one. A damaged one counts: it must not start copying."""
    value = records.get(PAUSE_KEY)
    if value is None:
        return None
    try:
        return Pause.decode(value)
    except IntegrityError as error:
        return Pause("", "", f"its record cannot be read: {error}", 0)
