"""Which topics srm has denied everybody to write to, and why: kept on the cluster that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from srm.domain.text.documents import decode, encode
from srm.errors import IntegrityError

_PREFIX: Final = b"fence:"


@dataclass(frozen=True, slots=True)
class Fence:
    """One topic of a cluster, in ``srm-moves.internal`` there under ``fence:<topic>``.

    Written before anything is denied, so that whoever finds it can lift what a crash has left;
    ``lifted_ms`` is when that was done, 0 before.
    """

    topic: str
    move_id: str
    set_ms: int
    lifted_ms: int = 0

    @property
    def stands(self) -> bool:
        """Whether writes may be denied because of it."""
        return not self.lifted_ms

    def key(self) -> bytes:
        """Encode the record key."""
        return _PREFIX + self.topic.encode()

    def value(self) -> bytes:
        """Encode the record value."""
        return encode(self)


def fences_in(
    records: Mapping[bytes, bytes], damaged: Callable[[IntegrityError], None]
) -> dict[str, Fence]:
    """Decode the fences among the records of one cluster's moves topic, by topic.

    One that cannot be read is handed to ``damaged``: it must not stop the moves of everybody else.
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
