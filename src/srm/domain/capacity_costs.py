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
# only the batches of 128 KB, as the brokers did not take enough of the others. Off by 32 % at most
# for the replicator (zstd: one coefficient for all codecs), for brokers, where little is left of
# the difference of two measurements, by 70 %. A round includes `replicator.linger.ms`.
ROUND_S: Final = 0.0065
LOOK_S: Final = 7e-07
REPLICATOR: Final = Units(
    megabytes=0.000801,
    batches=1.1e-06,
    sent=2.94e-05,
    opened=0.0129,
    rounds=0.000636,
    partitions=3.61e-05,
    always=0.0166,
)
SOURCE_BROKER: Final = Units(
    megabytes=0.000513,
    rounds=0.0004,
    looks=7.73e-07,
)
TARGET_BROKER: Final = Units(
    megabytes=0.00157,
    sent=2.94e-05,
    rounds=0.000138,
)
