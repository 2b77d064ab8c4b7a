"""Clusters, clocks and process of a move, as each of its steps needs them."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from srm.clock import now_s
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import Observation, run_again
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.revisions import SigningKey
from srm.domain.moves.routing import CLOCK_KEY
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster, ControlWriter, away_cluster, loudness
from srm.engine.control.control_topics import (
    CONTROL_ID,
    create_control_topics,
    repair_control_topics,
)
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, SrmError, UnavailableError, UsageError

log = logging.getLogger(__name__)

_T = TypeVar("_T")

Side = Literal["target", "source"]


SIDES: tuple[Side, ...] = ("target", "source")


@dataclass(frozen=True)
class Notary:
    """Versions and configuration of the move's programs; ``read_key`` returns the key or None."""

    read_key: Callable[[], SigningKey | None] = lambda: None
    versions: Mapping[str, str] = field(default_factory=dict)
    config_sha256: str = ""

    def key(self) -> SigningKey | None:
        """Return the key; None if it cannot be read: the next call with it signs the report."""
        try:
            return self.read_key()
        except UsageError as error:
            log.error("the report is not signed: %s", error)  # noqa: TRY400 -- one line
            return None


@dataclass
class BrokersClock:
    """The clock that stamps what clients announce on a cluster, in epoch ms; hosts may be wrong.

    The first call writes a record to the first of the clusters that answers. From then on the
    monotonic clock carries the time on. Without a stamp it is the host's, ``host_ms``.
    """

    clusters: Sequence[Cluster]
    host_ms: Callable[[], int]
    monotonic: Callable[[], float]
    _zero_ms: float | None = None

    def __call__(self) -> int:
        if self._zero_ms is None:
            self._zero_ms = self._read() - self.monotonic() * 1000
        return round(self._zero_ms + self.monotonic() * 1000)

    def _read(self) -> int:
        for cluster in self.clusters:
            try:
                stamp = cluster.compacted_topic(internal_topics.ROUTING).write({CLOCK_KEY: b"{}"})
            except SrmError as error:
                may_look = isinstance(error, AuthorizationError)  # all that some operators may
                level = logging.DEBUG if may_look else loudness(error)
                log.log(level, "the clock of cluster %s is not known: %s", cluster.alias, error)
                continue
            if stamp is not None:
                return stamp
        return self.host_ms()


class ControlWriters:
    """The writers of control records that a process has open, for all its steps and renewals.

    They are used with the ``lock`` only: a renewal must not fence the step that it serves.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._open: dict[str, ControlWriter] = {}

    def of(self, cluster: Cluster) -> ControlWriter:
        """Return the writer of a cluster, which is opened if it is not."""
        if (known := self._open.get(cluster.alias)) is None:
            known = self._open[cluster.alias] = cluster.control_writer(CONTROL_ID)
        return known

    def close(self) -> None:
        """Close the writers: after a fence, a failure, or the last step."""
        with self.lock:
            while self._open:
                self._open.popitem()[1].close()


@dataclass(frozen=True)
class MoveContext:
    """Both flows between the clusters of a move: ``forward`` source to target, and ``reverse``.

    ``condemned``: source of an unplanned move for best-effort calls; its ``source`` never answers.
    ``observations``: observations of the source by this process, by move.
    ``writers``: those of this process, kept open from step to step.
    ``only_look``: nothing may be written, so the clock is the host's; else it is a broker's.
    """

    forward: FlowContext
    reverse: FlowContext
    monotonic: Callable[[], float] = now_s
    host: str = field(default_factory=socket.gethostname)
    condemned: Cluster | None = None
    notary: Notary = field(default_factory=Notary)
    pause: Callable[[float], None] = time.sleep
    observations: dict[str, Observation] = field(default_factory=dict)
    only_look: bool = False
    writers: ControlWriters = field(default_factory=ControlWriters)

    def __post_init__(self) -> None:
        known = self.forward.now_ms
        clock: Callable[[], int] = known
        if self.only_look:
            clock = known.host_ms if isinstance(known, BrokersClock) else known
        elif not isinstance(known, BrokersClock):
            clock = BrokersClock((self.target, self.source), known, self.monotonic)
        for name in ("forward", "reverse"):
            object.__setattr__(self, name, replace(getattr(self, name), now_ms=clock))

    def command(self, words: str) -> str:
        """Return a command about a move between the two clusters."""
        return f"srm failover {words} {self.forward.config.flow.options}"

    def hold_again(self, move_id: str) -> str:
        """Return how an operator holds a move again."""
        return f"hold it again ('{run_again(self.forward.config.flow, move_id)}')"

    @property
    def process(self) -> str:
        return f"process {os.getpid()} on {self.host}"

    @property
    def now_ms(self) -> Callable[[], int]:
        """The one clock of all that is done with this context, epoch ms."""
        return self.forward.now_ms

    @property
    def source(self) -> Cluster:
        return self.forward.source

    @property
    def target(self) -> Cluster:
        return self.forward.target


def ensure_topics(context: MoveContext, *, unplanned: bool = False) -> None:
    """Create the missing control topics on both clusters; on the target only if ``unplanned``.

    Call it before any read: a client that looked up a missing topic may not see it for a while.
    """
    sides = ((context.target, context.forward.config), (context.source, context.reverse.config))
    for cluster, config in sides[:1] if unplanned else sides:
        create_control_topics(cluster, config.internal_replication_factor)
        repair_control_topics(cluster)


def read_both(
    context: MoveContext, read: Callable[[Cluster], _T]
) -> tuple[list[_T], list[UnavailableError]]:
    """Read target and source concurrently; one of them may be unavailable, as the error says."""
    found: list[_T] = []
    missing: list[UnavailableError] = []
    with ThreadPoolExecutor(2, thread_name_prefix="srm-moves") as pool:
        for future in [pool.submit(read, one) for one in (context.target, context.source)]:
            try:
                found.append(future.result())
            except UnavailableError as error:
                missing.append(error)
    if not found:
        raise missing[0]
    return found, missing


def without_source(context: FlowContext) -> MoveContext:
    """Return the flow and its opposite for an unplanned move, with an abandoned source."""
    return as_move(replace(context, source=away_cluster(context.config.flow.source)))


def as_move(context: FlowContext) -> MoveContext:
    opposite = context.opposite or replace(context.config, flow=context.config.flow.reverse)
    back = replace(context.backwards, config=opposite, switch=None, opposite=context.config)
    return MoveContext(context, back, only_look=True)


def sides_of(request: MoveRequest) -> tuple[Side, ...]:
    """Return the clusters that a move writes, in order; an abandoned source is not written."""
    return SIDES[:1] if request.is_unplanned else SIDES


def between_same(context: MoveContext, plan: MovePlan) -> MoveContext | None:
    """Return the context for another move's plan, None if it is not between these two clusters."""
    both = (context, replace(context, forward=context.reverse, reverse=context.forward))
    return next((one for one in both if one.forward.config.flow == plan.request.flow), None)
