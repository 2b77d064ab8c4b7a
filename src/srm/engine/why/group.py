"""Facts about a group, and why a flow (not) translates it and it can (not) move along it."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import DriverHeartbeat
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.groups.checkpoints import CheckpointOutcome, Selection, deletion
from srm.domain.groups.group_sync import SyncAction, SyncDecision
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.groups.proof import FlowProof
from srm.domain.groups.translation import UNFINISHED
from srm.domain.moves.gate import unrouted_members
from srm.domain.moves.plan import state_remedy
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import group_subject
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import Reason, ago, amount, duration, some
from srm.engine.cluster_ports import GroupDescription
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ControlLists, merged_if_known
from srm.engine.flows.supervision import (
    late_commits,
    never_ran,
    read_driver,
    slot_statuses,
    state_topic,
)
from srm.engine.groups import checkpoints
from srm.engine.groups.group_sync import decisions_of
from srm.engine.groups.ledger import read_ledger
from srm.engine.groups.proving import read_proof
from srm.engine.metrics.metrics import recent_rate, seconds_to_go
from srm.engine.moves.context import as_move, without_source
from srm.engine.moves.facts import waiting_reasons
from srm.engine.moves.history import RoutingTables
from srm.engine.moves.planning import Findings, findings
from srm.engine.ports import FlowContext
from srm.engine.status.status import NO_CHECKPOINT, group_proof
from srm.engine.why.answer import (
    Question,
    SelectionLists,
    Why,
    WhyStep,
    action_of,
    first_wrong,
    flow_steps,
    list_text,
    near,
    not_known,
    why_paused,
)
from srm.errors import AuthorizationError, NotFoundError, SrmError, UnavailableError


@dataclass(frozen=True, slots=True)
class Movement:
    """Obstacles to a planned move of the group now, or the ``error`` that hides them.

    ``members`` are on the source, ``unrouted`` those that do not follow routes.
    ``eta_s`` is the time to copy the lag at the highest recent rate, None if unknown.
    """

    blocking: tuple[Reason, ...] = ()
    waits: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    unrouted: tuple[str, ...] = ()
    eta_s: float | None = None
    error: Reason | None = None
    members_there: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupLook:
    """Facts about one group; without an answer of the source ``found`` is None.

    ``committed`` are its offsets there, ``outcomes`` their translations, ``unread`` why there are
    none. ``emitted`` are its checkpoints, without those of commits that are gone, the last of them
    since ``gone_since_ms``. ``routed_to`` is the cluster of its route. ``there`` is the group on
    the target, read if the source does not answer. ``never_ran``: no replicator ever copied.
    """

    config: FlowConfig
    opposite: FlowConfig | None
    lists: ControlLists
    group: str
    now_ms: int
    pause: Reason | None = None
    never_ran: Reason | None = None
    driver: DriverHeartbeat | None = None
    source_error: str = ""
    found: GroupDescription | None = None
    there: GroupDescription | None = None
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    outcomes: tuple[CheckpointOutcome, ...] = ()
    unread: Reason | None = None
    emitted: Mapping[TopicPartition, Checkpoint] = field(default_factory=dict)
    gone_since_ms: int = 0
    proof: FlowProof | None = None
    decisions: tuple[SyncDecision, ...] = ()
    undecided: Reason | None = None
    movement: Movement | None = None
    routed_to: str = ""
    similar: tuple[str, ...] = ()

    @property
    def selection(self) -> Selection:
        return checkpoints.selection_of(self.config)

    @property
    def is_there(self) -> bool:
        """True when the group works on the target by its route: it has no members on the source.

        Without an answer of the source, members on the target count, too.
        """
        if self.movement is not None and self.movement.members:
            return False
        has_members = self.there is not None and bool(self.there.members)
        return has_members or self.routed_to == self.config.flow.target

    @property
    def works_there(self) -> str:
        flow = self.config.flow
        if self.there is None:
            return f"it works on {flow.target} already: see flow {flow.reverse}"
        if not self.there.members:
            state = self.there.state
            return f"its route leads to {flow.target}, where it is {state}: start it there"
        who = f"{self.there.state}, {amount(len(self.there.members), 'member')}"
        return f"it works on {flow.target} ({who}), and nothing is wrong with it there"

    @property
    def pending(self) -> Reason | None:
        """Reason why a group that works on the target is unfinished until the source answers."""
        if self.there is None or not self.is_there:
            return None
        source, pause = self.config.flow.source, self.pause or Reason("")
        what = f"{source} does not answer{'; ' * bool(pause.text)}{pause.text}"
        then = f", then {pause.action}" if pause.action else ""
        return Reason(f"{self.works_there}; pending: {what}", f"bring {source} back{then}")

    @property
    def is_unfinished(self) -> bool:
        """True while a record before a commit is not copied yet."""
        return any(outcome.state in UNFINISHED for outcome in self.outcomes)

    @property
    def deletion(self) -> str:
        """Since when the source no longer has the group, as far as known; empty if it has it."""
        absent = self.source_error or (self.found is not None and self.found.state == "dead")
        is_deleted = absent and self.gone_since_ms and not (self.emitted or self.committed)
        since = deletion(self.config.flow.source, self.gone_since_ms) if is_deleted else ""
        return f"{since}; nothing has to be done" if since and not self.is_there else since

    @property
    def exists(self) -> bool:
        if self.movement is not None and self.movement.error is None:
            return True
        if self.is_there:
            return True
        absent = self.found is None or (self.found.state == "dead" and not self.committed)
        return not absent or bool(self.emitted or self.gone_since_ms)


def read_group(context: FlowContext, name: str) -> GroupLook:
    """Read the facts about one group; a source that does not answer is skipped."""
    config, records = context.config, state_topic(context).read()
    beat, known = read_driver(records), _read_emission(context, name)
    slots = slot_statuses(decode_state(records).reports, context.now_ms())
    look = GroupLook(
        config,
        None if context.opposite is None else merged_if_known(context.opposite, context.source),
        control_lists.load(context.target, config.flow),
        name,
        context.now_ms(),
        why_paused(context, records),
        never_ran(config.flow, beat, slots),
        driver=None if beat is None or beat.ended else beat,
        emitted={one.topic_partition: one for one in known if not one.gone_since_ms},
        gone_since_ms=max((one.gone_since_ms for one in known), default=0),
        proof=read_proof(context.target, config.flow),
    )
    try:
        look = _of_source(context, look)
    except UnavailableError as error:
        return _with_movement(context, replace(look, source_error=str(error)))
    try:
        return _add_translation(context, look)
    except UnavailableError as error:
        return replace(look, unread=Reason.of(error))


def _of_source(context: FlowContext, look: GroupLook) -> GroupLook:
    group = look.group
    look = replace(look, found=context.source.groups([group])[group])
    if look.found is not None and look.found.kind in checkpoints.WITHOUT_OFFSETS:
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
    surveyed = checkpoints.survey(context, [look.group])
    ledger = read_ledger(context.target, surveyed.on_target)
    decisions, errors = decisions_of(context, surveyed, ledger)
    outcomes, unread = surveyed.outcomes, surveyed.errors.get(look.group)
    look = replace(look, outcomes=outcomes, unread=unread, decisions=decisions)
    return _with_movement(context, replace(look, undecided=errors.get(look.group)))


def _read_emission(context: FlowContext, group: str) -> list[Checkpoint]:
    target, topic = context.target, context.config.checkpoints_topic
    return checkpoints.read_checkpoints(target, topic, target.topics(), group, gone=True)


def _with_movement(context: FlowContext, look: GroupLook) -> GroupLook:
    """Add what a move of the group would meet now; an unplanned one without the source."""
    flow, topics = look.config.flow, set[str]()
    if look.source_error:
        move, group = without_source(context), look.group
        routes = RoutingTables.read_target(move)
        routed_to = routes.where.cluster_of(group_subject(group), flow.source)
        look = replace(look, routed_to=routed_to, there=move.target.groups([group])[group])
        if look.is_there or look.never_ran:
            return look
    elif look.opposite is None:
        return look
    else:
        move, selection = as_move(replace(context, opposite=look.opposite)), look.selection
        topics = {
            selection.mapped_topic(place.topic, direction)
            for place in look.committed
            if (direction := selection.direction(place.topic)) is not None
        }
    request = MoveRequest(
        "failover",
        flow.source,
        flow.target,
        tuple(sorted(topics)),
        (look.group,),
        mode="unplanned" if look.source_error else "planned",
    )
    try:
        found = findings(move, request, "")
    except UnavailableError:
        raise
    except SrmError as error:
        if look.source_error and isinstance(error, NotFoundError):
            return look
        return replace(look, movement=Movement(error=Reason.of(error)))
    if not look.source_error:
        routed_to = found.facts.routing.where.cluster_of(group_subject(look.group), flow.source)
        return replace(look, movement=_movement(context, look, found), routed_to=routed_to)
    is_known = found.blocking or any(map(found.facts.known_places, found.facts.plans))
    return replace(look, movement=Movement(found.blocking)) if is_known else look


def _movement(context: FlowContext, look: GroupLook, found: Findings) -> Movement:
    """Return what the gate would wait for, without a hold."""
    facts, now_ms = found.facts, look.now_ms
    group = facts.source.group(look.group)
    remaining = sum(partition.remaining for partition in facts.replication)
    rate = recent_rate(context, facts.topics, now_ms) if remaining else None
    return Movement(
        found.blocking,
        tuple(waiting_reasons(facts)),
        group.members,
        unrouted_members(look.group, group.by_id, facts.present),
        seconds_to_go(remaining, rate),
        members_there=facts.target.group(look.group).members,
    )


_BEFORE: Final = frozenset(
    {"enabled", "not-paused", "exists", "kind", "allowed", "not-denied", "offsets", "replicator"}
)
"""Steps whose problem prevents the translation of a group."""
_BESIDE: Final = frozenset({"written", "follows", "way-back"})
"""Steps whose problem prevents neither translation nor move."""


def why_group(context: FlowContext, name: str) -> Why:
    look = read_group(context, name)
    steps = (*group_steps(look), *moving_steps(look))
    is_open, pending = look.source_error or look.is_unfinished, look.pending
    return Why(
        flow=look.config.flow,
        kind="group",
        subject=look.group,
        known=look.exists,
        ok=None if pending else False if first_wrong(steps) else None if is_open else True,
        verdict=pending.text if pending else _verdict(look, steps),
        steps=steps,
        action=pending.action if pending else action_of(steps),
        similar=() if look.exists else near(look.group, look.similar),
        works_here=works_on_source(look),
    )


def works_on_source(look: GroupLook) -> bool:
    """Return whether a group works on the flow's source, by members, else route, else commits.

    Only commits on original topics count, as group sync writes those on copies.
    """
    if look.found is not None and look.found.members:
        return True
    if look.movement is not None and look.movement.members_there:
        return False
    if look.routed_to:
        return look.routed_to == look.config.flow.source
    return any(look.selection.direction(place.topic) == "forward" for place in look.committed)


def _verdict(look: GroupLook, steps: tuple[WhyStep, ...]) -> str:
    wrong = first_wrong(step for step in steps if step.name in _BEFORE)
    if wrong is not None:
        return f"not translated: {wrong.answer}"
    if look.source_error:
        left = amount(len(look.emitted), "checkpoint")
        return f"{not_known(steps)}; {left} on {look.config.flow.target}"
    return f"{_translation_answer(look, steps)}; {_movable_text(steps)}"


def _translation_answer(look: GroupLook, steps: tuple[WhyStep, ...]) -> str:
    wrong = first_wrong(step for step in steps if step.name in {"translated", "emitted", "proven"})
    if wrong is not None:
        some_are = any(outcome.checkpoint is not None for outcome in look.outcomes)
        part = "translated in part" if some_are and wrong.name == "translated" else "not translated"
        return f"{'translated, but' if wrong.name == 'emitted' else part}: {wrong.answer}"
    if look.is_unfinished:
        return "translated up to the end of the copy"
    return "translated"


def _movable_text(steps: tuple[WhyStep, ...]) -> str:
    by_name = {step.name: step for step in steps}
    movable, ready = by_name.get("movable"), by_name.get("ready")
    if movable is None:
        return "whether it can move is not known"
    if movable.ok is None:
        return movable.answer
    if movable.ok is False:
        return f"cannot move: {movable.answer}"
    if ready is not None and ready.ok is not True:
        return "can move, after a wait"
    beside = first_wrong(step for step in steps if step.name in _BESIDE)
    return "can move now" if beside is None else f"can move now, but: {beside.answer}"


_LEFT_ALONE: Final[Mapping[SyncAction, str]] = {
    "group-active": "it is in use there",
    "consumer-ahead": "its offset is ahead there",
    "rewind-respected": "it was rewound there",
    "deleted-there": "it was deleted there",
    "failed": "writing failed",
    "not-written": "the write was abandoned",
}
"""Decisions of group sync that leave a group unchanged, with their reasons."""


def group_steps(look: GroupLook) -> Iterator[WhyStep]:
    config = look.config
    yield from flow_steps(config.flow, enabled=config.enabled, pause=look.pause)
    yield _exists(look)
    if look.found is not None and look.exists:
        yield _kind(look.found)
    names = look.selection.groups
    yield from SelectionLists(config.flow, "groups", names, look.lists.groups).steps(look.group)
    if look.unread is not None:
        question = Question("offsets", "can its offsets be read and translated?")
        yield question.because(look.unread)
    elif look.found is not None and look.committed:
        yield _offsets(look)
    if look.never_ran is not None and look.exists:
        yield Question("replicator", "does a replicator run?").because(look.never_ran)
    elif look.outcomes and look.unread is None:
        yield from _translations(look)
    if look.outcomes or look.emitted:
        yield _emission(look)
        yield _proven(look)
    if look.outcomes:
        yield _written(look)


def _exists(look: GroupLook) -> WhyStep:
    source, group = look.config.flow.source, look.group
    question = Question("exists", f"does {source} have the group?")
    if look.deletion:
        return question.no(look.deletion)
    if look.source_error:
        return question.unknown(f"{source} does not answer: {look.source_error}")
    if look.found is None or not look.exists:
        return question.no(f"{source} has no group {group}")
    if look.found.state == "dead" and not look.committed:
        text = f"{source} no longer has group {group}, {look.config.flow.target} has checkpoints"
        return question.no(text, f"none if it was deleted; else start its consumers on {source}")
    who = f", {amount(len(look.found.members), 'member')}" if look.found.members else ""
    why = f" ({look.found.reason})" if look.found.reason else ""
    return question.yes(f"{look.found.state}{who}{why}")


def _kind(found: GroupDescription) -> WhyStep:
    question = Question("kind", "is this kind of group translated?")
    if found.kind != "other":
        return question.yes(found.kind)
    why = "its members are not consumers (such as Connect workers): its progress is elsewhere"
    return question.no(f"other: {why}")


def _offsets(look: GroupLook) -> WhyStep:
    question = Question("offsets", "has it committed offsets in selected topics?")
    topics = sorted({place.topic for place in look.committed})
    chosen = [topic for topic in topics if look.selection.direction(topic) is not None]
    if chosen:
        return question.yes(f"in {some(chosen)}")
    why = look.selection.obstacle(topics[0])
    return question.no(f"only in {some(topics)}: {why.text}", why.action)


def _translations(look: GroupLook) -> Iterator[WhyStep]:
    found = defaultdict[tuple[str, str, str], list[CheckpointOutcome]](list)
    for outcome in look.outcomes:
        found[outcome.upstream.topic, outcome.state, outcome.reason].append(outcome)
    for (topic, _, _), outcomes in sorted(found.items()):
        yield _translation(look, topic, outcomes)


def _translation(look: GroupLook, topic: str, outcomes: list[CheckpointOutcome]) -> WhyStep:
    first, target = outcomes[0], look.config.flow.target
    question = Question("translated", f"is its offset in {topic} known on {target}?")
    where = list_text("partition", [outcome.upstream.partition for outcome in outcomes])
    downstream = first.downstream.topic if first.downstream else ""
    if first.state == "translated":
        text = f"{where} of {downstream}"
        if skipped := sum(outcome.total_skipped for outcome in outcomes):
            text += f"; {amount(skipped, 'record')} still to read are missing there"
        return question.yes(text)
    if first.state in UNFINISHED:
        left = amount(sum(outcome.remaining for outcome in outcomes), "record")
        text = f"{where} up to the end of the copy, {left} before its commit are not copied yet"
        action = f"srm why {first.upstream.topic} --flow '{look.config.flow}' --kind topic"
        return question.unknown(text, action)
    if first.state == "not-selected":
        why = look.selection.obstacle(topic)
        return question.no(f"{where}: {why.text}", why.action)
    action = first.action or state_remedy(first.state, look.config.flow)
    return question.no(f"{where}: {first.reason or first.state}", action)


def _emission(look: GroupLook) -> WhyStep:
    flow, question = look.config.flow, Question("emitted", "are its checkpoints emitted?")
    if not look.config.emit_checkpoints_enabled:
        action = f"set {flow}.emit.checkpoints.enabled=true"
        return question.no(f"{flow}.emit.checkpoints.enabled is false", action)
    wanted = [o.downstream for o in look.outcomes if o.checkpoint is not None]
    missing = [place for place in wanted if place not in look.emitted]
    if missing:
        text = f"{len(missing)} of {amount(len(wanted), 'partition')} not yet"
        return question.no(text, f"srm checkpoints emit --flow '{flow}'")
    if not look.emitted:
        return question.unknown("there is nothing to emit")
    newest = max(one.time_ms for one in look.emitted.values())
    text = f"{amount(len(look.emitted), 'partition')}, the last change {ago(look.now_ms - newest)}"
    if look.proof is not None:
        text += f", the last emission {ago(look.now_ms - look.proof.time_ms)}"
    if look.driver is not None and (late := late_commits(look.config, look.driver)):
        text += f"; {late.line}"
    return question.yes(text)


def _proven(look: GroupLook) -> WhyStep:
    question, proof = Question("proven", "do the records prove them?"), look.proof
    ok, text = group_proof(look.group, proof)
    if ok is False:
        return question.no(text, f"srm verify --flow '{look.config.flow}'")
    if proof is None or not ok:
        return question.unknown(text)
    is_sample = proof.skipped or proof.sampled < proof.groups
    line = proof.line(look.now_ms)
    return question.unknown(line) if is_sample else question.yes(line)


def _written(look: GroupLook) -> WhyStep:
    flow = look.config.flow
    question = Question("written", f"are its offsets written on {flow.target} before any move?")
    if not look.config.sync_group_offsets_enabled:
        text = f"no, a move writes them: {flow}.sync.group.offsets.enabled is false"
        return question.unknown(text)
    if look.undecided is not None and not look.decisions:
        return question.because(look.undecided)
    if look.is_there:
        return question.unknown(f"{look.works_there}, and commits there itself")
    left = [decision for decision in look.decisions if decision.action in _LEFT_ALONE]
    if left:
        one = left[0]
        text = f"{_LEFT_ALONE[one.action]}, so group sync skips it: {one.reason}"
        action = f"stop it on {flow.target}" if one.action == "group-active" else ""
        return question.no(text, action)
    waits = [d for d in look.decisions if d.action not in {"unchanged", "own-write"}]
    if waits:
        text = f"{len(waits)} of {amount(len(look.decisions), 'partition')} not yet"
        return question.unknown(f"{text}: {_pending(waits[0], flow)}")
    return question.yes(amount(len(look.decisions), "partition"))


def _pending(decision: SyncDecision, flow: Flow) -> str:
    if decision.action != "write":
        return decision.reason
    at = "no offset" if decision.current is None else f"offset {decision.current}"
    place = decision.partition
    return f"{flow.target} has {at} in {place}, the next group sync writes {decision.offset}"


def moving_steps(look: GroupLook) -> Iterator[WhyStep]:
    movement = look.movement
    if look.deletion and not look.is_there:
        return
    if movement is not None or look.source_error:
        yield _movable(look)
    if look.source_error or movement is None or movement.error is not None:
        return
    if not look.is_there:
        if not movement.blocking:
            yield _waits(movement)
        yield _follows(look, movement)
    yield _way_back(look)


def _movable(look: GroupLook) -> WhyStep:
    flow, movement, is_away = look.config.flow, look.movement, bool(look.source_error)
    text = f"could a planned move to {flow.target} start now?"
    if is_away:
        text = f"could it continue on {flow.target} without {flow.source}?"
    question = Question("movable", text)
    if look.is_there:
        return question.unknown(look.works_there)
    if movement is None and not look.emitted:
        return question.no(NO_CHECKPOINT)
    if movement is not None and movement.error is not None:
        return question.because(movement.error)
    how = "plan --mode unplanned" if is_away else "run --dry-run"
    plan = f"srm failover {how} {flow.options} --group {shlex.quote(look.group)}"
    if movement is not None and movement.blocking:
        first, more = movement.blocking[0], len(movement.blocking) - 1
        others = f" (and {more} more)" if more and not is_away else ""
        return question.no(f"{first.text}{others}", first.action or (plan if more else ""))
    return question.unknown("from its last known positions", plan) if is_away else question.yes()


def _waits(movement: Movement) -> WhyStep:
    question = Question("ready", "would it run without a wait?")
    if not movement.waits:
        return question.yes("nothing to wait for")
    eta = "" if not movement.eta_s else f"; copying takes at most about {duration(movement.eta_s)}"
    return question.unknown(f"it would wait: {'; '.join(movement.waits)}{eta}")


def _follows(look: GroupLook, movement: Movement) -> WhyStep:
    question = Question("follows", "do its members follow routes?")
    if not movement.members:
        return question.unknown("it has no members now")
    if not movement.unrouted:
        return question.yes(some(movement.members))
    others = [kind for kind in look.config.redirect.kinds if kind != "routing"]
    text = f"{some(movement.unrouted)} {'do' if len(movement.unrouted) > 1 else 'does'} not"
    if others:
        return question.unknown(f"{text}: redirected by {', '.join(others)}")
    text += ": stop it there and start it on the other cluster"
    return question.no(text, "run it under srm follow, or see docs/redirect.md")


def _way_back(look: GroupLook) -> WhyStep:
    """Return whether progress on copies is carried back, by the reverse list of the way back."""
    flow = look.config.flow
    question = Question("way-back", "could it fail back with all its progress?")
    if look.opposite is None:
        return question.unknown(f"{flow.reverse} is not configured")
    if not look.opposite.enabled:
        text = f"the flow {flow.reverse} is disabled"
        return question.no(text, f"set {flow.reverse}.enabled=true")
    back = checkpoints.selection_of(look.opposite)
    copies = [
        outcome.downstream.topic
        for outcome in look.outcomes
        if outcome.direction == "forward" and outcome.downstream is not None
    ]
    left = sorted({topic for topic in copies if back.direction(topic) is None})
    if left:
        why = back.obstacle(left[0])
        text = f"its progress on {some(left)} on {flow.target} is not carried back: {why.text}"
        return question.no(text, why.action)
    return question.yes(f"by reverse checkpoints of {flow.reverse}")
