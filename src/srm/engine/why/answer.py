"""Result of ``srm why``: a chain of questions with answers, and the next action."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from srm.domain.names.topics import Flow

Kind = Literal["topic", "group"]

_NEAR: Final = 0.6
"""Cutoff for similar names, of :func:`difflib.get_close_matches`."""


@dataclass(frozen=True, slots=True)
class WhyStep:
    """One question of the chain and its answer.

    Attributes:
        name: key of the question in one word, for programs; stable over releases.
        question: the question for display; yes is the good answer.
        ok: True if all is well, False if not, None if unknown or undecided.
        answer: the result with names and numbers.
        action: the remedy, a command or a key with its value; empty without one.
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

    Attributes:
        flow: the flow.
        kind: interpretation of the name, topic or group.
        subject: the name on the flow's source.
        asked: the requested name if it differs, as the name of the copy does.
        known: whether either cluster shows such a topic or group.
        ok: True if all is well, False if not, None if unknown.
        verdict: the answer in one line.
        steps: the chain; a problem in one step makes later steps irrelevant.
        action: the next action; empty without one.
        similar: similar names, if the name is not known.
        works_here: whether the group works on the flow's source now, as far as known.
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
