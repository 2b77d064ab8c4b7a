"""Response times and cost of the SRM service at 10 000 series and 1 000 groups.

``python -m bench.service`` builds 2 500 topics (four metrics each) and 1 000 groups over the fake
clusters that ship with srm, looks at them as a watch does, and serves them by a real server on the
loopback interface. Kafka's own answers are not included. For the cost on real brokers see
``--idle`` in docs/service.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import httpx
from tests.served import served
from tests.service_views import StillWatch, config_of

from bench.machine import describe_machine
from srm.domain.flow_state.replication_records import PartitionPosition, SlotReport
from srm.domain.groups.mm2_records import Checkpoint, TopicIds
from srm.domain.metrics import Statistics, WindowMetric
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.engine.cluster_ports import Stamped
from srm.engine.ports import FlowContext
from srm.engine.status.observing import observe
from srm.service.app import create_app
from srm.service.views.flow_rows import Committed, FlowLook, TargetLook
from srm.service.views.series import Series
from srm.service.views.views import Views
from srm.service.views.watching import CommittedOffsets
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import FakeClock, flow_config

FLOW: Final = Flow("P", "B")
_REQUESTS: Final = 200
_PATHS: Final = (
    "/v2/flows",
    "/v2/flows/P/B/topics?limit=100",
    "/v2/flows/P/B/topics?limit=100&sort=byte-rate&order=desc&search=t1",
    "/v2/flows/P/B/groups?limit=100",
    "/v2/flows/P/B/groups/g500",
    "/v2/flows/P/B/events",
    "/v2/topic-metrics/P/B/t100/byte-rate",
    "/v2/cluster-metrics/P/B/replication-latency-ms",
    "/v2/remote-topics?limit=100",
)


@dataclass(frozen=True, slots=True)
class Answered:
    """Milliseconds of a path over all its requests, and the bytes of an answer."""

    path: str
    p50_ms: float
    p99_ms: float
    bytes: int


def build(topics: int, partitions: int, groups: int) -> FlowContext:
    """Create a flow with copied topics and groups that have checkpoints in ten partitions each."""
    clock = FakeClock()
    source, target = FakeCluster("P", clock=clock), FakeCluster("B", clock=clock)
    maps = FakeMapReader()
    entries = []
    for number in range(topics):
        name = f"t{number}"
        source.add_topic(name, partitions)
        target.add_topic(f"P.{name}", partitions)
        for partition in range(partitions):
            maps.maps[TopicPartition(name, partition)] = OffsetMap.of(
                [Run(0, 0, 100)], Position(100, 100, 100), open_end=False
            )
    ids, copies = source.topics(), target.topics()
    for place in maps.maps:
        position = Position(100, 100, 100)
        copy = copies[f"P.{place.topic}"].topic_id
        entries.append(
            PartitionPosition(ids[place.topic].topic_id, place.partition, copy, position, 1, 0)
        )
    maps.reports = (SlotReport("0", 1, clock(), tuple(entries), source_heard_ms=clock()),)
    target.add_topic(internal_topics.checkpoints("P"))
    rows: dict[bytes, bytes | None] = {}
    for number in range(groups):
        for at in range(10):
            place = TopicPartition(f"P.t{(number * 7 + at) % topics}", at % partitions)
            about = TopicIds(
                ids[place.topic.removeprefix("P.")].topic_id, copies[place.topic].topic_id
            )
            checkpoint = Checkpoint(f"g{number}", place, 50, 50, about.metadata())
            rows[checkpoint.key()] = checkpoint.value()
    target.compacted_topic(internal_topics.checkpoints("P")).write(rows)
    config = flow_config(FLOW, topics=("t.*",))
    return FlowContext(config, source, target, maps, FakeMapReader(), clock)


def window_records(topics: int, minutes: int) -> list[tuple[bytes, Stamped]]:
    """Create windows: all of a quarter of an hour, one a minute before that."""
    now_ms = time.time_ns() // 60_000_000_000 * 60_000
    starts = [now_ms - 60_000 * m for m in range(minutes, 15, -1)]
    starts += [now_ms - 10_000 * n for n in range(90, 0, -1)]
    stat = Statistics(1.0, 3.0, 12.0, 6)
    windows = (
        WindowMetric(
            *("P", "B", "topic" if name else "cluster", name, f"P.{name}" if name else ""),
            *(start, start + 60_000, 6000, 600_000, stat, stat, stat),
        )
        for start in starts
        for name in ("", *(f"t{number}" for number in range(topics)))
    )
    return [(window.key(), Stamped(window.value(), window.end_ms)) for window in windows]


def request_path(client: httpx.Client, path: str) -> Answered:
    """Request a path repeatedly."""
    took = []
    size = 0
    for _ in range(_REQUESTS):
        began = time.perf_counter()
        answer = client.get(path)
        took.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
        size = len(answer.content)
    p99 = statistics.quantiles(took, n=100)[98]
    return Answered(path, round(statistics.median(took), 2), round(p99, 2), size)


def main() -> int:
    """Measure, print a table and write build/bench/service.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2500)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    context = build(options.topics, 4, options.groups)
    began, spent = time.perf_counter(), time.process_time()
    view = observe(context)
    look_s, look_cpu_s = time.perf_counter() - began, time.process_time() - spent
    series = Series()
    records = window_records(options.topics, 120)
    began = time.perf_counter()
    series.begin()
    for key, row in records:
        series.take(key, row)
    series.end()
    fill_s, windows = time.perf_counter() - began, len(records)
    del records
    measured = series.latest(FLOW)
    look = FlowLook(FLOW, context.config, view, context.now_ms(), measured=measured)
    watch = StillWatch(TargetLook("B", "id", {FLOW: look}, looked_ms=context.now_ms()))
    watch.series = series
    views = Views(config_of(FLOW), [watch])  # type: ignore[list-item]
    app = create_app(views)
    ends = {FLOW.source: context.source, FLOW.target: context.target}
    app.state.committed = CommittedOffsets(
        views.config,
        lambda _config, _flow, alias, group: Committed(ends[alias].committed_offsets(group)),
    )
    with served(app) as url, httpx.Client(base_url=url) as client:
        answered = [request_path(client, path) for path in _PATHS]
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    result = {
        "machine": describe_machine(),
        "topics": options.topics,
        "series": options.topics * 4,
        "groups": options.groups,
        "windows": windows,
        "take_windows_s": round(fill_s, 1),
        "look_s": round(look_s, 3),
        "look_cpu_s": round(look_cpu_s, 3),
        "memory_mb": memory_mb,
        "answers": [asdict(one) for one in answered],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "service.json").write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(
        f"{options.topics} topics, {options.topics * 4} series, {windows} windows (taken in "
        f"{fill_s:.1f} s), {options.groups} groups; one look {look_s:.2f} s, {memory_mb} MB\n\n"
    )
    for one in answered:
        sys.stdout.write(f"{one.p50_ms:8.2f} {one.p99_ms:8.2f} ms {one.bytes:>9,} B  {one.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
