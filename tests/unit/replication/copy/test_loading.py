"""Where partitions start is found out together; what is not known of some holds up no others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast
from unittest.mock import patch

import pytest
from tests.unit.replication.copy.claim_site import ASSIGNED, Cluster
from tests.waiting import until

from srm.domain.flow_state.replication_records import (
    REPORTS,
    STATE_PARTITIONS,
    AssignedPartition,
    Assignment,
    Incarnation,
    PartitionNotes,
)
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.names import internal_topics
from srm.domain.names.record_headers import ClusterIds
from srm.domain.offset_map.map_records import MAP_PARTITIONS, map_partition
from srm.domain.offset_map.offset_map import Run
from srm.errors import SrmError, UnavailableError
from srm.kafka.state.slot_state import MapStarts
from srm.replication.claim import ClaimLifetime
from srm.replication.copy import slot as slot_module
from srm.replication.copy.claiming import SlotContext
from srm.replication.copy.fetching import Quota
from srm.replication.copy.slot import Slot
from srm.replication.mapping.starts import Predecessor, Start
from srm.replication.report import Reporter
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeCompactedTopic, FakeStateLog
from srm_lab.testing.flows import P_TO_B, flow_config

AWAY = UnavailableError("the map is away")
STATE = internal_topics.replication("P"), REPORTS
HEALTHY, OTHER = ASSIGNED, replace(ASSIGNED, partition=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot reports, and tries again, twenty times a second."""
    for pause in ("_REPORT_EVERY_S", "_POLL_S", "_LOAD_RETRY_S"):
        monkeypatch.setattr(slot_module, pause, 0.05)


class HalfACluster(FakeCluster):
    """One partition of the map topic has no leader."""

    def compacted_topic(self, topic: str, partition: int = 0) -> FakeCompactedTopic:
        if (topic, partition) == (internal_topics.offset_map("P"), map_partition("T", 1)):
            raise AWAY
        return super().compacted_topic(topic, partition)


def test_a_partition_of_the_map_topic_that_is_away_hides_only_the_maps_in_it() -> None:
    target = HalfACluster("B")
    target.add_topic(internal_topics.offset_map("P"), MAP_PARTITIONS)
    target.add_topic(internal_topics.replication("P"), STATE_PARTITIONS)
    target.add_topic("P.T", 2, topic_id=ASSIGNED.target_topic_id)
    for number in range(2):
        target.produce("P.T", number, 1)
    assert map_partition("T", 0) != map_partition("T", 1)

    found = MapStarts(P_TO_B, target).load([HEALTHY, OTHER])

    assert found.get(HEALTHY) is None, "never copied"
    assert found[OTHER] is AWAY


class Starts:
    """A map that is away for some partitions, until the test has it back."""

    def __init__(self) -> None:
        self.away = {OTHER}
        self.asked: list[tuple[AssignedPartition, ...]] = []

    def predecessor(self, slot: str) -> Predecessor:
        del slot
        return Predecessor((), ())

    def load(
        self, partitions: Sequence[AssignedPartition]
    ) -> Mapping[AssignedPartition, Start | SrmError]:
        self.asked.append(tuple(partitions))
        return {p: AWAY if p in self.away else Start(0, 0) for p in partitions}

    def log_starts(self, partitions: object) -> dict[AssignedPartition, int]:
        del partitions
        return {}

    def map_of(self, assigned: AssignedPartition) -> NoReturn:
        """Fail as a map that cannot be read: it is checked later."""
        del assigned
        raise AWAY


class Feed:
    """Says what the slot is to copy, one partition more each time."""

    position = 0
    driver = None

    def __init__(self, *news: tuple[AssignedPartition, ...]) -> None:
        self._news = [Assignment("0", 1 + number, held) for number, held in enumerate(news)]

    async def poll(self, timeout_s: float) -> Assignment | None:
        await asyncio.sleep(min(0.05, timeout_s))  # the rhythm of news, not a wait
        return self._news.pop(0) if self._news else None

    async def end(self) -> int:
        return self.position

    def take_decisions(self) -> tuple[PartitionNotes, ...]:
        return ()

    def share(self) -> float:
        return 1.0


class Life:
    """A slot that runs while the test looks at what it writes."""

    def __init__(self, starts: Starts, feed: Feed, now_ms: int = 0) -> None:
        self.log = FakeStateLog()
        self.stop = threading.Event()

        async def configs() -> dict[str, str]:
            return {}

        context = SlotContext(
            flow_config(),
            cast("Any", Cluster([])),
            cast("Any", Cluster([])),
            Reporter(flow_config(), "0", self.log, FakeStateLog(), lambda: now_ms),
            lambda: now_ms,
            ClaimLifetime(configs),
            Quota(None),
            ClusterIds("", ""),
        )
        self.slot = Slot(context, feed, cast("Any", starts))

    def begun(self) -> set[int]:
        """Return the partitions of which there is a status."""
        return {status.partition for status in decode_state(self.log.table(STATE)).statuses}

    def beats(self) -> int:
        """Count the signs of life."""
        return sum(record.key.count(b":") == 2 for record in self.log.records)

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run it until the scenario has ended."""

        async def live() -> None:
            running = asyncio.create_task(self.slot.run(self.stop))
            try:
                await scenario()
            finally:
                self.stop.set()
                await running

        asyncio.run(live())


def test_a_slot_is_later_than_one_whose_records_come_after_it_has_read_an_empty_log() -> None:
    life = Life(Starts(), Feed(), now_ms=2_000)

    async def scenario() -> None:
        await until(lambda: life.beats() > 0)

    life.run(scenario)
    told = decode_state(life.log.table(STATE)).reports
    assert [report.incarnation > Incarnation(1_000, "f") for report in told] == [True]


def test_partitions_whose_map_is_away_keep_no_others_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    starts = Starts()
    life = Life(starts, Feed((HEALTHY, OTHER)))

    async def scenario() -> None:
        await until(lambda: len(starts.asked) > 2 and life.begun() == {0})
        starts.away.clear()
        await until(lambda: life.begun() == {0, 1})

    life.run(scenario)
    assert [one.getMessage() for one in caplog.records] == [
        "slot 0: start of T-0, T-1 fails and is tried again: the map is away",
        "slot 0: start of T-0, T-1 works again",
    ]
    assert starts.asked[0] == (HEALTHY, OTHER)
    assert set(starts.asked[1:]) == {(OTHER,)}, "together, and what is known is not asked again"


def test_a_slot_whose_readers_all_wait_still_gives_signs_of_life_and_hears_its_assignment() -> None:
    """Many partitions read their maps at once, say, as a target broker has lost its disk."""
    back = threading.Event()

    class Hanging(Starts):
        def load(
            self, partitions: Sequence[AssignedPartition]
        ) -> Mapping[AssignedPartition, Start | SrmError]:
            self.asked.append(tuple(partitions))
            back.wait(300)
            return dict.fromkeys(partitions, Start(0, 0))

    held = [replace(ASSIGNED, partition=number) for number in range(12)]
    starts = Hanging()
    life = Life(starts, Feed(*(tuple(held[: 1 + number]) for number in range(12))))

    async def scenario() -> None:
        try:
            await until(lambda: len(starts.asked) > 2)
            before = life.beats()
            await until(lambda: life.beats() > before + 2)
        finally:
            back.set()
        await until(lambda: life.begun() == set(range(12)))

    life.run(scenario)


def test_a_map_that_cannot_be_written_does_not_keep_other_maps_from_being_cut() -> None:
    """The target has lost everything that was copied; of one partition the map is away as well."""

    class Known(Starts):
        def __init__(self) -> None:
            super().__init__()
            self.cuts: list[AssignedPartition] = []

        def load(
            self, partitions: Sequence[AssignedPartition]
        ) -> Mapping[AssignedPartition, Start | SrmError]:
            # What only a report told of is written down at once.
            return dict.fromkeys(partitions, Start(10, 11, found=Run(0, 1, 10)))

        def cut(self, assigned: AssignedPartition, target_end: int) -> Start:
            assert target_end == 0
            self.cuts.append(assigned)
            return Start(0, 0, has_position=False)

    starts = Known()
    life = Life(starts, Feed((HEALTHY, OTHER)))
    life.log.unreachable = {(internal_topics.offset_map("P"), map_partition("T", 1))}

    async def scenario() -> None:
        await until(lambda: bool(starts.cuts))

    life.run(scenario)
    assert starts.cuts == [HEALTHY]


def test_once_a_slot_ends_no_partition_begins_its_next_try() -> None:
    """A try that was due while the slot's threads ended was told as an unexpected failure."""
    life = Life(Starts(), Feed())

    async def scenario() -> None:
        await until(lambda: life.beats() > 0)

    async def afterwards() -> int:
        life.slot._partitions.begin(HEALTHY, Start(0, 0))
        return len(asyncio.all_tasks())

    life.run(scenario)
    assert asyncio.run(afterwards()) == 1, "that of the test"


def test_a_slot_whose_task_fails_ends_at_once_though_nobody_stops_it() -> None:
    life = Life(Starts(), Feed())

    async def fails() -> None:
        raise UnavailableError("the source is gone")

    async def live() -> None:
        running = asyncio.create_task(life.slot.run(life.stop))
        try:
            await until(lambda: life.beats() > 0)
            life.slot._spawn(fails())
            await until(running.done)
        finally:
            life.stop.set()
        with pytest.raises(UnavailableError, match="the source is gone"):
            running.result()

    with patch.object(slot_module, "_STOP_LOOK_S", threading.TIMEOUT_MAX):
        asyncio.run(live())
