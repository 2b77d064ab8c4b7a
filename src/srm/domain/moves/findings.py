"""Findings: conditions of a flow in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srm.domain.text.amount import Reason

FindingId = Literal[
    "absent-topic",
    "duty",
    "no-topic",
    "off",
    "paused",
    "proof",
    "replicator",
    "silent-slot",
    "source-away",
    "stopped",
    "unreadable",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition of a flow with its remedy; one that ``blocks`` prevents copying, others warn."""

    id: FindingId
    reason: Reason
    blocks: bool = True

    @property
    def text(self) -> str:
        return self.reason.text
