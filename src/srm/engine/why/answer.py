"""Result of ``srm why``: questions with answers and the next action, and lists with reasons."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, TypeVar

from srm.config.keys import KEYS
from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import read_pause
from srm.domain.names.flow_topics import Refusal
from srm.domain.names.policy import SHADOW_PREFIX, NameFilter, literal, split_patterns
from srm.domain.names.topics import Flow
from srm.domain.text.amount import Reason, ago, amount, some
from srm.engine.cluster_ports import GroupDescription
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ListPair
from srm.engine.flows.source_look import originals_of
from srm.engine.groups.checkpoints import WITHOUT_OFFSETS, read_checkpoints, selection_of
from srm.engine.moves.store import undecided_moves
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


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the chain before its answer."""

    name: str
    text: str

    def yes(self, answer: str = "yes") -> WhyStep:
        return WhyStep(self.name, self.text, ok=True, answer=answer)

    def no(self, answer: str, action: str = "") -> WhyStep:
        return WhyStep(self.name, self.text, ok=False, answer=answer, action=action)

    def because(self, reason: Reason) -> WhyStep:
        return self.no(reason.text, reason.action)

    def unknown(self, answer: str, action: str = "") -> WhyStep:
        return WhyStep(self.name, self.text, ok=None, answer=answer, action=action)


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
    return next((step for step in steps if step.ok is False), None)


def not_known(steps: Iterable[WhyStep]) -> str:
    """Return the verdict of steps without a problem, with the first unknown answer if any."""
    unknown = next((step for step in steps if step.ok is None), None)
    return "not known" if unknown is None else f"not known: {unknown.answer}"


def action_of(steps: Sequence[WhyStep]) -> str:
    """Return the first action; problems come before unknown steps."""
    actions = (s.action for ok in (False, None) for s in steps if s.ok is ok and s.action)
    return next(actions, "")


def list_text(kind: str, which: Collection[object]) -> str:
    """Return some numbers or names after their kind, as ``partitions 0, 1``."""
    return f"{kind}{'s' * (len(which) != 1)} {some([str(one) for one in which])}"


def near(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return similar names, including those that differ only in case."""
    by_lower: dict[str, list[str]] = {}
    for one in names:
        by_lower.setdefault(one.lower(), []).append(one)
    found = get_close_matches(name.lower(), by_lower, cutoff=_NEAR)
    return tuple(one for lower in found for one in sorted(by_lower[lower]) if one != name)


def why_paused(context: FlowContext, commands: Mapping[bytes, bytes]) -> Reason | None:
    if (pause := read_pause(commands)) is None:
        return None
    flow, by = context.config.flow, f" by {pause.by}" if pause.by else ""
    undecided = tuple(one.move_id for one in undecided_moves(context, pause))
    return pause_reason(flow, pause, undecided).within(f"{flow} is paused{by}")


def flow_steps(flow: Flow, *, enabled: bool, pause: Reason | None) -> Iterator[WhyStep]:
    question, off = Question("enabled", f"is the flow {flow} enabled?"), off_reason(flow)
    yield question.yes() if enabled else question.no(f"{flow} is {off.text}", off.action)
    question = Question("not-paused", "is the flow not paused?")
    yield question.yes("not paused") if pause is None else question.because(pause)


_T = TypeVar("_T")


def class_step(config: FlowConfig, topic: str, refusal: Refusal) -> WhyStep:
    """Return the step of a topic that the lists select, and a class of a user does not."""
    if refusal == "taken":
        remote = config.names.remote(topic)
        text = f"{remote} is the copy of {config.policy.upstream_topic(remote)}, too"
        question = Question("allowed", "does replication.policy.class give it a copy of its own?")
        return question.no(f"by {type(config.policy).__qualname__} {text}")
    question = Question("allowed", "does topic.filter.class select it?")
    of_a_class = f"{config.topic_filter.__module__}:{config.topic_filter.__qualname__}"
    return question.no(f"{of_a_class} does not")


@dataclass(frozen=True, slots=True)
class SelectionLists:
    """Topics or groups that a flow selects; ``listed`` are the patterns of srm-control only."""

    flow: Flow
    name: Literal["topics", "groups"]
    patterns: NameFilter
    listed: ListPair

    def selection_step(self, subject: str) -> WhyStep:
        pattern = self.patterns.included_by(subject)
        question = Question("allowed", f"does an allow list name the {self.name[:-1]}?")
        if pattern is not None:
            return question.yes(self._entry(pattern, self.listed.allow))
        count = len(self.patterns.include)
        none = (
            f"none of {amount(count, 'pattern')} matches the whole name" if count else "no pattern"
        )
        text = f"not listed: {none} ({self._key()}, and the list of srm-control)"
        return question.no(text, self._command("--add", literal(subject)))

    def not_denied(self, subject: str) -> WhyStep:
        """Return the step with the pattern that denies a name; deny lists win."""
        pattern = self.patterns.excluded_by(subject)
        question = Question("not-denied", "is it absent from deny lists?")
        if pattern is None:
            return question.yes("no pattern matches")
        if self.name == "groups" and subject.startswith(SHADOW_PREFIX):
            return question.no(f"groups {SHADOW_PREFIX}* are made by drills and never translated")
        text = f"denied, and deny lists win: {self._entry(pattern, self.listed.deny, '.exclude')}"
        if pattern in self.listed.deny:
            return question.no(text, self._command("--remove-denylist", pattern))
        return question.no(text, f"remove {pattern} from {self._key('.exclude')}")

    def steps(self, subject: str) -> Iterator[WhyStep]:
        yield self.selection_step(subject)
        yield self.not_denied(subject)

    def refusal(self, subject: str) -> Reason:
        """Return why a name is not selected, an empty reason if it is."""
        wrong = first_wrong(self.steps(subject))
        return _NONE if wrong is None else Reason(wrong.answer, wrong.action)

    def _key(self, suffix: str = "") -> str:
        return f"{self.flow}.{self.name}{suffix}"

    def _entry(self, pattern: str, listed: tuple[str, ...], suffix: str = "") -> str:
        if pattern in listed:
            return f"{pattern} of the list of srm-control"
        default = split_patterns(KEYS[f"{self.name}{suffix}"].default or "")
        usual = " by default" if pattern in default else ""
        return f"{pattern} of {self._key(suffix)}{usual}"

    def _command(self, option: str, entry: str) -> str:
        return f"srm-control {self.name} {self.flow.options} {option} {shlex.quote(entry)}"


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """One topic, with partition counts where it exists; ``reason``: why it is not selected."""

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
    """One group of a flow's source; None for what is not read or does not exist."""

    group: str
    state: str
    members: int
    selected: bool
    reason: str = ""
    action: str = ""
    offsets_on_target: bool | None = None
    checkpoint_age_ms: int | None = None


_NONE: Final = Reason("")


def list_topics(context: FlowContext) -> tuple[tuple[ListedTopic, ...], str]:
    """List the topics of a flow's source, if it answers, and the copies, without internal ones.

    Without its answer a line says so, and what the list is worth.
    """
    config, names = context.config, context.config.names
    status = observe(context).status
    states = {topic.topic: topic.state for topic in status.topics}
    on_target = context.target.topics()
    copies = {original: copy for copy, original in originals_of(context, on_target).items()}
    on_source = _answer_or_none(context.source.topics)
    note = ""
    if on_source is None:
        age = ago(max(0, status.time_ms - status.heard_ms)) if status.heard_ms else "never"
        worth = f"only copies are listed, with states of its last answer to the slots: {age}"
        on_source, note = {}, f"{config.flow.source} does not answer: {worth}"
    lists = control_lists.load(context.target, config.flow)
    selection = SelectionLists(config.flow, "topics", names.listed, lists.topics)

    def row(name: str) -> ListedTopic:
        why_not = _topic_refusal(config, selection, name)
        remote = copies.get(name) or names.remote(name)
        here, there = on_source.get(name), on_target.get(remote)
        return ListedTopic(
            name,
            remote,
            None if here is None else here.partitions,
            None if there is None else there.partitions,
            why_not is _NONE,
            states.get(name, ""),
            why_not.text,
            why_not.action,
        )

    found = sorted({*on_source, *copies})
    return tuple(row(name) for name in found if not names.is_internal(name)), note


def _answer_or_none(query: Callable[[], Mapping[str, _T]]) -> Mapping[str, _T] | None:
    try:
        return query()
    except UnavailableError:
        return None


def _topic_refusal(config: FlowConfig, selection: SelectionLists, name: str) -> Reason:
    match config.names.refusal(name):
        case None:
            return _NONE
        case "cycle":
            return Reason(f"it is a copy of a topic of {config.flow.target}")
        case "filtered" | "taken" as refusal:
            return Reason(class_step(config, name, refusal).answer)
    return selection.refusal(name)


def list_groups(context: FlowContext) -> tuple[tuple[ListedGroup, ...], str]:
    """List the groups of a flow's source; if it does not answer, those with checkpoints.

    A line then says so.
    """
    config, target = context.config, context.target
    newest: dict[str, int] = {}
    for one in read_checkpoints(target, config.checkpoints_topic, target.topics()):
        newest[one.group] = max(one.time_ms, newest.get(one.group, 0))
    lists, names = control_lists.load(target, config.flow), selection_of(config).groups
    selection = SelectionLists(config.flow, "groups", names, lists.groups)
    found, note = _answer_or_none(context.source.groups), ""
    if found is None:
        found = {name: GroupDescription(name, "unknown") for name in newest}
        worth = "only groups with checkpoints are listed, without state and members"
        note = f"{config.flow.source} does not answer: {worth}"
    wanted = [name for name in found if names.matches(name)]
    there = target.commits_of(wanted)[0] if wanted else {}
    now_ms = context.now_ms()

    def row(about: GroupDescription) -> ListedGroup:
        why_not = selection.refusal(about.name)
        if why_not is _NONE and about.kind in WITHOUT_OFFSETS:
            why_not = Reason(f"{about.kind} groups have no offsets to translate")
        at_ms = newest.get(about.name)
        return ListedGroup(
            about.name,
            about.state,
            len(about.members),
            why_not is _NONE,
            why_not.text,
            why_not.action,
            bool(there[about.name]) if about.name in there else None,
            None if at_ms is None else max(0, now_ms - at_ms),
        )

    return tuple(row(found[name]) for name in sorted(found)), note
