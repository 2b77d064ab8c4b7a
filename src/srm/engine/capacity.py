"""What copying a running source takes: reads the traffic of a flow's topics and reckons the cost.

Rates come from offsets: where the logs end now and a window later, and where the last hour and the
last day begin in them. What batches look like comes from a few of the newest of some partitions.
Reading is bounded: four or five questions about each partition, many in a request, and samples of
at most :data:`MOST_SAMPLES` partitions, of the topics with most traffic.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.amount import amount
from srm.domain.capacity import (
    Capacity,
    Cores,
    Saving,
    TopicLoad,
    beyond_what_was_measured,
    capacity,
    needed_slots,
    saving_of_larger_batches,
    slots_of,
)
from srm.domain.topic_traffic import LOOKED_BACK_S, BatchSample, Marks, Span, load_of, rates
from srm.domain.topics import Flow, TopicPartition
from srm.engine.ports import Cluster, FlowContext
from srm.engine.topic_sync import selected_topics
from srm.errors import UnavailableError

MOST_SAMPLES: Final = 600
"""Partitions of which batches are read: 150 MB in all."""
_OF_EACH_TOPIC: Final = 3
_AT_ONCE: Final = 2000
_WORTH_SAVING: Final = 0.05
"""Cores below which larger batches are no advice."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TopicCapacity:
    """One topic: its traffic at the peak that was seen, and what copying that takes.

    Attributes:
        rates: records a second over each span that the log reaches back over.
        peak: the span with the highest of them, which ``load`` is.
        sampled: whether batches of its own were looked at; else it is taken to be like the others.
    """

    topic: str
    load: TopicLoad
    rates: Mapping[Span, float]
    peak: Span
    sampled: bool
    cores: Cores


@dataclass(frozen=True, slots=True)
class FlowCapacity:
    """What copying all topics of a flow takes, each at its own peak.

    Attributes:
        window_s: seconds that the rates called ``now`` are means of.
        topics: those with most traffic first.
        capacity: of all of them, with as many slots as ``tasks_max`` gives, or more if needed.
        slots_needed: what ``tasks.max`` should be at least.
        tasks_max: what it is.
        saving: what larger batches of one topic would save, where that is worth its while.
    """

    flow: Flow
    window_s: float
    topics: tuple[TopicCapacity, ...]
    capacity: Capacity
    slots_needed: int
    tasks_max: int
    saving: Saving | None
    advice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribedCapacity:
    """What copying one topic takes that is described, and need not exist."""

    load: TopicLoad
    capacity: Capacity
    slots_needed: int
    advice: tuple[str, ...]


def described_capacity(load: TopicLoad, slots: int = 1) -> DescribedCapacity:
    """Reckon what a described topic takes; pure.

    Args:
        load: its traffic.
        slots: what ``tasks.max`` would be.
    """
    loads = [load]
    needed, cost, saving = _cost(loads, slots)
    return DescribedCapacity(load, cost, needed, tuple(_remarks(["the topic"], loads, saving)))


def flow_capacity(context: FlowContext, window_s: float, tell: Tell) -> FlowCapacity:
    """Read the traffic of the topics that a flow selects on its source, and reckon its cost.

    Args:
        context: the flow.
        window_s: how long the look takes, in seconds.
        tell: is told what is being done.

    Raises:
        SrmError: the source does not answer, or a right is missing.
    """
    source = context.source
    tell("reading topics")
    described = source.topics()
    topics = [described[topic] for topic in selected_topics(described, context.config)]
    partitions = [
        TopicPartition(topic.name, number)
        for topic in topics
        for number in range(topic.partitions)
        if number not in topic.leaderless
    ]
    reader = _Reader(source, partitions, tell)
    before, began = reader.ends("where logs end"), time.monotonic()
    starts = reader.ask("where logs begin", source.log_starts)
    now_ms = context.now_ms()
    since = {
        span: reader.since(f"where the last {span} begins", now_ms - seconds * 1000)
        for span, seconds in LOOKED_BACK_S.items()
    }
    samples = _samples(source, before, since, tell)
    left = window_s - (time.monotonic() - began)
    if left > 0:
        tell(f"watching {amount(len(topics), 'topic')} for {left:.0f} s")
        threading.Event().wait(left)  # the span that is measured
    after, passed = reader.ends("where logs end by now"), time.monotonic() - began
    marks: dict[str, list[Marks]] = defaultdict(list)
    for p, end in before.items():
        if p in after and p in starts:
            of_spans = {span: found[p] for span, found in since.items() if p in found}
            marks[p.topic].append(Marks(starts[p], end, after[p], of_spans))
    counts = {topic.name: topic.partitions for topic in topics}
    config = context.config
    found = reckon(config.flow, config.tasks_max, counts, marks, samples, passed)
    return replace(found, advice=(*_notes(context, counts), *found.advice))


def _notes(context: FlowContext, topics: Collection[str]) -> Iterator[str]:
    """Say what was left out, and why."""
    config = context.config
    source, target = config.flow.source, config.flow.target
    if all(config.policy.is_heartbeats_topic(topic) for topic in topics):
        wanted = ", ".join(config.topics)
        yield (
            f"no topic of {source} matches topics = {wanted}"
            if wanted
            else f"no topic is selected: srm-control topics --source {source} --target {target} "
            "--add 'TOPIC'"
        )
    try:
        context.target.cluster_id()
    except UnavailableError as error:
        yield f"without the lists of srm-control, as {target} does not answer: {error}"


def reckon(
    flow: Flow,
    tasks_max: int,
    topics: Mapping[str, int],
    marks: Mapping[str, Collection[Marks]],
    samples: Mapping[str, BatchSample],
    window_s: float,
) -> FlowCapacity:
    """Turn what was read into cost; pure.

    Args:
        flow: the flow.
        tasks_max: the slots it has.
        topics: partitions of each.
        marks: offsets of their partitions.
        samples: batches of those that were looked at.
        window_s: seconds between the first and the last offsets.
    """
    usual = sum(samples.values(), BatchSample())
    seen: list[tuple[str, TopicLoad, Mapping[Span, float], Span]] = []
    for topic, partitions in topics.items():
        found = rates(marks.get(topic, ()), window_s)
        peak = max(found, key=lambda span: found[span])
        seen.append(
            (topic, load_of(partitions, found[peak], samples.get(topic, usual)), found, peak)
        )
    seen.sort(key=lambda each: (-each[1].megabytes_per_s, each[0]))
    loads = [load for _, load, _, _ in seen]
    needed, cost, saving = _cost(loads, tasks_max)
    rows = tuple(
        TopicCapacity(topic, load, found, peak, topic in samples, cores)
        for (topic, load, found, peak), cores in zip(seen, cost.topics, strict=True)
    )
    advice = (
        _slots_text(loads, needed, tasks_max),
        *_remarks([row.topic for row in rows], loads, saving),
    )
    return FlowCapacity(flow, round(window_s, 3), rows, cost, needed, tasks_max, saving, advice)


def _cost(loads: Sequence[TopicLoad], tasks_max: int) -> tuple[int, Capacity, Saving | None]:
    """Return the slots needed, the cost with those there would be, and what is worth saving."""
    needed = needed_slots(loads)
    cost = capacity(loads, slots_of(loads, needed, tasks_max))
    saving = saving_of_larger_batches(loads, cost.slots)
    if saving is not None and saving.cores.all < _WORTH_SAVING:
        saving = None
    return needed, cost, saving


def _slots_text(loads: Sequence[TopicLoad], needed: int, tasks_max: int) -> str:
    if not any(load.megabytes_per_s for load in loads):
        return "no traffic was seen: ask again at a busy time, or give --rate and --batch"
    if needed > tasks_max:
        return f"tasks.max is {tasks_max}: at this peak {needed} slots are needed"
    return f"{amount(needed, 'slot')} will do at this peak, tasks.max is {tasks_max}"


def _remarks(
    topics: Sequence[str], loads: Sequence[TopicLoad], saving: Saving | None
) -> Iterator[str]:
    """Say what larger batches would save, and what the figures do not rest on."""
    if saving is not None:
        yield (
            f"{topics[saving.index]} has batches of "
            f"{loads[saving.index].batch_bytes / 1000:.1f} KB: of "
            f"{saving.batch_bytes / 1024:.0f} KB (linger.ms, batch.size of its producers) they "
            f"would save {saving.cores.all:.2f} cores, {saving.cores.target_brokers:.2f} of them "
            "on the target's brokers"
        )
    if beyond_what_was_measured(loads):
        yield (
            "traffic to more than 1,000 partitions is beyond what the figures rest on: it may take "
            "several times as much (docs/capacity.md, What it leaves out)"
        )


def _samples(
    source: Cluster,
    ends: Mapping[TopicPartition, int],
    since: Mapping[Span, Mapping[TopicPartition, int]],
    tell: Tell,
) -> dict[str, BatchSample]:
    """Return samples of the topics with most records, from their partitions with most."""
    recent = {
        p: max((end - found[p] for found in since.values() if p in found), default=0)
        for p, end in ends.items()
    }
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for p in sorted(recent, key=lambda p: (-recent[p], -ends[p], p)):
        by_topic[p.topic].append(p)
    busiest = sorted(by_topic, key=lambda t: -sum(recent[p] for p in by_topic[t]))[:MOST_SAMPLES]
    of_each = max(1, min(_OF_EACH_TOPIC, MOST_SAMPLES // max(1, len(busiest))))
    tell(f"looking at batches of {amount(len(busiest), 'topic')}")
    wanted = [p for topic in busiest for p in by_topic[topic][:of_each]]
    samples: dict[str, BatchSample] = {}
    for p, sample in source.recent_batches(wanted).items():
        samples[p.topic] = samples.get(p.topic, BatchSample()) + sample
    return samples


class _Reader:
    """Asks about many partitions, some at a time, and says how far it is."""

    def __init__(self, source: Cluster, partitions: Sequence[TopicPartition], tell: Tell) -> None:
        self._source = source
        self._partitions = partitions
        self._tell = tell

    def ends(self, what: str) -> dict[TopicPartition, int]:
        return self.ask(what, self._source.high_watermarks)

    def since(self, what: str, time_ms: int) -> dict[TopicPartition, int]:
        return self.ask(what, lambda some: self._source.offsets_at(dict.fromkeys(some, time_ms)))

    def ask(
        self,
        what: str,
        question: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for at in range(0, len(self._partitions), _AT_ONCE):
            self._tell(f"{what}: {at:,} of {amount(len(self._partitions), 'partition')}")
            found.update(question(self._partitions[at : at + _AT_ONCE]))
        return found
