"""Execution of a plan: sessions of engines, one case after the other, despite failures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import copying, fleet, fleet_cost, latency, map_case, scale, socket_copy, start_and_idle
from bench.cases import ENGINE_NAMES, SOCKET_COPY, Case, Kind, Surroundings, by_surroundings
from bench.clusters import Gate, Pair, Site, clusters
from bench.errors import BenchError
from bench.results import Result
from bench.session import (
    COMPACTED,
    WARM,
    WARM_FAR,
    WARM_FAR_RECORDS,
    WARM_RECORDS,
    Session,
    WarmUp,
    make_warm_topic,
    session,
)
from bench.tables import say, say_result
from bench.warming import warm_brokers

logger = logging.getLogger(__name__)

Outcome = Result | str
"""Result, or a line that describes the failure."""

MEASURES: Final[Mapping[Kind, Callable[[Session, Case], Result]]] = {
    "copy": copying.copy,
    "compacted": copying.compacted,
    "latency": latency.latency,
    "busy": latency.busy,
    "pauses": latency.pauses,
    "slot-lost": latency.slot_lost,
    "claim": latency.claim,
    "idle": start_and_idle.idle,
    "start": start_and_idle.start,
}
_SOCKET_CASE: Final = "1kb"


@dataclass(frozen=True)
class Plan:
    """Cases to measure; ``fraction`` also scales the warm-up."""

    cases: Sequence[Case]
    engines: Sequence[str]
    repeat: int = 1
    fraction: float = 1.0
    scale: bool = False
    fleet: bool = False
    maps: bool = False


def run_plan(plan: Plan, home: Path, logs: Path) -> Generator[Outcome, None, None]:
    """Yield each outcome at once; a failure costs only its case."""
    for case in plan.cases:
        if case.name == _SOCKET_CASE and SOCKET_COPY in plan.engines:
            yield from _socket_copies(plan, case)
    if plan.maps:
        yield from _maps(plan, home / "maps")
    if not (plan.scale or plan.fleet or (plan.cases and set(plan.engines) & set(ENGINE_NAMES))):
        return
    logs.mkdir(parents=True, exist_ok=True)
    with clusters(home / "clusters") as pair, Gate(pair.source) as gate:
        runner = _Runner(plan, pair, gate, logs)
        for _ in range(plan.repeat):
            yield from runner.once()


def _socket_copies(plan: Plan, case: Case) -> Iterator[Outcome]:
    records = max(case.records * case.fast_factor, 1)
    for _ in range(plan.repeat):
        try:
            yield socket_copy.measure(case.name, case.title, records, case.payload.size)
        except BenchError as error:
            yield f"{case.name} {SOCKET_COPY}: {error}"


def _maps(plan: Plan, home: Path) -> Iterator[Outcome]:
    """Read offset maps of a separate broker."""
    site = Site(home, "B")
    try:
        site.broker.start()
        site.broker.wait_ready()
        for _ in range(plan.repeat):
            for result in map_case.measure(site, plan.fraction):
                say_result(result)
                yield result
    except Exception as error:  # as in a session: the other cases are still measured
        logger.exception("maps")
        yield f"{map_case.NAME} srm: {error!r}"
    finally:
        site.stop()


class _Runner:
    """Runs sessions on two clusters."""

    def __init__(self, plan: Plan, pair: Pair, gate: Gate, logs: Path) -> None:
        self._plan = plan
        self._pair = pair
        self._gate = gate
        self._logs = logs
        self._sessions = 0
        self._made: dict[str, WarmUp] = {}

    def once(self) -> Iterator[Outcome]:
        """Measure everything once."""
        for surroundings, cases in by_surroundings(self._plan.cases).items():
            for engine in self._plan.engines:
                mine = [case for case in cases if engine in case.engines]
                while mine:
                    done = 0
                    for outcome in self._session(engine, surroundings, mine):
                        done += 1
                        yield outcome
                    mine = mine[done:]
        if self._plan.scale:
            yield from self._scale()
        if self._plan.fleet:
            yield from self._fleet()

    def _first(self, surroundings: Surroundings, case: Case | None = None) -> WarmUp:
        """Return the first topic of a session, created when first needed.

        On a slow line it is short, since the processor is not the limit there.
        """
        topic = WARM_FAR if surroundings.far else WARM
        if case is not None and case.kind == "compacted":
            topic = COMPACTED
        if topic not in self._made:
            self._made[topic] = self._make(topic, case)
        return self._made[topic]

    def _make(self, topic: str, case: Case | None) -> WarmUp:
        if topic == COMPACTED and case is not None:
            return copying.make_compacted_topic(self._pair.source, case)
        records = WARM_FAR_RECORDS if topic == WARM_FAR else WARM_RECORDS * self._plan.fraction
        return make_warm_topic(self._pair, topic, int(records))

    def _session(
        self, engine: str, surroundings: Surroundings, cases: Sequence[Case]
    ) -> Iterator[Outcome]:
        """Measure cases with one engine process; the first failure ends it."""
        self._sessions += 1
        measured = 0
        try:
            first = self._first(surroundings, cases[0])
            warm_brokers(self._pair)
            with session(
                *(self._pair, self._gate, engine, surroundings, self._logs, first, self._sessions)
            ) as current:
                say(
                    f"{engine} ({surroundings.name}): first record "
                    f"after {current.first_record_seconds} s"
                )
                if cases[0].kind != "compacted":
                    current.warm_up()
                for case in cases:
                    result = MEASURES[case.kind](current, case)
                    measured += 1
                    say_result(result)
                    yield result
        except BenchError as error:
            yield f"{_name(cases, measured)} {engine}: {error}"
        except Exception as error:  # no failure may cost the other results
            logger.exception("%s of %s", _name(cases, measured), engine)
            yield f"{_name(cases, measured)} {engine}: {error!r}"

    def _scale(self) -> Iterator[Outcome]:
        for topics, partitions in scale.sizes(self._plan.fraction):
            self._sessions += 1
            where = (self._pair, self._gate, self._logs, self._sessions)
            try:
                result = scale.measure(*where, topics, partitions)
            except Exception as error:  # as above
                logger.exception("%d topics", topics)
                yield f"{scale.name(topics, partitions)} srm: {error!r}"
            else:
                say_result(result)
                yield result

    def _fleet(self) -> Iterator[Outcome]:
        sizes = fleet.Sizes.of(self._plan.fraction)
        for engine in (engine for engine in fleet.ENGINES if engine in self._plan.engines):
            self._sessions += 1
            say(f"{engine} ({fleet_cost.METHOD})")
            try:
                first = self._first(fleet.SURROUNDINGS)
                warm_brokers(self._pair)
                where = (self._pair, self._gate, self._logs, engine, first, self._sessions)
                for result in fleet.measure(*where, sizes):
                    say_result(result)
                    yield result
            except Exception as error:  # as above
                logger.exception("%s of %s", fleet_cost.METHOD, engine)
                yield f"{fleet_cost.METHOD} {engine}: {error!r}"


def _name(cases: Sequence[Case], measured: int) -> str:
    """Return the current case, or the phase after the last one."""
    return cases[measured].name if measured < len(cases) else "cleaning up"
