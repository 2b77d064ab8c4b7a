"""Plan of a move: computed once, shown before anything is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from srm.domain.moves.gate.forecast import Forecast
from srm.domain.moves.records.positions import PartitionMove, PositionState
from srm.domain.moves.records.request import MoveRequest
from srm.domain.moves.routing.redirects import ROUTING_ALONE, FenceKind, RedirectKind
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount
from srm.domain.text.documents import decode, encode


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
    def total_skipped(self) -> int:
        """Forecast of records it will not read at all."""
        return sum(position.skipped for position in self.positions)


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What a move will do, computed once and shown before anything is done.

    ``blocking`` are reasons that waiting cannot remove: while there is one the move does not
    start. ``warnings`` may pass by themselves (replication that has still to catch up).
    ``fingerprint`` identifies the settings of both flows it was computed with. ``forecast`` is what
    an unplanned move is expected to cost. ``redirect`` are the redirectors in their order,
    ``fence`` what keeps others from writing to the source: as asked for, or as configured.
    ``homes`` are clusters: clients at home there that no route names go to the target.
    """

    move_id: str
    created_ms: int
    request: MoveRequest
    topics: tuple[str, ...]
    groups: tuple[GroupPlan, ...]
    blocking: tuple[str, ...]
    warnings: tuple[str, ...]
    fingerprint: str
    redirect: tuple[RedirectKind, ...] = ROUTING_ALONE
    fence: FenceKind = "none"
    forecast: Forecast | None = None
    homes: tuple[str, ...] = ()

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups that move."""
        return tuple(group.group for group in self.groups)

    def numbers(self) -> dict[str, int | float | None]:
        """Return what is approved with the plan, by name: records, seconds."""
        if self.forecast is not None:
            return self.forecast.numbers()
        return {
            "groups": len(self.groups),
            "members": sum(len(group.members) for group in self.groups),
            "lag": sum(group.lag for group in self.groups),
            "records_read_again": sum(group.re_read for group in self.groups),
            "records_skipped": sum(group.total_skipped for group in self.groups),
        }

    def summary(self) -> str:
        """Say in one line what is approved with the plan."""
        if self.forecast is not None:
            return self.forecast.line(self.request.source)
        lag = sum(group.lag for group in self.groups)
        again = sum(group.re_read for group in self.groups)
        skipped = sum(group.total_skipped for group in self.groups)
        return (
            f"{self.request.operation} {self.request.flow} of {amount(len(self.groups), 'group')}: "
            f"{amount(lag, 'record')} still to read, {again} read again, {skipped} skipped"
        )

    def value(self) -> bytes:
        """Encode as JSON."""
        return encode(self)

    @classmethod
    @lru_cache(maxsize=4)
    def decode(cls, value: bytes) -> MovePlan:
        """Decode what :meth:`value` wrote.

        Each step of a move reads its plan several times, and that of many groups is large.

        Raises:
            IntegrityError: it is not a plan.
        """
        return decode(MovePlan, "stored move plan", value)


_REMEDIES: Mapping[PositionState, str] = {
    "no-map": "is the replication running? see srm status --flow '{flow}'",
    "damaged-map": "restart the replicator of the topic, it finds the records again in both logs",
    "no-target": "create it with srm topics sync, and let the replicator copy the topic",
    "past-end": "reset that offset to where the group is to continue",
}


def fingerprint(*settings: Any) -> str:
    """Identify the settings (dataclasses) a plan was computed with: 16 hexadecimal digits."""
    text = json.dumps([asdict(one) for one in settings], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def state_remedy(state: str, flow: Flow) -> str:
    """Say what ends a state of a position that no waiting ends; empty for the others."""
    found = {str(name): text for name, text in _REMEDIES.items()}.get(state, "")
    return found.format(flow=flow)


def position_problem(group: str, position: PartitionMove, request: MoveRequest) -> str | None:
    """Say why a group's position cannot be moved as it stands, None where it can.

    A position that is not copied yet is no problem of the plan: it is what the move waits for.
    """
    where = f"group {group}, {position.name}"
    commit = f"committed offset {position.committed} on {request.source}"
    if position.state in _REMEDIES:
        remedy = state_remedy(position.state, request.flow)
        return f"{where}: {commit} cannot be translated, {position.reason}; {remedy}"
    if position.state == "conflict" and not request.overwrite:
        return (
            f"{where}: a consumer of its own committed {position.target_committed} of "
            f"{position.target_topic} on {request.target}, ahead of the translated "
            f"{position.resume}: reset that offset, or replace it with --overwrite "
            f"(in the form: overwrite)"
        )
    # Where the source is given up nobody catches up on it: what is skipped is in the forecast.
    if position.skipped and not request.accept_skips and not request.is_unplanned:
        return (
            f"{where}: the group would skip {amount(position.skipped, 'record')} "
            f"it has still to read ({position.reason}): let it catch up on {request.source}, or "
            f"accept that with --accept-skips (in the form: accept_skips)"
        )
    return None
