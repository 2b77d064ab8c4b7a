"""Before and after a claim a slot reads its assignment to where the log ends at that moment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.unit.replication.copy.claim_site import ASSIGNED, Cluster, copies, source_of
from tests.unit.replication.resume.two_logs import OURS
from tests.waiting import until

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
    PartitionNotes,
)
from srm.domain.names.record_headers import ClusterIds
from srm.errors import SrmError, SupersededError, UnavailableError
from srm.logs import Troubles
from srm.replication.claim import ClaimLifetime
from srm.replication.copy import slot
from srm.replication.copy.claiming import SlotContext
from srm.replication.copy.fetching import Quota
from srm.replication.copy.slot import Slot
from srm.replication.mapping.starts import Predecessor, Start
from srm.replication.partition import Phase
from srm.replication.ports import ProducerId
from srm_lab.testing.flows import flow_config

_WAIT_S = 300.0


def _beat(driver: str) -> DriverHeartbeat:
    return DriverHeartbeat(driver, "app-7", "host-7", 7, 0)


class Feed:
    """A log of assignments that ends at ``length``, read as far as the test lets it be read."""

    def __init__(self) -> None:
        self.length = 1
        self.asked = 0
        self.position = 0
        self.driver: DriverHeartbeat | None = None
        self._news: asyncio.Queue[tuple[int, Assignment | None] | SrmError] = asyncio.Queue()

    def read(self, position: int, news: Assignment | None = None) -> None:
        self.length = max(self.length, position)
        self._news.put_nowait((position, news))

    def fail(self) -> None:
        self._news.put_nowait(UnavailableError("its leader does not answer"))

    async def poll(self, timeout_s: float) -> Assignment | None:
        del timeout_s
        found = await self._news.get()
        if isinstance(found, SrmError):
            raise found
        self.position, news = found
        return news

    async def end(self) -> int:
        self.asked += 1
        return self.length

    def take_decisions(self) -> tuple[PartitionNotes, ...]:
        return ()

    def share(self) -> float:
        return 1.0


class Starts:
    """Where the partition stands is known once the test says so: a cut, claimed at once."""

    def __init__(self) -> None:
        self.known = threading.Event()

    def predecessor(self, slot: str) -> Predecessor:
        del slot
        return Predecessor((), ())

    def load(self, partitions: Sequence[AssignedPartition]) -> dict[AssignedPartition, Start]:
        self.known.wait(_WAIT_S)
        return {assigned: Start(3, 4, frozenset({OURS}), cut=True) for assigned in partitions}


class Untold:
    """A reporter that nobody listens to."""

    slot = "0"
    is_written = True

    def begin(self, *_: object) -> None: ...

    def __init__(self) -> None:
        self.beats = 0
        self.growth = 0
        self.troubles = Troubles("slot 0")

    def beat(self, *signs: Any) -> None:
        self.beats += 1
        self.growth = max(self.growth, signs[3])

    def report(self, *_: object) -> None: ...

    def report_everything(self) -> None: ...

    def prepare(self, *_: object) -> Any:
        return lambda: None

    def has_reported_position(self, copy: object) -> bool:
        del copy
        return True

    def is_full(self, copy: object) -> bool:
        del copy
        return False


class Site:
    """A slot that claims its one partition as soon as it has read its assignment."""

    running: asyncio.Task[None]

    def __init__(self, driver: str) -> None:
        self.feed, self.starts, self.told = Feed(), Starts(), Untold()
        self.target = Cluster(copies(3), [ProducerId(OURS, epoch) for epoch in range(1, 9)])

        async def expirations() -> dict[str, str]:
            return {}

        context = SlotContext(
            flow_config(),
            cast("Any", source_of(3)),
            cast("Any", self.target),
            cast("Any", self.told),
            lambda: 0,
            ClaimLifetime(expirations),
            Quota(None),
            ClusterIds("", ""),
        )
        self.slot = Slot(context, self.feed, cast("Any", self.starts), driver)

    def phase(self) -> Phase | None:
        copy = self.slot._partitions.copies.get(ASSIGNED)
        return copy.phase if copy else None

    async def begin(self) -> None:
        """Read an assignment of the partition, the only record, and ask where the log ends."""
        self.feed.read(1, Assignment("0", 1, (ASSIGNED,)))
        await until(lambda: self.slot._generation == 1)

    async def settle(self) -> None:
        """Let run what can run without news."""
        asked = self.feed.asked
        self.starts.known.set()
        await until(lambda: self.feed.asked > asked)
        for _ in range(1000):
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot, "_POLL_S", 0.0)


def play(scenario: Callable[[Site], Awaitable[None]], driver: str = "") -> None:
    async def all_of_it() -> None:
        site, stop = Site(driver), threading.Event()
        site.running = asyncio.create_task(site.slot.run(stop))
        try:
            await scenario(site)
        finally:
            site.starts.known.set()
            stop.set()
            await asyncio.wait([site.running])
        if not driver:
            site.running.result()

    asyncio.run(all_of_it())


def test_nothing_is_claimed_before_all_is_read_that_the_log_holds_at_that_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(site: Site) -> None:
        await site.begin()
        site.feed.length = 4
        await site.settle()
        assert not site.target.claimed

        site.feed.fail()  # silence is no news
        site.feed.fail()
        site.feed.read(3)
        await until(lambda: site.slot._read_to == 3)
        assert not site.target.claimed

        site.feed.read(4)
        await until(lambda: site.phase() is Phase.COPYING)
        assert site.target.claimed == 1

    play(scenario)
    assert caplog.text.count("slot 0: assignment fails and is tried again: its leader") == 1
    assert caplog.text.count("slot 0: assignment works again") == 1


def test_a_claim_after_the_partition_was_taken_away_is_not_used() -> None:
    """The record stands in the log before the claim: whoever wrote it may have sealed the copy."""

    async def scenario(site: Site) -> None:
        await site.begin()
        site.target.on_claim = lambda: setattr(site.feed, "length", 2)
        await site.settle()
        await until(lambda: site.target.claimed)
        assert site.phase() is Phase.CLAIMING
        site.feed.read(2, Assignment("0", 2, ()))
        await until(lambda: site.slot._generation == 2)
        assert site.phase() is None
        assert site.target.claimed == 1

    play(scenario)


def test_a_slot_that_is_fenced_claims_again_only_what_it_still_is_assigned() -> None:
    async def scenario(site: Site) -> None:
        await site.begin()
        site.starts.known.set()
        await until(lambda: site.phase() is Phase.COPYING)
        [copy] = site.slot._partitions.copies.values()

        site.slot._partitions._fence(copy, "fenced")
        await until(lambda: site.phase() is Phase.IDLE)  # it claims when there is a batch to write
        site.feed.length = 2
        site.slot._partitions.claim(copy)
        await until(lambda: site.phase() is Phase.CLAIMING)
        site.feed.read(2, Assignment("0", 2, ()))
        await until(lambda: site.phase() is None)
        assert site.target.claimed == 1

    play(scenario)


def test_a_slot_ends_for_good_once_another_application_drives_the_flow() -> None:
    """What older drivers have left in the log comes before the heartbeat of its own."""

    async def scenario(site: Site) -> None:
        site.feed.driver = _beat("older")
        site.feed.length = 3
        site.feed.read(1, Assignment("0", 1, (ASSIGNED,)))
        await until(lambda: site.slot._generation == 1)
        site.starts.known.set()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not site.target.claimed
        assert not site.told.beats, "a driver would take it for a slot of its own"

        site.feed.driver = _beat("ours")
        site.feed.read(3)
        await until(lambda: site.phase() is Phase.COPYING and site.told.beats)

        site.feed.driver = _beat("newer")
        site.feed.read(4)
        await until(lambda: site.slot._failure)
        assert "another application drives flow P->B now (pid 7 on host-7" in str(
            site.slot._failure
        )
        with pytest.raises(SupersededError):
            await site.running

    play(scenario, driver="ours")


@pytest.mark.parametrize(("topic", "grows"), [("Topic", True), ("heartbeats", False)])
def test_heartbeats_are_no_growth_of_the_source(
    monkeypatch: pytest.MonkeyPatch, topic: str, grows: bool
) -> None:
    """A source without any traffic would seem to lose a record in each second that it is away."""
    monkeypatch.setattr(slot, "until_next", lambda _: 0.001)
    assigned = replace(ASSIGNED, topic=topic)

    async def scenario(site: Site) -> None:
        partitions = site.slot._partitions
        site.feed.read(1, Assignment("0", 1, (assigned,)))
        site.starts.known.set()
        await until(lambda: assigned in partitions.copies)

        def heard() -> float:
            partitions.copies[assigned].source_end += 30
            return time.monotonic()

        monkeypatch.setattr(partitions, "source_heard_s", heard)
        beats = site.told.beats
        await until(lambda: site.told.beats > beats + 3)
        assert (site.told.growth > 0) is grows

    play(scenario)
