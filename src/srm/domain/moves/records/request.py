"""Request for a move of groups and producers, from a cluster (source) to another (target).

Failover and failback are the same algorithm; the words tell people which way is home.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict, ValidationError

from srm.domain.moves.routing.redirects import FenceKind, RedirectNames
from srm.domain.names.topics import Flow
from srm.domain.text.documents import adapter
from srm.errors import UsageError

Operation = Literal["failover", "failback"]
Mode = Literal["planned", "unplanned"]

_NOT_IN_ID: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """What to move, as asked for.

    ``topics`` are original names (``Payments``, never ``P.Payments``); empty means every topic the
    flows replicate. Empty ``groups`` means every group the flow selects that has offsets on them.
    ``mode`` unplanned gives the source up: it is not asked, nobody is waited for, groups continue
    where they were last known to stand.

    ``wait_seconds`` limits the time from hold to go, ``resume_seconds`` the time from go until the
    groups work on the target. ``quiet_seconds`` is how long the log ends on the source must stand
    still before its writers count as stopped; where somebody who follows no route has lately
    written, or may have, it is ``slow_writer_seconds``: who writes more rarely than that is not
    seen before go. ``residue_seconds`` is how long after go the source is watched for producers
    that did not follow. ``redirect`` are those who tell the clients, in order, and ``fence`` is
    what keeps others from writing to the source; empty: as configured.
    ``accept_skips`` allows a move although a group will not find records on the target that it has
    still to read; ``accept_open_transactions`` one without the records that a transaction which is
    open on the source holds back; ``overwrite`` lets srm's translation replace a consumer's own,
    later commit on the target. ``accept_stray_offsets`` moves a group without its offsets on topics
    that are not replicated. ``reroute`` lets an unplanned move take over clients whose routes, as
    far as the target knows, do not lead to the source.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    operation: Operation
    source: str
    target: str
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    redirect: RedirectNames = ()
    wait_seconds: float = 600.0
    resume_seconds: float = 120.0
    quiet_seconds: float = 1.0
    slow_writer_seconds: float = 5.0
    residue_seconds: float = 300.0
    accept_skips: bool = False
    accept_open_transactions: bool = False
    overwrite: bool = False
    accept_stray_offsets: bool = False
    reroute: bool = False
    fence: FenceKind | Literal[""] = ""
    mode: Mode = "planned"

    def __post_init__(self) -> None:
        Flow.parse(f"{self.source}->{self.target}")
        for name in (field.name for field in fields(self) if field.name.endswith("_seconds")):
            if getattr(self, name) < 0:
                said = "wait_seconds (--timeout)" if name == "wait_seconds" else name
                raise UsageError(f"{said} of the move is negative: give seconds, e.g. 600")
        if self.reroute and not self.unplanned:
            raise UsageError("reroute of the move is for an unplanned one: add --mode unplanned")
        for name in ("topics", "groups"):
            values = getattr(self, name)
            if len(set(values)) != len(values) or not all(values):
                raise UsageError(f"{name} of the move has an empty or repeated name: {values}")

    @property
    def unplanned(self) -> bool:
        """Whether the source is given up."""
        return self.mode == "unplanned"

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
            return adapter(MoveRequest).validate_python(dict(settings))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "request"
            if first["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
                known = ", ".join(field.name for field in fields(cls))
                raise UsageError(f"move has no setting {where!r}: known are {known}") from None
            raise UsageError(f"move setting {where!r} cannot be used: {first['msg']}") from None


def ends(
    clusters: Sequence[str], operation: str, source: str | None, target: str | None
) -> tuple[str, str]:
    """Return the cluster that clients leave, and the one that they go to.

    A failover leaves the first of two clusters, a failback the second. A cluster that is named
    comes before that, and the other end follows from it.

    Raises:
        UsageError: there are not two clusters, and both ends are not named.
    """
    if len(clusters) != 2 and not (source and target):
        raise UsageError(
            f"name source and target of the move: the clusters are {', '.join(clusters)}"
        )
    here, there = clusters[0], clusters[-1]
    if operation == "failback":
        here, there = there, here
    left = source or (here if target != here else there)
    return left, target or (there if left == here else here)


def run_move_id(operation: str, clusters: Sequence[str], run_id: str) -> str:
    """Derive the id of a move from an Airflow run, so that a repeated task finds the same move.

    A digest keeps apart runs whose ids differ only in characters that no move id has, and runs of
    the same id of DAGs for other clusters.
    """
    digest = sha256(repr([*clusters, run_id]).encode()).hexdigest()[:6]
    return f"{operation}-{_NOT_IN_ID.sub('-', run_id).strip('-')}-{digest}"
