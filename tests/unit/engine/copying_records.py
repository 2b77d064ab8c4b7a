"""A partition with records that differ, its copy, and the exact map, as a test describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from srm.domain.flow_state.replication_records import Decision, PartitionNotes
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.ports import FlowContext
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import FakeClock, flow_config

ORIGINAL = TopicPartition("Topic", 0)
COPY = TopicPartition("P.Topic", 0)


@dataclass
class CopiedTopic:
    """``Topic`` on P and its copy on B.

    ``write`` adds records to the original, ``copy`` copies all that is not copied yet.
    """

    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.p, self.b = FakeCluster("P", clock=self.clock), FakeCluster("B", clock=self.clock)
        self.p.add_topic("Topic")
        self.b.add_topic("P.Topic")
        for cluster in (self.p, self.b):
            cluster.add_topic(internal_topics.MOVES)
        self.maps, self.reverse_maps = FakeMapReader(), FakeMapReader()
        self.runs: list[Run] = []
        self.pairs: list[tuple[int, int]] = []
        self.waiting: list[ComparedRecord] = []
        self.lost: list[int] = []
        self.put()

    @classmethod
    def in_part(cls) -> CopiedTopic:
        """Copy ten records, and leave three that are not copied."""
        made = cls()
        made.write(*(b"%d" % number for number in range(10)))
        made.copy()
        made.write(b"10", b"11", b"12")
        return made

    @property
    def forward(self) -> FlowContext:
        return self._context(Flow("P", "B"))

    @property
    def backward(self) -> FlowContext:
        """The opposite flow: it carries groups of the copy back to the original."""
        return self._context(Flow("B", "P"))

    def _context(self, flow: Flow) -> FlowContext:
        of = {"P": self.p, "B": self.b}
        maps = self.maps, self.reverse_maps
        settings = {"reverse_checkpointed_topics": ("P.Topic",), **self.settings}
        return FlowContext(
            flow_config(flow, **settings),
            of[flow.source],
            of[flow.target],
            *(maps if flow.source == "P" else maps[::-1]),
            self.clock,
        )

    def write(self, *values: bytes, headers: tuple[tuple[str, bytes | None], ...] = ()) -> None:
        for value in values:
            at = self.source_end
            record = ComparedRecord(at, b"key", value, headers, 1000 + at)
            self.p.produce_records("Topic", 0, [record])
            self.waiting.append(record)

    def lose(self) -> None:
        """Let the oldest record that is not copied yet be one that never will be, as noted."""
        record = self.waiting.pop(0)
        self.lost.append(record.offset)
        [*known] = self.maps.notes.get(ORIGINAL, ())
        note = known[0] if known else PartitionNotes("0", "Topic", 0, "id")
        self.maps.notes[ORIGINAL] = (
            note.with_loss(record.offset, record.offset + 1, "refused", self.clock()),
        )

    def leave(self, decision: Decision) -> None:
        """Let all that is not copied yet be left on the source, as was decided."""
        offsets = self.waiting[0].offset, self.source_end
        note = PartitionNotes.from_decision(
            decision, f"r{offsets[0]}", ("Topic", 0, "id"), offsets, "left", self.clock()
        )
        self.maps.notes[ORIGINAL] = (*self.maps.notes.get(ORIGINAL, ()), note)
        self.waiting.clear()
        self.put()

    def copy(self, records: int | None = None) -> None:
        for record in self.waiting[:records]:
            there = self.b.produce_records("P.Topic", 0, [record]) - 1
            self.pairs.append((record.offset, there))
        del self.waiting[:records]
        self.put()

    def put(self, shift: int = 0) -> None:
        """State the map, or one that is wrong by so many offsets of the copy."""
        runs = [Run(source, target + shift, 1) for source, target in self.pairs]
        done = self.waiting[0].offset if self.waiting else self.source_end
        position = Position(done, self.target_end + shift, self.source_end)
        # A slot knows what stands between its last record and its position: markers.
        self.maps.maps[ORIGINAL] = OffsetMap.of(runs, position, open_end=False)

    @property
    def source_end(self) -> int:
        return self.p.high_watermarks([ORIGINAL])[ORIGINAL]

    @property
    def target_end(self) -> int:
        return self.b.high_watermarks([COPY])[COPY]

    def commit(self, group: str, offset: int) -> None:
        self.p.commit(group, {ORIGINAL: offset})

    def checkpoints(self) -> Sequence[tuple[str, int, int]]:
        rows = self.b.compacted_topic(internal_topics.checkpoints("P")).read()
        found = [Checkpoint.decode(key, value) for key, value in rows.items()]
        return sorted((c.group, c.upstream_offset, c.downstream_offset) for c in found)
