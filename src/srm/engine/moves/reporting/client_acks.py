"""Acknowledgements of clients after go, with times by the clock of the target's broker.

Clients' wall clocks may be wrong by hours, so no measurement uses them. ``srm-routing.internal``
has LogAppendTime, so one clock stamps all acknowledgements. The age of a state is measured by the
client's monotonic clock (Ack.ages_ms).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import MoveProgress
from srm.domain.moves.report.evidence import Follower, Said, followers_of
from srm.domain.moves.routing.routes import (
    CLOCK_KEY,
    Ack,
    AckState,
    Route,
    acks_of,
    group_subject,
    is_ack,
    merge_tables,
    topic_subject,
)
from srm.domain.names import internal_topics
from srm.engine.flows.cluster_absence import loudness
from srm.engine.moves.control.control import first_stamps, read_routes
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.table_ports import Stamped
from srm.errors import IntegrityError, UnavailableError

log = logging.getLogger(__name__)

_ROUTING = "routing"
_History = Mapping[bytes, Sequence[Stamped]]


@dataclass(frozen=True)
class Arrival:
    """Acknowledgements of one group's members on the target; offsets by ``topic-partition``.

    Times are None if no member reported the state, or the broker did not stamp it.
    ``started``: lowest offset at which a member started each partition.
    ``uncommitted``: by client.
    """

    members: int = 0
    resumed_ms: int | None = None
    processed_ms: int | None = None
    started: Mapping[str, int] = field(default_factory=dict)
    uncommitted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Arrivals:
    """One look at the routing topics of both clusters; an unavailable source is skipped.

    ``ask_clock``: write a record to read the broker's clock.
    """

    def __init__(
        self, context: MoveContext, plan: MovePlan, progress: MoveProgress, *, ask_clock: bool
    ) -> None:
        self._plan = plan
        self._attempt = progress.attempt
        self._hold_stamp_ms = progress.hold_stamp_ms
        self._clocked = progress.hold_stamp_ms is not None
        table = context.target.compacted_topic(internal_topics.ROUTING)
        stamp = table.write({CLOCK_KEY: b"{}"}) if self._clocked and ask_clock else None
        self.now_ms: int = context.now_ms() if stamp is None else stamp
        """The time by the clock that stamped the hold, in epoch milliseconds."""
        target, source = table.read_history(), _source_history(context)
        self._routes: Mapping[str, Route] = merge_tables(
            [read_routes(context.target, target), read_routes(context.source, source)]
        )
        stamps = first_stamps(target, "go") if self._clocked else {}
        self.gone_ms: int | None = stamps.get((plan.move_id, self._attempt))
        """Time of go by that clock; None if unknown."""
        self._on_target, self._on_source = list(_acks(target)), list(_acks(source))

    @property
    def producers_are_ours(self) -> bool:
        """True if no later move has held or redirected the producers."""
        return all(self._is_ours(topic_subject(topic)) for topic in self._plan.topics)

    def is_ours(self, group: str) -> bool:
        """Return True if no later move has held or redirected the members of a group."""
        return self._is_ours(group_subject(group))

    def of(self, group: str) -> Arrival:
        """Return what the members of a group acknowledged of this move's go."""
        subject = group_subject(group)
        target, source = self._plan.request.target, self._plan.request.source
        said = self._acks_on(self._on_target, subject, target)
        left = {
            ack.client: ack.uncommitted
            for ack, _ in self._acks_on(self._on_source, subject, source)
            if ack.state == "held"
        }
        arrived = [(ack, row) for ack, row in said if ack.state != "held"]
        for ack, _ in arrived:
            left.setdefault(ack.client, ack.uncommitted)
        return Arrival(
            members=len({ack.client for ack, _ in arrived}),
            resumed_ms=self._first(arrived, "resumed"),
            processed_ms=self._first(arrived, "processed"),
            started=_lowest([ack.positions for ack, _ in arrived]),
            uncommitted={client: lost for client, lost in left.items() if any(lost.values())},
        )

    def followers(self) -> tuple[Follower, ...]:
        """Return the clients that acknowledged routes of this attempt, and how far."""
        request = self._plan.request
        return followers_of(
            self._of_attempt(self._on_target, request.target),
            self._of_attempt(self._on_source, request.source),
            _ROUTING,
            self._hold_stamp_ms,
        )

    def _of_attempt(self, acks: Sequence[tuple[Ack, Stamped]], cluster: str) -> list[Said]:
        subjects = {
            *map(topic_subject, self._plan.topics),
            *map(group_subject, self._plan.group_names),
        }
        return [
            (ack, row.timestamp_ms if row.by_broker else None)
            for ack, row in acks
            if ack.subject in subjects and (ack.generation, ack.cluster) == (self._attempt, cluster)
        ]

    def _acks_on(
        self, acks: Sequence[tuple[Ack, Stamped]], subject: str, cluster: str
    ) -> list[tuple[Ack, Stamped]]:
        wanted = (subject, self._attempt, cluster)
        return [
            (ack, row) for ack, row in acks if (ack.subject, ack.generation, ack.cluster) == wanted
        ]

    def _first(self, arrived: Sequence[tuple[Ack, Stamped]], state: AckState) -> int | None:
        times = [
            row.timestamp_ms - ack.ages_ms.get(state, 0)
            for ack, row in arrived
            if self._clocked and row.by_broker and (state in ack.ages_ms or ack.state == state)
        ]
        return min(times, default=None)

    def _is_ours(self, subject: str) -> bool:
        route = self._routes.get(subject)
        return route is not None and route.decided and route.move_id == self._plan.move_id


def _source_history(context: MoveContext) -> _History:
    try:
        return context.source.compacted_topic(internal_topics.ROUTING).read_history()
    except UnavailableError as error:
        log.log(loudness(error), "routes of %s cannot be read: %s", context.source.alias, error)
        return {}


def _acks(history: _History) -> Iterator[tuple[Ack, Stamped]]:
    """Yield all acknowledgements, oldest first for each key; damaged records are skipped."""

    def log_damage(error: IntegrityError) -> None:
        log.error("%s; the record is skipped", error)

    for key, rows in history.items():
        for row in rows if is_ack(key) else ():
            for ack in acks_of({key: row.value}, log_damage):
                yield ack, row


def _lowest(tables: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the lowest start of each partition: a second member starts where the first left."""
    lowest: dict[str, int] = {}
    for table in tables:
        for name, offset in table.items():
            lowest[name] = min(offset, lowest.get(name, offset))
    return lowest
