"""The value that answers "why": a chain of questions, each answered, and the one thing to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from srm.domain.names.topics import Flow

Kind = Literal["topic", "group"]

_NEAR: Final = 0.6
"""How alike names are that might have been meant, by :func:`difflib.get_close_matches`."""


@dataclass(frozen=True, slots=True)
class WhyStep:
    """One question of the chain and its answer.

    Attributes:
        name: what the question is about in one word, the same in all releases: for programs.
        question: the question as people ask it; the good answer is yes.
        ok: whether it is as it should be; None: not known, or not decided by anything yet.
        answer: what was found, with names and numbers.
        action: what to do about it, a command or a key with its value; empty: nothing.
    """

    name: str
    question: str
    ok: bool | None
    answer: str
    action: str = ""

    @classmethod
    def yes(cls, name: str, question: str, answer: str = "yes") -> WhyStep:
        """Return a step that is as it should be."""
        return cls(name, question, ok=True, answer=answer)

    @classmethod
    def no(cls, name: str, question: str, answer: str, action: str = "") -> WhyStep:
        """Return a step that is wrong: the answer says how, and holds as a reason."""
        return cls(name, question, ok=False, answer=answer, action=action)

    @classmethod
    def unknown(cls, name: str, question: str, answer: str, action: str = "") -> WhyStep:
        """Return a step of which it is not known, or not decided, how it is."""
        return cls(name, question, ok=None, answer=answer, action=action)


@dataclass(frozen=True, slots=True)
class Why:
    """Why a topic is (not) copied by a flow, or a group (not) translated and able to move.

    Attributes:
        flow: the flow that was asked.
        kind: what the name was taken for.
        subject: its name on the flow's source.
        asked: the name that was asked for, where that is another one: that of the copy.
        known: whether there is such a topic or group on either cluster, as far as can be seen.
        ok: whether all is as it should be; None: that cannot be said.
        verdict: the answer in one line.
        steps: the chain, in the order in which one thing keeps the next from mattering.
        action: the one thing to do; empty: nothing, or nothing that srm knows of.
        similar: names that might have been meant, where there is no such name.
        works_here: whether the flow's source is where the group works now, as far as can be seen.
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
    """Sort by kind and flow; of a group first the way that it can go from where it works now."""
    return sorted(answers, key=lambda why: (why.kind != "topic", not why.works_here, why.flow))


def first_wrong(steps: Iterable[WhyStep]) -> WhyStep | None:
    """Return the first step that is not as it should be, None where all are or may be."""
    return next((step for step in steps if step.ok is False), None)


def first_unknown(steps: Iterable[WhyStep]) -> WhyStep | None:
    """Return the first step of which it is not known how it is."""
    return next((step for step in steps if step.ok is None), None)


def action_of(steps: Iterable[WhyStep]) -> str:
    """Return what to do first: of what is wrong before what is not known."""
    return next(_actions(tuple(steps)), "")


def _actions(steps: tuple[WhyStep, ...]) -> Iterator[str]:
    for ok in (False, None):
        yield from (step.action for step in steps if step.ok is ok and step.action)


def near(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return names that may have been meant: alike, or the same but for upper and lower case."""
    by_lower: dict[str, list[str]] = {}
    for one in names:
        by_lower.setdefault(one.lower(), []).append(one)
    found = get_close_matches(name.lower(), by_lower, cutoff=_NEAR)
    return tuple(one for lower in found for one in sorted(by_lower[lower]) if one != name)
