"""Damages the state that a flow keeps on its target.

Readers of the map follow places, and what was deleted or replaced stands at its place until the log
cleaner removes it. So each damage ends with a cleaning: before that it would test nothing.
"""

from __future__ import annotations

from dataclasses import replace

from tests.integration.cleaning import write_cleaned
from tests.integration.copying import CopyLab

from srm.domain.names import internal_topics
from srm.domain.offset_map.map_records import MAP_PARTITIONS, MapBlock, decode_block
from srm.domain.offset_map.offset_map import Run
from srm.errors import IntegrityError

_GARBAGE = b"\x01garbage"


def do(how: str, lab: CopyLab) -> None:
    """Take state away, or write what makes no sense.

    ``all`` state, the map's ``blocks`` or the ``reports`` are deleted; every second (``garbage``)
    or each (``all garbage``) record of the map becomes garbage; the ``last`` record of each
    partition's map is deleted; a ``contradicting`` one says that its records stand elsewhere.
    """
    if how in {"all", "reports"}:
        lab.forget_reports()
    if how == "reports":
        return
    for number in range(MAP_PARTITIONS):
        topic = internal_topics.offset_map(lab.flow.source)
        damaged = _damaged(how, lab.target.compacted_topic(topic, number).read())
        if damaged:
            write_cleaned(lab.target, topic, number, damaged)


def _damaged(how: str, found: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
    keys = list(found)
    if how == "garbage":
        return dict.fromkeys(keys[::2], _GARBAGE)
    if how == "all garbage":
        return dict.fromkeys(keys, _GARBAGE)
    if how not in {"last", "contradicting"}:
        return dict.fromkeys(keys)
    newest: dict[object, tuple[int, bytes, MapBlock]] = {}
    for key, value in found.items():
        try:
            block = decode_block(key, value)
        except IntegrityError:
            continue
        if block.runs:
            copy = block.topic_id, block.partition, block.target_topic_id
            known = newest.get(copy)
            if known is None or block.runs[-1].target_end > known[0]:
                newest[copy] = block.runs[-1].target_end, key, block
    if how == "last":
        return dict.fromkeys(key for _, key, _ in newest.values())
    wrong = [_contradicting(block) for _, _, block in newest.values()]
    return {block.key(): block.value() for block in wrong}


def _contradicting(block: MapBlock) -> MapBlock:
    """Return a block of somebody else that says that the last records stand elsewhere."""
    last = block.runs[-1]
    elsewhere = Run(last.source_start + 5, last.target_start + 1, last.count + 1)
    return replace(block, runs=(elsewhere,), owner=(block.owner[0] + 1, 0), previous=None)
