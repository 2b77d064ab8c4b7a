"""What copying costs by size of batches and number of partitions, at a rate, of all who take part.

Traffic comes at a steady rate, as from producers, and is copied as it comes: what an engine saves
by waiting for full fetches when it catches up, it does not save here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from bench.cases import Surroundings
from bench.clusters import Gate, Pair, Site
from bench.data import one_record, records_in, sized
from bench.errors import BenchError, wait
from bench.fleet_cost import METHOD
from bench.load import Spread, pace
from bench.results import MEGABYTE, Result, with_rates
from bench.sent_batches import count_batches, log_sizes
from bench.session import Meter, Session, WarmUp, session
from bench.tree import PeakMemory

ENGINES: Final = ("srm", "mm2-tuned")
SURROUNDINGS: Final = Surroundings("fleet")
PARTITIONS: Final = (10, 100, 1000, 10_000)
RATES: Final[Mapping[int, float]] = {1000: 4.0, 16_000: 20.0, 128_000: 25.0}
"""MB a second by bytes of a batch: what one producer manages beside the rest on two cores."""

_LARGEST_TOPIC: Final = 1000
_SECONDS: Final = 7.0
_LEAD_IN_S: Final = 2.0
_IDLE_S: Final = 4.0
_OWN_S: Final = 4.0
_SHORTEST_S: Final = 1.0
_COPIED_S: Final = 300.0
_LOOK_S: Final = 0.25


@dataclass(frozen=True)
class Sizes:
    """How large and long the cells are; ``followed`` are the partitions of each level."""

    followed: Sequence[int] = PARTITIONS
    seconds: float = _SECONDS
    lead_in_s: float = _LEAD_IN_S
    idle_s: float = _IDLE_S
    own_s: float = _OWN_S

    @classmethod
    def of(cls, fraction: float) -> Sizes:
        """Return that fraction of everything, but enough to try it out."""
        return cls(
            [max(1, int(partitions * fraction)) for partitions in PARTITIONS],
            *(max(_SHORTEST_S, s * fraction) for s in (_SECONDS, _LEAD_IN_S, _IDLE_S, _OWN_S)),
        )


@dataclass
class Own:
    """Cores that a broker uses for itself and for who produces, while nobody copies from it.

    Attributes:
        at_rest: by number of partitions.
        producing: by number of partitions and bytes of a batch; rest included.
    """

    at_rest: dict[int, float] = field(default_factory=dict)
    producing: dict[tuple[int, int], float] = field(default_factory=dict)


def name(batch_bytes: int, partitions: int) -> str:
    """Return the name of the case."""
    return f"fleet-{batch_bytes // 1000}kb-{partitions}p"


def new_topics(prefix: str, there: int, partitions: int) -> dict[str, int]:
    """Return the topics that make so many partitions of those that are there, none too large."""
    topics = {}
    while there < partitions:
        count = min(_LARGEST_TOPIC, partitions - there)
        topics[f"{prefix}-{there:05d}"] = count
        there += count
    return topics


def measure_own(site: Site, sizes: Sizes) -> Own:
    """Measure what traffic costs a broker from which nobody copies."""
    own = Own()
    spread = Spread({})
    with site.connect() as broker:
        for partitions in sizes.followed:
            added = new_topics("quiet", spread.partitions, partitions)
            _create(site, added)
            for topic, count in added.items():
                broker.fill(topic, [dict.fromkeys(range(count), one_record())])
            spread = Spread({**spread.topics, **added})
            time.sleep(sizes.lead_in_s)  # until the broker has come to rest
            began, before = time.monotonic(), _broker_seconds(site)
            time.sleep(sizes.idle_s)  # the span that is measured
            own.at_rest[partitions] = _cores(site, began, before)
            for size, rate in RATES.items():
                batches, per_second = sized(size), rate * MEGABYTE / size
                pace(broker, spread, batches, per_second, sizes.lead_in_s)
                began, before = time.monotonic(), _broker_seconds(site)
                pace(broker, spread, batches, per_second, sizes.own_s)
                own.producing[partitions, size] = _cores(site, began, before)
    site.clean(frozenset(site.topics() - spread.topics.keys()))
    return own


def measure(
    pair: Pair,
    gate: Gate,
    logs: Path,
    engine: str,
    first: WarmUp,
    number: int,
    sizes: Sizes,
    own: Own,
) -> Iterator[Result]:
    """Measure one engine, with more and more partitions, at all sizes of batches."""
    with session(pair, gate, engine, SURROUNDINGS, logs, first, number) as current:
        current.warm_up()
        spread = Spread({})
        for partitions in sizes.followed:
            spread = _follow(current, spread, partitions)
            idle = _at_rest(current, sizes)
            for size in RATES:
                yield _Cell(current, spread, size, sizes).result(idle, own)


def _create(site: Site, topics: Mapping[str, int]) -> None:
    for topic, partitions in topics.items():
        site.create(topic, partitions)


def _broker_seconds(site: Site) -> float:
    times = psutil.Process(site.broker.pid).cpu_times()
    return times.user + times.system


def _cores(site: Site, began: float, before: float) -> float:
    return round((_broker_seconds(site) - before) / (time.monotonic() - began), 4)


def _follow(current: Session, spread: Spread, partitions: int) -> Spread:
    """Add topics and wait until a record of each partition is copied."""
    added = new_topics("bench-fleet", spread.partitions, partitions)
    _create(current.pair.source, added)
    for topic, count in added.items():
        current.source.fill(topic, [dict.fromkeys(range(count), one_record())])
    remote = {current.running.route.remote(topic): count for topic, count in added.items()}
    markers = current.running.engine.markers

    def is_copied() -> bool:
        current.running.check_alive()
        return all(end > markers for end in current.target.log_ends(remote).values())

    wait(is_copied, _COPIED_S, f"{current.engine} copies from {partitions} partitions", _LOOK_S)
    return Spread({**spread.topics, **added})


def _at_rest(current: Session, sizes: Sizes) -> dict[str, float]:
    """Measure what it costs that nothing happens."""
    current.settle()
    time.sleep(sizes.lead_in_s)  # until caches, reports and metadata refreshes have settled
    meter = Meter(current)
    time.sleep(sizes.idle_s)  # the span that is measured
    return _by_party(meter.read())


def _by_party(used: Mapping[str, Any]) -> dict[str, float]:
    wall = used["wall_seconds"]
    return {
        "replicator": used["cpu_seconds"] / wall,
        "source_broker": used["source_broker_cpu_seconds"] / wall,
        "target_broker": used["target_broker_cpu_seconds"] / wall,
    }


class _Cell:
    """One size of batches over so many partitions."""

    def __init__(self, current: Session, spread: Spread, size: int, sizes: Sizes) -> None:
        self._current = current
        self._spread = spread
        self._size = size
        self._sizes = sizes
        route = current.running.route
        self._remote = {route.remote(topic): count for topic, count in spread.topics.items()}
        self._wanted = 0

    def result(self, idle: Mapping[str, float], own: Own) -> Result:
        """Measure."""
        current, size, partitions = self._current, self._size, self._spread.partitions
        rate = RATES[size]
        batches, per_second, data = sized(size), rate * MEGABYTE / size, current.pair.target.data
        self._wanted = self._copied()
        with PeakMemory(current.running.tree) as memory:
            self._produce(batches, per_second, self._sizes.lead_in_s)
            self._drain()
            files, copied = log_sizes(data, self._remote), self._copied()
            meter = Meter(current)
            self._produce(batches, per_second, self._sizes.seconds)
            used = meter.read()
            records = self._copied() - copied
        made = self._wanted - copied
        self._drain()
        sent = count_batches(files, log_sizes(data, self._remote))
        behind = (made - records) / records_in(size) / per_second
        if records <= 0:
            raise BenchError(f"{name(size, partitions)}: nothing was copied")
        return with_rates(
            Result(
                name(size, partitions),
                current.engine,
                f"batches of {size // 1000} KB, {partitions:,} partitions",
                METHOD,
                records=records,
                bytes=records // records_in(size) * size,
                first_record_seconds=current.first_record_seconds,
                resident_megabytes=round(memory.megabytes, 1),
                details={
                    "partitions": partitions,
                    "batch_bytes": size,
                    "offered_megabytes_per_second": rate,
                    "batches": made // records_in(size),
                    "sent_batches": sent,
                    "behind_seconds": round(max(0.0, behind), 2),
                    "idle_cores": {party: round(cores, 4) for party, cores in idle.items()},
                    "own_cores_at_rest": own.at_rest[partitions],
                    "own_cores_producing": own.producing[partitions, size],
                },
                **used,
            )
        )

    def _produce(self, batches: Sequence[bytes], per_second: float, seconds: float) -> None:
        source = self._current.source
        count = pace(source, self._spread, batches, per_second, seconds)
        self._wanted += count * records_in(self._size)

    def _copied(self) -> int:
        return sum(self._current.target.log_ends(self._remote).values())

    def _drain(self) -> None:
        """Wait until what was produced is copied."""
        what = f"{self._current.engine} copies {name(self._size, self._spread.partitions)}"
        wait(lambda: self._copied() >= self._wanted, _COPIED_S, what, _LOOK_S)
