"""One look at a flow on both clusters, and the forecast of the loss if its source died now.

Only :func:`flow_status` reads every group; else offsets of groups are from checkpoints.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nlargest

from srm.domain.flow_state.liveness_thresholds import is_silent
from srm.domain.flow_state.replication_records import read_pause
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.proof import FlowProof
from srm.domain.groups.translation import UNKNOWN_LOG
from srm.domain.moves.disaster import Forecast
from srm.domain.moves.plan import GroupPlan
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import amount, duration
from srm.engine.cluster_ports import GroupDescription, TopicDescription, answers, loudness
from srm.engine.flows import source_look
from srm.engine.flows.supervision import state_topic
from srm.engine.groups.checkpoints import per_group, survey
from srm.engine.groups.proving import Survey
from srm.engine.moves.context import without_source
from srm.engine.moves.facts import MoveFacts
from srm.engine.moves.losses import lost_pause_findings, lost_route_findings
from srm.engine.moves.planning import nothing_to_move, unsettled_problems
from srm.engine.moves.reading import read_outlook, read_target
from srm.engine.moves.store import undecided_moves
from srm.engine.moves.surroundings import missing_topics
from srm.engine.ports import FlowContext
from srm.engine.status.status import (
    FlowFacts,
    FlowForecast,
    FlowStatus,
    GroupStatus,
    Health,
    PartitionRow,
    as_waiting,
    flow_health,
    hints,
    status_of,
    total_lag,
)
from srm.errors import SrmError, UnavailableError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlowState:
    """A flow at one moment; ``forecast`` is that of its loss, also of a paused flow."""

    status: FlowStatus
    partitions: Mapping[str, tuple[PartitionRow, ...]] = field(default_factory=dict)
    outlook: MoveFacts | None = None
    forecast: FlowForecast | None = None

    @cached_property
    def health(self) -> Health:
        return flow_health(self.status)

    @property
    def proof(self) -> FlowProof | None:
        return None if self.outlook is None else self.outlook.away.proof

    @property
    def groups(self) -> tuple[GroupPlan, ...]:
        """The place of each group on the target if the source were abandoned now."""
        return self.outlook.plans if self.outlook is not None else ()


def flow_status(context: FlowContext) -> FlowStatus:
    """Look at a flow with all its groups and with hints.

    Without its target, the error says whether the source answers.
    """
    try:
        state = _look(context, with_groups=True, exact=True)
    except UnavailableError as error:
        if answers(context.target):
            raise
        also = "answers" if answers(context.source) else "does not answer, either"
        raise UnavailableError(
            f"{error.what}, {context.source.alias} {also}", error.action
        ) from error
    status = state.status
    lost = [*lost_route_findings([context.target], status.flow), *lost_pause_findings(context)]
    if not status.source_error:
        lost += lost_route_findings([context.source], status.flow)
    status = replace(status, hints=(*status.hints, *(one.line for one in lost)))
    if status.standing is None or state.outlook is None:
        return status
    found = [*missing_topics(without_source(context), state.outlook)]
    found += [] if status.source_error else unsettled_problems(context)
    return replace(status, hints=(*status.hints, *(one.line for one in found)))


def read_forecast(context: FlowContext) -> FlowForecast:
    state = _look(context, with_groups=False, exact=True)
    if state.forecast is None:
        raise UnavailableError(state.status.errors["forecast"])
    return state.forecast


def observe(context: FlowContext) -> FlowState:
    """Look at a flow once; if its source does not answer, by the state on the target alone."""
    return _look(context, with_groups=False, exact=False)


def _look(context: FlowContext, *, with_groups: bool, exact: bool) -> FlowState:
    now_ms, commands = context.now_ms(), state_topic(context).read_commands()
    topics, error = source_look.selected_topics(context)
    known: MoveFacts | None = None
    undecided: tuple[str, ...] = ()
    errors: dict[str, str] = {}
    try:
        pause = read_pause(commands)
        known = read_known(context, topics, exact=exact, commands=commands)
        undecided = tuple(one.move_id for one in undecided_moves(context, pause)) if pause else ()
    except UnavailableError:
        raise
    except SrmError as failed:
        errors["forecast"] = str(failed)
    maps = context.maps.load(topics, {}) if known is None else known.maps
    source, surveyed = source_look.SourceLook.of_reports(topics, maps, error), None
    if not error:
        try:
            source = source_look.look_at_source(context, topics, maps)
            surveyed = survey(context) if with_groups else None
        except UnavailableError as silent:
            source = source_look.SourceLook.of_reports(topics, maps, silent.what)
    on_target = context.target.topics() if known is None else known.target.topics
    starts = _copy_starts(context, topics, on_target, known)
    status, reported = status_of(
        FlowFacts(context.config, now_ms, commands, maps, source, on_target, starts)
    )
    current = None
    if known is not None:
        known = known if source.error else with_commits(context, known, None if exact else _GROUPS)
        current = forecast_of(context, known, None if source.error else source)
    shown, errors = current if status.pause is None else None, {**status.errors, **errors}
    status = replace(status, errors=errors, standing=shown, undecided=undecided)
    if with_groups:
        status = _with_groups(context, status, known, surveyed)
    partitions = {name: as_waiting(status, views) for name, views in reported.items()}
    return FlowState(status, partitions, known, current)


def _copy_starts(
    context: FlowContext,
    topics: Collection[str],
    on_target: Mapping[str, TopicDescription],
    known: MoveFacts | None,
) -> dict[TopicPartition, int]:
    logs = {} if known is None else known.target.logs
    starts = {place: log.start for place, log in logs.items() if log is not UNKNOWN_LOG}
    remotes = (on_target.get(context.config.names.remote(topic)) for topic in topics)
    found = (copy for copy in remotes if copy is not None)
    places = (place for copy in found for place in source_look.partitions_with_leader(copy))
    unread = [place for place in places if place not in starts]
    return {**starts, **(context.target.log_starts(unread) if unread else {})}


def _with_groups(
    context: FlowContext, status: FlowStatus, known: MoveFacts | None, surveyed: Survey | None
) -> FlowStatus:
    """Add all groups by their commits, or by their checkpoints if the source is unavailable."""
    outcomes = () if surveyed is None else surveyed.outcomes
    groups = () if surveyed is None else _groups(context, surveyed)
    if status.source_error and known is not None:
        groups = _groups_by_checkpoints(context, known)
    unread = {} if surveyed is None else surveyed.errors
    found = replace(
        status,
        groups=groups,
        errors={**status.errors, **{f"group {name}": why.text for name, why in unread.items()}},
    )
    return replace(found, hints=tuple(hint.line for hint in hints(context.config, found, outcomes)))


def _groups(context: FlowContext, surveyed: Survey) -> tuple[GroupStatus, ...]:
    by_group = defaultdict[str, list[CheckpointOutcome]](list)
    for outcome in surveyed.outcomes:
        by_group[outcome.group].append(outcome)
    if not by_group:
        return ()
    source = context.source.groups(sorted(by_group))
    target = context.target.groups(sorted(by_group))
    return tuple(
        GroupStatus(
            group,
            _state_of(source, group),
            _state_of(target, group),
            dict(sorted(Counter(outcome.state for outcome in found).items())),
            sum(outcome.remaining for outcome in found),
            sum(outcome.total_skipped for outcome in found),
            _lag(found, surveyed),
        )
        for group, found in sorted(by_group.items())
    )


def _lag(found: Collection[CheckpointOutcome], surveyed: Survey) -> int | None:
    places = list[tuple[int | None, int | None]]()
    for one in found:
        if one.direction is not None:
            log = surveyed.facts_of(one.upstream, one.direction).upstream_log
            end = None if log is None or log is UNKNOWN_LOG else log.end
            places.append((one.upstream_offset, end))
    return total_lag(places)


def _groups_by_checkpoints(context: FlowContext, known: MoveFacts) -> tuple[GroupStatus, ...]:
    names = known.groups
    described = context.target.groups(names) if names else {}
    return tuple(
        GroupStatus(
            plan.group,
            "unknown",
            _state_of(described, plan.group),
            {"checkpoint": len(known.last_places(plan.group))},
            0,
            plan.total_skipped,
        )
        for plan in known.plans
    )


def _state_of(groups: Mapping[str, GroupDescription], group: str) -> str:
    return groups[group].state if group in groups else "unknown"


_GROUPS = 50
"""Groups that a look which is repeated every few seconds reads on the source."""


def with_commits(context: FlowContext, known: MoveFacts, limit: int | None) -> MoveFacts:
    """Add source commits of the ``limit`` groups that have the largest backlog."""
    counts = {plan.group: known.read_again(plan) for plan in known.plans}
    late = [group for group, count in counts.items() if count]
    some = late if limit is None else nlargest(limit, late, key=counts.__getitem__)
    try:
        commits, _ = per_group(context.source.commits_of(some))
    except SrmError as error:
        flow = context.config.flow
        log.log(loudness(error), "%s: commits of groups are not known: %s", flow, error)
        return known
    return known.with_commits(commits)


def read_known(
    context: FlowContext,
    also: Collection[str] = (),
    *,
    exact: bool = False,
    commands: Mapping[bytes, bytes] | None = None,
) -> MoveFacts:
    """Read the state of a flow and of ``also`` topics, without a request per group.

    ``exact``: count records by the maps; looks that repeat count offsets.
    """
    flow, move = context.config.flow, without_source(context)
    request = MoveRequest("failover", flow.source, flow.target, mode="unplanned")
    paused = commands is not None and read_pause(commands) is not None
    facts = read_target(move, request, also=also, with_groups=False, exact=exact, paused=paused)
    return read_outlook(move, facts, commands)


def forecast_of(
    context: FlowContext, known: MoveFacts, source: source_look.SourceLook | None
) -> FlowForecast:
    """Forecast the loss of a flow's source, exact with its log ends; pure but for the clock."""
    now_ms = context.now_ms() if source is None else source.time_ms  # the forecast is as of then
    forecast, alias = known.forecast(now_ms, source), context.config.flow.source
    proof = known.away.proof
    proven = "no group proven yet" if proof is None else proof.line(now_ms)
    nothing = next(nothing_to_move(known), None)
    line = nothing.text if nothing else f"{_lost(alias, forecast)}, {forecast.again}, {proven}"
    when = f"if {alias} died now" if source else f"without {alias}"
    there = tuple(plan.group for plan in known.plans if known.works_there(plan.group))
    return FlowForecast(f"{when}: {line}", forecast, proof, there)


def _lost(source: str, forecast: Forecast) -> str:
    age_ms, at_most = forecast.age_ms, forecast.at_most
    if age_ms is not None and at_most is not None and is_silent(age_ms):
        ago = duration(age_ms / 1000)
        then = f"{forecast.not_copied:,} when {source} last answered, {ago} ago, then its last rate"
        return f"up to {amount(at_most, 'record')} lost ({then})"
    lost = f"{forecast.lost_text} lost"
    if forecast.at_most is None:
        lost += " as far as known"
    elif forecast.at_most > forecast.not_copied:
        lost += f", {forecast.at_most:,} at most"
    return lost
