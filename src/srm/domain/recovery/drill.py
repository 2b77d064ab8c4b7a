"""A rehearsal of a failover: what it found, and what it has made on the target and must remove.

One record for each, ``drill:<id>`` in ``srm-moves.internal`` on the target. It is written before
anything else, so whoever finds it knows the shadow groups that are to be removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from srm.domain.moves.gate.forecast import Forecast
from srm.domain.names.filters import SHADOW_PREFIX
from srm.domain.names.topics import Flow
from srm.domain.text.documents import decode, encode, read_json
from srm.errors import IntegrityError, UsageError

DRILL_KEY: Final = b"drill:"
LEASE_MS: Final = 120_000
"""A drill says so often at least that it still runs; one that does not is dead."""
MOST_KEPT: Final = 200
"""Drills of a flow whose results are kept."""

DrillState = Literal["running", "done", "interrupted"]


@dataclass(frozen=True, slots=True)
class DrillGroup:
    """What a drill found of one group.

    ``partitions`` are those that it has committed offsets in, ``proven`` those whose translation
    the records on both sides prove, ``read`` those in which a member of the shadow group read the
    same record as the group's next one on the source (or both found the end). ``problems`` say of
    the others what is wrong, or missing.
    """

    group: str
    partitions: int = 0
    proven: int = 0
    read: int = 0
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it would continue where it stands, as far as records can prove it."""
        return not self.problems and self.proven == self.read == self.partitions


@dataclass(frozen=True)
class Drill:
    """One drill; ``flow`` as ``A->B``, times in epoch milliseconds.

    ``shadowed`` are the groups of which there may be shadows on the target, ``groups`` what was
    found, empty while it runs. ``steps`` are seconds by step, ``forecast`` what an
    unplanned failover would have cost at its beginning. ``problems`` are those of the whole.
    ``beat`` counts up while it runs. ``place`` is where ``pid`` means a process.
    """

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
        """Whether everything was proven and nothing stands in the way of a failover."""
        return self.state == "done" and not self.problems and all(g.ok for g in self.groups)

    @property
    def proven(self) -> int:
        """Groups of which everything was proven."""
        return sum(group.ok for group in self.groups)

    @property
    def rto_seconds(self) -> float:
        """Estimate of the time without service: what the steps took."""
        return round(sum(self.steps.values()), 3)

    @property
    def all_problems(self) -> tuple[str, ...]:
        """Those of the whole, then those of groups."""
        of_groups = (f"group {g.group}: {why}" for g in self.groups for why in g.problems)
        return (*self.problems, *of_groups)

    @property
    def shadows(self) -> dict[str, str]:
        """Names of the shadow groups that there may be, by group."""
        return {group: f"{SHADOW_PREFIX}{self.drill_id}.{group}" for group in self.shadowed}

    def key(self) -> bytes:
        """Return the key of its record."""
        return DRILL_KEY + self.drill_id.encode()

    def value(self) -> bytes:
        """Encode as JSON."""
        return encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Drill:
        """Decode what :meth:`value` wrote.

        Raises:
            IntegrityError: it is no such record.
        """
        found = decode(Drill, "stored drill", value)
        read_json("stored drill", value)
        try:
            Flow.parse(found.flow)
        except UsageError as error:
            raise IntegrityError(f"stored drill is damaged: {error}") from error
        return found


def superfluous(drills: Iterable[Drill], flow: str) -> tuple[Drill, ...]:
    """Return the oldest results of a flow beyond those that are kept."""
    ended = [one for one in drills if one.flow == flow and one.state != "running"]
    ended.sort(key=lambda one: (one.time_ms, one.drill_id), reverse=True)
    return tuple(ended[MOST_KEPT:])
