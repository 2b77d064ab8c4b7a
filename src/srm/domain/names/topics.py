"""Names of topics, partitions and replication flows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from srm.errors import UsageError

_ALIAS: Final = re.compile(r"[A-Za-z0-9_\-]+")


class TopicPartition(NamedTuple):
    """One partition of one topic, as named on the cluster under discussion.

    A tuple, because it is the key of a lookup for each batch: a frozen dataclass takes four times
    as long.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """Parse the form that ``str`` returns."""
        topic, _, partition = name.rpartition("-")
        return cls(topic, int(partition))


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """A replication flow: the ordered pair of cluster aliases ``source->target``."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def reverse(self) -> Flow:
        """The flow in the opposite direction."""
        return Flow(self.target, self.source)

    @classmethod
    def parse(cls, text: str) -> Flow:
        """Parse ``A->B`` or ``A:B``; a shell takes ``>`` as a redirection."""
        joint = "->" if "->" in text else ":"
        source, found, target = (part.strip() for part in text.partition(joint))
        if not found or not _ALIAS.fullmatch(source) or not _ALIAS.fullmatch(target):
            raise UsageError(
                f"flow {text!r} is not of the form SOURCE->TARGET",
                "write 'P->B' with its quotes, as > redirects in a shell, or P:B",
            )
        if source == target:
            raise UsageError(f"flow {text!r} has the same cluster on both sides")
        return cls(source, target)
