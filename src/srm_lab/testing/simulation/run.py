"""Running seeds: one world each, checked at its end."""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from srm_lab.testing.simulation import checker
from srm_lab.testing.simulation.loop import simulated_loop
from srm_lab.testing.simulation.scenario import SimulatedScenario
from srm_lab.testing.simulation.threads import simulated_threads
from srm_lab.testing.simulation.world import SimulatedWorld


@dataclass
class SeedOutcome:
    """Result of one seed."""

    seed: int
    problems: list[str] = field(default_factory=list)
    steps: int = 0
    virtual_s: float = 0.0
    records: int = 0
    digest: str = ""
    stopped: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def silent(_line: str) -> None:
    """Discard the line."""


def play(seed: int, trace: Callable[[str], None] = silent, kinds: str = "all") -> SeedOutcome:
    """Play one seed and check what it has left."""
    with simulated_loop(seed) as loop, simulated_threads(loop):
        scenario = SimulatedScenario.drawn(seed, kinds)

        def line(text: str) -> None:
            trace(f"{loop.time() - 1000:9.4f}  {text}")

        world = SimulatedWorld.made(scenario, loop, line)
        for plan in scenario.topics:
            line(f"plan {plan}")
        line(f"slots={scenario.slots} accepts_loss={scenario.accepts_loss}")
        handler = _Lines(line)
        srm_logger = logging.getLogger("srm")
        was = srm_logger.level, srm_logger.propagate, logging.getLogger("asyncio").level
        srm_logger.propagate = False
        srm_logger.setLevel(logging.CRITICAL if trace is silent else logging.INFO)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
        srm_logger.addHandler(handler)
        try:
            loop.run_until_complete(loop.world_task(world.live()))
            problems = list(dict.fromkeys((*world.problems, *checker.check(world))))
        finally:
            srm_logger.removeHandler(handler)
            srm_logger.setLevel(was[0])
            srm_logger.propagate = was[1]
            logging.getLogger("asyncio").setLevel(was[2])
        digest = hashlib.sha256()
        records = 0
        for cluster in (world.source, world.target):
            for partition in cluster.partitions():
                for batch in partition.log.history:
                    digest.update(batch.view)
                    records += batch.count
        digest.update(repr((loop.steps, loop.time())).encode())
        return SeedOutcome(
            seed,
            problems,
            loop.steps,
            loop.time() - 1000,
            records,
            digest.hexdigest()[:16],
            checker.stopped_partitions(world),
            [fault.kind for fault in scenario.faults],
        )


class _Lines(logging.Handler):
    def __init__(self, line: Callable[[str], None]) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        self._line(f"{record.levelname.lower()}: {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None:
            self._line("".join(traceback.format_exception(record.exc_info[1])))
