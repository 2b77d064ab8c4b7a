"""Result of ``srm why``: questions with answers and the next action, and lists with reasons."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from srm.config.keys import KEYS
from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import Pause
from srm.domain.names import internal_topics
from srm.domain.names.policy import SHADOW_PREFIX, NameFilter, literal, split_patterns
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount
from srm.engine.cluster_ports import GroupDescription, TopicDescription
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ListPair
from srm.engine.flows.source_look import originals_of
from srm.engine.groups.checkpoints import WITHOUT_OFFSETS, read_checkpoints, selection_of
from srm.engine.ports import FlowContext
from srm.engine.status.observing import observe
from srm.engine.status.status import off_reason, pause_reason
from srm.errors import UnavailableError

Kind = Literal["topic", "group"]

_NEAR: Final = 0.6
"""Cutoff for similar names, of :func:`difflib.get_close_matches`."""


@dataclass(frozen=True, slots=True)
class WhyStep:
    """One question of the chain and its answer; ``ok`` is None if unknown or undecided.

    ``name``: key of the question in one word, for programs; stable over releases.
    ``action``: the remedy, a command or a key with its value; empty without one.
    """

    name: str
    question: str
    ok: bool | None
    answer: str
    action: str = ""

    @classmethod
    def yes(cls, name: str, question: str, answer: str = "yes") -> WhyStep:
        """Return a step without a problem."""
        return cls(name, question, ok=True, answer=answer)

    @classmethod
    def no(cls, name: str, question: str, answer: str, action: str = "") -> WhyStep:
        """Return a step with a problem; the answer is its reason."""
        return cls(name, question, ok=False, answer=answer, action=action)

    @classmethod
    def unknown(cls, name: str, question: str, answer: str, action: str = "") -> WhyStep:
        """Return a step that is unknown or undecided."""
        return cls(name, question, ok=None, answer=answer, action=action)


@dataclass(frozen=True, slots=True)
class Why:
    """Explanation why a topic is (not) copied, or a group is (not) translated and able to move.

    ``asked``: the requested name if it is not ``subject``, as the name of the copy.
    ``known``: whether either cluster shows such a topic or group; else ``similar`` names.
    ``ok``: None if unknown. A problem in one of the ``steps`` makes later ones irrelevant.
    """

    flow: Flow
    kind: Kind
    subject: str
    known: bool
    ok: bool | None
    verdict: str
    steps: tuple[WhyStep, ...]
    action: str = ""
    asked: str = ""
    similar: tuple[str, ...] = ()
    works_here: bool = False


def in_order(answers: Iterable[Why]) -> list[Why]:
    """Sort by kind and flow; for a group, the flow from the cluster where it works is first."""
    return sorted(answers, key=lambda why: (why.kind != "topic", not why.works_here, why.flow))


def first_wrong(steps: Iterable[WhyStep]) -> WhyStep | None:
    """Return the first step with a problem, or None."""
    return next((step for step in steps if step.ok is False), None)


def first_unknown(steps: Iterable[WhyStep]) -> WhyStep | None:
    """Return the first step that is unknown, or None."""
    return next((step for step in steps if step.ok is None), None)


def action_of(steps: Iterable[WhyStep]) -> str:
    """Return the first action; problems come before unknown steps."""
    return next(_actions(tuple(steps)), "")


def _actions(steps: tuple[WhyStep, ...]) -> Iterator[str]:
    for ok in (False, None):
        yield from (step.action for step in steps if step.ok is ok and step.action)


def near(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return similar names, including those that differ only in case."""
    by_lower: dict[str, list[str]] = {}
    for one in names:
        by_lower.setdefault(one.lower(), []).append(one)
    found = get_close_matches(name.lower(), by_lower, cutoff=_NEAR)
    return tuple(one for lower in found for one in sorted(by_lower[lower]) if one != name)


def flow_steps(flow: Flow, *, enabled: bool, pause: Pause | None) -> Iterator[WhyStep]:
    """Yield whether a flow is on, and not paused, with the texts and actions of its health."""
    question = f"is the flow {flow} on?"
    if enabled:
        yield WhyStep.yes("enabled", question)
    else:
        off = off_reason(flow)
        yield WhyStep.no("enabled", question, f"{flow} is {off.text}", off.action)
    question = "is the flow not paused?"
    if pause is None:
        yield WhyStep.yes("not-paused", question, "not paused")
        return
    reason = pause_reason(flow, pause)
    by = f" by {pause.by}" if pause.by else ""
    yield WhyStep.no("not-paused", question, f"{flow} is paused{by}: {reason.text}", reason.action)


DecidingList = Literal["topics", "groups"]

_ONE: Final = {"topics": "topic", "groups": "group"}


def class_step(config: FlowConfig) -> WhyStep:
    """Return the step of a topic that the lists select and topic.filter.class does not."""
    question = "does topic.filter.class select it?"
    of_a_class = f"{config.topic_filter.__module__}:{config.topic_filter.__qualname__}"
    return WhyStep.no("allowed", question, f"{of_a_class} does not")


@dataclass(frozen=True, slots=True)
class SelectionLists:
    """Topics or groups that a flow selects; ``listed`` are the patterns of srm-control only."""

    flow: Flow
    name: DecidingList
    patterns: NameFilter
    listed: ListPair

    def selection_step(self, subject: str) -> WhyStep:
        """Return the step with the pattern that selects a name."""
        pattern = self.patterns.included_by(subject)
        question = f"does an allow list name the {_ONE[self.name]}?"
        if pattern is not None:
            return WhyStep.yes("allowed", question, self._where(pattern, self.listed.allow))
        count = len(self.patterns.include)
        none = (
            f"none of {amount(count, 'pattern')} matches the whole name" if count else "no pattern"
        )
        told = f"not listed: {none} ({self._key()}, and the list of srm-control)"
        return WhyStep.no("allowed", question, told, self._command("--add", literal(subject)))

    def not_denied(self, subject: str) -> WhyStep:
        """Return the step with the pattern that denies a name; deny lists win."""
        pattern = self.patterns.excluded_by(subject)
        question = "is it absent from deny lists?"
        if pattern is None:
            return WhyStep.yes("not-denied", question, "no pattern matches")
        if self.name == "groups" and subject.startswith(SHADOW_PREFIX):
            nobodys = f"groups {SHADOW_PREFIX}* are made by drills and never translated"
            return WhyStep.no("not-denied", question, nobodys)
        told = f"denied, and deny lists win: {self._where(pattern, self.listed.deny, '.exclude')}"
        if pattern in self.listed.deny:
            return WhyStep.no(
                "not-denied", question, told, self._command("--remove-denylist", pattern)
            )
        return WhyStep.no(
            "not-denied", question, told, f"remove {pattern} from {self._key('.exclude')}"
        )

    def steps(self, subject: str) -> Iterator[WhyStep]:
        """Yield both steps."""
        yield self.selection_step(subject)
        yield self.not_denied(subject)

    def _key(self, suffix: str = "") -> str:
        return f"{self.flow}.{self.name}{suffix}"

    def _where(self, pattern: str, listed: tuple[str, ...], suffix: str = "") -> str:
        if pattern in listed:
            return f"{pattern} of the list of srm-control"
        default = split_patterns(KEYS[f"{self.name}{suffix}"].default or "")
        usual = " by default" if pattern in default else ""
        return f"{pattern} of {self._key(suffix)}{usual}"

    def _command(self, option: str, entry: str) -> str:
        ends = f"--source {self.flow.source} --target {self.flow.target}"
        return f"srm-control {self.name} {ends} {option} {shlex.quote(entry)}"


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
