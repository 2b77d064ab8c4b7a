"""Damages the state that a flow keeps on its target."""

from __future__ import annotations

from tests.integration.copying import CopyLab

from srm.domain import internal_topics
from srm.domain.map_records import MAP_PARTITIONS


def do(how: str, lab: CopyLab) -> None:
    """Take away ``all`` state, the map's ``blocks``, the ``reports``, or write ``garbage``."""
    if how in {"all", "reports"}:
        lab.forget_reports()
    if how == "reports":
        return
    for number in range(MAP_PARTITIONS):
        table = lab.target.compacted(internal_topics.offset_map(lab.flow.source), number)
        keys = list(table.read())
        if how == "garbage":
            table.write(dict.fromkeys(keys[::2], b"\x01garbage"))
        else:
            table.write(dict.fromkeys(keys))
