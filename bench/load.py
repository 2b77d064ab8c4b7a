"""Traffic at a steady rate: ready batches, each to a random partition."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.wire import BrokerSocket

_TICK_S: Final = 0.001


@dataclass(frozen=True)
class Spread:
    """Topics of the traffic, with their partitions."""

    topics: Mapping[str, int]

    @property
    def partitions(self) -> int:
        """Of all of them."""
        return sum(self.topics.values())

    def draw(self, count: int, source: random.Random) -> dict[str, list[int]]:
        """Return that many different partitions by topic, or all if there are fewer."""
        chosen: defaultdict[str, list[int]] = defaultdict(list)
        for number in source.sample(range(self.partitions), min(count, self.partitions)):
            place = number
            for topic, partitions in self.topics.items():
                if place < partitions:
                    chosen[topic].append(place)
                    break
                place -= partitions
        return chosen


def pace(
    broker: BrokerSocket,
    spread: Spread,
    batches: Sequence[bytes],
    per_second: float,
    seconds: float,
) -> int:
    """Append batches for that long; return their number.

    Each millisecond sends the batches that are due, one to a partition, like many independent
    producers. Late ones are made up for.
    """
    source = random.Random(f"{per_second}")  # noqa: S311 -- repeatable traffic
    sent = 0

    def requests() -> Iterator[tuple[str, dict[int, bytes]]]:
        nonlocal sent
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * per_second) - sent
            for topic, places in spread.draw(due, source).items():
                sent += len(places)
                yield topic, {p: batches[(sent + p) % len(batches)] for p in places}
            time.sleep(_TICK_S)  # pace of the load, not a wait

    broker.append(requests())
    return sent
