"""Cost of copying by batch size and number of partitions at a steady rate, for each party.

Traffic arrives at a steady rate, as from producers, and is copied at once. An engine that catches
up saves by waiting for full fetches; that does not apply here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.cases import Surroundings
from bench.clusters import Gate, Pair
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
"""MB a second by bytes of a batch, as far as one producer manages on two shared cores."""

_LARGEST_TOPIC: Final = 1000
_FIRST_BYTES: Final = 16_000
_SECONDS: Final = 6.0
_LEAD_IN_S: Final = 1.0
_IDLE_S: Final = 3.0
_QUIET_S: Final = 3.0
_REST_S: Final = 60.0
_SHORTEST_S: Final = 1.0
_SHORTEST_COPY_S: Final = 4.0
_COPIED_S: Final = 300.0
_LOOK_S: Final = 0.25


@dataclass(frozen=True)
class Sizes:
    """Size and duration of the cells.

    ``followed``: the partitions of each level.
    ``rest_s``: time limit until thousands of partitions are claimed and the engine is idle.
    """

    followed: Sequence[int] = PARTITIONS
    seconds: float = _SECONDS
    lead_in_s: float = _LEAD_IN_S
    idle_s: float = _IDLE_S
    quiet_s: float = _QUIET_S
    rest_s: float = _REST_S

    @classmethod
    def of(cls, fraction: float) -> Sizes:
        """Return that fraction of everything, but enough for a trial."""
        return cls(
            list(dict.fromkeys(max(1, int(partitions * fraction)) for partitions in PARTITIONS)),
            max(_SHORTEST_COPY_S, _SECONDS * fraction),
            *(max(_SHORTEST_S, s * fraction) for s in (_LEAD_IN_S, _IDLE_S, _QUIET_S, _REST_S)),
        )


def name(batch_bytes: int, partitions: int) -> str:
    """Return the name of the case."""
    return f"fleet-{batch_bytes // 1000}kb-{partitions}p"


def new_topics(prefix: str, there: int, partitions: int) -> dict[str, int]:
    """Return existing topics with that many partitions in total, none too large."""
    topics = {}
    while there < partitions:
        count = min(_LARGEST_TOPIC, partitions - there)
        topics[f"{prefix}-{there:05d}"] = count
        there += count
    return topics


def measure(
    pair: Pair,
    gate: Gate,
    logs: Path,
    engine: str,
    first: WarmUp,
    number: int,
    sizes: Sizes,
) -> Iterator[Result]:
    """Measure one engine with a growing number of partitions, at all batch sizes."""
    with session(pair, gate, engine, SURROUNDINGS, logs, first, number) as current:
        current.warm_up()
        followed, quiet = Spread({}), Spread({})
        for partitions in sizes.followed:
            quiet = _grow(current, "quiet", quiet, min(partitions, _LARGEST_TOPIC))
            followed = _grow(current, "bench-fleet", followed, partitions)
            _wait_for_copies(current, followed, 1)
            for spread in (quiet, followed):
                _touch(current, spread)
            _wait_for_copies(current, followed, records_in(_FIRST_BYTES) + 1)
            idle = _at_rest(current, sizes)
            for size in RATES:
                yield _Cell(current, followed, quiet, size, sizes).result(idle)


def _grow(current: Session, prefix: str, spread: Spread, partitions: int) -> Spread:
    """Add topics with a batch in each partition up to that many partitions."""
    added = new_topics(prefix, spread.partitions, partitions)
    for topic, count in added.items():
        current.pair.source.create(topic, count)
        current.source.fill(topic, [dict.fromkeys(range(count), sized(_FIRST_BYTES)[0])])
    return Spread({**spread.topics, **added})


def _touch(current: Session, spread: Spread) -> None:
    """Append one more batch to each partition.

    After the first 4 KB a broker starts to index a log, which thousands of new partitions would
    add to the figures.
    """
    for topic, count in spread.topics.items():
        current.source.fill(topic, [dict.fromkeys(range(count), one_record())])


def _remote(current: Session, spread: Spread) -> dict[str, int]:
    route = current.running.route
    return {route.remote(topic): count for topic, count in spread.topics.items()}


def _wait_for_copies(current: Session, spread: Spread, records: int) -> None:
    """Wait until that many records of each partition are copied."""
    remote = _remote(current, spread)

    def is_copied() -> bool:
        current.running.check_alive()
        ends = current.target.log_ends(remote)
        return all(end >= records for end in ends.values())

    what = f"{current.engine} copies from {spread.partitions} partitions"
    wait(is_copied, _COPIED_S, what, _LOOK_S)


def _at_rest(current: Session, sizes: Sizes) -> dict[str, float]:
    """Measure the idle cost."""
    current.settle(sizes.rest_s)
    time.sleep(sizes.lead_in_s)  # until caches, reports and metadata refreshes settle
    meter = Meter(current)
    time.sleep(sizes.idle_s)  # the measured time
    return _by_party(meter.read())


def _by_party(used: Mapping[str, Any]) -> dict[str, float]:
    wall = used["wall_seconds"]
    return {
        "replicator": used["cpu_seconds"] / wall,
        "source_broker": used["source_broker_cpu_seconds"] / wall,
        "target_broker": used["target_broker_cpu_seconds"] / wall,
    }


class _Cell:
    """One batch size and number of partitions."""

    def __init__(
        self, current: Session, followed: Spread, quiet: Spread, size: int, sizes: Sizes
    ) -> None:
        self._current = current
        self._spread = followed
        self._quiet = quiet
        self._size = size
        self._sizes = sizes
        self._remote = _remote(current, followed)
        self._wanted = 0

    def result(self, idle: Mapping[str, float]) -> Result:
        """Measure, after the same traffic in topics that are not copied."""
        current, size, partitions = self._current, self._size, self._spread.partitions
        rate, data = RATES[size], current.pair.target.data
        per_second = rate * MEGABYTE / size
        self._produce(self._quiet, self._sizes.lead_in_s)
        meter = Meter(current)
        self._produce(self._quiet, self._sizes.quiet_s)
        uncopied = _by_party(meter.read())
        self._wanted = self._copied()
        with PeakMemory(current.running.tree) as memory:
            self._wanted += self._produce(self._spread, self._sizes.lead_in_s)
            self._drain()
            files, copied = log_sizes(data, self._remote), self._copied()
            meter = Meter(current)
            self._wanted += self._produce(self._spread, self._sizes.seconds)
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
                    "source_broker_cores_uncopied": round(uncopied["source_broker"], 4),
                },
                **used,
            )
        )

    def _produce(self, spread: Spread, seconds: float) -> int:
        """Produce for that long; return the number of records."""
        per_second = RATES[self._size] * MEGABYTE / self._size
        count = pace(self._current.source, spread, sized(self._size), per_second, seconds)
        return count * records_in(self._size)

    def _copied(self) -> int:
        return sum(self._current.target.log_ends(self._remote).values())

    def _drain(self) -> None:
        """Wait until all produced records are copied."""
        what = f"{self._current.engine} copies {name(self._size, self._spread.partitions)}"
        wait(lambda: self._copied() >= self._wanted, _COPIED_S, what, _LOOK_S)
