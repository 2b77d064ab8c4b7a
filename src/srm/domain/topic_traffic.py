"""From what a cluster says of a topic (offsets at several times, some batches) to its traffic."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from srm.domain.capacity import MEGABYTE, TopicLoad

Span = Literal["now", "hour", "day"]
"""Over which time a rate is a mean: the window of the look, the last hour, the last day."""
LOOKED_BACK_S: Final[Mapping[Span, int]] = {"hour": 3600, "day": 86_400}


@dataclass(frozen=True, slots=True)
class Marks:
    """Offsets of one partition.

    Attributes:
        start: the first one its log holds.
        before: its end when the window began.
        after: its end when the window was over.
        since: where the last hour and the last day begin; left out where no record is so late.
    """

    start: int
    before: int
    after: int
    since: Mapping[Span, int] = field(default_factory=dict)

    def records(self, span: Span) -> int | None:
        """Return how many were written; None where the log does not reach back so far."""
        if span == "now":
            return max(0, self.after - self.before)
        since = self.since.get(span)
        if since is None:
            return 0
        if since <= self.start and self.start > 0:
            return None
        return max(0, self.before - since)


@dataclass(frozen=True, slots=True)
class BatchSample:
    """Batches that were looked at; ``codecs`` are their bytes by the name of the codec."""

    batches: int = 0
    bytes: int = 0
    records: int = 0
    codecs: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: BatchSample) -> BatchSample:
        names = {*self.codecs, *other.codecs}
        return BatchSample(
            self.batches + other.batches,
            self.bytes + other.bytes,
            self.records + other.records,
            {name: self.codecs.get(name, 0) + other.codecs.get(name, 0) for name in sorted(names)},
        )

    @property
    def codec(self) -> str:
        """The codec of most bytes."""
        return max(self.codecs, key=lambda name: self.codecs[name], default="none")


def rates(marks: Collection[Marks], window_s: float) -> dict[Span, float]:
    """Return the records a second of a topic over each span that all its logs reach back over."""
    seconds: dict[Span, float] = {"now": window_s, **LOOKED_BACK_S}
    found: dict[Span, float] = {}
    for span in get_args(Span):
        counts = [each.records(span) for each in marks]
        known = [count for count in counts if count is not None]
        if len(known) == len(counts):
            found[span] = sum(known) / seconds[span]
    return found


def load_of(partitions: int, records_per_s: float, sample: BatchSample) -> TopicLoad:
    """Return the traffic of a topic, given the rate and what its batches look like."""
    if not records_per_s or not sample.records:
        return TopicLoad(partitions, 0.0, 0.0, 0.0, sample.codec)
    size = sample.bytes / sample.records
    return TopicLoad(
        partitions,
        records_per_s * size / MEGABYTE,
        sample.bytes / sample.batches,
        records_per_s,
        sample.codec,
    )
