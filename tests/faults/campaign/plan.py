"""What one seed does: a frozen plan, made by ``random.Random(seed)`` alone.

A plan is workload settings and a list of steps with times. Scenarios (a slot is stopped, its
partitions move, it wakes up) are laid out as steps that other scenarios interleave with. The same
seed gives the same plan, always; how processes and brokers interleave under it is theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import Final, Literal

Setting = Literal["pair", "expiring", "three"]
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """One producer of a topic.

    ``burst`` records go out together (one transaction, where there are any), then ``pause_ms``
    pass. A ``hanging`` writer leaves each transaction open for ``hold_ms``; with the outcome
    ``timeout`` it leaves the end to the broker.
    """

    kind: Literal["plain", "transactional", "hanging"]
    codec: str
    linger_ms: int
    burst: int
    pause_ms: int
    largest: int
    abort_share: float = 0.0
    hold_ms: int = 0
    outcome: Literal["commit", "abort", "timeout"] = "commit"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic; ``source`` and ``target`` are the configs it is created with on either side."""

    partitions: int
    writers: tuple[WriterPlan, ...]
    source: tuple[tuple[str, str], ...] = ()
    target: tuple[tuple[str, str], ...] = ()

    @property
    def compacted(self) -> bool:
        """Whether the source compacts the topic while it is copied."""
        return ("cleanup.policy", "compact") in self.source


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens ``at`` seconds after the start; what numbers mean, ``do`` says."""

    at: float
    do: str
    slot: int = 0
    topic: int = 0
    partition: int = 0
    node: int = 0
    share: float = 0.0
    how: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about one seed. ``seconds`` is how long the writers write."""

    seed: int
    setting: Setting
    policy: Literal["stop", "continue"]
    slots: int
    seconds: float
    topics: tuple[TopicPlan, ...]
    scenarios: tuple[str, ...]
    steps: tuple[Step, ...]

    def text(self) -> str:
        """Return the plan as JSON for people."""
        return json.dumps(asdict(self), indent=1)


def plan_of(seed: int, only: str = "") -> Plan:
    """Make the plan of a seed.

    Args:
        seed: any number.
        only: name of the one scenario to play (for a close look at it), all when empty.
    """
    chance = Random(seed)
    setting: Setting = chance.choices(("pair", "expiring", "three"), (5, 2, 3))[0]
    topics = tuple(_topic(chance, first=number == 0) for number in range(chance.randint(2, 3)))
    seconds = round(chance.uniform(4.0, 7.0), 2)
    slots = chance.randint(2, 3)
    count = chance.randint(2, 5)
    names = [only] * count if only else _choose(chance, setting, count)
    layout = Layout(chance, setting, topics, slots, seconds)
    for name in names:
        SCENARIOS[name](layout)
    return Plan(
        seed,
        setting,
        chance.choice(("stop", "continue")),
        slots,
        seconds,
        topics,
        tuple(names),
        tuple(sorted(layout.steps, key=lambda step: step.at)),
    )


def _topic(chance: Random, *, first: bool) -> TopicPlan:
    partitions = chance.randint(1, 3)
    if chance.random() < 0.15 and not first:
        compacting = (
            ("cleanup.policy", "compact"),
            ("segment.ms", "500"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("max.compaction.lag.ms", "500"),
        )
        return TopicPlan(partitions, (_plain(chance),), compacting)
    writers = [_writer(chance) for _ in range(chance.randint(1, 3))]
    source = (("message.timestamp.type", "LogAppendTime"),) if chance.random() < 0.1 else ()
    target: tuple[tuple[str, str], ...] = ()
    if chance.random() < 0.1:
        target = (("compression.type", chance.choice(("gzip", "lz4", "zstd", "uncompressed"))),)
    elif chance.random() < 0.08:
        target = (("message.timestamp.type", "LogAppendTime"),)
    return TopicPlan(partitions, tuple(writers), source, target)


def _writer(chance: Random) -> WriterPlan:
    kind = chance.choices(("plain", "transactional", "hanging"), (5, 4, 1))[0]
    if kind == "plain":
        return _plain(chance)
    burst = chance.choice((1, 3, 20, 200))
    return WriterPlan(
        "transactional" if kind == "transactional" else "hanging",
        chance.choice(CODECS),
        chance.choice((0, 2, 20)),
        burst,
        max(burst, chance.choice((2, 10, 50))),
        chance.choice((10, 300, 5000)),
        abort_share=chance.choice((0.0, 0.3, 0.8)),
        hold_ms=chance.randint(200, 3000),
        outcome=chance.choice(("commit", "abort", "timeout")),
    )


def _plain(chance: Random) -> WriterPlan:
    single = chance.random() < 0.4
    burst = chance.choice((1, 1, 5)) if single else chance.choice((20, 200, 1000))
    return WriterPlan(
        "plain",
        chance.choice(CODECS),
        0 if single else chance.choice((2, 20, 100)),
        burst,
        max(burst, chance.choice((5, 20, 50))),  # a thousand records a second at most
        chance.choice((10, 300, 5000)),
    )


class Layout:
    """The steps so far, and the draws that scenarios need."""

    def __init__(
        self,
        chance: Random,
        setting: Setting,
        topics: tuple[TopicPlan, ...],
        slots: int,
        seconds: float,
    ) -> None:
        self.chance = chance
        self.setting = setting
        self.topics = topics
        self.slots = slots
        self.seconds = seconds
        self.steps: list[Step] = []

    def begin(self) -> float:
        """Draw when a scenario begins."""
        return self.chance.uniform(0.3, self.seconds - 0.5)

    def later(self, at: float, shortest: float, longest: float) -> float:
        return at + self.chance.uniform(shortest, longest)

    def slot(self) -> int:
        return self.chance.randrange(self.slots)

    def topic(self) -> int:
        return self.chance.randrange(len(self.topics))

    def ordinary_topic(self) -> int:
        """Draw a topic whose source does not compact; the first never does."""
        return self.chance.choice([n for n, topic in enumerate(self.topics) if not topic.compacted])

    def node(self) -> int:
        """Draw a target broker."""
        return self.chance.randrange(3 if self.setting == "three" else 1)

    def add(self, at: float, do: str, **numbers: object) -> None:
        self.steps.append(Step(round(at, 3), do, **numbers))  # type: ignore[arg-type]


def _killed_slot(layout: Layout) -> None:
    at, slot = layout.begin(), layout.slot()
    layout.add(at, "kill slot", slot=slot)
    layout.add(layout.later(at, 0.0, 1.5), "start slot", slot=slot)


def _zombie(layout: Layout) -> None:
    at, slot = layout.begin(), layout.slot()
    layout.add(at, "stop slot", slot=slot)
    away = layout.later(at, 0.0, 0.5)
    layout.add(away, "move away", slot=slot)
    layout.add(layout.later(away, 0.3, 3.0), "wake slot", slot=slot, how="after takeover")


def _paused_slot(layout: Layout) -> None:
    at, slot = layout.begin(), layout.slot()
    layout.add(at, "stop slot", slot=slot)
    layout.add(layout.later(at, 0.2, 4.0), "wake slot", slot=slot)


def _move(layout: Layout) -> None:
    layout.add(layout.begin(), "move away", slot=layout.slot())


def _two_owners(layout: Layout) -> None:
    """Partitions are given to another slot without telling the first, until later."""
    at, slot = layout.begin(), layout.slot()
    layout.add(at, "give away untold", slot=slot)
    layout.add(layout.later(at, 0.3, 2.0), "tell", slot=slot)


def _killed_target(layout: Layout) -> None:
    at, node = layout.begin(), layout.node()
    layout.add(at, "kill target", node=node)
    layout.add(layout.later(at, 0.0, 1.5), "start target", node=node)


def _frozen_target(layout: Layout) -> None:
    at, node = layout.begin(), layout.node()
    layout.add(at, "stop target", node=node)
    layout.add(layout.later(at, 0.2, 4.0), "wake target", node=node)


def _killed_source(layout: Layout) -> None:
    at = layout.begin()
    layout.add(at, "kill source")
    layout.add(layout.later(at, 0.0, 1.5), "start source")


def _moved_leaders(layout: Layout) -> None:
    at, node = layout.begin(), layout.node()
    layout.add(at, "shut target", node=node)
    layout.add(layout.later(at, 0.5, 2.0), "start target", node=node)


def _expansion(layout: Layout) -> None:
    layout.add(layout.begin(), "expand", topic=layout.topic())


def _recreation(layout: Layout) -> None:
    layout.add(layout.begin(), "recreate", topic=layout.ordinary_topic())


def _recreated_remote(layout: Layout) -> None:
    layout.add(layout.begin(), "recreate remote", topic=layout.ordinary_topic())


def _retention(layout: Layout) -> None:
    topic = layout.ordinary_topic()
    layout.add(
        layout.begin(),
        "delete records",
        topic=topic,
        partition=layout.chance.randrange(layout.topics[topic].partitions),
        share=round(layout.chance.random(), 3),
    )


def _truncation(layout: Layout) -> None:
    topic = layout.ordinary_topic()
    layout.add(
        layout.begin(),
        "truncate",
        topic=topic,
        partition=layout.chance.randrange(layout.topics[topic].partitions),
        share=round(layout.chance.uniform(0.2, 0.9), 3),
    )


def _lost_map(layout: Layout) -> None:
    how = layout.chance.choice(("all", "blocks", "reports", "garbage"))
    layout.add(layout.begin(), "damage map", how=how)


def _stranger(layout: Layout) -> None:
    topic = layout.topic()
    for _ in range(layout.chance.randint(1, 3)):
        layout.add(
            layout.begin(),
            "write into remote",
            topic=topic,
            partition=layout.chance.randrange(layout.topics[topic].partitions),
            share=layout.chance.choice((0.01, 0.1, 0.5)),
            how=layout.chance.choice(("plain", "plain", "commit", "abort")),
        )


def _recompression(layout: Layout) -> None:
    codec = layout.chance.choice(("gzip", "lz4", "zstd", "uncompressed"))
    layout.add(layout.begin(), "recompress", topic=layout.topic(), how=codec)
    _killed_slot(layout)


def _quiet(layout: Layout) -> None:
    """Nobody writes for longer than the expirations of the ``expiring`` setting."""
    at = layout.begin()
    layout.add(at, "pause writers")
    layout.add(at + 5.0, "resume writers")


SCENARIOS: Final[dict[str, Callable[[Layout], None]]] = {
    "killed slot": _killed_slot,
    "zombie": _zombie,
    "paused slot": _paused_slot,
    "move": _move,
    "two owners": _two_owners,
    "killed target": _killed_target,
    "frozen target": _frozen_target,
    "killed source": _killed_source,
    "moved leaders": _moved_leaders,
    "expansion": _expansion,
    "re-creation": _recreation,
    "re-created remote": _recreated_remote,
    "retention": _retention,
    "truncation": _truncation,
    "lost map": _lost_map,
    "stranger": _stranger,
    "recompression": _recompression,
    "quiet": _quiet,
}

_WEIGHTS: Final = {
    "killed slot": 6,
    "zombie": 6,
    "paused slot": 2,
    "move": 3,
    "two owners": 3,
    "killed target": 3,
    "frozen target": 2,
    "killed source": 2,
    "expansion": 2,
    "re-creation": 2,
    "re-created remote": 1,
    "retention": 2,
    "truncation": 2,
    "lost map": 2,
    "stranger": 2,
    "recompression": 1,
}


def _choose(chance: Random, setting: Setting, count: int) -> list[str]:
    weights = dict(_WEIGHTS)
    if setting == "three":
        weights["moved leaders"] = 6
    if setting == "expiring":
        weights |= {"quiet": 5, "paused slot": 4, "zombie": 8}
    return chance.choices(list(weights), list(weights.values()), k=count)


def seeds_of(text: str) -> list[int]:
    """Read seeds as people write them: ``17``, ``1-200`` or ``3,17,40-44``."""
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds
