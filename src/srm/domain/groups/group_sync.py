"""Decision for one partition: write a translated offset for a group, or leave the group's own.

MM2 writes if the group has no offset or a lower one, and never lowers. That undoes a rewind (an
operator resets a group to read again, MM2 restores the offset of the other cluster) and never
carries one over. The ledger of own writes preserves both intentions:

========================================  ====================================================
the group's offset on the target          decision for a translated offset t
========================================  ====================================================
none                                      write
equal to t                                unchanged
not ours, lower than srm's last write     leave: an operator rewound the group here
lower than t                              write: own write or consumers, both are before t
higher than t, own write for this flow    write: the group was rewound on the source
higher than t                             leave: consumers (or another flow) are ahead here
========================================  ====================================================

Flows from several clusters may copy into one name. A group that is on each of them has read what is
before the lowest of their translations: that one is written, and the ledger keeps all of them.

A commit on the source that srm itself carried over from the target is not progress of the group and
is not carried back (``own-write``). Only this module checks that. A commit from a third cluster is
new to the target.

srm writes only to idle groups. It repeats every decision with the offsets read just before the
write.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Literal

from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.ledger import LedgerEntry
from srm.domain.groups.translation import UNFINISHED
from srm.domain.names.topics import Flow, TopicPartition

IDLE: Final = frozenset({"empty", "dead"})
"""States of a group that may be written to; any other or unknown state counts as active."""

SyncAction = Literal[
    "write",
    "unchanged",
    "consumer-ahead",
    "rewind-respected",
    "floor-kept",
    "group-active",
    "not-translated",
    "own-write",
    "not-written",
    "failed",
]


@dataclass(frozen=True, slots=True)
class SyncDecision:
    """Action for one (group, partition) of the flow's target, with the reason.

    ``current`` is the committed offset found there (None: none), ``offset`` the translated one.
    With the action ``write`` the offset is the group's position once ``applied`` is true.
    ``progress`` is the flow's translation where other sources count, too; ``offset`` is the lowest.
    ``not-written`` was abandoned before the write; ``failed`` may have been written or not.
    """

    group: str
    partition: TopicPartition
    action: SyncAction
    current: int | None = None
    offset: int | None = None
    reason: str = ""
    applied: bool = False
    progress: int | None = None

    @property
    def in_place(self) -> bool:
        """Return True if the offset is the group's position, written now or earlier."""
        return self.applied or self.action == "unchanged"


def decide(
    outcome: CheckpointOutcome,
    current: int | None,
    entry: LedgerEntry | None,
    flow: Flow,
    upstream_entry: LedgerEntry | None = None,
    joined: Collection[str] = (),
) -> SyncDecision:
    """Decide about one translated commit of an idle group.

    ``outcome``: the translation; ``downstream`` must be known. ``current``: the commit there.
    ``entry``, ``upstream_entry``: srm's latest writes there, and for the commit itself on the
    source.
    ``joined``: other clusters whose records the partition on the target holds, too.
    """
    checkpoint = outcome.checkpoint
    offset = None if checkpoint is None else checkpoint.downstream_offset
    partition = outcome.downstream or outcome.upstream
    decision = SyncDecision(outcome.group, partition, "not-translated", current)
    if offset is None:
        why = ": ".join(part for part in (outcome.state, outcome.reason) if part)
        return replace(decision, reason=why)
    carried = upstream_entry if upstream_entry and upstream_entry.origin == flow.target else None
    if carried is not None and carried.owns(outcome.upstream_offset):
        why = f"srm wrote this offset, {flow.target} already has it"
        return replace(decision, action="own-write", reason=why)
    known = entry.progress if entry is not None else {}
    others = {alias: known[alias] for alias in sorted(joined) if alias in known}
    lowest = min(others, key=others.__getitem__, default=None)
    progress, held = offset if joined else None, ""
    if lowest is not None and others[lowest] < offset:
        held = f"; the group on {lowest} has read up to here, that on {flow.source} to {offset}"
        offset = others[lowest]
    sources = {flow.source, *others}
    action, reason = _onto(outcome, offset, current, entry, sources)
    reason = (reason + held).removeprefix("; ")
    return replace(decision, action=action, offset=offset, reason=reason, progress=progress)


def _onto(
    outcome: CheckpointOutcome,
    offset: int,
    current: int | None,
    entry: LedgerEntry | None,
    sources: Collection[str],
) -> tuple[SyncAction, str]:
    if current is None or current == offset:
        return ("unchanged", "") if current == offset else ("write", "the group has no offset here")
    if entry is not None and not entry.owns(current) and current < entry.intended:
        return "rewind-respected", f"the group was rewound here, below srm's {entry.intended}"
    if current < offset:
        return "write", f"replaces {current}"
    if entry is None or entry.origin not in sources or not entry.may_lower(current):
        return "consumer-ahead", f"the group's own {current} is ahead of {offset}"
    if outcome.state in UNFINISHED:
        return "floor-kept", "the map does not reach the commit, so the offset is not lowered"
    return "write", f"the group was rewound on {entry.origin}, srm's own {current} follows"
