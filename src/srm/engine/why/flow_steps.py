"""Questions about the flow itself, the start of every chain."""

from __future__ import annotations

from collections.abc import Iterator

from srm.domain.flow_state.pause import Pause
from srm.domain.names.topics import Flow
from srm.engine.status.health import off_reason, pause_reason
from srm.engine.why.answer import WhyStep


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
