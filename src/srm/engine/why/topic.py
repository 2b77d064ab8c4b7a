"""Explain why a flow copies a topic, or does not."""

from __future__ import annotations

from typing import Final

from srm.domain.text.amount import amount
from srm.engine.ports import FlowContext
from srm.engine.why.answer import Why, WhyStep, action_of, first_unknown, first_wrong, near
from srm.engine.why.topic_chain import topic_steps
from srm.engine.why.topic_facts import Copying, TopicFacts, read_topic

_BESIDE: Final = frozenset({"losses", "heard"})
"""Steps whose problem does not prevent copying a topic."""
_PARTLY: Final = frozenset({"assigned", "partitions"})


def why_topic(context: FlowContext, name: str) -> Why:
    """Explain why a flow copies a topic, or does not, with the whole chain and the next action.

    Args:
        context: the flow, the lists of srm-control merged into its settings.
        name: the topic's name on the source, or that of its copy on the target.

    Raises:
        SrmError: the target does not answer, or another error.
    """
    return answer(read_topic(context, name))


def answer(facts: TopicFacts) -> Why:
    """Explain from the facts; pure."""
    steps = tuple(topic_steps(facts))
    wrong = first_wrong(steps)
    known = facts.topic in facts.on_source or facts.hidden or facts.remote in facts.on_target
    return Why(
        flow=facts.config.flow,
        kind="topic",
        subject=facts.topic,
        asked=facts.asked,
        known=known,
        ok=False if wrong else (None if facts.copying is None or facts.source_error else True),
        verdict=_verdict(facts, steps, wrong),
        steps=steps,
        action=action_of(steps),
        similar=() if known else near(facts.topic, facts.on_source),
    )


def _verdict(facts: TopicFacts, steps: tuple[WhyStep, ...], wrong: WhyStep | None) -> str:
    if wrong is not None:
        return f"{_how_far(facts, wrong)}: {wrong.answer}"
    if facts.copying is None or facts.source_error:
        unknown = first_unknown(steps)
        return f"not known: {unknown.answer}" if unknown is not None else "not known"
    lag = facts.copying.status.remaining
    return f"copied, with a lag of {amount(lag, 'offset')}" if lag else "copied, and caught up"


def _how_far(facts: TopicFacts, wrong: WhyStep) -> str:
    if wrong.name in _BESIDE:
        return "copied, but"
    if wrong.name in _PARTLY and facts.copying is not None and _is_partly(facts.copying):
        return "copied in part"
    return "not copied"


def _is_partly(copying: Copying) -> bool:
    """Return whether a live slot copies any of its partitions."""
    return any(
        view.state == "copying" and copying.slots.get(view.partition) not in copying.silent
        for view in copying.partitions
    )
