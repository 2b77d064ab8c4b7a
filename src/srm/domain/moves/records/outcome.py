"""What a disaster really cost, known once the old source is back: beside its forecast.

Kept under ``outcome:<move id>`` in the moves topic, on both clusters; what is too much for a record
continues under ``outcome:<move id>:<number>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Final, Literal

from srm.domain.text.documents import decode, encode

Choice = Literal["merge", "keep", "discard"]
"""What becomes of the residue of a topic: copied after all; left on the source, where groups that
go back read it; left there, and stepped over by them."""

OUTCOME_PREFIX = "outcome:"
_LARGEST: Final = 500_000


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """One source partition: offsets are source offsets, ranges [from, to), times epoch ms.

    ``residue_from`` to ``residue_to`` hold ``records`` that had not been copied when the source
    died. ``cut_from`` to ``cut_to`` had been copied, and the source has lost them: ``only_copied``
    counts those. ``gone`` counts offsets that retention took before they could be copied.
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
    """What a group had read of the residue before the disaster, by its commits on the source.

    ``already_read`` counts records by ``topic-partition``; ``commits`` are the offsets.
    """

    already_read: Mapping[str, int]
    commits: Mapping[str, int]

    @property
    def records(self) -> int:
        """All of them."""
        return sum(self.already_read.values())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found when the source of a flow returned, and what was chosen, by topic.

    ``source_return`` is the kind of return, ``time_ms`` when it was settled. ``unread`` names
    partitions and groups that could not be looked at, with the reason: their records are not in it.
    """

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
        """All records that had not been copied."""
        return sum(entry.records for entry in self.partitions)

    @property
    def is_whole(self) -> bool:
        """Whether the source still had all that had not been copied, and all of it was read."""
        return (
            self.source_return in {"same", "new"}
            and not self.unread
            and not any(one.gone for one in self.partitions)
        )

    def to_records(self) -> dict[bytes, bytes | None]:
        """Encode as JSON, cut into records of bounded size; the first part is written last."""
        text = encode(self)
        cuts = [text[start : start + _LARGEST] for start in range(0, len(text), _LARGEST)]
        # The tombstone ends it, where an earlier one was longer.
        parts = zip(_names(self.move_id), (*cuts, None), strict=False)
        return {name.encode(): part for name, part in reversed([*parts])}

    @classmethod
    def decode(cls, value: bytes) -> Outcome:
        """Decode what :func:`stored_outcome` returns.

        Raises:
            IntegrityError: it is not an outcome.
        """
        return decode(Outcome, "stored outcome of a disaster", value)


def stored_outcome(documents: Mapping[str, bytes], move_id: str) -> bytes | None:
    """Join the parts of an outcome, None where there is none."""
    parts = takewhile(None.__ne__, map(documents.get, _names(move_id)))
    return b"".join(part for part in parts if part) or None


def _names(move_id: str) -> Iterator[str]:
    yield f"{OUTCOME_PREFIX}{move_id}"
    yield from (f"{OUTCOME_PREFIX}{move_id}:{number}" for number in count(1))
