"""Which report of a partition is the newest: the one rule for everybody who reads slot reports.

A partition that has changed its slot, or whose slot has started again, is reported by several
processes, and what came last says nothing about which of them owns it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from srm.domain.flow_state.replication_records import CopyId, PartitionPosition, SlotReport


def positions_by_copy(reports: Iterable[SlotReport]) -> dict[CopyId, list[PartitionPosition]]:
    """Return what slots report about each copy, first what those tell that copy it now."""
    found: dict[CopyId, list[PartitionPosition]] = defaultdict(list)
    known = list(reports)
    for entries in (*(r.positions for r in known), *(r.former for r in known)):
        for entry in entries:
            found[entry.copy_id].append(entry)
    return dict(found)


def newest_position(candidates: Iterable[PartitionPosition]) -> PartitionPosition | None:
    """Choose among the positions that several slots report for one copy.

    Under one producer id the highest epoch is the owner. Epochs of different producer ids (an id
    expires after a week without a claim, and an idle partition is not claimed at all) say nothing
    about each other. Of those the one whose marker the target's log took under the latest leader
    epoch counts: where that log has lost its end since, what was told before is further, and wrong.
    Of one leader epoch, or where it is not known, it is the one that is furthest, as both logs only
    grow. Of equals it is the first one.
    """
    owners: dict[int, PartitionPosition] = {}
    for candidate in candidates:
        known = owners.get(candidate.producer_id)
        if known is None or _claim_order(candidate) > _claim_order(known):
            owners[candidate.producer_id] = candidate
    latest = max((entry.target_leader_epoch for entry in owners.values()), default=-1)
    chosen = (entry for entry in owners.values() if entry.target_leader_epoch in (-1, latest))
    return max(chosen, key=_distance, default=None)


def _distance(entry: PartitionPosition) -> tuple[int, int, int]:
    position = entry.position
    return position.target_next, position.source_next, position.source_end


def _claim_order(entry: PartitionPosition) -> tuple[int, int, int, int]:
    return entry.producer_epoch, *_distance(entry)
