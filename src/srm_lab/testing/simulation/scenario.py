"""Scenario of a seed: topics, writers, and the faults of the flow with their times."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from srm_lab.testing.simulation import faults as fault_kinds
from srm_lab.testing.simulation.cluster import TopicSettings
from srm_lab.testing.simulation.workload import Habit, Payload

if TYPE_CHECKING:
    from srm_lab.testing.simulation.faults import Fault

_PAYLOADS: Final[tuple[Payload, ...]] = ("unique", "unique", "repeating", "constant")


@dataclass(frozen=True, slots=True)
class SimulatedTopic:
    """One topic and how it is written."""

    name: str
    partitions: int
    source: TopicSettings
    target: TopicSettings
    habit: Habit


@dataclass
class SimulatedScenario:
    """One seed's plan."""

    seed: int
    slots: int
    source_brokers: int
    target_brokers: int
    topics: list[SimulatedTopic]
    accepts_loss: bool
    claim_lifetime_s: float
    txn_expiry_s: float
    late_markers: float
    loses: float
    spikes: float
    clean_end: bool
    merge_bytes: int = 0
    patience_s: float = 75.0
    filled: bool = False
    faults: list[Fault] = field(default_factory=list)

    @classmethod
    def drawn(cls, seed: int, kinds: str = "all") -> SimulatedScenario:
        """Draw a scenario; ``kinds`` is "ordinary" for faults after which all must converge.

        With "filled" the faults are the same, and others have filled the remote topics before.
        """
        rng = random.Random(seed * 2 + 1)  # noqa: S311 - to be repeated, not to be secret
        slots = rng.choice((1, 1, 2, 2, 3))
        brokers = rng.choice((1, 2, 3)), rng.choice((1, 2, 3))
        expiry_s = rng.choice((86_400.0, 86_400.0, 60.0))
        topics: list[SimulatedTopic] = []
        left = rng.choice((1, 1, 2, 3))
        while left:
            partitions = rng.randint(1, left)
            left -= partitions
            topics.append(_topic(rng, f"T{len(topics)}", partitions, brokers, expiry_s))
        rough = rng.random() < 0.5
        scenario = cls(
            seed=seed,
            slots=slots,
            source_brokers=brokers[0],
            target_brokers=brokers[1],
            topics=topics,
            accepts_loss=rng.random() < 0.4,
            claim_lifetime_s=expiry_s / 4,
            txn_expiry_s=expiry_s * 7 if rng.random() < 0.9 else expiry_s,
            late_markers=rng.choice((0.0, 0.0, 0.2)),
            loses=rng.choice((0.001, 0.01, 0.05)) if rough else 0.0,
            spikes=rng.choice((0.0, 0.01)) if rough else 0.0,
            clean_end=rng.random() < 0.5,
        )
        scenario.filled = kinds == "filled"
        scenario.faults = fault_kinds.drawn(rng, scenario, "ordinary" if scenario.filled else kinds)
        scenario.merge_bytes = rng.choice((1_000_000, 1_000_000, 300, 0))
        return scenario

    @property
    def span_s(self) -> float:
        """Virtual seconds in which the writers write."""
        return max(plan.habit.batches * plan.habit.pause_s for plan in self.topics)

    def calm(self) -> None:
        """Workers that start from now on have a good network."""
        self.loses = self.spikes = self.late_markers = 0.0


def _topic(
    rng: random.Random, name: str, partitions: int, brokers: tuple[int, int], expiry_s: float
) -> SimulatedTopic:
    payload = rng.choice(_PAYLOADS)
    span_s = rng.uniform(4.0, 14.0)
    batches = rng.randint(5, 40)
    replicas = rng.randint(1, brokers[0]), rng.randint(1, brokers[1])
    return SimulatedTopic(
        name,
        partitions,
        TopicSettings(replicas[0], log_append_time=rng.random() < 0.15),
        TopicSettings(
            replicas[1],
            min_in_sync=rng.randint(1, max(1, replicas[1] - 1)),
            log_append_time=rng.random() < 0.2,
            max_message_bytes=rng.choice((1 << 20, 1 << 20, 1 << 20, 220)),
            producer_expiry_s=expiry_s,
        ),
        Habit(
            batches=batches,
            most_records=rng.choice((1, 3, 12)),
            pause_s=span_s / batches,
            payload=payload,
            keys=rng.choice((0, 0, 3, 10)),
            same_time=rng.random() < 0.3,
            transactional=rng.choice((0.0, 0.0, 0.4)),
            codec=rng.choice((0, 0, 2, 4)),
        ),
    )
