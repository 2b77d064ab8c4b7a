"""The scenarios of the campaign, each laid out as timed steps that others interleave with."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.faults.campaign.settings import Setting, Step, TopicPlan


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

    @property
    def end(self) -> float:
        """When the last step of all is over, the writers' time included."""
        return max([self.seconds, *(step.at + 0.5 for step in self.steps)])

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

    def source_node(self) -> int:
        """Draw a source broker."""
        return self.chance.randrange(2 if self.setting == "sources" else 1)

    def follower(self) -> int:
        """Draw a target broker that is no controller, where there are several."""
        return self.chance.randrange(1, 3) if self.setting == "three" else 0

    def partition(self, topic: int) -> int:
        return self.chance.randrange(self.topics[topic].partitions)

    def add(self, at: float, do: str, **numbers: object) -> None:
        self.steps.append(Step(round(at, 3), do, **numbers))  # type: ignore[arg-type]

    def add_pair(
        self, at: float, do: str, undo: str, pause: tuple[float, float], **of: int
    ) -> None:
        """Add a step, and what ends it after a pause between these seconds."""
        self.add(at, do, **of)
        self.add(self.later(at, *pause), undo, **of)


def _killed_slot(layout: Layout) -> None:
    layout.add_pair(layout.begin(), "kill slot", "start slot", (0.0, 1.5), slot=layout.slot())


def _zombie(layout: Layout) -> None:
    at, slot = layout.begin(), layout.slot()
    layout.add(at, "stop slot", slot=slot)
    away = layout.later(at, 0.0, 0.5)
    layout.add(away, "move away", slot=slot)
    layout.add(layout.later(away, 0.3, 3.0), "wake slot", slot=slot, how="after takeover")


def _paused_slot(layout: Layout) -> None:
    layout.add_pair(layout.begin(), "stop slot", "wake slot", (0.2, 4.0), slot=layout.slot())


def _move(layout: Layout) -> None:
    layout.add(layout.begin(), "move away", slot=layout.slot())


def _two_owners(layout: Layout) -> None:
    """Partitions are given to another slot without telling the first, until later."""
    layout.add_pair(layout.begin(), "give away untold", "tell", (0.3, 2.0), slot=layout.slot())


def _killed_target(layout: Layout) -> None:
    layout.add_pair(layout.begin(), "kill target", "start target", (0.0, 1.5), node=layout.node())


def _frozen_target(layout: Layout) -> None:
    layout.add_pair(layout.begin(), "stop target", "wake target", (0.2, 4.0), node=layout.node())


def _killed_source(layout: Layout) -> None:
    layout.add_pair(
        layout.begin(), "kill source", "start source", (0.0, 1.5), node=layout.source_node()
    )


def _moved_source_leaders(layout: Layout) -> None:
    """A source broker shuts down in order, and comes back: its leaders move there and back."""
    layout.add_pair(layout.begin(), "shut source", "start source", (0.5, 3.0), node=1)


def _frozen_source(layout: Layout) -> None:
    layout.add_pair(
        layout.begin(), "stop source", "wake source", (0.2, 8.0), node=layout.source_node()
    )


def _long_freeze(layout: Layout) -> None:
    """A target broker hangs for longer than any request may take; its partitions move on."""
    at, node = layout.begin(), layout.follower()
    layout.add(at, "stop target", node=node)
    if layout.setting == "three":
        layout.add(at + 1.0, "expect progress", node=node)  # and wakes it
    else:
        layout.add(at + FREEZE_S, "wake target", node=node)


def _black_hole(layout: Layout) -> None:
    """Nothing gets through to the target any more, and nothing is closed."""
    at = layout.begin()
    layout.add(at, "drop packets")
    layout.add(layout.later(at, 2.0, 10.0), "forward packets", how=layout.chance.choice(ENDS))


def _thin_replicas(layout: Layout) -> None:
    """The target has too few replicas in sync to acknowledge anything."""
    at, node, topic = layout.begin(), layout.follower(), layout.topic()
    layout.add(at, "want replicas", topic=topic, node=3)
    layout.add(at + 0.1, "kill target", node=node)
    back = layout.later(at, 4.0, 8.0)
    layout.add(back, "start target", node=node)
    layout.add(back + 0.1, "want replicas", topic=topic, node=2)


def _truncated_target(layout: Layout) -> None:
    """The target loses the end of a log, as after an unclean election or on a lost disk."""
    topic = layout.ordinary_topic()
    layout.add(
        layout.begin(),
        "truncate target",
        topic=topic,
        partition=layout.partition(topic),
        share=round(layout.chance.choice((0.3, 0.7, 0.9, 0.97, 0.99)), 3),
        how=layout.chance.choice(("crash", "forgotten")),
    )


def _trimmed_target(layout: Layout) -> None:
    topic = layout.ordinary_topic()
    layout.add(
        layout.begin(),
        "trim target",
        topic=topic,
        partition=layout.partition(topic),
        share=layout.chance.choice((0.1, 0.5, 0.9, 1.0)),
    )
    if layout.chance.random() < 0.5:
        _killed_slot(layout)


def _full_target(layout: Layout) -> None:
    """The target refuses larger records for a while."""
    topic = layout.ordinary_topic()
    at = layout.begin()
    limit = layout.chance.choice((200, 1000, 3000))
    layout.add(at, "limit records", topic=topic, node=limit)
    layout.add(layout.later(at, 1.0, 3.0), "limit records", topic=topic, node=1_048_588)


def _compacted_target(layout: Layout) -> None:
    """The target compacts a topic from now on; records without keys would be refused."""
    keyed = [n for n, topic in enumerate(layout.topics) if topic.keyed]
    if keyed:
        layout.add(layout.begin(), "compact target", topic=layout.chance.choice(keyed))
    _killed_slot(layout)


def _flood(layout: Layout) -> None:
    """More than the queues and the look-ahead of 64 MiB hold, then the slots are killed."""
    topic = layout.ordinary_topic()
    at = layout.begin()
    how = layout.chance.choice(("large", "small"))
    layout.add(at, "flood", topic=topic, partition=layout.partition(topic), how=how)
    for slot in range(layout.slots):
        killed = layout.later(at, 0.5, 3.0)
        layout.add(killed, "kill slot", slot=slot)
        layout.add(killed + 0.1, "start slot", slot=slot)


def _moved_leaders(layout: Layout) -> None:
    layout.add_pair(layout.begin(), "shut target", "start target", (0.5, 2.0), node=layout.node())


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
        partition=layout.partition(topic),
        share=round(layout.chance.random(), 3),
    )


def _truncation(layout: Layout) -> None:
    topic = layout.ordinary_topic()
    layout.add(
        layout.begin(),
        "truncate",
        topic=topic,
        partition=layout.partition(topic),
        share=round(layout.chance.uniform(0.2, 0.9), 3),
    )


def _lost_map(layout: Layout) -> None:
    how = layout.chance.choice(DAMAGES)
    layout.add(layout.begin(), "damage map", how=how)


def _stranger(layout: Layout) -> None:
    topic = layout.topic()
    for _ in range(layout.chance.randint(1, 3)):
        layout.add(
            layout.begin(),
            "write into remote",
            topic=topic,
            partition=layout.partition(topic),
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


FREEZE_S: Final = 14.0
ENDS: Final = ("go on", "hang up")
DAMAGES: Final = ("all", "blocks", "reports", "garbage", "all garbage", "last", "contradicting")

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
    "moved source leaders": _moved_source_leaders,
    "frozen source": _frozen_source,
    "long freeze": _long_freeze,
    "black hole": _black_hole,
    "thin replicas": _thin_replicas,
    "truncated target": _truncated_target,
    "trimmed target": _trimmed_target,
    "full target": _full_target,
    "flood": _flood,
    "compacted target": _compacted_target,
}

NEEDS: Final[dict[str, Setting]] = {
    "moved leaders": "three",
    "thin replicas": "three",
    "long freeze": "three",
    "moved source leaders": "sources",
    "black hole": "guarded",
    "truncation": "pair",
    "truncated target": "pair",
}
"""Settings without which a scenario has nothing to play."""

ALONE: Final = ("long freeze",)
"""What is looked at while it lasts: with another fault beside it there is nothing to expect."""

WEIGHTS: Final = {
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
    "truncated target": 3,
    "trimmed target": 2,
    "full target": 2,
    "flood": 1,
    "compacted target": 2,
    "frozen source": 1,
}


def choose(chance: Random, setting: Setting, count: int) -> list[str]:
    weights = dict(WEIGHTS)
    if setting == "three":
        weights |= {"moved leaders": 6, "long freeze": 2, "thin replicas": 3}
        del weights["truncated target"]  # its followers would give it back
    if setting == "sources":
        weights |= {"moved source leaders": 8, "killed source": 5, "frozen source": 4}
        del weights["truncation"]
    if setting == "guarded":
        weights |= {"black hole": 6, "long freeze": 2}
    if setting == "expiring":
        weights |= {"quiet": 5, "paused slot": 4, "zombie": 8}
    return chance.choices(list(weights), list(weights.values()), k=count)
