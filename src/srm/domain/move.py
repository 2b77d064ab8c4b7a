"""A move of consumer groups and producers from cluster X (source) to Y (target): request and plan.

Failover and failback are the same algorithm; the words tell people which way is home.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from srm.domain.move_positions import PartitionMove
from srm.domain.topics import Flow
from srm.errors import IntegrityError, UsageError

Operation = Literal["failover", "failback"]


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """What to move, as asked for.

    ``topics`` are original names (``Payments``, never ``P.Payments``); empty means every topic the
    flows replicate. Empty ``groups`` means every group the flow selects that has offsets on them.

    ``wait_seconds`` limits the time from hold to go, ``resume_seconds`` the time from go until the
    groups work on the target. ``quiet_seconds`` is how long the log ends on the source must stand
    still before its writers count as stopped. ``redirect`` is how clients are told.
    ``accept_skips`` allows a move although the target has dropped records a group has still to
    read; ``overwrite`` lets srm's translation replace a consumer's own, later commit on the target.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    operation: Operation
    source: str
    target: str
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    redirect: Literal["routing"] = "routing"
    wait_seconds: float = 600.0
    resume_seconds: float = 120.0
    quiet_seconds: float = 1.0
    accept_skips: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        Flow.parse(f"{self.source}->{self.target}")
        for name in ("wait_seconds", "resume_seconds", "quiet_seconds"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} of the move is negative: give seconds, e.g. 600")
        for name in ("topics", "groups"):
            values = getattr(self, name)
            if len(set(values)) != len(values) or not all(values):
                raise UsageError(f"{name} of the move has an empty or repeated name: {values}")

    @property
    def flow(self) -> Flow:
        """The flow from the side that is left to the side that takes over."""
        return Flow(self.source, self.target)

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> MoveRequest:
        """Build a request from a form or JSON object.

        Raises:
            UsageError: a key is unknown or missing, or a value cannot be used.
        """
        try:
            return _REQUEST.validate_python(dict(settings))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "request"
            if first["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
                known = ", ".join(field.name for field in fields(cls))
                raise UsageError(f"move has no setting {where!r}: known are {known}") from None
            raise UsageError(f"move setting {where!r} cannot be used: {first['msg']}") from None


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Plan for one group; ``members`` are those active on the source when it was planned."""

    group: str
    members: tuple[str, ...]
    positions: tuple[PartitionMove, ...]

    @property
    def lag(self) -> int:
        """Records the group has still to read on the source."""
        return sum(position.lag for position in self.positions)

    @property
    def re_read(self) -> int:
        """Forecast of records it will read a second time."""
        return sum(position.re_read for position in self.positions)

    @property
    def skipped(self) -> int:
        """Forecast of records it will not read at all."""
        return sum(position.skipped for position in self.positions)


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What a move will do, computed once and shown before anything is done.

    ``blocking`` are reasons that waiting cannot remove: while there is one the move does not
    start. ``warnings`` may pass by themselves (replication that has still to catch up).
    ``fingerprint`` identifies the settings of both flows it was computed with.
    """

    move_id: str
    created_ms: int
    request: MoveRequest
    topics: tuple[str, ...]
    groups: tuple[GroupPlan, ...]
    blocking: tuple[str, ...]
    warnings: tuple[str, ...]
    fingerprint: str

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups that move."""
        return tuple(group.group for group in self.groups)

    def value(self) -> bytes:
        """Encode as JSON."""
        return _PLAN.dump_json(self)

    @classmethod
    def decode(cls, value: bytes) -> MovePlan:
        """Decode what :meth:`value` wrote.

        Raises:
            IntegrityError: it is not a plan.
        """
        try:
            return _PLAN.validate_json(value)
        except ValidationError as error:
            raise IntegrityError(
                f"stored move plan is damaged: {error.errors()[0]['msg']}"
            ) from error


_REQUEST = TypeAdapter(MoveRequest)
_PLAN = TypeAdapter(MovePlan)


def fingerprint(*settings: Any) -> str:
    """Identify the settings (dataclasses) a plan was computed with: 16 hexadecimal digits."""
    text = json.dumps([asdict(one) for one in settings], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def position_problem(group: str, position: PartitionMove, request: MoveRequest) -> str | None:
    """Say why a group's position cannot be moved as it stands, None where it can.

    A position that is not copied yet is no problem of the plan: it is what the move waits for.
    """
    where = f"group {group}, {position.name}"
    if position.state == "no_map":
        return (
            f"{where}: committed offset {position.committed} on {request.source} cannot be "
            f"translated, nothing of it was ever copied: is the replication running?"
        )
    if position.state == "conflict" and not request.overwrite:
        return (
            f"{where}: a consumer of its own committed {position.target_committed} of "
            f"{position.target_topic} on {request.target}, ahead of the translated "
            f"{position.resume}: reset that offset or ask for overwrite"
        )
    if position.skipped and not request.accept_skips:
        return (
            f"{where}: {request.target} has already dropped {position.skipped} records the group "
            f"has still to read: let it catch up on {request.source} or ask for accept_skips"
        )
    return None
