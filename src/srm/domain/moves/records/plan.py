"""Plan of a move: computed once, shown before anything is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Self

from srm.domain.moves.records.forecast import Forecast
from srm.domain.moves.records.positions import PartitionMove, PositionState
from srm.domain.moves.records.request import MoveRequest
from srm.domain.moves.routing.redirects import ROUTING_ALONE, FenceKind, RedirectKind
from srm.domain.moves.routing.routes import home_subject, subjects_of
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount
from srm.domain.text.documents import Document, decode
from srm.errors import message


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Plan for one group; ``members``: those active on the source at planning."""

    group: str
    members: tuple[str, ...]
    positions: tuple[PartitionMove, ...]

    @property
    def lag(self) -> int:
        """Records that the group has not read on the source yet."""
        return sum(position.lag for position in self.positions)

    @property
    def re_read(self) -> int:
        """Forecast of records that it reads a second time."""
        return sum(position.re_read for position in self.positions)

    @property
    def total_skipped(self) -> int:
        """Forecast of records that it skips."""
        return sum(position.skipped for position in self.positions)


@dataclass(frozen=True, slots=True)
class MovePlan(Document):
    """Plan of a move, computed once and shown before its start.

    ``blocking``: reasons that waiting cannot remove; the move does not start while one remains.
    ``fingerprint``: identifies the settings of both flows that the plan was computed with.
    ``redirect``, ``fence``: redirectors in order, and write fence; requested or configured.
    ``homes``: clusters whose clients without a route go to the target.
    """

    KIND = "stored move plan"
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

    @property
    def subjects(self) -> tuple[str, ...]:
        """Routing subjects: producers' topics, then groups."""
        return subjects_of(self.topics, self.group_names)

    @property
    def home_subjects(self) -> tuple[str, ...]:
        """Subjects of unrouted clients, if redirected; not held: no plan or gate knows them."""
        return tuple(map(home_subject, self.homes))

    def numbers(self) -> dict[str, int | float | None]:
        """Return the numbers to approve by name, in records or seconds."""
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
        """Summarise in one line the plan to approve."""
        if self.forecast is not None:
            return self.forecast.line(self.request.source)
        lag = sum(group.lag for group in self.groups)
        again = sum(group.re_read for group in self.groups)
        skipped = sum(group.total_skipped for group in self.groups)
        return (
            f"{self.request.operation} {self.request.flow} of {amount(len(self.groups), 'group')}: "
            f"{amount(lag, 'record')} still to read, {again} read again, {skipped} skipped"
        )

    @classmethod
    @lru_cache(maxsize=4)
    def decode(cls, value: bytes) -> Self:
        """Decode :meth:`value`; cached, as each step reads its plan several times."""
        return decode(cls, cls.KIND, value)


_REMEDIES: Mapping[PositionState, str] = {
    "no-map": "is the replication running? see srm status --flow '{flow}'",
    "damaged-map": "restart the replicator of the topic, it finds the records again in both logs",
    "no-target": "create it with srm topics sync, and let the replicator copy the topic",
    "past-end": "",  # its reason says what to do
}


def fingerprint(*settings: Any) -> str:
    """Return a digest of the settings (dataclasses) of a plan, 16 hexadecimal digits."""
    text = json.dumps([asdict(one) for one in settings], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def state_remedy(state: str, flow: Flow) -> str:
    """Return the remedy for a state of a position that waiting cannot end, else empty."""
    found = {str(name): text for name, text in _REMEDIES.items()}.get(state, "")
    return found.format(flow=flow)


def position_problem(group: str, position: PartitionMove, request: MoveRequest) -> str | None:
    """Return why a position cannot be moved as it is; not copied yet is not a reason."""
    where = f"group {group}, {position.name}"
    commit = f"committed offset {position.committed} on {request.source}"
    if position.state in _REMEDIES:
        remedy = state_remedy(position.state, request.flow)
        return message(f"{where}: {commit} cannot be translated, {position.reason}", remedy)
    if position.state == "conflict" and not request.overwrite:
        return (
            f"{where}: its own consumer committed {position.target_committed} of "
            f"{position.target_topic} on {request.target}, ahead of the translated "
            f"{position.resume}: let it catch up on {request.source}, reset that offset, or "
            f"replace it with --overwrite (in the form: overwrite)"
        )
    # Groups cannot catch up on an abandoned source: the forecast counts the skipped records.
    if position.skipped and not request.accept_skips and not request.is_unplanned:
        return (
            f"{where}: the group would skip {amount(position.skipped, 'record')} "
            f"it has still to read ({position.reason}): let it catch up on {request.source}, or "
            f"accept that with --accept-skips (in the form: accept_skips)"
        )
    return None
