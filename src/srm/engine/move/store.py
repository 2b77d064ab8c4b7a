"""State of moves and routes on both clusters: what survives a crash of whatever runs a move.

Both topics exist on both clusters with the same content. What differs after a crash or an absence
is settled by number: the highest revision of a move's progress, the highest generation of a route.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from srm.domain import internal_topics
from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import MoveProgress, Observation
from srm.domain.move.report import MoveReport
from srm.engine.compacted import compacted_spec
from srm.engine.ports import Cluster, FlowContext
from srm.errors import NotFoundError, UnavailableError, UsageError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MoveContext:
    """Both flows between the clusters of a move: ``forward`` X->Y, ``reverse`` Y->X."""

    forward: FlowContext
    reverse: FlowContext

    def __post_init__(self) -> None:
        if self.forward.config.flow.reversed != self.reverse.config.flow:
            raise UsageError(
                f"a move needs a flow and its opposite, not {self.forward.config.flow} and "
                f"{self.reverse.config.flow}"
            )

    @property
    def source(self) -> Cluster:
        """Cluster X, which clients leave."""
        return self.forward.source

    @property
    def target(self) -> Cluster:
        """Cluster Y, which clients go to."""
        return self.forward.target

    @property
    def now_ms(self) -> Callable[[], int]:
        """The clock, epoch milliseconds."""
        return self.forward.now_ms


def ensure_topics(context: MoveContext) -> None:
    """Create the topics that a move writes on both clusters, where they are missing.

    Before anything is read: a client that has looked for a topic in vain may not see it for a
    while after it was created.
    """
    for cluster, config in (
        (context.target, context.forward.config),
        (context.source, context.reverse.config),
    ):
        existing = cluster.topics()
        specs = [
            compacted_spec(name, config.internal_replication_factor)
            for name in (internal_topics.MOVES, internal_topics.ROUTING, internal_topics.LEDGER)
            if name not in existing
        ]
        if specs:
            cluster.create_topics(specs)


class MoveStore:
    """Plans, progress and reports of moves, by move id."""

    def __init__(self, context: MoveContext) -> None:
        self._context = context

    def plan(self, move_id: str) -> MovePlan:
        """Return a plan.

        Raises:
            NotFoundError: no cluster has a move of that id.
        """
        plan = self.find_plan(move_id)
        if plan is None:
            raise NotFoundError(
                f"move {move_id!r} is not known on {self._context.target.alias} or "
                f"{self._context.source.alias}: see 'srm failover status', or plan it"
            )
        return plan

    def find_plan(self, move_id: str) -> MovePlan | None:
        """Return a plan, None where there is none of that id."""
        plans = [MovePlan.decode(value) for value in self._values(f"plan:{move_id}")]
        return max(plans, key=lambda plan: plan.created_ms, default=None)

    def progress(self, move_id: str) -> MoveProgress:
        """Return how far a move is; one that was only planned is at its first step."""
        known = [MoveProgress.decode(value) for value in self._values(f"progress:{move_id}")]
        return max(known, key=lambda one: one.revision, default=MoveProgress(move_id))

    def observation(self, move_id: str) -> Observation:
        """Return what the latest look remembered; an empty one before the first."""
        known = [Observation.decode(value) for value in self._values(f"look:{move_id}")]
        return max(known, key=lambda one: one.time_ms, default=Observation(move_id, 0))

    def report(self, move_id: str) -> MoveReport | None:
        """Return the stored report of a move, None before there is one."""
        for value in self._values(f"report:{move_id}"):
            return MoveReport.decode(value)
        return None

    def move_ids(self) -> tuple[str, ...]:
        """Return the ids of all known moves, oldest plan first."""
        plans: dict[str, MovePlan] = {}
        for records in self._tables():
            for key, value in records.items():
                if key.startswith(b"plan:"):
                    plan = MovePlan.decode(value)
                    plans[plan.move_id] = plan
        return tuple(sorted(plans, key=lambda move_id: (plans[move_id].created_ms, move_id)))

    def save_plan(self, plan: MovePlan) -> None:
        """Write a plan to both clusters."""
        self._write({f"plan:{plan.move_id}": plan.value()}, decided=False)

    def save(self, progress: MoveProgress) -> MoveProgress:
        """Write progress to both clusters; once decided, a source that is away is passed over."""
        self._write({f"progress:{progress.move_id}": progress.value()}, decided=progress.decided)
        return progress

    def save_observation(self, observation: Observation) -> Observation:
        """Write what a look remembers."""
        key = f"look:{observation.move_id}"
        self._write({key: observation.value()}, decided=False)
        return observation

    def save_report(self, report: MoveReport) -> None:
        """Write a report to both clusters; a source that is away is passed over."""
        self._write({f"report:{report.move_id}": report.value()}, decided=True)

    def _write(self, records: Mapping[str, bytes], *, decided: bool) -> None:
        encoded = {key.encode(): value for key, value in records.items()}
        self._context.target.compacted(internal_topics.MOVES).write(encoded)
        try:
            self._context.source.compacted(internal_topics.MOVES).write(encoded)
        except UnavailableError as error:
            if not decided:
                raise
            log.warning("move state is kept on %s only: %s", self._context.target.alias, error)

    def _values(self, key: str) -> list[bytes]:
        encoded = key.encode()
        return [records[encoded] for records in self._tables() if encoded in records]

    def _tables(self) -> list[dict[bytes, bytes]]:
        return read_both(self._context, internal_topics.MOVES)


def read_both(context: MoveContext, topic: str) -> list[dict[bytes, bytes]]:
    """Read a compacted topic on target and source; one of them may be away.

    Raises:
        UnavailableError: neither cluster answers.
    """
    tables: list[dict[bytes, bytes]] = []
    missing: list[UnavailableError] = []
    for cluster in (context.target, context.source):
        try:
            tables.append(cluster.compacted(topic).read())
        except UnavailableError as error:
            missing.append(error)
    if not tables:
        raise missing[0]
    return tables
