"""Finding: one condition of a flow or a move, in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from srm.domain.text.reason import Reason

FindingId = Literal[
    "absent-topic",
    "clients",
    "clocks",
    "duty",
    "fence",
    "group-active",
    "group-unknown",
    "halted",
    "hold",
    "kept-records",
    "no-leader",
    "no-place",
    "no-topic",
    "not-copied",
    "nothing-to-move",
    "off",
    "offset",
    "overwrite",
    "own-commit",
    "paused",
    "proof",
    "redirector",
    "replicator",
    "retention",
    "route",
    "share-group",
    "silent-slot",
    "skip",
    "source-away",
    "staying-group",
    "stopped",
    "stray-offset",
    "topic",
    "transaction",
    "unreadable",
    "unsettled",
    "way-back",
]
"""Stable names of conditions: a condition has the same name wherever it is evaluated."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition with its remedy; one that ``blocks`` prevents the move or copy, others warn."""

    id: FindingId
    reason: Reason
    blocks: bool = True

    @property
    def text(self) -> str:
        """The sentence for an operator."""
        return self.reason.text

    def as_warning(self) -> Finding:
        """Return the same condition as one that does not block."""
        return replace(self, blocks=False)


def warning(name: FindingId, text: str) -> Finding:
    """Return a condition that does not block."""
    return Finding(name, Reason(text), blocks=False)
