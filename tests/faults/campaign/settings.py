"""What plans are made of: writers, topics, steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Setting = Literal["pair", "expiring", "three", "sources", "guarded"]
Content = Literal["unique", "constant", "repeating"]
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """One producer of a topic.

    ``burst`` records go out together (one transaction, where there are any), then ``pause_ms``
    pass. A ``hanging`` writer leaves each transaction open for ``hold_ms``; with the outcome
    ``timeout`` it leaves the end to the broker. ``content`` says whether its records differ from
    each other, are all the same (key, value, headers and time), or come again every few records.
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
    content: Content = "unique"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic; ``source`` and ``target`` are the configs it is created with on either side.

    In a ``keyed`` topic every record has a key, as a topic needs that is compacted.
    """

    partitions: int
    writers: tuple[WriterPlan, ...]
    source: tuple[tuple[str, str], ...] = ()
    target: tuple[tuple[str, str], ...] = ()
    keyed: bool = False

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
