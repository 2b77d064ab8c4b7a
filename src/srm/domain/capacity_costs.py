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


# A run of `--fleet` with srm, 10 to 10 000 partitions, on two quiet cores (Xeon, see "Machine" in
# docs/benchmarks.md), and the cases 1kb, 1kb-16kb, lz4-16kb and zstd-16kb; of 10 000 partitions
# only what they cost at rest, as the brokers did not take enough traffic. Off by 32 % at most for
# the replicator (zstd: one coefficient for all codecs), for brokers, where little is left of the
# difference of two measurements, by 66 %. A round includes `replicator.linger.ms`.
ROUND_S: Final = 0.0065
LOOK_S: Final = 0.0
REPLICATOR: Final = Units(
    megabytes=0.000933,
    sent=3.19e-05,
    opened=0.013,
    rounds=0.00058,
    partitions=6.9e-06,
    always=0.0258,
)
SOURCE_BROKER: Final = Units(
    megabytes=0.000496,
    rounds=0.0005,
    looks=3.03e-07,
)
TARGET_BROKER: Final = Units(
    megabytes=0.0017,
    sent=1.52e-05,
    rounds=0.00029,
)
