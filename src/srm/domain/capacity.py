"""How many cores a fleet of topics takes, on the replicator and on the brokers; pure.

Cost is linear in what is done (:class:`.Units`), and what is done follows from the traffic in one
of two regimes:

- *steady*: records are copied as they arrive. A slot fetches, and sends what the answer brought, in
  a round of some milliseconds (:data:`.ROUND_S`). Batches of one partition are merged where several
  arrive within a round. Arrivals are taken to be independent of each other, so that of ``n`` a
  second ``(1 - exp(-n * round)) / round`` rounds a second bring at least one. The same formula says
  how many rounds there are, and how many batches each partition is sent.
- *catching up*: a backlog waits in each partition. Answers are full, and batches that may be merged
  leave as large as they may become.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.capacity_costs import (
    LOOK_S,
    REPLICATOR,
    ROUND_S,
    SOURCE_BROKER,
    TARGET_BROKER,
    Units,
)

MEGABYTE: Final = 1e6
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By the numbers that Kafka gives them."""
BUSY: Final = 0.6
"""Share of a core that a slot is planned to use at the peak: the rest is for bursts, for partitions
that are not spread evenly, and for catching up."""
OUTAGE_MINUTES: Final = 60.0
LARGER_BATCH_BYTES: Final = 16_384
"""What producers send by default under load, and what advice compares smaller batches with."""

_MERGED_MB: Final = 1.0
_ANSWER_MB: Final = 8.0
_MERGED_UP_TO: Final = {"none": 1 << 19, "snappy": 1 << 15, "lz4": 1 << 15, "zstd": 1 << 15}
"""Bytes up to which batches are merged, by codec: see docs/performance.md."""
_MEASURED_PARTITIONS: Final = 1000


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """The traffic of one topic.

    Attributes:
        partitions: how many it has; traffic is taken to be spread evenly over them.
        megabytes_per_s: 10^6 bytes a second on the wire, compressed.
        batch_bytes: mean size of a batch, header included; 0 where there is no traffic.
        records_per_s: nothing costs by the record; it is here to be shown.
        codec: one of :data:`CODECS`.
    """

    partitions: int
    megabytes_per_s: float
    batch_bytes: float
    records_per_s: float = 0.0
    codec: str = "none"

    @property
    def batches_per_s(self) -> float:
        """Batches a second, of all partitions."""
        return self.megabytes_per_s * MEGABYTE / self.batch_bytes if self.batch_bytes else 0.0

    @property
    def is_merged(self) -> bool:
        """Whether batches of this size and codec are merged when they arrive together."""
        return self.batch_bytes <= _MERGED_UP_TO.get(self.codec, 0)


@dataclass(frozen=True, slots=True)
class Cores:
    """CPU seconds in a second: of the replicator with its slots, and of each side's brokers."""

    replicator: float = 0.0
    source_brokers: float = 0.0
    target_brokers: float = 0.0

    def __add__(self, other: Cores) -> Cores:
        return Cores(
            self.replicator + other.replicator,
            self.source_brokers + other.source_brokers,
            self.target_brokers + other.target_brokers,
        )

    def __sub__(self, other: Cores) -> Cores:
        return Cores(
            self.replicator - other.replicator,
            self.source_brokers - other.source_brokers,
            self.target_brokers - other.target_brokers,
        )

    @property
    def all(self) -> float:
        """The sum."""
        return self.replicator + self.source_brokers + self.target_brokers


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a fleet takes.

    Attributes:
        slots: as many as it is reckoned with: each costs its rounds.
        topics: what each topic takes, in the order given.
        shared: what no topic takes for itself: rounds, the driver, its JVM.
        total: the sum of both.
        catch_up_megabytes_per_s: what the slots copy of a backlog when each has a core, and brokers
            and lines keep up; 0 where there is no traffic to tell by.
        outage_minutes: until the backlog of an outage of an hour is copied, while the traffic goes
            on; None where it never is.
        busy: share of the time for which each slot is; above 1 the traffic cannot be followed.
        partitions_needed: as many as would do, as a partition is copied by one slot.
    """

    slots: int
    topics: tuple[Cores, ...]
    shared: Cores
    total: Cores
    catch_up_megabytes_per_s: float
    outage_minutes: float | None
    busy: float
    partitions_needed: int


@dataclass(frozen=True, slots=True)
class Saving:
    """What larger batches of one topic would save: ``index`` is its place among the loads."""

    index: int
    batch_bytes: int
    cores: Cores


def capacity(loads: Sequence[TopicLoad], slots: int | None = None) -> Capacity:
    """Return what a fleet takes, with so many slots, or as many as it needs."""
    slots = slots or needed_slots(loads)
    partitions = sum(load.partitions for load in loads)
    round_s = round_seconds(partitions / slots)
    of_each_slot = rounds_per_s(sum(load.batches_per_s for load in loads) / slots, round_s)
    topics = tuple(_steady_cores(load, round_s, of_each_slot) for load in loads)
    shared = _cores(Units(rounds=slots * of_each_slot, always=1.0))
    total = sum(topics, shared)
    megabytes = sum(load.megabytes_per_s for load in loads)
    speed = _catch_up(loads, slots)
    spare = speed - megabytes
    minutes = OUTAGE_MINUTES * megabytes / spare if spare > 0 else None
    used = _of_slots(total)
    return Capacity(
        slots,
        topics,
        shared,
        total,
        catch_up_megabytes_per_s=speed,
        outage_minutes=minutes if megabytes else 0.0,
        busy=used / slots,
        partitions_needed=max(partitions, math.ceil(used / BUSY)),
    )


def needed_slots(loads: Sequence[TopicLoad]) -> int:
    """Return how many slots keep each below :data:`BUSY`; a partition is copied by one of them."""
    most = max(1, sum(load.partitions for load in loads))
    slots = 1
    while slots < most:
        wanted = math.ceil(_of_slots(capacity(loads, slots).total) / BUSY)
        if wanted <= slots:
            break
        slots = min(wanted, most)  # more slots make more rounds, so this may take another look
    return slots


def slots_of(loads: Sequence[TopicLoad], needed: int, tasks_max: int) -> int:
    """Return how many slots there would be: those that are needed, or more where more are meant.

    A slot without a partition is none.
    """
    return max(needed, min(tasks_max, sum(load.partitions for load in loads)))


def beyond_what_was_measured(loads: Sequence[TopicLoad]) -> bool:
    """Whether traffic goes to more partitions than two cores could be measured with."""
    partitions = sum(load.partitions for load in loads if load.batch_bytes)
    return partitions > _MEASURED_PARTITIONS


def saving_of_larger_batches(loads: Sequence[TopicLoad], slots: int) -> Saving | None:
    """Return the topic that would save most with batches of 16 KB; None where none are smaller."""
    round_s = round_seconds(sum(load.partitions for load in loads) / slots)
    rounds = rounds_per_s(sum(load.batches_per_s for load in loads) / slots, round_s)
    found: list[Saving] = []
    for index, load in enumerate(loads):
        if 0 < load.batch_bytes < LARGER_BATCH_BYTES:
            larger = replace(load, batch_bytes=LARGER_BATCH_BYTES)
            now, then = (_steady_cores(each, round_s, rounds) for each in (load, larger))
            found.append(Saving(index, LARGER_BATCH_BYTES, now - then))
    return max(found, key=lambda saving: saving.cores.all, default=None)


def round_seconds(partitions: float) -> float:
    """Return how long a round takes of a slot that follows so many partitions."""
    return ROUND_S + LOOK_S * partitions


def sent_per_s(load: TopicLoad, round_s: float) -> float:
    """Return how many batches a second leave for the target in the steady regime."""
    batches = load.batches_per_s
    if not load.is_merged or not load.partitions:
        return batches
    together = load.partitions * rounds_per_s(batches / load.partitions, round_s)
    return min(batches, max(together, load.megabytes_per_s / _MERGED_MB))


def rounds_per_s(arrivals_per_s: float, round_s: float) -> float:
    """Return how many rounds a second bring at least one of so many arrivals."""
    return -math.expm1(-arrivals_per_s * round_s) / round_s


def _steady(load: TopicLoad, round_s: float, rounds: float) -> Units:
    """Return what is done in a second; ``rounds`` are those of one slot."""
    opened = 0.0
    if load.codec != "none" and load.is_merged and load.partitions:
        # That a batch is not alone in its round.
        opened = -math.expm1(-load.batches_per_s / load.partitions * round_s)
    return Units(
        megabytes=load.megabytes_per_s,
        batches=load.batches_per_s,
        sent=sent_per_s(load, round_s),
        opened=opened * load.megabytes_per_s,
        looks=rounds * load.partitions,
        partitions=load.partitions,
    )


def _steady_cores(load: TopicLoad, round_s: float, rounds: float) -> Cores:
    return _cores(_steady(load, round_s, rounds))


def _of_slots(total: Cores) -> float:
    """Return the cores that slots use, all together: the replicator's without the driver's."""
    return total.replicator - REPLICATOR.always


def _catch_up(loads: Sequence[TopicLoad], slots: int) -> float:
    """Return the MB/s at which a backlog of this traffic is copied."""
    megabytes = sum(load.megabytes_per_s for load in loads)
    if not megabytes:
        return 0.0
    followed = sum(load.partitions for load in loads)
    work = [catching_up(load, followed / slots) for load in loads]
    seconds = sum(units.cost(REPLICATOR) for units in work) / megabytes
    return min(slots, followed) / seconds


def catching_up(load: TopicLoad, followed: float) -> Units:
    """Return what a second of a topic's traffic takes to copy when it has piled up.

    Args:
        load: the traffic.
        followed: partitions of a slot, of all topics.
    """
    merged = min(load.batches_per_s, load.megabytes_per_s / _MERGED_MB)
    rounds = load.megabytes_per_s / _ANSWER_MB
    return Units(
        megabytes=load.megabytes_per_s,
        batches=load.batches_per_s,
        sent=merged if load.is_merged else load.batches_per_s,
        opened=load.megabytes_per_s if load.is_merged and load.codec != "none" else 0.0,
        rounds=rounds,
        looks=rounds * followed,
    )


def _cores(work: Units) -> Cores:
    return Cores(work.cost(REPLICATOR), work.cost(SOURCE_BROKER), work.cost(TARGET_BROKER))
