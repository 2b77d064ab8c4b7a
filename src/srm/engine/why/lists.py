"""List entry that selects or denies a name, as two questions of a chain."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from srm.config.keys.keys import KEYS
from srm.config.model import FlowConfig
from srm.domain.names.filters import SHADOW_PREFIX, NameFilter, literal, split_patterns
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount
from srm.engine.control.control_lists import ListPair
from srm.engine.why.answer import WhyStep

DecidingList = Literal["topics", "groups"]

_ONE: Final = {"topics": "topic", "groups": "group"}


def class_step(config: FlowConfig) -> WhyStep:
    """Return the step of a topic that the lists select and topic.filter.class does not."""
    question = "does topic.filter.class select it?"
    of_a_class = f"{config.topic_filter.__module__}:{config.topic_filter.__qualname__}"
    return WhyStep.no("allowed", question, f"{of_a_class} does not")


@dataclass(frozen=True, slots=True)
class SelectionLists:
    """Topics or groups that a flow selects, by its settings and the lists of srm-control.

    ``patterns`` holds all patterns, ``listed`` only those of srm-control.
    """

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
