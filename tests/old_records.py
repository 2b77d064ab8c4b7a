"""Records as earlier versions wrote them, which this one still has to read."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict

from srm.domain.map_records import topic_id_bytes
from srm.domain.metrics import RawMetric
from srm.domain.replication_records import PartitionPosition, SlotReport


def old_report(report: SlotReport, version: int = 3) -> tuple[bytes, bytes]:
    """Return key and value of a slot's whole report, in format 2 or 3."""
    head = struct.pack(">BqqI", version, report.generation, report.time_ms, len(report.positions))
    entries = (_entry(entry, version) for entry in report.positions)
    return f"slot:{report.slot}".encode(), b"".join((head, *entries))


def _entry(entry: PartitionPosition, version: int) -> bytes:
    end, position = entry.map_end, entry.position
    fixed = struct.pack(
        ">16si16sqqqiqh",
        topic_id_bytes(entry.topic_id),
        entry.partition,
        topic_id_bytes(entry.target_topic_id),
        *(position.source_next, position.target_next, position.source_end),
        *(entry.source_leader_epoch, entry.producer_id, entry.producer_epoch),
    )
    if version == 2:
        return fixed
    return b"".join(
        (
            fixed,
            struct.pack(">iB", entry.target_leader_epoch, end is not None),
            struct.pack(">qqhqq", end.target_start, *end.owner, end.place, end.index_place)
            if end
            else b"",
        )
    )


def old_raw_metric(metric: RawMetric) -> bytes:
    """Return the value of a raw metrics record of one partition."""
    return json.dumps(asdict(metric), separators=(",", ":")).encode()
