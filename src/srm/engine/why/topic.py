"""Explain why a flow copies a topic, or does not: facts of one look, then a chain of questions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.flow_state.liveness_thresholds import is_silent
from srm.domain.flow_state.replication_records import begin_of_copy, in_force
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.moves.routing import topic_subject
from srm.domain.names.flow_topics import FlowTopics, Refusal
from srm.domain.text.amount import Finding, Reason, ago, amount, duration, grant, some
from srm.engine.cluster_ports import TopicDescription, TopicSetting
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ControlLists
from srm.engine.control.originals import original_findings, plan_originals
from srm.engine.control.topic_sync import MAX_SIZE, plan_remote_topics
from srm.engine.flows.source_look import SourceLook, bounds, partitions_with_leader
from srm.engine.flows.supervision import SEE_LOG, SlotStatus, down_reasons, state_topic
from srm.engine.groups.checkpoints import selection_of
from srm.engine.metrics.metrics import recent_rate, seconds_to_go
from srm.engine.moves.context import as_move
from srm.engine.moves.history import RoutingTables
from srm.engine.ports import FlowContext
from srm.engine.status.status import (
    GOING_ON,
    FlowFacts,
    FlowStatus,
    PartitionRow,
    PartitionState,
    as_waiting,
    status_of,
)
from srm.engine.why.answer import (
    Question,
    SelectionLists,
    Why,
    WhyStep,
    action_of,
    class_step,
    first_wrong,
    flow_steps,
    list_text,
    near,
    not_known,
    why_paused,
)
from srm.errors import AuthorizationError, SrmError, UnavailableError

_BESIDE: Final = frozenset({"settings", "losses", "heard", "original"})
"""Steps whose problem does not prevent copying a topic."""
_PARTLY: Final = frozenset({"assigned", "partitions"})


def why_topic(context: FlowContext, name: str) -> Why:
    """Explain why a flow copies a topic, or does not; ``name`` may be that of its copy."""
    facts = read_topic(context, name)
    steps = tuple(topic_steps(facts))
    wrong = first_wrong(steps)
    known = facts.topic in facts.on_source or facts.hidden or facts.remote in facts.on_target
    return Why(
        flow=facts.config.flow,
        kind="topic",
        subject=facts.topic,
        asked=facts.requested,
        known=known,
        ok=False if wrong else None if _is_open(facts) else True,
        verdict=_verdict(facts, steps, wrong),
        steps=steps,
        action=action_of(steps),
        similar=() if known else near(facts.topic, facts.on_source),
    )


def _is_open(facts: TopicFacts) -> bool:
    is_seen = facts.copying is not None and not facts.source_error
    return not is_seen or facts.remote not in facts.on_target


def _verdict(facts: TopicFacts, steps: tuple[WhyStep, ...], wrong: WhyStep | None) -> str:
    copying, is_away = facts.copying, bool(facts.source_error and facts.copying)
    if wrong is not None and not (is_away and wrong.name not in _BESIDE):
        return f"{_extent(copying, wrong)}: {wrong.answer}"
    if copying is None or is_away:
        silent = f"{facts.config.flow.source} does not answer: {wrong.answer}" if wrong else ""
        last = f"; {_last_known(copying.status)}" if copying is not None else ""
        return f"{silent or not_known(steps)}{last}"
    if facts.remote not in facts.on_target:
        return f"not copied yet: {next(step.answer for step in steps if step.name == 'copy')}"
    return _progress(copying.status.remaining)


def _progress(lag: int) -> str:
    return f"copied, with a lag of {amount(lag, 'offset')}" if lag else "copied, and caught up"


def _last_known(status: FlowStatus) -> str:
    if not status.heard_ms:
        return f"no slot has reported {status.flow.source}"
    return f"{ago(max(0, status.time_ms - status.heard_ms))}: {_progress(status.remaining)}"


def _extent(copying: Copying | None, wrong: WhyStep) -> str:
    if wrong.name in _BESIDE:
        return "copied, but"
    if copying is None or wrong.name not in _PARTLY:
        return "not copied"
    is_partly = any(
        view.state == "copying" and copying.slots.get(view.partition) not in copying.silent
        for view in copying.partitions
    )
    return "copied in part" if is_partly else "not copied"


@dataclass(frozen=True)
class Copying:
    """Copying of one topic; ``creation``: why the missing copy cannot be created.

    ``settings``: why the copy does not get the settings of the topic. ``size``: its limit of
    batches, with the action if topic sync changes it; None if not known.

    The rights of srm as consumer, admin client and producer are None without an answer or the
    topic. ``absent``: what a move finds if the target has the topic only as a copy, None if not.
    """

    status: FlowStatus
    partitions: tuple[PartitionRow, ...]
    slots: Mapping[int, str]
    reads: frozenset[str] | None = None
    describes: frozenset[str] | None = None
    writes: frozenset[str] | None = None
    creation: SrmError | None = None
    settings: SrmError | None = None
    size: Reason | None = None
    rate: float | None = None
    absent: tuple[Finding, ...] | None = None

    @property
    def down(self) -> Reason | None:
        status = self.status
        return next(down_reasons(status.flow, status.driver, status.slots), None)

    @property
    def silent(self) -> dict[str, SlotStatus]:
        """The slots that are not alive, by name."""
        return {slot.slot: slot for slot in self.status.slots if not slot.alive}


@dataclass(frozen=True)
class TopicFacts:
    """Facts about one topic; ``hidden``: srm has no right to see whether it exists.

    ``requested`` is the name of its copy if that was requested.
    """

    config: FlowConfig
    lists: ControlLists
    topic: str
    requested: str
    on_source: Mapping[str, TopicDescription]
    on_target: Mapping[str, TopicDescription]
    pause: Reason | None = None
    source_error: str = ""
    hidden: bool = False
    copying: Copying | None = None

    @property
    def remote(self) -> str:
        return self.names.remote(self.topic)

    @property
    def names(self) -> FlowTopics:
        return self.config.names

    @property
    def refusal(self) -> Refusal | None:
        return self.names.refusal(self.topic)


def read_topic(context: FlowContext, name: str) -> TopicFacts:
    """Read the facts about a topic or a copy; a source that does not answer is skipped."""
    config = context.config
    commands = state_topic(context).read_commands()
    on_target = context.target.topics()
    on_source: Mapping[str, TopicDescription] = {}
    source_error = ""
    try:
        on_source = context.source.topics()
    except UnavailableError as error:
        source_error = str(error)
    topic = name if name in on_source else config.names.original(name) or name
    facts = TopicFacts(
        config,
        control_lists.load(context.target, config.flow),
        topic,
        name if name != topic else "",
        on_source,
        on_target,
        why_paused(context, commands),
        source_error,
        hidden=not source_error
        and topic not in on_source
        and topic in context.source.topic_rights([topic]),
    )
    known = on_source.get(topic)
    if source_error and (copy := on_target.get(facts.remote)) is not None:
        known = TopicDescription(topic, "", copy.partitions)
    if facts.refusal is not None or known is None:
        return facts
    return replace(facts, copying=_copying(context, facts, known, commands))


def _copying(
    context: FlowContext,
    facts: TopicFacts,
    known: TopicDescription,
    commands: Mapping[bytes, bytes],
) -> Copying:
    topic, now_ms = facts.topic, context.now_ms()
    maps = context.maps.load([topic], {})
    topics = {topic: known}
    if facts.source_error:
        source = SourceLook.of_reports(topics, maps, facts.source_error)
    else:
        ends, starts = bounds(context, partitions_with_leader(known), maps)
        source = SourceLook(topics, ends, starts)
    copy = facts.on_target.get(facts.remote)
    copies = [] if copy is None else partitions_with_leader(copy)
    starts = context.target.log_starts(copies) if copies else {}
    status, reported = status_of(
        FlowFacts(context.config, now_ms, commands, maps, source, facts.on_target, starts)
    )
    views = reported[topic]
    reads = describes = None
    if not facts.source_error:
        reads = context.source.topic_rights([topic], "consumer").get(topic)
        describes = context.source.topic_rights([topic]).get(topic)
    creation, settings, size = _refusals(context, facts, known)
    return Copying(
        status=status,
        # An unavailable source is reported once, not for each partition.
        partitions=views if facts.source_error else as_waiting(status, views),
        slots=_slots_by_partition(commands, known),
        reads=reads,
        describes=describes,
        writes=context.target.topic_rights([facts.remote], "producer").get(facts.remote),
        creation=creation,
        settings=settings,
        size=size,
        rate=recent_rate(context, [topic], now_ms) if status.remaining else None,
        absent=None if copy is None else _absent(context, facts, known, copy),
    )


def _refusals(
    context: FlowContext, facts: TopicFacts, known: TopicDescription
) -> tuple[SrmError | None, SrmError | None, Reason | None]:
    """Return why the target refuses what topic sync requests: the copy, or its settings.

    The last one is the limit of the copy's batches, if known.
    """
    target, topics = context.target, {facts.topic: known}
    there = {name: one for name, one in facts.on_target.items() if name == facts.remote}
    here: Mapping[str, Mapping[str, TopicSetting]] = {}
    settings_there: Mapping[str, Mapping[str, TopicSetting]] = {}
    with suppress(AuthorizationError):  # a step of its own
        if not facts.source_error:
            here = context.source.topic_settings(topics)
            settings_there = target.topic_settings(there)
    plan = plan_remote_topics(topics, there, context.config, here, settings_there or None)
    creation = target.creation_problems(plan.create).values() if plan.create else ()
    settings = [target.change_problem(name, one) for name, one in plan.configs.items()]
    size = _size_limit(facts, here.get(facts.topic, {}), settings_there.get(facts.remote, {}))
    if size is not None and MAX_SIZE in plan.configs.get(facts.remote, {}) and not any(settings):
        pending = f"{size.text}; the next topic sync changes it"
        size = Reason(pending, f"srm topics sync --flow '{context.config.flow}'")
    return next(iter(creation), None), next(iter(settings), None), size


def _size_limit(
    facts: TopicFacts, here: Mapping[str, TopicSetting], there: Mapping[str, TopicSetting]
) -> Reason | None:
    flow = facts.config.flow
    sides = ((here, facts.topic, flow.source), (there, facts.remote, flow.target))
    texts = [
        f"{one[MAX_SIZE].value} for {name} on {at}" for one, name, at in sides if MAX_SIZE in one
    ]
    return Reason(f"{MAX_SIZE} is {' and '.join(texts)}") if texts else None


def _absent(
    context: FlowContext, facts: TopicFacts, known: TopicDescription, copy: TopicDescription
) -> tuple[Finding, ...] | None:
    if facts.topic in facts.on_target or not facts.names.is_original(facts.topic):
        return None
    is_away = bool(facts.source_error)
    like = copy if is_away else known
    planned = plan_originals(context, {like.name: like}, is_away=is_away)
    routes, flow = RoutingTables.read_target(as_move(context)), facts.config.flow
    is_led = routes.where.cluster_of(topic_subject(facts.topic), flow.source) == flow.target
    return tuple(original_findings(context, planned, [facts.topic] if is_led else ()))


def _slots_by_partition(commands: Mapping[bytes, bytes], known: TopicDescription) -> dict[int, str]:
    return {
        partition.partition: assignment.slot
        for assignment in decode_state(commands).assignments
        for partition in assignment.partitions
        if partition.topic == known.name and known.topic_id in {"", partition.topic_id}
    }


def topic_steps(facts: TopicFacts) -> Iterator[WhyStep]:
    """Yield all steps; those for a selected topic are omitted for another one."""
    config = facts.config
    yield from flow_steps(config.flow, enabled=config.enabled, pause=facts.pause)
    yield _exists(facts)
    yield from _selection(facts)
    if facts.copying is not None:
        yield from _runtime(facts, facts.copying)


def _runtime(facts: TopicFacts, copying: Copying) -> Iterator[WhyStep]:
    yield _leaders(facts)
    flow = facts.config.flow
    question = Question("read-right", f"may srm read it on {flow.source}?")
    needs = ("Read", copying.reads), ("DescribeConfigs", copying.describes)
    yield _right(question, needs, facts.topic, flow.source)
    question = Question("replicator", "does a replicator run?")
    if copying.down is not None:
        yield question.because(copying.down)
    else:
        alive = sum(slot.alive for slot in copying.status.slots)
        yield question.yes(f"with {amount(alive, 'slot')} alive")
    yield _copy(facts, copying)
    if copying.settings is not None:
        question = Question("settings", "does the copy get the settings of the topic?")
        yield question.because(Reason.of(copying.settings))
    if facts.remote in facts.on_target or copying.writes is not None:
        question = Question("write-right", f"may srm write the copy on {flow.target}?")
        needs = ("Write", copying.writes), ("Read", copying.writes)
        yield _right(question, needs, facts.remote, flow.target)
    yield _assignment(facts, copying)
    yield _partitions(copying.partitions, copying.size)
    yield _losses(copying.partitions)
    yield _heard(facts, copying)
    yield _lag(facts, copying)
    yield from _original(facts, copying)


def _exists(facts: TopicFacts) -> WhyStep:
    source = facts.config.flow.source
    question = Question("exists", f"does {source} have the topic?")
    found = facts.on_source.get(facts.topic)
    if found is not None:
        return question.yes(f"with {amount(found.partitions, 'partition')}")
    if facts.source_error:
        return question.unknown(f"{source} does not answer: {facts.source_error}")
    if facts.hidden:
        text = f"{source} does not let srm see whether the topic exists"
        return question.no(text, grant("Read", facts.topic, source))
    text, target = f"{source} has no topic {facts.topic}", facts.config.flow.target
    if facts.remote not in facts.on_target or not facts.config.names.original(facts.remote):
        return question.no(text, f"create it on {source}, or correct the name")
    text += f", {target} still has its copy {facts.remote}"
    return question.no(text, f"delete {facts.remote} on {target} once no group needs it")


def _selection(facts: TopicFacts) -> Iterator[WhyStep]:
    """Yield the steps by name and lists; they end at an internal topic or a copy."""
    names, flow = facts.names, facts.config.flow
    question = Question("not-internal", "is it an application topic, not an internal one?")
    if facts.refusal == "internal":
        yield question.no(
            "internal topics of Kafka, Connect, MirrorMaker 2 and srm are never copied"
        )
        return
    yield question.yes()
    question = Question("no-cycle", f"is it not a copy of a topic of {flow.target}?")
    if facts.refusal == "cycle":
        yield _cycle(facts, question)
        return
    yield question.yes()
    lists = SelectionLists(flow, "topics", names.listed, facts.lists.topics)
    if facts.refusal is None and names.is_heartbeats(facts.topic):
        question = Question("allowed", "does an allow list name the topic?")
        yield question.yes("heartbeats are copied without being listed")
        return
    if facts.refusal in {"filtered", "taken"}:
        yield class_step(facts.config, facts.topic, facts.refusal)
        return
    if facts.refusal is None and not names.listed.included_by(facts.topic):
        question = Question("allowed", "does topic.filter.class select it?")
        yield question.yes("though no allow list names it")
        return
    yield from lists.steps(facts.topic)


def _cycle(facts: TopicFacts, question: Question) -> WhyStep:
    """Return the step about a copy: its records do not go back, group offsets may."""
    config, topic = facts.config, facts.topic
    origin = facts.names.origin(topic) or topic
    text = f"it is the copy of {origin} of {config.flow.target}, which has the records"
    selection = selection_of(config)
    if selection.direction(topic) == "reverse":
        back = "group offsets in it go back by reverse checkpoints"
    else:
        back = f"group offsets in it do not go back ({selection.obstacle(topic).line})"
    return question.no(f"{text}; {back}")


def _leaders(facts: TopicFacts) -> WhyStep:
    question = Question("served", "do all partitions have leaders, on both sides?")
    flow = facts.config.flow
    sides = (
        (flow.source, facts.on_source.get(facts.topic)),
        (flow.target, facts.on_target.get(facts.remote)),
    )
    left = [
        f"{list_text('partition', sorted(topic.leaderless))} of {topic.name} on {alias} "
        f"({list_text('broker', sorted({b for ids in topic.leaderless.values() for b in ids}))})"
        for alias, topic in sides
        if topic is not None and topic.leaderless
    ]
    if left:
        return question.no(f"no leader for {' and '.join(left)}")
    if facts.source_error:
        return question.unknown(f"{flow.source} was not queried")
    return question.yes()


def _right(
    question: Question, needs: Collection[tuple[str, frozenset[str] | None]], topic: str, alias: str
) -> WhyStep:
    missing = [operation for operation, held in needs if held is not None and operation not in held]
    if missing:
        needed = " and ".join(missing)
        return question.no(f"srm lacks {needed} on topic {topic}", grant(needed, topic, alias))
    if any(held is None for _, held in needs):
        return question.unknown(f"{alias} was not queried")
    return question.yes(", ".join(operation for operation, _ in needs))


def _copy(facts: TopicFacts, copying: Copying) -> WhyStep:
    target, remote = facts.config.flow.target, facts.remote
    question = Question("copy", f"does {target} have the copy, with enough partitions?")
    found = facts.on_target.get(remote)
    wanted = len(copying.partitions)
    if found is None:
        if copying.creation is not None:
            why = Reason.of(copying.creation).within(f"{remote} cannot be created")
            return question.because(why)
        seconds = facts.config.refresh_topics_interval.total_seconds()
        text = f"{remote} does not exist yet; a running replicator checks every {seconds:g} s"
        return question.unknown(text, f"srm topics sync --flow '{facts.config.flow}'")
    if found.partitions < wanted:
        text = f"{remote} has {found.partitions} of {amount(wanted, 'partition')}"
        return question.no(text, f"srm topics sync --flow '{facts.config.flow}'")
    text = f"{remote} with {amount(found.partitions, 'partition')}"
    return question.yes(f"{text}{_former(copying.partitions)}")


def _original(facts: TopicFacts, copying: Copying) -> Iterator[WhyStep]:
    topic, target = facts.topic, facts.config.flow.target
    question = Question("original", f"does {target} have the topic itself, for producers?")
    if copying.absent is None:
        if facts.names.is_original(topic) and topic in facts.on_target:
            yield question.yes()
        return
    found = sorted(copying.absent, key=lambda one: not one.blocks)
    if found and found[0].blocks:
        yield question.because(found[0])
    elif found:
        yield question.yes("; ".join(one.line for one in found))


def _former(views: Collection[PartitionRow]) -> str:
    begins = [(begin_of_copy(view.notes), view.partition) for view in views]
    texts = [f"{begin} of partition {number}" for begin, number in begins if begin is not None]
    again = "; the topic was re-created: its copy begins at target offset"
    return f"{again} {some(texts)}, earlier records belong to the former topic" if texts else ""


def _assignment(facts: TopicFacts, copying: Copying) -> WhyStep:
    question = Question("assigned", "is each partition assigned to a live slot?")
    left = [view.partition for view in copying.partitions if view.partition not in copying.slots]
    if left:
        text = f"{amount(len(left), 'partition')} unassigned: {some([str(n) for n in left])}"
        if copying.down is None and facts.remote in facts.on_target:
            return question.no(text, SEE_LOG)
        return question.unknown(text)
    slots = sorted(set(copying.slots.values()))
    silent = copying.silent
    named = list_text("slot", slots)
    if dead := [silent[slot] for slot in slots if slot in silent]:
        age_s = max(slot.age_ms for slot in dead) / 1000
        where = list_text("slot", [slot.place for slot in dead])
        text = f"assigned to {where}, silent for {duration(age_s)}"
        if copying.down is not None:
            return question.unknown(text)
        return question.no(text, f"srm replicator restart --flow '{facts.config.flow}'")
    if copying.down is not None:
        return question.unknown(f"assigned to {named}, not running")
    return question.yes(named)


def _partitions(views: Collection[PartitionRow], size: Reason | None) -> WhyStep:
    question = Question("partitions", "is each partition copying?")
    wrong: dict[tuple[PartitionState, str, str], list[str]] = {}
    for view in views:
        if view.state not in GOING_ON:
            wrong.setdefault((view.state, view.reason, view.action), []).append(str(view.partition))
    if not wrong:
        return question.yes(f"{len(views)} of {len(views)}")
    text = "; ".join(
        f"{list_text('partition', numbers)} {_state_text(state, reason)}"
        for (state, reason, _), numbers in sorted(wrong.items(), key=lambda one: one[0])
    )
    action = next((action for *_, action in sorted(wrong) if action), "")
    if size is not None and any(MAX_SIZE in reason for _, reason, _ in wrong):
        text, action = f"{text}; {size.text}", size.action or action
    if all(state == "unknown" for state, *_ in wrong):
        return question.unknown(text)
    return question.no(text, action)


def _state_text(state: PartitionState, reason: str) -> str:
    if state == "unknown":
        return "never reported by a slot"
    return f"{state}: {reason}" if reason else state


def _losses(views: Collection[PartitionRow]) -> WhyStep:
    question = Question("losses", "was everything copied?")
    texts = [
        f"{view.partition}: {note.text}"
        for view in views
        for note in in_force(view.notes)
        if note.lost and note.decision != "discard"
    ]
    if texts:
        return question.no("; ".join(texts))
    if stopped := [str(view.partition) for view in views if view.state == "stopped"]:
        return question.unknown(f"{list_text('partition', stopped)} stopped before it was")
    return question.yes("no slot has noted a loss")


def _heard(facts: TopicFacts, copying: Copying) -> WhyStep:
    flow = facts.config.flow
    question = Question("heard", f"has {flow.source} answered lately?")
    heard_ms = copying.status.heard_ms
    if not heard_ms:
        return question.unknown("no slot has reported it")
    age_ms = max(0, copying.status.time_ms - heard_ms)
    text = f"{flow.source} last answered the slots {ago(age_ms)}"
    if not is_silent(age_ms):
        return question.yes(text)
    if copying.down is not None:
        return question.unknown(text)
    plan = f"srm failover plan --mode unplanned {flow.options}"
    return question.no(text, plan if facts.source_error else "")


def _lag(facts: TopicFacts, copying: Copying) -> WhyStep:
    question = Question("lag", "has the copy caught up?")
    lag = copying.status.remaining
    if not lag and facts.source_error:
        source = facts.config.flow.source
        return question.unknown(f"up to the end of {source} when it last answered")
    if not lag:
        return question.yes()
    text = f"{amount(lag, 'offset')} to copy"
    stopped = [view for view in copying.partitions if view.state == "stopped" and view.lag]
    if stopped:
        held = amount(sum(view.lag for view in stopped), "offset")
        numbers = [view.partition for view in stopped]
        text += f", {held} in stopped {list_text('partition', numbers)}"
        return question.no(text)
    if (seconds := seconds_to_go(lag, copying.rate)) is not None:
        pace = f"{copying.rate:,.0f} records/s, the highest recent rate"
        text += f", at most about {seconds:,.0f} s at {pace}"
    if limit := facts.config.max_bytes_per_second:
        text += f"; {facts.config.flow} is limited to {limit:,} bytes per second"
    return question.yes(text) if copying.down is None else question.unknown(text)
