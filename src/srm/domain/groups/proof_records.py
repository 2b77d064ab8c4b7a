"""Proof results of a flow's last emission of checkpoints, ``proof:<flow>`` in ``__srm-moves``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.names.topics import Flow
from srm.domain.text.amount import ago
from srm.domain.text.documents import decode, encode

MOST_NAMED: Final = 50
"""Maximum partitions and groups named in a record; the counts include all."""
_MOST_UNREAD: Final = 1000


@dataclass(frozen=True, slots=True)
class Disproof:
    """A translation that the records of both sides contradict; partitions as ``topic-number``."""

    group: str
    upstream: str
    upstream_offset: int
    downstream: str
    downstream_offset: int
    evidence: str


@dataclass(frozen=True, slots=True)
class FlowProof:
    """Proof results of one emission.

    ``time_ms``: start of reading the commits, epoch milliseconds; as read back, by the broker's
    clock.
    ``took_ms``: duration until the result.
    ``sampled``: number of checked groups (all, or as the budget allows), ``proven`` those proven.
    ``unproven``: reason of each other group, by group; the first :data:`MOST_NAMED`.
    ``disproved``: translations found wrong; their partitions' checkpoints are not emitted.
    ``withheld``: number of checkpoints not emitted for that reason.
    ``unread``: groups whose checkpoints stay the same: a failed read, or the source lacks them.
    ``cursor``: the last checked group, after which the next emission continues.
    ``skipped``: reason for checking nothing, else empty.
    """

    flow: str
    time_ms: int
    took_ms: int = 0
    groups: int = 0
    sampled: int = 0
    proven: int = 0
    unproven: Mapping[str, str] = ()  # type: ignore[assignment]
    disproved: tuple[Disproof, ...] = ()
    withheld: int = 0
    unread: tuple[str, ...] = ()
    cursor: str = ""
    skipped: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "unproven", dict(self.unproven))

    @property
    def wrong_partitions(self) -> frozenset[str]:
        """Source partitions with a wrong translation."""
        return frozenset(one.upstream for one in self.disproved)

    def confirms(self, group: str) -> bool:
        """Return True if the group's checkpoints were up to date then, rewritten or not."""
        unsure = {*self.unread, *(one.group for one in self.disproved)}
        return group not in unsure and not self.withheld and len(self.unread) < _MOST_UNREAD

    def line(self, now_ms: int) -> str:
        """Return a short summary for operators."""
        age = ago(now_ms - self.time_ms)
        if self.skipped:
            return f"{self.groups} groups not proven: {self.skipped}"
        text = f"{self.proven} of {self.sampled} groups proven {age}"
        if self.sampled < self.groups:
            text += f" (a sample of {self.groups})"
        if self.disproved:
            count = len(self.wrong_partitions)
            text += f", WRONG in {count} partition{'s' * (count != 1)}"
        return text

    @staticmethod
    def key(flow: Flow) -> bytes:
        """Return the key of a flow's record."""
        return f"proof:{flow}".encode()

    def value(self) -> bytes:
        """Encode as JSON with a bounded number of names."""
        named = replace(
            self,
            unproven=dict(list(self.unproven.items())[:MOST_NAMED]),
            disproved=self._named_disproofs(),
            unread=self.unread[:_MOST_UNREAD],
        )
        return encode(named)

    def _named_disproofs(self) -> tuple[Disproof, ...]:
        """Choose the disproofs to name, one of each partition first."""
        one_each = {id(one) for one in {one.upstream: one for one in self.disproved}.values()}
        first = [one for one in self.disproved if id(one) in one_each][:_MOST_UNREAD]
        rest = [one for one in self.disproved if id(one) not in one_each]
        return (*first, *rest[: max(0, MOST_NAMED - len(first))])

    @classmethod
    def decode(cls, value: bytes) -> FlowProof:
        """Decode what :meth:`value` wrote."""
        return decode(FlowProof, "stored proof of checkpoints", value)


def choose(groups: Sequence[str], sizes: Mapping[str, int], cursor: str, budget: int) -> list[str]:
    """Choose groups to check whole, in order after the cursor and then from the first.

    The first is taken whatever its size, others within the ``budget`` of places.
    """
    behind = [name for name in groups if name > cursor]
    chosen: list[str] = []
    left = budget
    for name in (*behind, *(name for name in groups if name <= cursor)):
        size = sizes.get(name, 0)
        if left <= 0 or (chosen and size > left):
            break
        chosen.append(name)
        left -= size
    return chosen


def merge_proofs(proofs: Iterable[FlowProof], start: FlowProof) -> FlowProof:
    """Merge the proofs of disjoint sets of groups."""
    for one in proofs:
        start = replace(
            start,
            groups=start.groups + one.groups,
            sampled=start.sampled + one.sampled,
            proven=start.proven + one.proven,
            unproven={**start.unproven, **one.unproven},
            disproved=(*start.disproved, *one.disproved),
            withheld=start.withheld + one.withheld,
            unread=(*start.unread, *one.unread),
            cursor=max(start.cursor, one.cursor),
            skipped=start.skipped or one.skipped,
        )
    return start
