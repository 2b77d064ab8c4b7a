"""Cost of reading offset maps of any length."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

from bench.clusters import PROJECT, Site
from bench.errors import BenchError, wait
from bench.map_probe import FLOW, GROUP, OFFSETS
from bench.map_topic import Copied, check, write_maps
from bench.results import Result
from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import REPORTS, Incarnation, PartitionPosition
from srm.domain.flow_state.slot_records import GROUP_SIZE, PositionGroup, SlotHeartbeat
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS, map_partition
from srm.engine.control.control_topics import COMPACTED_CONFIGS
from srm.kafka.cluster import KafkaCluster

NAME: Final = "map"
_LONG_RUNS: Final = 315_000_000
_MANY: Final = 1000
_MANY_RUNS: Final = 1_000_000
_PROBE_S: Final = 300.0
_SEEN_S: Final = 180.0
_SLOT: Final = Incarnation(1, "bench")
_AS_WRITTEN: Final = {**COMPACTED_CONFIGS, "min.cleanable.dirty.ratio": "0.99"}


def measure(site: Site, fraction: float) -> Iterator[Result]:
    """Write maps to a broker and read them: one very long one of each kind, then many."""
    for kind in ("irregular", "regular"):
        runs = max(1, int(_LONG_RUNS * fraction))
        with _Maps(site, f"bench-map-{kind}", 1, runs, regular=kind == "regular") as maps:
            title = f"one partition, {runs:,} {kind} runs: {OFFSETS} offsets translated"
            yield maps.result(f"map-{kind}", title, maps.probe("long"))
    runs = max(1, int(_MANY_RUNS * fraction))
    with _Maps(site, "bench-map-many", _MANY, runs, regular=True) as maps:
        title = f"{_MANY} partitions, {runs:,} runs each: a checkpoint pass"
        yield maps.result("map-pass", title, maps.probe("pass"))
        title = f"{_MANY} partitions, {runs:,} runs each: a slot starts"
        yield maps.result("map-start", title, maps.probe("start"))


class _Maps:
    """Maps of one topic, deleted at the end of the block."""

    def __init__(
        self, site: Site, topic: str, partitions: int, runs: int, *, regular: bool
    ) -> None:
        self._site = site
        self._topic = topic
        self._partitions = partitions
        self._runs = runs
        self._regular = regular
        self._written_s = 0.0

    def __enter__(self) -> Self:
        began = time.monotonic()
        map_topic = internal_topics.offset_map(FLOW.source)
        self._site.create(self._topic, self._partitions)
        self._site.create(f"P.{self._topic}", 1)  # only the id of the copy matters
        self._site.create(map_topic, MAP_PARTITIONS, _AS_WRITTEN)
        self._site.create(internal_topics.replication(FLOW.source), 2, COMPACTED_CONFIGS)
        by_number: dict[int, list[Copied]] = defaultdict(list)
        for copied in self._copies():
            by_number[map_partition(copied.topic, copied.partition)].append(copied)
        reported: list[PartitionPosition] = []
        with self._site.connect() as connection:
            for number, copies in by_number.items():
                check(copies[0])
                reported += write_maps(
                    connection, map_topic, number, copies, self._runs, regular=self._regular
                )
        self._report(reported)
        self._commit(reported)
        self._written_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self._site.clean()

    def probe(self, what: str) -> Mapping[str, float]:
        """Read the maps in a separate process; return its figures."""
        command = [sys.executable, "-m", "bench.map_probe", self._site.bootstrap, what, self._topic]
        done = subprocess.run(
            command, cwd=PROJECT, capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
        if done.returncode:
            raise BenchError(f"{what}: {done.stderr.strip()[-800:]}")
        figures: Mapping[str, float] = json.loads(done.stdout)
        return figures

    def result(self, case: str, title: str, figures: Mapping[str, float]) -> Result:
        """Return the result."""
        seconds = next(value for name, value in figures.items() if name.endswith("seconds"))
        return replace(
            Result(case, "srm", title, NAME, records=self._runs * self._partitions),
            wall_seconds=round(seconds, 4),
            cpu_seconds=figures.get("cpu_seconds", figures.get("cold_cpu_seconds", 0.0)),
            resident_megabytes=figures.get("megabytes", figures.get("first_megabytes")),
            details={**figures, "written_in_seconds": round(self._written_s, 1)},
        )

    def _copies(self) -> list[Copied]:
        names = self._topic, f"P.{self._topic}"
        with self._cluster() as cluster:
            wait(lambda: {*names} <= cluster.topics().keys(), _SEEN_S, "the topics are there", 0.2)
            described = cluster.topics()
        source, target = described[names[0]], described[names[1]]
        return [
            Copied(self._topic, source.topic_id, number, target.topic_id)
            for number in range(self._partitions)
        ]

    def _report(self, reported: Sequence[PartitionPosition]) -> None:
        now_ms = time.time_ns() // 1_000_000
        beat = SlotHeartbeat("0", _SLOT, 1, now_ms, len(reported))
        records: dict[bytes, bytes | None] = {beat.key(): beat.value()}
        for first in range(0, len(reported), GROUP_SIZE):
            some = tuple(reported[first : first + GROUP_SIZE])
            group = PositionGroup("0", _SLOT, str(first // GROUP_SIZE), some)
            records[group.key()] = group.value()
        with self._cluster() as cluster:
            cluster.compacted_topic(internal_topics.replication(FLOW.source), REPORTS).write(
                records
            )

    def _commit(self, reported: Sequence[PartitionPosition]) -> None:
        """Commit offsets of a group somewhere in the middle of each partition."""
        places = {
            TopicPartition(self._topic, entry.partition): (
                entry.position.source_next * (1 + n % 97) // 99
            )
            for n, entry in enumerate(reported)
        }
        with self._cluster() as cluster:
            cluster.commit_idle(GROUP, places)

    def _cluster(self) -> KafkaCluster:
        props = {"bootstrap.servers": self._site.bootstrap}
        return KafkaCluster("B", ClusterClients.alike(props))
