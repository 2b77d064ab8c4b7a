"""State changes of flows and of stopped topics, as the service has observed them.

They show later what was wrong and since when. They are in memory only, until the service ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from srm.service.views.flow_rows import summary
from srm.service.views.snapshots import FlowLook, Healed, StateChange

MOST: Final = 50
"""Number of remembered changes per flow, and of healed topics per flow."""


def with_change(before: FlowLook, now: FlowLook, now_ms: int) -> FlowLook:
    """Return the new look with the changes known so far and those since the look before; pure."""
    healed = (*before.healed, *_find_healed(before, now, now_ms))[-MOST:]
    known = replace(now, changes=before.changes, healed=healed)
    if before.view is None and not before.error:
        return known  # first look: the former state is unknown
    former, found = summary(before).state, summary(now)
    if found.state == former:
        return known
    reason = found.reasons[0].text if found.reasons else ""
    lasted_ms = now_ms - before.changes[-1].time_ms if before.changes else None
    change = StateChange(now_ms, found.state, reason, former, lasted_ms)
    return replace(known, changes=(*before.changes, change)[-MOST:])


def _find_healed(before: FlowLook, now: FlowLook, now_ms: int) -> Iterator[Healed]:
    if before.view is None or now.view is None:
        return
    stopped = {one.topic: one.reason for one in before.view.status.topics if one.state == "stopped"}
    for topic in now.view.status.topics:
        if topic.topic in stopped and topic.state != "stopped":
            partitions = before.view.partitions.get(topic.topic, ())
            since = [one.since_ms for one in partitions if one.state == "stopped" and one.since_ms]
            yield Healed(now_ms, topic.topic, stopped[topic.topic], min(since, default=None))
