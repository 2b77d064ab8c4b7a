"""Counts of records between offsets of a move's topics, without markers and gaps."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from srm.domain.groups.translation import Direction, wanted_of
from srm.domain.moves.records.plan import MovePlan
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap
from srm.engine.flows.cluster_absence import loudness
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.planning.facts import TopicPair, source_next, topic_pairs
from srm.engine.ports import FlowMaps, MapReader
from srm.errors import NotLoadedError, UnavailableError

log = logging.getLogger(__name__)


def written_between(offset_map: OffsetMap, start: int, end: int) -> int:
    """Count records of a source topic; after the end of its copy every offset counts."""
    copied = source_next(offset_map) or 0
    try:
        known = offset_map.source_records_between(start, end)
    except NotLoadedError:  # a part of the map is lost: each of its offsets counts
        return max(0, end - start)
    return known + max(0, end - max(start, copied))


class TargetRecords:
    """Records between offsets of the target's topics; maps are loaded on first use.

    ``offsets``: all offsets that counts will start or end at, by name of the target's partition.
    """

    def __init__(
        self, context: MoveContext, plan: MovePlan, offsets: Iterable[Mapping[str, int]]
    ) -> None:
        self._context = context
        self._offsets: dict[TopicPartition, set[int]] = defaultdict(set)
        for each in offsets:
            for name, offset in each.items():
                self._offsets[TopicPartition.parse(name)].add(offset)
        self._pairs: dict[str, TopicPair] = {
            pair.target_topic: pair for pair in topic_pairs(context, plan.topics)
        }

    @cached_property
    def _maps(self) -> FlowMaps:
        return self._load(self._context.forward.maps, "forward")

    @cached_property
    def _reverse_maps(self) -> FlowMaps:
        try:
            return self._load(self._context.forward.reverse_maps, "reverse")
        except UnavailableError as error:  # the maps are on the source: every offset counts
            log.log(loudness(error), "records are counted by their offsets: %s", error)
            return FlowMaps({})

    def _load(self, reader: MapReader, direction: Direction) -> FlowMaps:
        wanted = {
            TopicPartition(pair.original, place.partition): wanted_of(
                direction, (), {*offsets, self._ends.get(place)}
            )
            for place, offsets in self._offsets.items()
            if (pair := self._pairs.get(place.topic)) is not None and pair.direction == direction
        }
        topics = {original.topic for original in wanted}
        return reader.load(topics, wanted) if topics else FlowMaps({})

    @cached_property
    def _ends(self) -> Mapping[TopicPartition, int]:
        return self._context.target.log_ends(list(self._offsets)) if self._offsets else {}

    def count_before(
        self,
        intended: Mapping[str, int],
        started: Mapping[str, int],
        committed: Mapping[str, int],
    ) -> int:
        """Count records that a group reads again, from where it was seen to its intended offset."""
        total = 0
        for name, offset in intended.items():
            seen = min(started.get(name, offset), committed.get(name, offset))
            total += self._count(name, seen, offset)
        return total

    def count_after(self, intended: Mapping[str, int], started: Mapping[str, int]) -> int:
        """Count records that a group skipped, from its intended offset to where it started."""
        return sum(
            self._count(name, offset, started.get(name, offset))
            for name, offset in intended.items()
        )

    def any_after(self, intended: Mapping[str, int]) -> bool:
        """Return True if a record exists at or after the offsets."""
        places = {TopicPartition.parse(name): offset for name, offset in intended.items()}
        return any(
            self._count(str(place), offset, self._ends.get(place, offset))
            for place, offset in places.items()
        )

    def _count(self, name: str, start: int, end: int) -> int:
        place = TopicPartition.parse(name)
        pair = self._pairs.get(place.topic)
        if pair is None or start >= end:
            return 0
        original = TopicPartition(pair.original, place.partition)
        try:
            if pair.direction == "forward":
                return self._maps.get(original).records_between(start, end)
            return written_between(self._reverse_maps.get(original), start, end)
        except NotLoadedError:  # a part of the map is lost: each of its offsets counts
            return end - start
