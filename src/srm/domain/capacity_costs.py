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


# Two runs of `--fleet` with srm, 10 to 1 000 partitions, on two cores (AMD EPYC, see "Machine" in
# docs/benchmarks.md) that were not idle otherwise, and the cases 1kb, 1kb-16kb, lz4-16kb and
# zstd-16kb. Off by 38 % at most for the replicator (zstd: one coefficient for all codecs); for
# brokers, where little is left of the difference of two measurements, by about as much as the
# figure itself in the worst cell.
ROUND_S: Final = 0.0045
LOOK_S: Final = 0.0
REPLICATOR: Final = Units(
    megabytes=0.000714,
    batches=2.33e-06,
    sent=2.42e-05,
    opened=0.0105,
    rounds=0.00054,
    partitions=3.38e-05,
    always=0.029,
)
SOURCE_BROKER: Final = Units(
    megabytes=0.000696,
    rounds=8.69e-05,
    looks=7.93e-07,
)
TARGET_BROKER: Final = Units(
    megabytes=0.00123,
    sent=6.02e-05,
    rounds=0.000107,
)
