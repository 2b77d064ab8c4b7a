"""Separate process that reads offset maps as srm's commands do, and prints the cost.

python -m bench.map_probe BOOTSTRAP long TOPIC     translate 1000 offsets, cold and warm
python -m bench.map_probe BOOTSTRAP pass TOPIC     two checkpoint passes
python -m bench.map_probe BOOTSTRAP start TOPIC    start of a slot with all partitions
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from srm.clock import now_ms
from srm.config.loader import load_config
from srm.config.model import ClusterClients, FlowConfig
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.groups.translation import UNKNOWN_LOG, translate
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_loader import Wanted
from srm.engine.groups.checkpoints import survey
from srm.engine.groups.translate import partition_facts
from srm.engine.map_reader import KafkaMapReader
from srm.engine.ports import FlowContext
from srm.kafka.cluster import KafkaCluster
from srm.kafka.state.slot_state import MapStarts

FLOW: Final = Flow("P", "B")
GROUP: Final = "bench-group"
OFFSETS: Final = 1000
_SEED: Final = 42
_FAR: Final = 2**40
_TICK_S: Final = 0.001


class FullCluster(KafkaCluster):
    """Cluster whose logs seem to hold all records, so that long maps need no records.

    It is queried nevertheless, since that time counts.
    """

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See the port."""
        super().log_starts(partitions)
        return dict.fromkeys(partitions, 0)

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See the port."""
        super().log_ends(partitions)
        return dict.fromkeys(partitions, _FAR)

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See the port."""
        super().high_watermarks(partitions)
        return dict.fromkeys(partitions, _FAR)


def memory_mb(which: str) -> float:
    """Return VmRSS or VmHWM of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) / 1000
    raise ValueError(which)


def forget_peak() -> None:
    """Reset the high water mark of memory."""
    Path("/proc/self/clear_refs").write_text("5")


def measure_long(cluster: KafkaCluster, topic: str) -> dict[str, float]:
    """Translate random offsets of one partition, with a new reader, and again."""
    partition = TopicPartition(topic, 0)
    cluster.topics()
    reader = KafkaMapReader(cluster, cluster, FLOW)
    end = reader.load([topic], {}).get(partition).known_source_end or 0
    drawn = random.Random(_SEED)  # noqa: S311 - no secret
    offsets = [drawn.randrange(end) for _ in range(OFFSETS)]
    wanted = {partition: Wanted.of(offsets, [0])}
    forget_peak()
    before = memory_mb("VmRSS")
    figures: dict[str, float] = {"source_end": end}
    for name in ("cold", "warm"):
        began, used = time.perf_counter(), time.process_time()
        maps = reader.load([topic], wanted)
        loaded = time.perf_counter()
        side = (partition, {partition: UNKNOWN_LOG})
        facts = partition_facts({"forward": maps}, "forward", side, side, "B")
        states = {translate(facts, offset).state for offset in offsets}
        figures[f"{name}_seconds"] = time.perf_counter() - began
        figures[f"{name}_translate_seconds"] = time.perf_counter() - loaded
        figures[f"{name}_cpu_seconds"] = time.process_time() - used
        if states != {"translated"}:
            raise ValueError(f"offsets were {states}: {maps.errors} {maps.gaps}")
    figures["megabytes"] = memory_mb("VmHWM") - before
    return figures


def measure_passes(cluster: KafkaCluster, topic: str, context: FlowContext) -> dict[str, float]:
    """Survey all commits of one group twice; between the passes each commit moves a little."""
    figures: dict[str, float] = {}
    count = cluster.partition_counts()[topic]
    for name in ("first", "second"):
        forget_peak()
        before = memory_mb("VmRSS")
        began, used = time.perf_counter(), time.process_time()
        found = survey(context, [GROUP])
        figures[f"{name}_seconds"] = time.perf_counter() - began
        figures[f"{name}_cpu_seconds"] = time.process_time() - used
        figures[f"{name}_megabytes"] = memory_mb("VmHWM") - before
        translated = sum(outcome.state == "translated" for outcome in found.outcomes)
        if translated != count:
            raise ValueError(f"{translated} of {count} were translated: {found.outcomes[:3]}")
        moved = {o.upstream: o.upstream_offset + 100 for o in found.outcomes}
        cluster.commit_idle(GROUP, moved)
    return figures


def measure_start(cluster: KafkaCluster, topic: str) -> dict[str, float]:
    """Find the start positions of a slot that gets all partitions."""
    described = cluster.topics()
    source, target = described[topic], described[f"P.{topic}"]
    assigned = [
        AssignedPartition(topic, number, source.topic_id, target.name, target.topic_id)
        for number in range(source.partitions)
    ]
    forget_peak()
    before = memory_mb("VmRSS")
    used = time.process_time()
    starts, seconds, pause_ms = asyncio.run(_start_beside_others(cluster, assigned))
    figures = {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - used,
        "longest_pause_ms": pause_ms,
        "megabytes": memory_mb("VmHWM") - before,
    }
    wrong = [start for start in starts.values() if getattr(start, "source_next", 0) == 0]
    if len(starts) != len(assigned) or wrong:
        raise ValueError(f"{len(starts)} starts of {len(assigned)}: {wrong[:3]}")
    return figures


async def _start_beside_others(
    cluster: KafkaCluster, assigned: Sequence[AssignedPartition]
) -> tuple[Mapping[AssignedPartition, object], float, float]:
    """Read starts in a thread, as a slot does; return the longest stall of its event loop in ms."""
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    reading = loop.run_in_executor(None, MapStarts(FLOW, cluster).load, assigned)
    longest, last = 0.0, began
    while not reading.done():
        await asyncio.sleep(_TICK_S)  # the excess is the stall
        longest, last = max(longest, time.perf_counter() - last - _TICK_S), time.perf_counter()
    return await reading, last - began, 1000 * longest


def _config(bootstrap: str) -> FlowConfig:
    lines = (
        "clusters=P,B",
        f"B.bootstrap.servers={bootstrap}",
        "P.bootstrap.servers=127.0.0.1:1",  # never queried: one cluster plays both
        *(f"P->B.{setting}" for setting in ("enabled=true", "topics=.*", "groups=.*")),
    )
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write("\n".join(lines))
        file.flush()
        return load_config(file.name).flow(FLOW)


def main() -> None:
    """Measure as the command line selects."""
    bootstrap, what, topic = sys.argv[1:]
    props = {"bootstrap.servers": bootstrap}
    with FullCluster("B", ClusterClients.alike(props)) as cluster:
        if what == "long":
            figures = measure_long(cluster, topic)
        elif what == "start":
            figures = measure_start(cluster, topic)
        else:
            config = _config(bootstrap)
            reader = KafkaMapReader(cluster, cluster, FLOW)
            back = KafkaMapReader(cluster, cluster, FLOW.reverse)
            context = FlowContext(config, cluster, cluster, reader, back, now_ms)
            figures = measure_passes(cluster, topic, context)
    sys.stdout.write(json.dumps({k: round(v, 4) for k, v in figures.items()}) + "\n")


if __name__ == "__main__":
    main()
