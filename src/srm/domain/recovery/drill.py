"""Failover drill: its results, and the shadow groups on the target that it must remove.

One record ``drill:<id>`` in ``__srm-moves`` each, written first to find leftover shadow groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from srm.domain.moves.records.forecast import Forecast
from srm.domain.names.filters import SHADOW_PREFIX
from srm.domain.names.topics import Flow
from srm.domain.text.documents import Document, decode, read_json
from srm.errors import IntegrityError, UsageError

DRILL_KEY: Final = b"drill:"
LEASE_MS: Final = 120_000
"""Maximum interval between heartbeats of a running drill; without them it is dead."""
MOST_KEPT: Final = 200
"""Number of drills of a flow whose results are kept."""

DrillState = Literal["running", "done", "interrupted"]


@dataclass(frozen=True, slots=True)
class DrillGroup:
    """Results of a drill for one group, in partitions with committed offsets.

    ``proven``: how many translations the records on both sides prove. ``read``: how many gave a
    shadow member the group's next source record (or both the end).
    """

    group: str
    partitions: int = 0
    proven: int = 0
    read: int = 0
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the group would continue at its position, as far as records can prove it."""
        return not self.problems and self.proven == self.read == self.partitions


@dataclass(frozen=True)
class Drill(Document):
    """One drill; ``flow`` as ``A->B``, times in epoch milliseconds.

    ``shadowed`` are groups that may have shadows on the target.
    ``steps`` are seconds by step; ``forecast`` is that of an unplanned failover at its beginning.
    ``beat`` counts up while it runs; ``place`` is where ``pid`` is valid.
    """

    KIND = "stored drill"
    drill_id: str
    flow: str
    state: DrillState
    time_ms: int
    host: str
    pid: int
    shadowed: tuple[str, ...] = ()
    beat: int = 0
    topics: tuple[str, ...] = ()
    groups: tuple[DrillGroup, ...] = ()
    forecast: Forecast | None = None
    steps: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    place: str = ""

    @property
    def ok(self) -> bool:
        """True if everything was proven and nothing prevents a failover."""
        return self.state == "done" and not self.problems and all(g.ok for g in self.groups)

    @property
    def proven(self) -> int:
        """Number of groups with everything proven."""
        return sum(group.ok for group in self.groups)

    @property
    def rto_seconds(self) -> float:
        """Estimated time without service: the duration of the steps."""
        return round(sum(self.steps.values()), 3)

    @property
    def all_problems(self) -> tuple[str, ...]:
        """Problems of the whole drill, then those of groups."""
        of_groups = (f"group {g.group}: {why}" for g in self.groups for why in g.problems)
        return (*self.problems, *of_groups)

    @property
    def shadows(self) -> dict[str, str]:
        """Names of shadow groups that may exist, by group."""
        return {group: f"{SHADOW_PREFIX}{self.drill_id}.{group}" for group in self.shadowed}

    def key(self) -> bytes:
        """Return the key of its record."""
        return DRILL_KEY + self.drill_id.encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Decode what :meth:`value` wrote."""
        found = decode(cls, cls.KIND, value)
        read_json(cls.KIND, value)
        try:
            Flow.parse(found.flow)
        except UsageError as error:
            raise IntegrityError(f"stored drill is damaged: {error}") from error
        return found


def superfluous(drills: Iterable[Drill], flow: str) -> tuple[Drill, ...]:
    """Return the oldest results of a flow beyond the number to keep."""
    ended = [one for one in drills if one.flow == flow and one.state != "running"]
    ended.sort(key=lambda one: (one.time_ms, one.drill_id), reverse=True)
    return tuple(ended[MOST_KEPT:])
