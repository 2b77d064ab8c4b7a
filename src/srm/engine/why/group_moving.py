"""Steps about a move of a group and its way back, the end of its chain; pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from srm.domain.text.amount import some
from srm.engine.groups.checkpoints import selection_of
from srm.engine.status.health import NO_CHECKPOINT
from srm.engine.why.answer import WhyStep
from srm.engine.why.group_facts import GroupLook, Movement


def moving_steps(look: GroupLook) -> Iterator[WhyStep]:
    """Yield whether a planned move could start, what it would wait for, and the way back."""
    if look.source_error:
        yield _without_source(look)
        return
    if look.movement is None:
        return
    if (error := look.movement.error) is not None:
        yield WhyStep.no("movable", _question(look), error.text, error.action)
        return
    if look.is_there:
        yield WhyStep.unknown("movable", _question(look), look.works_there)
        yield _way_back(look)
        return
    yield _movable(look, look.movement)
    if not look.movement.blocking:
        yield _waits(look.movement)
    yield _follows(look, look.movement)
    yield _way_back(look)


def _question(look: GroupLook) -> str:
    return f"could a planned move to {look.config.flow.target} start now?"


def _movable(look: GroupLook, movement: Movement) -> WhyStep:
    if not movement.blocking:
        return WhyStep.yes("movable", _question(look))
    first, more = movement.blocking[0], len(movement.blocking) - 1
    told = f"{first.text}{f' (and {more} more)' if more else ''}"
    flow = look.config.flow
    plan = (
        f"srm failover run --dry-run --source {flow.source} --target {flow.target} "
        f"--group {shlex.quote(look.group)}"
    )
    return WhyStep.no("movable", _question(look), told, first.action or plan)


def _waits(movement: Movement) -> WhyStep:
    question = "would it run without a wait?"
    if not movement.waits:
        return WhyStep.yes("ready", question, "nothing to wait for")
    eta = "" if not movement.eta_s else f"; copying takes at most about {movement.eta_s:,.0f} s"
    return WhyStep.unknown("ready", question, f"it would wait: {'; '.join(movement.waits)}{eta}")


def _follows(look: GroupLook, movement: Movement) -> WhyStep:
    """Return whether a move can redirect the members that are on the source now."""
    question = "do its members follow routes?"
    if not movement.members:
        return WhyStep.unknown("follows", question, "it has no members now")
    if not movement.strangers:
        return WhyStep.yes("follows", question, some(movement.members))
    others = [kind for kind in look.config.redirect.kinds if kind != "routing"]
    told = f"{some(movement.strangers)} {'do' if len(movement.strangers) > 1 else 'does'} not"
    if others:
        return WhyStep.unknown("follows", question, f"{told}: redirected by {', '.join(others)}")
    told += ": stop it there and start it on the other cluster"
    return WhyStep.no("follows", question, told, "run it under srm follow, or see docs/redirect.md")


def _way_back(look: GroupLook) -> WhyStep:
    """Return whether progress on copies is carried back, by the reverse list of the way back."""
    flow, question = look.config.flow, "could it fail back with all its progress?"
    if look.opposite is None:
        return WhyStep.unknown("way-back", question, f"{flow.reverse} is not configured")
    if not look.opposite.enabled:
        told = f"the flow {flow.reverse} is off"
        return WhyStep.no("way-back", question, told, f"set {flow.reverse}.enabled=true")
    back = selection_of(look.opposite)
    copies = [
        outcome.downstream.topic
        for outcome in look.outcomes
        if outcome.direction == "forward" and outcome.downstream is not None
    ]
    left = sorted({topic for topic in copies if back.direction(topic) is None})
    if left:
        reason, action = back.obstacle(left[0])
        told = f"its progress on {some(left)} on {flow.target} is not carried back: {reason}"
        return WhyStep.no("way-back", question, told, action)
    return WhyStep.yes("way-back", question, f"by reverse checkpoints of {flow.reverse}")


def _without_source(look: GroupLook) -> WhyStep:
    """Return the step about an unplanned move from a source that does not answer."""
    flow, movement = look.config.flow, look.movement
    question = f"could it continue on {flow.target} without {flow.source}?"
    if look.is_there:
        return WhyStep.unknown("movable", question, look.works_there)
    if movement is None and not look.emitted:
        return WhyStep.no("movable", question, NO_CHECKPOINT)
    if movement is not None and movement.error is not None:
        return WhyStep.no("movable", question, movement.error.text, movement.error.action)
    plan = (
        f"srm failover plan --mode unplanned --source {flow.source} --target {flow.target} "
        f"--group {shlex.quote(look.group)}"
    )
    if movement is not None and movement.blocking:
        first = movement.blocking[0]
        return WhyStep.no("movable", question, first.text, first.action or plan)
    return WhyStep.unknown("movable", question, "from its last known positions", plan)
