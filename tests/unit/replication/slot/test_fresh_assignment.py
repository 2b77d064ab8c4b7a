"""After a pause nothing is claimed before the assignment was heard again."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from typing import Any, cast

from tests.unit.replication.slot.test_claiming import ASSIGNED, Cluster, copies, source_of
from tests.unit.replication.slot.two_logs import OURS
from tests.waiting import until

from srm.domain.partition_notes import PartitionNotes
from srm.domain.replication_records import AssignedPartition, Assignment
from srm.replication import clock
from srm.replication.batches.transform import ClusterIds
from srm.replication.ports import ProducerId
from srm.replication.slot.claim import ClaimLifetime
from srm.replication.slot.quota import Quota
from srm.replication.slot.resume import Start
from srm.replication.slot.slot import Predecessor, Slot
from srm.testing.flows import flow_config

_WAIT_S = 300.0


class Feed:
    """Answers polls as the test says; ``begun`` counts those that were asked."""

    def __init__(self) -> None:
        self.begun = 0
        self.answers: queue.Queue[Assignment | None] = queue.Queue()

    def poll(self, timeout_s: float) -> Assignment | None:
        del timeout_s
        self.begun += 1
        return self.answers.get(timeout=_WAIT_S)

    def decided(self) -> tuple[PartitionNotes, ...]:
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
    accepts_loss = False

    def begin(self, *_: object) -> None: ...

    def beat(self, *_: object) -> None: ...

    def report(self, *_: object) -> None: ...

    def tell_everything(self) -> None: ...

    def prepare(self, *_: object) -> Any:
        return lambda: None

    def is_full(self, copy: object) -> bool:
        del copy
        return False


def test_what_was_asked_before_a_pause_says_nothing_about_the_time_after_it() -> None:
    """The answer was there when the process was stopped, or its time was over when it woke up."""
    feed, starts, now = Feed(), Starts(), 1000.0
    target = Cluster(copies(3), [ProducerId(OURS, 1)])

    async def expirations() -> dict[str, str]:
        return {}

    async def scenario() -> None:
        nonlocal now
        slot = Slot(
            flow_config(),
            cast("Any", source_of(3)),
            cast("Any", target),
            feed,
            cast("Any", starts),
            cast("Any", Untold()),
            lambda: 0,
            ClaimLifetime(expirations),
            Quota(None),
            ClusterIds("", ""),
        )
        stop = threading.Event()
        running = asyncio.create_task(slot.run(stop))
        feed.answers.put(Assignment("0", 1, (ASSIGNED,)))
        await until(lambda: feed.begun >= 2)
        now += 60
        starts.known.set()
        feed.answers.put(None)
        await until(lambda: feed.begun >= 3)
        for _ in range(1000):
            await asyncio.sleep(0)  # whoever would claim now does
        assert not target.claimed
        feed.answers.put(None)
        await until(lambda: target.claimed)
        stop.set()
        feed.answers.put(None)
        await running
        feed.answers.put(None)  # for a poll that was begun meanwhile: its thread is waited for

    with clock.using(lambda: now):
        asyncio.run(scenario())
