"""Running engine: started, warm, and ready for one case after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from bench.cases import EVENT, RANDOM_1KB, Surroundings
from bench.clusters import Gate, Pair
from bench.data import batch_rounds, copies
from bench.engines import ENGINES, Route, Running
from bench.errors import BenchError
from bench.tree import come_to_rest, cpu_seconds
from bench.wire import BrokerSocket

WARM: Final = "warm"
WARM_FAR: Final = "warm-far"
COMPACTED: Final = "compacted"
WARM_RECORDS: Final = 400_000
WARM_FAR_RECORDS: Final = 4_000
WARM_PARTITIONS: Final = 4
KEPT: Final = frozenset({WARM, WARM_FAR, COMPACTED})
"""Topics of the source that serve more than one session."""
POLL_S: Final = 0.02
_START_S: Final = 300.0
_WARM_S: Final = 180.0
_APPEAR_S: Final = 90.0
_QUIET_CORES: Final = 0.25
_QUIET_S: Final = 15.0
_LOOK_S: Final = 0.5


@dataclass(frozen=True)
class WarmUp:
    """Topic that exists before the engine starts and warms it up."""

    topic: str
    partitions: int
    records: int


@dataclass
class Session:
    """Engine and clusters for the measurement of a case.

    Attributes:
        first: first topic of the engine.
        first_record_seconds: from the start of the engine to its first copied record.
    """

    running: Running
    pair: Pair
    gate: Gate
    source: BrokerSocket
    target: BrokerSocket
    first: WarmUp
    first_record_seconds: float = 0.0

    @property
    def engine(self) -> str:
        """Name of the engine."""
        return self.running.engine.name

    def copied(self, topic: str, partitions: int) -> int:
        """Return the number of records in the copy of a topic."""
        return sum(self.target.log_ends({self.running.route.remote(topic): partitions}).values())

    def wait(self, topic: str, partitions: int, records: int, seconds: float, tick: float) -> float:
        """Wait until that many records are copied; return the elapsed seconds.

        Raises:
            BenchError: the engine has ended or is too slow.
        """
        began = time.monotonic()
        while self.copied(topic, partitions) < records:
            self.running.check_alive()
            if time.monotonic() - began > seconds:
                raise BenchError(
                    f"{self.engine} has not copied {records} records of {topic} "
                    f"within {seconds:.0f} s"
                )
            time.sleep(tick)
        return time.monotonic() - began

    def announce(self, topic: str, partitions: int) -> float:
        """Create a topic with a record in each partition and wait until all of them are copied.

        Return the seconds from the creation to the first copied record.
        """
        created = time.monotonic()
        self.pair.source.create(topic, partitions)
        self.source.fill(topic, [next(iter(copies(EVENT, partitions, 1)))])
        self.wait(topic, partitions, 1, _APPEAR_S, POLL_S)
        seconds = time.monotonic() - created
        self.wait(topic, partitions, partitions, _APPEAR_S, POLL_S)
        return seconds

    def warm_up(self) -> None:
        """Wait until the first topic is copied and the engine is idle."""
        self.wait(self.first.topic, self.first.partitions, self.first.records, _WARM_S, POLL_S)
        self.running.check_settings()
        self.settle()

    def settle(self, limit_s: float = _QUIET_S) -> None:
        """Wait a while for the engine to become idle."""
        come_to_rest(self.running.tree.cpu_seconds, _QUIET_CORES, limit_s, _LOOK_S)


class Meter:
    """CPU and wall seconds since its creation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._brokers = [
            psutil.Process(site.broker.pid) for site in (session.pair.source, session.pair.target)
        ]
        self._at = time.monotonic()
        self._before = self._used()

    def _used(self) -> list[float]:
        engine = self._session.running.tree.cpu_seconds()
        return [engine, *map(cpu_seconds, self._brokers)]

    def read(self) -> dict[str, Any]:
        """Return its fields of a result."""
        wall = time.monotonic() - self._at
        engine, source, target = (
            after - before for before, after in zip(self._before, self._used(), strict=True)
        )
        return {
            "wall_seconds": round(wall, 4),
            "cpu_seconds": round(engine, 4),
            "source_broker_cpu_seconds": round(source, 3),
            "target_broker_cpu_seconds": round(target, 3),
        }


def make_warm_topic(pair: Pair, topic: str, records: int) -> WarmUp:
    """Create a first topic for sessions."""
    pair.source.create(topic, WARM_PARTITIONS)
    rounds = batch_rounds(RANDOM_1KB, WARM_PARTITIONS, records)
    with pair.source.connect() as source:
        source.fill(topic, copies(RANDOM_1KB, WARM_PARTITIONS, rounds))
        return WarmUp(topic, WARM_PARTITIONS, source.copied(topic, WARM_PARTITIONS))


@contextmanager
def session(
    pair: Pair,
    gate: Gate,
    engine: str,
    surroundings: Surroundings,
    logs: Path,
    first: WarmUp,
    number: int,
) -> Iterator[Session]:
    """Start an engine and pass it to the body as soon as it copies.

    Args:
        pair: the clusters; topics of the session are deleted afterwards.
        gate: holds back records.
        engine: name of the engine.
        surroundings: conditions of the engine.
        logs: folder for its log and configuration.
        first: first topic of the engine; it exists already.
        number: identifies the session within a run.
    """
    far = surroundings.far
    route = Route(
        f"{engine.replace('-', '')}{number}",
        pair.source.far_bootstrap if far == "source" else pair.source.bootstrap,
        pair.target.far_bootstrap if far == "target" else pair.target.bootstrap,
        topics=("bench-.*", first.topic),
        provenance=surroundings.provenance,
    )
    with ExitStack() as stack:
        stack.callback(pair.source.clean, KEPT)
        stack.callback(pair.target.clean)
        source = stack.enter_context(pair.source.connect())
        target = stack.enter_context(pair.target.connect())
        running = stack.enter_context(Running(ENGINES[engine], route, logs))
        current = Session(running, pair, gate, source, target, first)
        current.wait(first.topic, first.partitions, 1, _START_S, POLL_S)
        current.first_record_seconds = round(time.monotonic() - running.started, 2)
        yield current
