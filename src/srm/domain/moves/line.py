"""Line of a move: what lists, levels and later moves read of it, instead of its large records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Self

from srm.domain.moves.plan import GroupPlan, MovePlan
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.report import MoveReport
from srm.domain.moves.request import MoveRequest
from srm.domain.text.amount import few, some
from srm.domain.text.documents import Document, decode, values_of

LINE_PREFIX: Final = "line:"
_FORGOTTEN_MS: Final = 24 * 3_600_000
_IDLE: Final = frozenset({"planned", "reported"})
"""Steps after which a move waits for no client; a released one may be held again."""
_LIGHT: Final = (
    *("move_id", "revision", "step", "attempt", "knew", "times_ms"),
    *("hold_stamp_ms", "gone_stamp_ms", "residue_over", "reason", "carrier"),
)
"""Fields of a progress that do not grow with its groups."""


@dataclass(frozen=True, slots=True)
class MoveLine(Document):
    """One move in a few hundred bytes, kept for good; written with each of its other records.

    ``request``: without names of topics and groups; ``groups``: the first of them, and a number.
    ``progress``: without the values of single groups and partitions.
    ``blocking``: the first reasons; ``led``: one subject that its routes lead.
    ``ended``: only this and the report are kept; no plan of this id is written again.
    """

    KIND = "stored line of a move"
    move_id: str
    created_ms: int
    request: MoveRequest
    groups: str = ""
    blocking: tuple[str, ...] = ()
    led: str = ""
    progress: MoveProgress = field(default_factory=lambda: MoveProgress(""))
    ended: bool = False

    @classmethod
    def of(cls, plan: MovePlan, progress: MoveProgress | None = None) -> Self:
        request = replace(plan.request, topics=(), groups=())
        groups, blocking = some(plan.group_names), few(plan.blocking)
        made = cls(plan.move_id, plan.created_ms, request, groups, blocking)
        return made.at(progress or MoveProgress(plan.move_id))

    def at(self, progress: MoveProgress) -> Self:
        light, led = MoveProgress(**values_of(progress, *_LIGHT)), min(progress.homes, default="")
        return replace(self, progress=light, led=led)

    def end(self) -> Self:
        return replace(self, ended=True)

    @property
    def key(self) -> str:
        return f"{LINE_PREFIX}{self.move_id}"

    @property
    def ends(self) -> frozenset[str]:
        return frozenset((self.request.source, self.request.target))

    @property
    def rank(self) -> tuple[Any, ...]:
        return (self.ended, *self.progress.rank, self.created_ms)

    @property
    def newest_ms(self) -> int:
        return max([self.created_ms, *self.progress.times_ms.values()])

    def is_over(self, now_ms: int) -> bool:
        """Return True for a planned move that no process has to end any more.

        Nothing has changed for a day: it was blocked or forgotten and has held no client, or its
        residue is over and no look has seen that. An unplanned one ends with its outcome.
        """
        if self.ended or self.request.is_unplanned or self.progress.step not in _IDLE:
            return False
        watched_ms = self.request.residue_seconds * 1000 if self.progress.is_decided else 0
        return now_ms - self.newest_ms > watched_ms + _FORGOTTEN_MS

    def outline(self, report: MoveReport | None) -> tuple[MovePlan, MoveProgress]:
        """Return an ended move as its line and its report have it, without positions."""
        rows = report.groups if report else {}
        plan = MovePlan(
            self.move_id,
            self.created_ms,
            self.request,
            report.topics if report else (),
            tuple(GroupPlan(group, (), ()) for group in rows),
            (),
            {},
            homes=(),
        )
        members = {group: row.members_at_hold for group, row in rows.items()}
        return plan, replace(self.progress, members_at_hold=members)

    @classmethod
    @lru_cache(maxsize=4096)
    def decode(cls, value: bytes) -> Self:
        return decode(cls, cls.KIND, value)
