"""Explain why a topic is (not) copied, or a group (not) translated and able to move."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from srm.domain.text.amount import some
from srm.engine.ports import FlowContext
from srm.engine.why.answer import Kind, Why, WhyStep, in_order
from srm.engine.why.group import why_group
from srm.engine.why.topic import why_topic
from srm.errors import NotFoundError

__all__ = ["Kind", "Why", "WhyStep", "explain", "in_order", "not_found", "why_group", "why_topic"]

_BY_KIND: Final[Mapping[Kind, Callable[[FlowContext, str], Why]]] = {
    "topic": why_topic,
    "group": why_group,
}


def explain(
    context: FlowContext, name: str, kinds: Collection[Kind] = tuple(_BY_KIND)
) -> tuple[Why, ...]:
    """Explain a name, once for each kind that it may be; see :attr:`.Why.known`."""
    return tuple(_BY_KIND[kind](context, name) for kind in kinds)


def not_found(name: str, answers: Collection[Why]) -> NotFoundError:
    what = " or ".join(dict.fromkeys(answer.kind for answer in answers))
    where = sorted({alias for why in answers for alias in (why.flow.source, why.flow.target)})
    similar = dict.fromkeys(
        f"{why.kind} {one} of {why.flow.source}" for why in answers for one in why.similar
    )
    exists = [step for why in answers for step in why.steps if step.name == "exists"]
    unseen = dict.fromkeys(step.answer for step in exists if step.ok is None)
    meant = f"; did you mean {some(tuple(similar))}?" if similar else ""
    blind = f"; {'; '.join(unseen)}" if unseen else ""
    return NotFoundError(f"no {what} {name!r} on {' or '.join(where)}{meant}{blind}")
