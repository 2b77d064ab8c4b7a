"""Owners of one partition, moved by hand: one step at a time, in the order a test wants."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.campaign import checker
from tests.faults.campaign.history import TopicHistory
from tests.integration.copying import CopyLab
from tests.wires import produced

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.flow_state.slot_records import next_incarnation
from srm.kafka.state.slot_state import MapStarts
from srm.kafka.state.writers import KafkaStateLog
from srm.kafka.wire.cluster import WireCluster
from srm.replication import claim as claims
from srm.replication.log_reader import LogReader
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy
from srm.replication.ports import FetchFrom, Produced
from srm.replication.report import Reporter
from srm.replication.resume.resume import resume
from srm.replication.resume.source_lookahead import Comparison
from srm_lab.testing.logs import read_log, read_logs


class Owner:
    """What a slot does with one partition, step by step, with the product's own parts."""

    def __init__(
        self, lab: CopyLab, assigned: AssignedPartition, source: WireCluster, target: WireCluster
    ) -> None:
        self._lab = lab
        self._source = source
        self._target = target
        start = MapStarts(lab.flow, lab.target).load([assigned]).get(assigned)
        self.copy = PartitionCopy(assigned, start or Start(0, 0, fresh=True))
        self._reporter = Reporter(
            lab.config,
            "0",
            KafkaStateLog(lab.flow.target, lab.target_props),
            KafkaStateLog(lab.flow.source, lab.source_props),
            _now_ms,
        )
        self._reporter.begin(next_incarnation((), _now_ms()))

    async def claim(self, lifetime_s: float = 60.0) -> None:
        """Shut out everybody else and find the position."""
        copy = self.copy
        claim = await claims.take(self._target, self._lab.flow, copy.target, lifetime_s)
        copy.begin_claiming()
        resumed = await resume(
            LogReader(self._source, copy.source, copy.source_id, read_committed=True),
            LogReader.of_target(self._target, copy.assigned),
            copy.known_start(),
            claim,
            Comparison(),
        )
        copy.begin_copying(claim, resumed)

    async def fetch(self) -> int:
        """Fetch once; return the error code."""
        copy = self.copy
        wanted = FetchFrom(copy.source_id, copy.source.partition, copy.fetch_offset, 1 << 20)
        fetched = await self._source.fetch(
            (await self._source.leader(copy.source)).node,
            [wanted],
            max_wait_ms=100,
            max_bytes=1 << 20,
            read_committed=True,
        )
        [part] = fetched.partitions
        if not part.error:
            copy.accept(part, fetched.owner, copy.fetch_offset, read_committed=True)
        return part.error

    async def send(self, batches: int = 1_000_000) -> list[Produced]:
        """Send up to so many batches, all of them before the first answer is looked at."""
        copy = self.copy
        node = (await self._target.leader(copy.target)).node
        await self._target.connect(node)
        sent = []
        while copy.can_send and batches:
            unit = copy.send_next()
            [answer] = produced(self._target, node, [(copy.target, unit.view)])
            sent.append((unit, answer))
            batches -= 1
        answers = []
        for unit, answer in sent:
            taken = (await answer).partitions[copy.target]
            answers.append(taken)
            if not taken.error:
                copy.on_ack(unit, taken.base_offset, _now_ms())
        return answers

    async def copy_all(self) -> None:
        """Fetch and send until nothing is left."""
        end = self._lab.source.log_ends([self.copy.source])[self.copy.source]
        while self.copy.source_next < end:
            assert await self.fetch() == 0
            assert all(produced.error == 0 for produced in await self.send())

    def report(self) -> None:
        """Write the map and the position, as each second."""
        self._reporter.report([self.copy])


class Bench:
    """One partition, its writers and its owners."""

    def __init__(self, lab: CopyLab, **configs: str) -> None:
        self.lab = lab
        [self.assigned] = lab.topic(configs=configs or None)
        self._number = 0
        self._wires: tuple[WireCluster, WireCluster] | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        source = WireCluster("P", self.lab.source_props)
        target = WireCluster("B", self.lab.target_props)
        await source.start()
        await target.start()
        self._wires = source, target
        try:
            yield
        finally:
            await source.close()
            await target.close()

    def owner(self) -> Owner:
        """Return a new owner, which knows what the map knows."""
        assert self._wires is not None
        return Owner(self.lab, self.assigned, *self._wires)

    def write(self, *sizes: int) -> None:
        """Write one batch of one record for each size."""
        producer = self.lab.producer()
        for size in sizes:
            name = f"{self._number}:".encode()
            producer.produce(self.assigned.topic, name + b"x" * size, partition=0)
            assert producer.flush(120) == 0
            self._number += 1

    def damage(self, former_records: int = 0) -> list[str]:
        """Return what the campaign's checker finds wrong.

        Args:
            former_records: so many on the target are of a topic that had the name before.
        """
        p = self.assigned
        history = TopicHistory(p.topic, p.target_topic, [p], compacted=False, remote_configs={})
        history.begin_life([p], same_target=True)
        source = self.lab.source_props["bootstrap.servers"]
        for (_, number), records in read_logs(source, [(p.topic, 0)]).items():
            history.life.take(number, records)
        target = read_log(self.lab.target_props["bootstrap.servers"], p.target_topic, 0)
        known = self.lab.offset_map(p)
        return checker.check_partition(
            history, 0, target[former_records:], b"stranger ", [known], [], policy="stop"
        ).problems


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
