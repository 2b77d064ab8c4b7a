"""Fences: topics that srm has denied all clients to write to, kept on the topics' own cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from srm.domain.text.documents import Document, decode
from srm.errors import IntegrityError

_PREFIX: Final = b"fence:"


@dataclass(frozen=True, slots=True)
class Fence(Document):
    """One fenced topic, in ``srm-moves.internal`` of its cluster under ``fence:<topic>``.

    The record is written before the deny ACL, so a later run can lift a fence that a crash has
    left. ``lifted_ms`` is when the fence was lifted, 0 before.
    """

    KIND = "fence"
    topic: str
    move_id: str
    set_ms: int
    lifted_ms: int = 0

    @property
    def stands(self) -> bool:
        """Return whether writes may still be denied because of it."""
        return not self.lifted_ms

    def key(self) -> bytes:
        """Encode the record key."""
        return _PREFIX + self.topic.encode()


def fences_in(
    records: Mapping[bytes, bytes], damaged: Callable[[IntegrityError], None]
) -> dict[str, Fence]:
    """Decode the fences among the records of one cluster's moves topic, by topic.

    An unreadable record is passed to ``damaged``: it must not stop other moves.
    """
    found = {}
    for key, value in records.items():
        if key.startswith(_PREFIX):
            try:
                fence = decode(Fence, f"record {key.decode(errors='replace')} of a fence", value)
            except IntegrityError as error:
                damaged(error)
                continue
            found[fence.topic] = fence
    return found
