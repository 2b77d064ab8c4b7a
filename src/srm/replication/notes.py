"""What people must know of a partition although it goes on: what it lost, what was strange."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Notes:
    """Notes of one partition since its slot began; ranges are source offsets, [from, to).

    ``lost_from`` and ``lost_to`` are the newest lost range; ranges that touch are one.
    """

    lost_from: int | None = None
    lost_to: int | None = None
    _lost: int = 0
    _ranges: int = 0
    _loss: str = ""
    _strange: str = ""

    def lost(self, lost_from: int, lost_to: int, what: str) -> None:
        """Note that source records can never be copied."""
        if self.lost_to == lost_from:
            self.lost_to = lost_to
        else:
            self.lost_from, self.lost_to = lost_from, lost_to
            self._ranges += 1
        self._lost += lost_to - lost_from
        self._loss = what

    def strange(self, what: str) -> None:
        """Note something that is no loss; only the newest is kept."""
        self._strange = what

    @property
    def text(self) -> str:
        """All of it in one line; empty if there is nothing to tell."""
        told = []
        if self._lost:
            offsets = "source offset" if self._lost == 1 else "source offsets"
            ranges = f" in {self._ranges} ranges, the last one" if self._ranges > 1 else ""
            told.append(f"lost {self._lost} {offsets}{ranges}: {self._loss}")
        if self._strange:
            told.append(self._strange)
        return "; ".join(told)
