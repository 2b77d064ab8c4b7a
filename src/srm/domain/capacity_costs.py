"""What copying is made of, and what each part of it costs: the coefficients, and nothing else.

They are fitted to what ``make bench BENCH_ARGS=--fleet`` has measured; ``python -m bench.fit``
prints them as they stand here. docs/capacity.md says what they mean and what they leave out.
"""

from __future__ import annotations

import math
from operator import mul
from typing import Final, NamedTuple


class Units(NamedTuple):
    """So much of each thing that costs: in a second, or the CPU seconds that one of it takes.

    Attributes:
        megabytes: 10^6 bytes of batches, as they are on the wire.
        batches: batches as producers made them.
        sent: batches as they are appended on the target, after merging.
        opened: megabytes of compressed batches that are opened to be merged, before that.
        rounds: fetch answers that bring something; a produce request follows each.
        looks: partitions that the source's broker looks at in a round.
        partitions: those that are followed, whatever happens in them.
        always: 1; what runs when there is nothing to follow.
    """

    megabytes: float = 0.0
    batches: float = 0.0
    sent: float = 0.0
    opened: float = 0.0
    rounds: float = 0.0
    looks: float = 0.0
    partitions: float = 0.0
    always: float = 0.0

    def cost(self, each: Units) -> float:
        """Return the CPU seconds of all, given those of each."""
        return math.fsum(map(mul, self, each))


# Placeholders until the fleet is measured.
ROUND_S: Final = 0.004
LOOK_S: Final = 0.0000005
REPLICATOR: Final = Units(
    megabytes=0.0010,
    batches=0.000004,
    sent=0.00003,
    opened=0.005,
    rounds=0.0001,
    partitions=0.00002,
    always=0.03,
)
SOURCE_BROKER: Final = Units(
    megabytes=0.0008, sent=0.000005, rounds=0.00008, looks=0.0000005, always=0.005
)
TARGET_BROKER: Final = Units(megabytes=0.002, sent=0.00004, rounds=0.0001, always=0.01)
