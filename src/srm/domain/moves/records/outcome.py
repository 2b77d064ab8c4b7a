"""Outcome of a disaster: its real losses, measured when the old source has returned.

Kept under ``outcome:<move id>`` in the moves topic of both clusters, long ones in several records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Final, Literal

from srm.domain.text.documents import Document

Choice = Literal["merge", "keep", "discard"]
"""Treatment of a topic's residue: *merge* copies it. *keep* leaves it on the source, where groups
that move back read it. *discard* leaves it there, and they skip it."""

OUTCOME_PREFIX = "outcome:"
_LARGEST: Final = 500_000


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """One source partition: offsets are source offsets, ranges [from, to), times epoch ms.

    ``residue_from``, ``residue_to``: range of ``records`` not copied when the source failed.
    ``cut_from``, ``cut_to``: range of ``only_copied`` records that the source has lost.
    ``gone``: offsets that retention deleted before they could be copied.
    """

    topic: str
    partition: int
    residue_from: int
    residue_to: int
    records: int
    first_ms: int | None = None
    last_ms: int | None = None
    cut_from: int | None = None
    cut_to: int | None = None
    only_copied: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """Part of the residue that a group had read before the disaster, by its commits on the source.

    ``already_read``: records by ``topic-partition``.
    ``commits``: the committed offsets.
    """

    already_read: Mapping[str, int]
    commits: Mapping[str, int]

    @property
    def records(self) -> int:
        """Sum of ``already_read``."""
        return sum(self.already_read.values())


@dataclass(frozen=True, slots=True)
class Outcome(Document):
    """Findings at the return of a flow's source, and the choices by topic.

    ``source_return``: kind of the return.
    ``time_ms``: epoch milliseconds of the settlement.
    ``unread``: partitions and groups that could not be read, with the reason; not counted here.
    """

    KIND = "stored outcome of a disaster"
    move_id: str
    flow: str
    source_return: str
    time_ms: int
    by: str
    partitions: tuple[PartitionOutcome, ...] = ()
    groups: Mapping[str, GroupOutcome] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    unread: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """Sum of the records that had not been copied."""
        return sum(entry.records for entry in self.partitions)

    @property
    def is_whole(self) -> bool:
        """Return whether the source still had all uncopied records, and all were read."""
        return (
            self.source_return in {"same", "new"}
            and not self.unread
            and not any(one.gone for one in self.partitions)
        )

    def to_records(self) -> dict[bytes, bytes | None]:
        """Encode as JSON, split into records of bounded size; the first part is written last."""
        text = self.value()
        cuts = [text[start : start + _LARGEST] for start in range(0, len(text), _LARGEST)]
        # A tombstone follows the last part, because an earlier outcome may be longer.
        parts = zip(_names(self.move_id), (*cuts, None), strict=False)
        return {name.encode(): part for name, part in reversed([*parts])}


def stored_outcome(documents: Mapping[str, bytes], move_id: str) -> bytes | None:
    """Return the joined parts of an outcome, None if there is none."""
    parts = takewhile(None.__ne__, map(documents.get, _names(move_id)))
    return b"".join(part for part in parts if part) or None


def _names(move_id: str) -> Iterator[str]:
    yield f"{OUTCOME_PREFIX}{move_id}"
    yield from (f"{OUTCOME_PREFIX}{move_id}:{number}" for number in count(1))
