"""Facts that explain why a group is (not) translated and able to move, from one look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from srm.config.model import FlowConfig
from srm.domain.flow_state.pause import Pause, read_pause
from srm.domain.flow_state.replication_records import DriverHeartbeat
from srm.domain.groups.checkpoints import CheckpointOutcome, Selection
from srm.domain.groups.group_sync import SyncDecision
from srm.domain.groups.proof_records import FlowProof
from srm.domain.moves.gate import Presence, strangers, waiting_reasons
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.text.reason import Reason
from srm.engine.cluster_ports import GroupDescription
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ControlLists, merged_if_known
from srm.engine.flows.supervision import read_driver, state_topic
from srm.engine.groups.checkpoints import (
    Emitted,
    Survey,
    read_checkpoints,
    read_ledger,
    selection_of,
    survey,
)
from srm.engine.groups.group_listing import WITHOUT_OFFSETS
from srm.engine.groups.group_sync import decisions_of
from srm.engine.groups.proving import read_proof
from srm.engine.metrics.metrics import recent_rate, seconds_to_go
from srm.engine.moves.planning import Findings, findings
from srm.engine.moves.records import as_move, without_source
from srm.engine.moves.registers import RoutingTables
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, NotFoundError, SrmError, UnavailableError


@dataclass(frozen=True, slots=True)
class Movement:
    """Obstacles to a planned move of the group now, or the ``error`` that hides them.

    ``strangers`` are members on the source that do not follow routes, ``members_there`` are on the
    target.
    ``eta_s`` is the time to copy the lag at the highest recent rate, None if unknown.
    """

    blocking: tuple[Reason, ...] = ()
    waits: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    eta_s: float | None = None
    error: Reason | None = None
    members_there: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupLook:
    """Facts about one group.

    ``found`` describes it on the source, None while that does not answer (``source_error``).
    ``committed`` are its offsets there, ``outcomes`` their translations, ``unread`` why there are
    none.
    ``emitted`` are its checkpoints by partition of the target.
    ``routed_to`` is the cluster of its route, by the target alone if the source is unavailable.
    """

    config: FlowConfig
    opposite: FlowConfig | None
    lists: ControlLists
    group: str
    now_ms: int
    pause: Pause | None = None
    driver: DriverHeartbeat | None = None
    source_error: str = ""
    found: GroupDescription | None = None
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    outcomes: tuple[CheckpointOutcome, ...] = ()
    unread: Reason | None = None
    emitted: Mapping[TopicPartition, Emitted] = field(default_factory=dict)
    proof: FlowProof | None = None
    decisions: tuple[SyncDecision, ...] = ()
    undecided: Reason | None = None
    movement: Movement | None = None
    routed_to: str = ""
    similar: tuple[str, ...] = ()

    @property
    def selection(self) -> Selection:
        """The topics and groups that the flow selects."""
        return selection_of(self.config)

    @property
    def is_there(self) -> bool:
        """True when the group works on the target by its route: it has no members on the source."""
        if self.movement is not None and self.movement.members:
            return False
        return self.routed_to == self.config.flow.target

    @property
    def works_there(self) -> str:
        """Text for such a group, with the flow of its next move."""
        flow = self.config.flow
        return f"it works on {flow.target} already: see flow {flow.reverse}"

    @property
    def exists(self) -> bool:
        """True when either cluster shows the group."""
        if self.movement is not None and self.movement.error is None:
            return True
        absent = self.found is None or (self.found.state == "dead" and not self.committed)
        return not absent or bool(self.emitted)


def read_group(context: FlowContext, name: str) -> GroupLook:
    """Read the facts about one group; a source that does not answer is skipped."""
    config, commands = context.config, state_topic(context).read_commands()
    beat = read_driver(commands)
    look = GroupLook(
        config,
        None if context.opposite is None else merged_if_known(context.opposite, context.source),
        control_lists.load(context.target, config.flow),
        name,
        context.now_ms(),
        read_pause(commands),
        driver=None if beat is None or beat.ended else beat,
        emitted=_read_emission(context, name),
        proof=read_proof(context.target, config.flow),
    )
    try:
        look = _of_source(context, look)
    except UnavailableError as error:
        return _after_loss(context, replace(look, source_error=str(error)))
    try:
        return _add_translation(context, look)
    except UnavailableError as error:
        return replace(look, unread=Reason.of(error))


def _after_loss(context: FlowContext, look: GroupLook) -> GroupLook:
    move, flow = without_source(context), look.config.flow
    request = MoveRequest(
        "failover", flow.source, flow.target, groups=(look.group,), mode="unplanned"
    )
    look = replace(look, routed_to=RoutingTables.of_target(move).cluster_of(look.group))
    try:
        found = findings(move, request, "")
    except NotFoundError:
        return look
    except UnavailableError:
        raise
    except SrmError as error:
        return replace(look, movement=Movement(error=Reason.of(error)))
    outlook = found.outlook
    if outlook is None or not any(map(outlook.known_places, outlook.plans)):
        return look
    return replace(look, movement=Movement(tuple(each.reason for each in found.blocking)))


def _of_source(context: FlowContext, look: GroupLook) -> GroupLook:
    group = look.group
    look = replace(look, found=context.source.groups([group])[group])
    if look.found is not None and look.found.kind in WITHOUT_OFFSETS:
        return look
    try:
        look = replace(look, committed=context.source.committed_offsets(group))
    except AuthorizationError as error:
        return replace(look, unread=Reason.of(error))
    if look.exists:
        return look
    return replace(look, similar=tuple(sorted(context.source.groups())))


def _add_translation(context: FlowContext, look: GroupLook) -> GroupLook:
    if not look.selection.selects_group(look.group, look.committed):
        return look
    surveyed = survey(context, [look.group])
    unread = surveyed.errors.get(look.group)
    look = replace(look, outcomes=surveyed.outcomes, unread=unread)
    return _with_movement(context, _with_decisions(context, look, surveyed))


def _read_emission(context: FlowContext, group: str) -> dict[TopicPartition, Emitted]:
    config, target = context.config, context.target
    topic = internal_topics.checkpoints(config.flow.source, config.policy.separator)
    found = read_checkpoints(target, topic, target.topics(), group)
    return {one.checkpoint.topic_partition: one for one in found}


def _with_decisions(context: FlowContext, look: GroupLook, surveyed: Survey) -> GroupLook:
    ledger = read_ledger(context.target, surveyed.on_target)
    decisions, errors = decisions_of(context, surveyed, ledger)
    return replace(look, decisions=decisions, undecided=errors.get(look.group))


def _with_movement(context: FlowContext, look: GroupLook) -> GroupLook:
    if look.opposite is None:
        return look
    selection = look.selection
    chosen = {
        selection.mapped_topic(place.topic, direction)
        for place in look.committed
        if (direction := selection.direction(place.topic)) is not None
    }
    flow = look.config.flow
    request = MoveRequest(
        "failover", flow.source, flow.target, tuple(sorted(chosen)), (look.group,)
    )
    move = as_move(replace(context, opposite=look.opposite))
    try:
        found = findings(move, request, "")
    except UnavailableError:
        raise
    except SrmError as error:
        return replace(look, movement=Movement(error=Reason.of(error)))
    routed_to = found.facts.routing.cluster_of(look.group)
    return replace(look, movement=_movement(context, look, found), routed_to=routed_to)


def _movement(context: FlowContext, look: GroupLook, found: Findings) -> Movement:
    """Return what the gate would wait for, without a hold."""
    facts, now_ms = found.facts, look.now_ms
    group = facts.group(look.group)
    gate = replace(facts.gate("", now_ms), groups=(group,))
    presence = Presence.of(facts.routing.stamped_acks, now_ms)
    remaining = sum(partition.remaining for partition in gate.replication)
    rate = recent_rate(context, facts.topics, now_ms) if remaining else None
    return Movement(
        tuple(each.reason for each in found.blocking),
        tuple(waiting_reasons(gate)),
        group.source_members,
        strangers(look.group, group.source_members, presence),
        seconds_to_go(remaining, rate),
        members_there=group.target_members,
    )
