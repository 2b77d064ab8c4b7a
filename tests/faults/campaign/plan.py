"""What one seed does: a frozen plan, made by ``random.Random(seed)`` alone.

A plan is workload settings and a list of steps with times. Scenarios (a slot is stopped, its
partitions move, it wakes up) are laid out as steps that other scenarios interleave with. The same
seed gives the same plan, always; how processes and brokers interleave under it is theirs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Final, Literal

from tests.faults.campaign.scenarios import ALONE, NEEDS, SCENARIOS, Layout, choose
from tests.faults.campaign.settings import CODECS, Content, Setting, Step, TopicPlan, WriterPlan

SETTINGS: Final = ("pair", "expiring", "three", "sources", "guarded")


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about one seed. ``seconds`` is how long the writers write.

    ``records`` is what the flow changes of records: nothing, added ``headers``, or a ``filter``.
    """

    seed: int
    setting: Setting
    policy: Literal["stop", "continue"]
    slots: int
    seconds: float
    topics: tuple[TopicPlan, ...]
    scenarios: tuple[str, ...]
    steps: tuple[Step, ...]
    records: Literal["", "headers", "filter"] = ""

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
    setting: Setting = chance.choices(SETTINGS, (5, 2, 3, 2, 2))[0]
    if NEEDS.get(only):
        setting = NEEDS[only]
    topics = tuple(_topic(chance, first=number == 0) for number in range(chance.randint(2, 3)))
    if only == "compacted target":
        topics = tuple(replace(topic, keyed=True) for topic in topics)
    seconds = round(chance.uniform(4.0, 7.0), 2)
    slots = chance.randint(2, 3)
    count = chance.randint(2, 5)
    if only in ALONE:
        count = 1
    names = [only] * count if only else choose(chance, setting, count)
    layout = Layout(chance, setting, topics, slots, seconds)
    for name in names:
        SCENARIOS[name](layout)
    return Plan(
        seed,
        setting,
        chance.choice(("stop", "continue")),
        slots,
        round(layout.end, 2),
        topics,
        tuple(names),
        tuple(sorted(layout.steps, key=lambda step: step.at)),
        chance.choices(("", "headers", "filter"), (8, 1, 1))[0],  # type: ignore[arg-type]
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
        return TopicPlan(partitions, (_plain(chance),), compacting, keyed=True)
    writers = [_writer(chance) for _ in range(chance.randint(1, 3))]
    source = (("message.timestamp.type", "LogAppendTime"),) if chance.random() < 0.1 else ()
    target: tuple[tuple[str, str], ...] = ()
    if chance.random() < 0.1:
        target = (("compression.type", chance.choice(("gzip", "lz4", "zstd", "uncompressed"))),)
    elif chance.random() < 0.08:
        target = (("message.timestamp.type", "LogAppendTime"),)
    return TopicPlan(partitions, tuple(writers), source, target, keyed=chance.random() < 0.4)


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
        content=_content(chance),
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
        content=_content(chance),
    )


def _content(chance: Random) -> Content:
    return chance.choices(("unique", "constant", "repeating"), (6, 2, 2))[0]  # type: ignore[return-value]


def seeds_of(text: str) -> list[int]:
    """Read seeds as people write them: ``17``, ``1-200``, ``1:200`` or ``3,17,40-44``."""
    seeds = []
    for part in text.replace(":", "-").split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds
