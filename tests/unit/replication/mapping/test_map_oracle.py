"""Random histories of one partition's map: what readers and starts make of it, beside the truth.

Processes copy, tell, are killed, wake up late; both logs are cut and trimmed; the driver and the
log cleaner delete. The truth is the list of records with their places on both sides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.slot_reports import records_of
from tests.unit.domain.offset_map.plain_map import PlainMap
from tests.unit.replication.mapping.map_world import ASSIGNED, KilledError, runs_of

from srm.domain.flow_state.replication_records import (
    REPORTS,
    STATE_PARTITIONS,
    Incarnation,
    PartitionPosition,
    SlotReport,
)
from srm.domain.flow_state.replication_state import GoneTopics, is_superseded, newest_position
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_loader import Wanted
from srm.domain.offset_map.map_records import MAP_PARTITIONS, map_partition
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run, Translated, Translation
from srm.engine.map_reader import KafkaMapReader
from srm.replication.mapping import map_writer
from srm.replication.mapping.map_writer import MapWriter
from srm.replication.mapping.starts import (
    Start,
    cut_start,
    is_whole,
    known_maps,
    read_chunk,
    start_of,
    translate_back,
)
from srm.replication.ports import ProducerId
from srm_lab.testing.fake_cluster import FakeCluster

PARTITION = TopicPartition(ASSIGNED.topic, ASSIGNED.partition)
MAP_TOPIC, STATE_TOPIC = internal_topics.offset_map("P"), internal_topics.replication("P")
NUMBER = map_partition(*PARTITION)
Pairs = frozenset[tuple[int, int]]


@pytest.fixture(autouse=True)
def _small_records() -> object:
    """Blocks of two runs and chunks of two entries, so that a short history has them all."""
    with (
        patch.object(map_writer, "RUNS_PER_BLOCK", 2),
        patch.object(map_writer, "ENTRIES_PER_CHUNK", 2),
    ):
        yield


@dataclass(frozen=True)
class Told:
    """A report, the records that it speaks of, and how many cuts it knows."""

    entry: PartitionPosition
    pairs: Pairs
    cuts: int


@dataclass
class Site:
    """Both logs, the state topics, and who reads them."""

    pairs: list[tuple[int, int]] = field(default_factory=list)
    source_end: int = 0
    target_end: int = 0
    starts: tuple[int, int] = (0, 0)
    cuts: list[tuple[str, int]] = field(default_factory=list)
    epoch: int = 0
    told: dict[int, Told] = field(default_factory=dict)
    lives: int = 10**9
    appended: int = 0

    def __post_init__(self) -> None:
        self.target, source = FakeCluster("B"), FakeCluster("P")
        self.target.add_topic(ASSIGNED.target_topic, topic_id=ASSIGNED.target_topic_id)
        source.add_topic(ASSIGNED.topic, topic_id=ASSIGNED.topic_id)
        self.target.add_topic(MAP_TOPIC, MAP_PARTITIONS)
        self.target.add_topic(STATE_TOPIC, STATE_PARTITIONS)
        self.table = self.target.compacted_topic(MAP_TOPIC, NUMBER)
        self.place = TopicPartition(MAP_TOPIC, NUMBER)
        self.source = source
        self.reader = self.new_reader()

    def new_reader(self) -> KafkaMapReader:
        return KafkaMapReader(self.target, self.source, Flow("P", "B"))

    def live(self) -> None:
        self.appended += 1
        if self.appended > self.lives:
            raise KilledError

    def append(self, records: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, int]:
        places = {}
        for key, value in records:
            self.live()
            self.table.write({key: value})
            places[key] = self.target.high_watermarks([self.place])[self.place] - 1
        return places

    def tell(self, number: int, told: Told) -> None:
        self.live()
        self.told[number] = told
        self._write(number)

    def _write(self, number: int) -> None:
        told, state = self.told.get(number), self.target.compacted_topic(STATE_TOPIC, REPORTS)
        entries = (told.entry,) if told else ()
        report = SlotReport(str(number), 1, 1000, entries, Incarnation(1, str(number)))
        state.write(dict(records_of(report)))

    @property
    def newest(self) -> Told | None:
        entry = newest_position(told.entry for told in self.told.values())
        return next((t for t in self.told.values() if t.entry is entry), None)

    def forget_superseded(self, alive: Collection[int]) -> None:
        """Do what the driver does with positions that nobody writes any more."""
        live = {ASSIGNED.copy_id: [self.told[n].entry for n in alive if n in self.told]}
        for number in list(self.told):
            entry = self.told[number].entry
            if number not in alive and is_superseded(entry, live, GoneTopics(), {}):
                del self.told[number]
                self._write(number)

    def start(self, *, thorough: bool = False) -> tuple[Start, int]:
        """Find out where to start, as a slot does; and how many cuts the state knows of."""
        newest = self.newest
        end = newest.entry.map_end if newest else None
        table = self.table
        known = known_maps({ASSIGNED: end}, table, [ASSIGNED] if thorough else [])[ASSIGNED]
        found = start_of(known, [told.entry for told in self.told.values()])
        return found or Start(0, 0), newest.cuts if newest else 0


class Process:
    """A slot that copies the partition."""

    def __init__(self, site: Site, number: int, *, thorough: bool = False) -> None:
        self.site, self.number = site, number
        self.begin(thorough=thorough)

    def begin(self, *, thorough: bool = False) -> None:
        """Begin where the state says, and compare that with the logs."""
        known, self.cuts = self.site.start(thorough=thorough)
        at = self.cut_of("target")
        if at < known.target_next:
            position = Position(known.source_next, known.target_next, known.source_next)
            found = translate_back(known.tree, position, at, self.site.table)
            known = cut_start(known, found, at)
        known = replace(known, producer_ids=known.producer_ids | {7})
        self.writer = MapWriter(ASSIGNED, known)
        self.source, self.target = known.source_next, known.target_next
        self.written_by = known.written_by
        self.owner = -1
        if self.cut_of("source") < self.source:
            self.cut_source()
        self.cuts = len(self.site.cuts)

    def cut_of(self, side: str) -> int:
        """First offset of a log that was cut off since this process has looked."""
        return min((at for of, at in self.site.cuts[self.cuts :] if of == side), default=10**9)

    def cut_source(self) -> None:
        self.source = self.cut_of("source")
        self.writer.cut(self.source, self.target)

    def look(self) -> None:
        """Compare the logs with what is known, as before a claim."""
        if self.cut_of("target") < self.target:
            self.report()
            self.begin()
        if self.cut_of("source") < self.source:
            self.cut_source()
        self.cuts = len(self.site.cuts)

    def claim(self) -> None:
        self.look()
        site = self.site
        site.epoch = self.owner = site.epoch + 1
        site.target_end += 1
        self.written_by = ProducerId(7, self.owner)
        self.writer.begin_claim(self.written_by)
        found = runs_of([pair for pair in site.pairs if pair[1] >= self.target])
        if found:
            self.writer.add(found)
            self.source = found[-1].source_end
        self.target = site.target_end

    def copy(self, source_gap: int, target_gap: int, count: int) -> None:
        if self.owner != self.site.epoch or self.cuts != len(self.site.cuts):
            self.claim()
            self.report()  # a cut has to be told before anything is copied
        self.source, self.target = self.source + source_gap, self.target + target_gap
        self.writer.add([Run(self.source, self.target, count)])
        self.site.pairs += [(self.source + n, self.target + n) for n in range(count)]
        self.source, self.target = self.source + count, self.target + count
        self.site.source_end, self.site.target_end = self.source, self.target

    def report(self) -> None:
        site, index = self.site, self.writer.index
        position = Position(self.source, self.target, self.source)
        pairs = frozenset(pair for pair in self._known_pairs() if pair[1] < self.target)
        index.take(self.writer.changed_blocks(position), self.writer.replaced_blocks())
        index.forget_below(self.writer.source_log_start, self.writer.target_log_start)
        while due := index.due():
            index.written(site.append(due))
        by = self.written_by or ProducerId(-1, -1)
        entry = PartitionPosition(*ASSIGNED.copy_id, position, by.id, by.epoch, map_end=index.end)
        site.tell(self.number, Told(entry, pairs, self.cuts))
        index.on_report()

    def _known_pairs(self) -> Iterable[tuple[int, int]]:
        """Return the records as this process knows them: all that were cut since, too."""
        if self.cuts == len(self.site.cuts):
            return self.site.pairs
        return ()  # nothing is asked of a report from before a cut

    def scrub(self) -> None:
        """Look after the map in the background."""
        writer, table = self.writer, self.site.table
        writer.source_log_start, writer.target_log_start = self.site.starts
        root, newest = writer.index.records
        for number in range(root.deleted, len(root.entries)):
            chunk = read_chunk(root, number, table)
            first = root.entries[0]
            below = first.source_end <= writer.source_log_start and (
                first.target_end <= writer.target_log_start
            )
            if chunk is not None and number == 0 and below:
                writer.index.drop_chunk(chunk)
            elif chunk is None or not is_whole(chunk, table):
                self.begin(thorough=True)
                return
        if not is_whole(newest, table):
            self.begin(thorough=True)


def check(site: Site) -> None:
    """Compare what readers learn with the truth: one that was there before, and a new one."""
    for reader in (site.new_reader(), site.reader):
        check_reader(site, reader)


def check_reader(site: Site, reader: KafkaMapReader) -> None:
    newest = site.newest
    if newest is None:
        return
    maps = reader.load([ASSIGNED.topic])
    assert not maps.errors
    assert not maps.gaps
    whole = maps.get(PARTITION)
    runs = whole.runs
    known = {(r.source_start + n, r.target_start + n) for r in runs for n in range(r.count)}
    truth = set(site.pairs)
    if newest.cuts == len(site.cuts):
        low_source, low_target = site.starts
        assert known <= truth
        assert {
            p for p in newest.pairs & truth if p[0] >= low_source or p[1] >= low_target
        } <= known
    check_windows(site, reader, whole)


def check_windows(site: Site, reader: KafkaMapReader, whole: OffsetMap) -> None:
    """Each offset by itself, read around it, is translated as by the whole map."""
    assert whole.position is not None
    end = max(whole.position.source_next, whole.position.target_next) + 2
    plain = PlainMap(list(whole.runs), whole.position)
    for offset in range(0, end, max(1, end // 3)):
        wanted = {PARTITION: Wanted.of([offset], [offset])}
        around = reader.load([ASSIGNED.topic], wanted).get(PARTITION)
        if len(whole.runs):
            if offset >= site.starts[0]:
                assert around.forward(offset) == plain.forward(offset)
            check_backward(around.backward(offset), plain, offset)


def check_backward(found: Translation, plain: PlainMap, offset: int) -> None:
    """A window may begin with what holds no record any more: a cut, or blocks to be deleted."""
    exact = plain.backward(offset)
    if isinstance(found, Translated) and isinstance(exact, Translated):
        assert plain.sources_between(found.offset, exact.offset) == 0 <= exact.offset - found.offset
    else:
        assert found == exact


Step = tuple[str, int, int, int]
whats = (
    ["copy"] * 6
    + ["report"] * 4
    + ["claim", "kill", "compact", "late", "cut source", "cut target", "trim", "scrub", "driver"]
)
histories = st.lists(
    st.tuples(st.sampled_from(whats), st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)),
    min_size=1,
    max_size=40,
)


class Story:
    """Plays a history step by step."""

    def __init__(self) -> None:
        self.site = Site()
        self.alive = [Process(self.site, 0)]
        self.started = 1

    def play(self, history: list[Step]) -> None:
        for what, a, b, count in [*history, ("report", 0, 0, 1)]:
            getattr(self, what.replace(" ", "_"))(a, b, count)
            if what not in ("copy", "claim", "trim", "scrub"):
                check(self.site)

    def copy(self, a: int, b: int, count: int) -> None:
        self.alive[-1].copy(a, b, count)

    def report(self, *_: int) -> None:
        self.alive[-1].report()

    def claim(self, *_: int) -> None:
        self.alive[-1].claim()

    def scrub(self, *_: int) -> None:
        self.alive[-1].scrub()

    def late(self, a: int, *_: int) -> None:
        """A process that owns nothing any more wakes up and tells what it knows."""
        self.alive[a % len(self.alive)].report()

    def compact(self, *_: int) -> None:
        self.site.target.compact(MAP_TOPIC, NUMBER)

    def driver(self, *_: int) -> None:
        self.site.forget_superseded([process.number for process in self.alive])

    def trim(self, _: int, b: int, count: int) -> None:
        site, (source, target) = self.site, self.site.starts
        site.starts = (
            max(source, site.source_end * count // 3),
            max(target, site.target_end * (1 + b) // 3),
        )

    def cut_source(self, _a: int, _b: int, count: int) -> None:
        site = self.site
        site.source_end = at = max(0, site.source_end - 3 * count, site.starts[0])
        site.pairs = [pair for pair in site.pairs if pair[0] < at]
        site.cuts.append(("source", at))

    def cut_target(self, _a: int, _b: int, count: int) -> None:
        site = self.site
        site.target_end = at = max(0, site.target_end - 3 * count, site.starts[1])
        site.pairs = [pair for pair in site.pairs if pair[1] < at]
        site.cuts.append(("target", at))

    def kill(self, a: int, b: int, count: int) -> None:
        """Kill the owner at some record, or let it sleep, and start another one."""
        process, site = self.alive[-1], self.site
        site.lives = site.appended + 4 * a + 2 * b + count
        with suppress(KilledError):
            process.copy(1, 1, count)
            process.copy(1, 0, count)
            process.report()
            process.copy(0, 1, count)
            process.claim()
            process.report()
            process.report()
        site.lives = 10**9
        if count > 1:
            self.alive.pop()
        self.alive.append(Process(site, self.started))
        self.started += 1


@given(histories)
@settings(max_examples=150, deadline=None)
def test_whatever_happens_readers_learn_what_was_copied_or_an_error(history: list[Step]) -> None:
    Story().play(history)
