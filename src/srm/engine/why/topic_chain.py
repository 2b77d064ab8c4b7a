"""Chain of questions that explains why a flow copies a topic, or does not; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from srm.domain.flow_state.anomalies import begin_of_copy, in_force
from srm.domain.flow_state.liveness_thresholds import is_silent
from srm.domain.text.amount import ago, amount, some
from srm.engine.flows.supervision import SEE_LOG, down_reasons
from srm.engine.groups.checkpoints import selection_of
from srm.engine.status.status import GOING_ON, PartitionState, PartitionView
from srm.engine.why.answer import WhyStep
from srm.engine.why.flow_steps import flow_steps
from srm.engine.why.lists import SelectionLists, class_step
from srm.engine.why.rates import seconds_to_go
from srm.engine.why.topic_facts import Copying, TopicFacts

_GRANT = "grant {0} on topic {1} of {2} to srm's principal (docs/security.md)"


def topic_steps(facts: TopicFacts) -> Iterator[WhyStep]:
    """Yield all steps; those for a selected topic are omitted for another one."""
    config = facts.config
    yield from flow_steps(config.flow, enabled=config.enabled, pause=facts.pause)
    yield _exists(facts)
    yield from _selection(facts)
    if facts.copying is not None:
        yield from _runtime(facts, facts.copying)


def _runtime(facts: TopicFacts, copying: Copying) -> Iterator[WhyStep]:
    """Yield the requirements of a selected topic, and its state."""
    status = copying.status
    down = next(down_reasons(status.flow, status.driver, status.slots), None)
    yield _leaders(facts)
    yield _source_right(facts, copying)
    question = "does a replicator run?"
    if down is not None:
        yield WhyStep.no("replicator", question, down.text, down.action)
    else:
        alive = sum(slot.alive for slot in copying.status.slots)
        yield WhyStep.yes("replicator", question, f"with {amount(alive, 'slot')} alive")
    yield _copy(facts, copying)
    yield from _target_rights(facts, copying)
    yield _assignment(facts, copying, runs=down is None)
    yield _partitions(copying.partitions)
    yield _losses(copying.partitions)
    yield _heard(facts, copying, runs=down is None)
    yield _lag(facts, copying, runs=down is None)


def _exists(facts: TopicFacts) -> WhyStep:
    source = facts.config.flow.source
    question = f"does {source} have the topic?"
    found = facts.on_source.get(facts.topic)
    if found is not None:
        return WhyStep.yes("exists", question, f"with {amount(found.partitions, 'partition')}")
    if facts.source_error:
        return WhyStep.unknown(
            "exists", question, f"{source} does not answer: {facts.source_error}"
        )
    if facts.hidden:
        told = f"{source} does not let srm see whether the topic exists"
        action = _GRANT.format("Read", facts.topic, source)
        return WhyStep.no("exists", question, told, action)
    left = f", {facts.config.flow.target} still has its copy {facts.remote}"
    told = f"{source} has no topic {facts.topic}{left * (facts.remote in facts.on_target)}"
    return WhyStep.no("exists", question, told)


def _selection(facts: TopicFacts) -> Iterator[WhyStep]:
    """Yield the steps by name and lists; they end at an internal topic or a copy."""
    names, flow = facts.names, facts.config.flow
    question = "is it an application topic, not an internal one?"
    if facts.refusal == "internal":
        told = "internal topics of Kafka, Connect, MirrorMaker 2 and srm are never copied"
        yield WhyStep.no("not-internal", question, told)
        return
    yield WhyStep.yes("not-internal", question)
    question = f"is it not a copy of a topic of {flow.target}?"
    if facts.refusal == "cycle":
        yield _cycle(facts, question)
        return
    yield WhyStep.yes("no-cycle", question, "yes")
    lists = SelectionLists(flow, "topics", names.listed, facts.lists.topics)
    if facts.refusal is None and names.is_heartbeats(facts.topic):
        question = "does an allow list name the topic?"
        yield WhyStep.yes("allowed", question, "heartbeats are copied without being listed")
        return
    if facts.refusal == "filtered":
        yield class_step(facts.config)
        return
    if facts.refusal is None and not names.listed.included_by(facts.topic):
        question = "does topic.filter.class select it?"
        yield WhyStep.yes("allowed", question, "though no allow list names it")
        return
    yield from lists.steps(facts.topic)


def _cycle(facts: TopicFacts, question: str) -> WhyStep:
    """Return the step about a copy: its records do not go back, group offsets may."""
    config, topic = facts.config, facts.topic
    origin = facts.names.origin(topic) or topic
    told = f"it is the copy of {origin} of {config.flow.target}, which has the records"
    selection = selection_of(config)
    if selection.direction(topic) == "reverse":
        back = "group offsets in it go back by reverse checkpoints"
    else:
        back = f"group offsets in it do not go back ({selection.why_not(topic)})"
    return WhyStep.no("no-cycle", question, f"{told}; {back}")


def _leaders(facts: TopicFacts) -> WhyStep:
    question = "do all partitions have leaders, on both sides?"
    flow = facts.config.flow
    sides = (
        (flow.source, facts.on_source.get(facts.topic)),
        (flow.target, facts.on_target.get(facts.remote)),
    )
    left = [
        f"partition{'s' * (len(topic.leaderless) != 1)} "
        f"{some([str(number) for number in sorted(topic.leaderless)])} of {topic.name} on {alias}"
        for alias, topic in sides
        if topic is not None and topic.leaderless
    ]
    if left:
        return WhyStep.no("served", question, f"no leader for {' and '.join(left)}")
    if facts.source_error:
        return WhyStep.unknown("served", question, f"{flow.source} was not queried")
    return WhyStep.yes("served", question)


def _source_right(facts: TopicFacts, copying: Copying) -> WhyStep:
    source, topic = facts.config.flow.source, facts.topic
    asked = ("Read", copying.rights.reads), ("DescribeConfigs", copying.rights.asks)
    return _right("read-right", f"may srm read it on {source}?", asked, topic, source)


def _target_rights(facts: TopicFacts, copying: Copying) -> Iterator[WhyStep]:
    target = facts.config.flow.target
    if facts.remote not in facts.on_target and copying.rights.writes is None:
        return
    asked = ("Write", copying.rights.writes), ("Read", copying.rights.writes)
    question = f"may srm write the copy on {target}?"
    yield _right("write-right", question, asked, facts.remote, target)


def _right(
    name: str,
    question: str,
    asked: Collection[tuple[str, frozenset[str] | None]],
    topic: str,
    alias: str,
) -> WhyStep:
    missing = [operation for operation, held in asked if held is not None and operation not in held]
    if missing:
        needed = " and ".join(missing)
        action = _GRANT.format(needed, topic, alias)
        return WhyStep.no(name, question, f"srm lacks {needed} on topic {topic}", action)
    if any(held is None for _, held in asked):
        return WhyStep.unknown(name, question, f"{alias} was not queried")
    return WhyStep.yes(name, question, ", ".join(operation for operation, _ in asked))


def _copy(facts: TopicFacts, copying: Copying) -> WhyStep:
    target, remote = facts.config.flow.target, facts.remote
    question = f"does {target} have the copy, with enough partitions?"
    found = facts.on_target.get(remote)
    wanted = len(copying.partitions)
    if found is None:
        if copying.creation is not None:
            told = f"{remote} cannot be created: {copying.creation}"
            return WhyStep.no("copy", question, told, copying.creation.action)
        seconds = facts.config.refresh_topics_interval.total_seconds()
        told = f"{remote} does not exist yet; a running replicator checks every {seconds:g} s"
        return WhyStep.unknown(
            "copy", question, told, f"srm topics sync --flow '{facts.config.flow}'"
        )
    if found.partitions < wanted:
        told = f"{remote} has {found.partitions} of {amount(wanted, 'partition')}"
        action = f"srm topics sync --flow '{facts.config.flow}'"
        return WhyStep.no("copy", question, told, action)
    told = f"{remote} with {amount(found.partitions, 'partition')}"
    return WhyStep.yes("copy", question, f"{told}{_former(copying.partitions)}")


def _former(views: Collection[PartitionView]) -> str:
    """Return where the copy of a re-created topic begins, after the records of the former topic."""
    begins = [(begin_of_copy(view.notes), view.partition) for view in views]
    told = [f"{begin} of partition {number}" for begin, number in begins if begin is not None]
    again = "; the topic was re-created: its copy begins at target offset"
    return f"{again} {some(told)}, earlier records belong to the former topic" if told else ""


def _assignment(facts: TopicFacts, copying: Copying, *, runs: bool) -> WhyStep:
    question = "is each partition assigned to a live slot?"
    left = [view.partition for view in copying.partitions if view.partition not in copying.slots]
    if left:
        told = f"{amount(len(left), 'partition')} unassigned: {some([str(n) for n in left])}"
        if runs and facts.remote in facts.on_target:
            return WhyStep.no("assigned", question, told, SEE_LOG)
        return WhyStep.unknown("assigned", question, told)
    slots = sorted(set(copying.slots.values()))
    silent = copying.silent
    named = f"slot{'s' * (len(slots) != 1)} {some(slots)}"
    if dead := [slot for slot in slots if slot in silent]:
        age_s = max(silent[slot] for slot in dead) / 1000
        told = f"assigned to slot{'s' * (len(dead) != 1)} {some(dead)}, silent for {age_s:.0f} s"
        if not runs:
            return WhyStep.unknown("assigned", question, told)
        return WhyStep.no("assigned", question, told, SEE_LOG)
    if not runs:
        return WhyStep.unknown("assigned", question, f"assigned to {named}, not running")
    return WhyStep.yes("assigned", question, named)


def _partitions(views: Collection[PartitionView]) -> WhyStep:
    question = "is each partition copying?"
    wrong: dict[tuple[PartitionState, str, str], list[str]] = {}
    for view in views:
        if view.state not in GOING_ON:
            wrong.setdefault((view.state, view.reason, view.action), []).append(str(view.partition))
    if not wrong:
        return WhyStep.yes("partitions", question, f"{len(views)} of {len(views)}")
    told = "; ".join(
        f"{_number_text(numbers)} {_state_text(state, reason)}"
        for (state, reason, _), numbers in sorted(wrong.items(), key=lambda one: one[0])
    )
    action = next((action for *_, action in sorted(wrong) if action), "")
    if all(state == "unknown" for state, *_ in wrong):
        return WhyStep.unknown("partitions", question, told)
    return WhyStep.no("partitions", question, told, action)


def _number_text(numbers: Sequence[str]) -> str:
    return f"partition{'s' * (len(numbers) != 1)} {some(numbers)}"


def _state_text(state: PartitionState, reason: str) -> str:
    if state == "unknown":
        return "never reported by a slot"
    return f"{state}: {reason}" if reason else state


def _losses(views: Collection[PartitionView]) -> WhyStep:
    question = "was everything copied?"
    told = [
        f"{view.partition}: {note.text}"
        for view in views
        for note in in_force(view.notes)
        if note.lost and note.decision != "discard"
    ]
    if told:
        return WhyStep.no("losses", question, "; ".join(told))
    if stopped := [str(view.partition) for view in views if view.state == "stopped"]:
        return WhyStep.unknown("losses", question, f"{_number_text(stopped)} stopped before it was")
    return WhyStep.yes("losses", question, "no slot has noted a loss")


def _heard(facts: TopicFacts, copying: Copying, *, runs: bool) -> WhyStep:
    source, target = facts.config.flow.source, facts.config.flow.target
    question = f"has {source} answered lately?"
    heard_ms = copying.status.heard_ms
    if not heard_ms:
        return WhyStep.unknown("heard", question, "no slot has reported it")
    age_ms = max(0, copying.status.time_ms - heard_ms)
    told = f"{source} last answered the slots {ago(age_ms)}"
    if not is_silent(age_ms):
        return WhyStep.yes("heard", question, told)
    if not runs:
        return WhyStep.unknown("heard", question, told)
    plan = f"srm failover plan --mode unplanned --source {source} --target {target}"
    return WhyStep.no("heard", question, told, plan if facts.source_error else "")


def _lag(facts: TopicFacts, copying: Copying, *, runs: bool) -> WhyStep:
    question = "has the copy caught up?"
    lag = copying.status.remaining
    if not lag and facts.source_error:
        source = facts.config.flow.source
        return WhyStep.unknown("lag", question, f"up to the end of {source} when it last answered")
    if not lag:
        return WhyStep.yes("lag", question)
    told = f"{amount(lag, 'offset')} to copy"
    stopped = [view for view in copying.partitions if view.state == "stopped" and view.lag]
    if stopped:
        held = amount(sum(view.lag for view in stopped), "offset")
        numbers = [str(view.partition) for view in stopped]
        told += f", {held} in stopped {_number_text(numbers)}"
        return WhyStep.no("lag", question, told)
    if (seconds := seconds_to_go(lag, copying.rate)) is not None:
        pace = f"{copying.rate:,.0f} records/s, the highest recent rate"
        told += f", at most about {seconds:,.0f} s at {pace}"
    if limit := facts.config.max_bytes_per_second:
        told += f"; {facts.config.flow} is limited to {limit:,} bytes a second"
    return WhyStep.yes("lag", question, told) if runs else WhyStep.unknown("lag", question, told)
