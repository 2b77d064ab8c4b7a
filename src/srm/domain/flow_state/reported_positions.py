"""Choice of the newest position of a partition, the one rule for all readers of slot reports.

Several processes report a partition that moved to another slot or whose slot restarted. The order
in which reports arrive does not identify the owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from srm.domain.flow_state.replication_records import PartitionPosition, SlotReport
from srm.domain.offset_map.map_records import CopyId


def positions_by_copy(reports: Iterable[SlotReport]) -> dict[CopyId, list[PartitionPosition]]:
    """Return the reported positions of each copy, those of current owners first."""
    found: dict[CopyId, list[PartitionPosition]] = defaultdict(list)
    known = list(reports)
    for entries in (*(r.positions for r in known), *(r.former for r in known)):
        for entry in entries:
            found[entry.copy_id].append(entry)
    return dict(found)


def newest_position(candidates: Iterable[PartitionPosition]) -> PartitionPosition | None:
    """Choose among the positions that several slots report for one copy.

    Under one producer id the highest epoch is the owner. Epochs of different producer ids cannot be
    compared. An id expires after a week without a claim, and an idle partition is not claimed.
    Of those, the position whose marker has the latest leader epoch of the target counts. Older ones
    can be further and wrong, as the target log may have been truncated since. With equal or unknown
    leader epochs the furthest position counts, as both logs only grow. Of equals, the first counts.
    """
    owners: dict[int, PartitionPosition] = {}
    for candidate in candidates:
        known = owners.get(candidate.producer_id)
        if known is None or _claim_order(candidate) > _claim_order(known):
            owners[candidate.producer_id] = candidate
    latest = max((entry.target_lineage.epoch for entry in owners.values()), default=-1)
    chosen = (entry for entry in owners.values() if entry.target_lineage.epoch in (-1, latest))
    return max(chosen, key=_distance, default=None)


def _distance(entry: PartitionPosition) -> tuple[int, int, int]:
    position = entry.position
    return position.target_next, position.source_next, position.source_end


def _claim_order(entry: PartitionPosition) -> tuple[int, int, int, int]:
    return entry.producer_epoch, *_distance(entry)
