"""When a flow changed its state while the service looked on: the answer to since when, afterwards.

Nobody writes that down anywhere; it is known for as long as the service runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from srm.service.flow_rows import summary
from srm.service.looks import Change, FlowLook

MOST: Final = 50
"""Changes of a flow that are remembered."""


def with_change(before: FlowLook, now: FlowLook, now_ms: int) -> FlowLook:
    """Add what a look has changed to what is known; pure."""
    known = replace(now, changes=before.changes)
    if before.view is None and not before.error:
        return known  # the first one: nothing is known of what was before
    former, found = summary(before).state, summary(now)
    if found.state == former:
        return known
    reason = found.reasons[0].text if found.reasons else ""
    lasted_ms = now_ms - before.changes[-1].time_ms if before.changes else None
    change = Change(now_ms, found.state, reason, former, lasted_ms)
    return replace(now, changes=(*before.changes, change)[-MOST:])
