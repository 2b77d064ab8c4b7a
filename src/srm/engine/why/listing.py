"""Topics and groups of a flow, each with its selection or the reason against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from srm.domain.names import internal_topics
from srm.engine.cluster_ports import GroupDescription, TopicDescription
from srm.engine.control import control_lists
from srm.engine.flows.source_look import originals_of
from srm.engine.groups.checkpoints import read_checkpoints, selection_of
from srm.engine.groups.group_listing import WITHOUT_OFFSETS
from srm.engine.ports import FlowContext
from srm.engine.status.observing import observe
from srm.engine.why.answer import SelectionLists, WhyStep, class_step, first_wrong
from srm.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """One topic of a flow, with partition counts, None where it is missing.

    ``state``: state of the copy, as in ``srm status``; empty for a topic that is not selected.
    ``reason``: why it is not selected.
    """

    topic: str
    remote_topic: str
    partitions: int | None
    remote_partitions: int | None
    selected: bool
    state: str = ""
    reason: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group of a flow's source; ``state`` is ``unknown`` if that does not answer.

    ``offsets_on_target``: whether the target has its offsets; None if not read.
    ``checkpoint_age_ms``: None without a checkpoint.
    """

    group: str
    state: str
    members: int
    selected: bool
    reason: str = ""
    action: str = ""
    offsets_on_target: bool | None = None
    checkpoint_age_ms: int | None = None


def list_topics(context: FlowContext) -> tuple[ListedTopic, ...]:
    """List the topics of a flow's source, if it answers, and the copies, without internal ones."""
    config, names = context.config, context.config.names
    states = {topic.topic: topic.state for topic in observe(context).status.topics}
    on_target = context.target.topics()
    copies = {original: copy for copy, original in originals_of(context, on_target).items()}
    on_source = _topics_of_source(context)
    lists = control_lists.load(context.target, config.flow)
    selection = SelectionLists(config.flow, "topics", names.listed, lists.topics)

    def row(name: str) -> ListedTopic:
        wrong = _why_not(context, selection, name)
        remote = copies.get(name) or names.remote(name)
        here, there = on_source.get(name), on_target.get(remote)
        return ListedTopic(
            name,
            remote,
            None if here is None else here.partitions,
            None if there is None else there.partitions,
            wrong is None,
            states.get(name, ""),
            "" if wrong is None else wrong.answer,
            "" if wrong is None else wrong.action,
        )

    found = sorted({*on_source, *copies})
    return tuple(row(name) for name in found if not names.is_internal(name))


def _topics_of_source(context: FlowContext) -> Mapping[str, TopicDescription]:
    try:
        return context.source.topics()
    except UnavailableError:
        return {}


def _why_not(context: FlowContext, selection: SelectionLists, name: str) -> WhyStep | None:
    config = context.config
    why = config.names.refusal(name)
    if why is None:
        return None
    if why == "cycle":
        return WhyStep.no("no-cycle", "", f"it is a copy of a topic of {config.flow.target}")
    if why == "filtered":
        return class_step(context.config)
    return first_wrong(selection.steps(name))


def list_groups(context: FlowContext) -> tuple[ListedGroup, ...]:
    """List the groups of a flow's source; if it does not answer, those with checkpoints."""
    config, target = context.config, context.target
    topic = internal_topics.checkpoints(config.flow.source, config.policy.separator)
    newest: dict[str, int] = {}
    for one in read_checkpoints(target, topic, target.topics()):
        group = one.checkpoint.group
        newest[group] = max(one.time_ms, newest.get(group, 0))
    lists, names = control_lists.load(target, config.flow), selection_of(config).groups
    selection = SelectionLists(config.flow, "groups", names, lists.groups)
    found = _groups_of_source(context)
    if not found:
        found = {name: GroupDescription(name, "unknown") for name in newest}
    wanted = [name for name in found if names.matches(name)]
    there = target.commits_of(wanted)[0] if wanted else {}
    now_ms = context.now_ms()

    def row(about: GroupDescription) -> ListedGroup:
        wrong = _why_not_group(selection, about)
        at_ms = newest.get(about.name)
        return ListedGroup(
            about.name,
            about.state,
            len(about.members),
            wrong is None,
            "" if wrong is None else wrong.answer,
            "" if wrong is None else wrong.action,
            bool(there[about.name]) if about.name in there else None,
            None if at_ms is None else max(0, now_ms - at_ms),
        )

    return tuple(row(found[name]) for name in sorted(found))


def _groups_of_source(context: FlowContext) -> Mapping[str, GroupDescription]:
    try:
        return context.source.groups()
    except UnavailableError:
        return {}


def _why_not_group(selection: SelectionLists, about: GroupDescription) -> WhyStep | None:
    wrong = first_wrong(selection.steps(about.name))
    if wrong is None and about.kind in WITHOUT_OFFSETS:
        return WhyStep.no("kind", "", f"{about.kind} groups have no offsets to translate")
    return wrong
