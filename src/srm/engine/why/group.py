"""Explain why a group is (not) translated by a flow, and (not) able to move along it."""

from __future__ import annotations

from typing import Final

from srm.domain.groups.translation import UNFINISHED
from srm.domain.text.amount import amount
from srm.engine.ports import FlowContext
from srm.engine.why.answer import Why, WhyStep, action_of, first_unknown, first_wrong, near
from srm.engine.why.group_chain import group_steps
from srm.engine.why.group_facts import GroupLook, read_group
from srm.engine.why.group_moving import moving_steps

_BEFORE: Final = frozenset(
    {"enabled", "not-paused", "exists", "kind", "allowed", "not-denied", "offsets"}
)
"""Steps whose problem prevents the translation of a group."""
_BESIDE: Final = frozenset({"written", "follows", "way-back"})
"""Steps whose problem prevents neither translation nor move."""


def why_group(context: FlowContext, name: str) -> Why:
    """Explain why a group is (not) translated and can (not) move, with the next action.

    Args:
        context: the flow, the lists of srm-control merged into its settings.
        name: the group.

    Raises:
        SrmError: the target does not answer, or another error.
    """
    return answer(read_group(context, name))


def answer(look: GroupLook) -> Why:
    """Explain from the facts; pure."""
    steps = (*group_steps(look), *moving_steps(look))
    wrong = first_wrong(steps)
    return Why(
        flow=look.config.flow,
        kind="group",
        subject=look.group,
        known=look.exists,
        ok=False if wrong is not None else _ok(look),
        verdict=_verdict(look, steps),
        steps=steps,
        action=action_of(steps),
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


def _ok(look: GroupLook) -> bool | None:
    """Return True if all is well, None while translations are pending."""
    if look.source_error or any(outcome.state in UNFINISHED for outcome in look.outcomes):
        return None
    return True


def _verdict(look: GroupLook, steps: tuple[WhyStep, ...]) -> str:
    wrong = first_wrong(step for step in steps if step.name in _BEFORE)
    if wrong is not None:
        return f"not translated: {wrong.answer}"
    if look.source_error:
        unknown = first_unknown(steps)
        told = f"not known: {unknown.answer}" if unknown is not None else "not known"
        if look.is_there:
            told = look.works_there
        left = amount(len(look.emitted), "checkpoint")
        return f"{told}; {left} on {look.config.flow.target}"
    return f"{_translation_answer(look, steps)}; {_movable(steps)}"


def _translation_answer(look: GroupLook, steps: tuple[WhyStep, ...]) -> str:
    wrong = first_wrong(step for step in steps if step.name in {"translated", "emitted", "proven"})
    if wrong is not None:
        some_are = any(outcome.checkpoint is not None for outcome in look.outcomes)
        part = "translated in part" if some_are and wrong.name == "translated" else "not translated"
        return f"{'translated, but' if wrong.name == 'emitted' else part}: {wrong.answer}"
    if any(outcome.state in UNFINISHED for outcome in look.outcomes):
        return "translated up to the end of the copy"
    return "translated"


def _movable(steps: tuple[WhyStep, ...]) -> str:
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
