"""Counts records between offsets of a move's topics: markers and holes are no records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from srm.domain.move.plan import MovePlan
from srm.domain.offset_map import OffsetMap
from srm.domain.topics import TopicPartition
from srm.engine.move.facts import TopicPair, source_next, topic_pairs
from srm.engine.move.store import MoveContext
from srm.engine.ports import FlowMaps


def written_between(offset_map: OffsetMap, start: int, end: int) -> int:
    """Count records of a topic that is copied; beyond what is copied every offset counts."""
    copied = source_next(offset_map) or 0
    return offset_map.source_records_between(start, end) + max(0, end - max(start, copied))


class TargetRecords:
    """Records between offsets of the target's topics; maps are loaded when first needed."""

    def __init__(self, context: MoveContext, plan: MovePlan) -> None:
        self._context = context
        self._topics = plan.topics
        self._pairs: dict[str, TopicPair] = {
            pair.target_topic: pair for pair in topic_pairs(context, plan.topics)
        }

    @cached_property
    def _maps(self) -> FlowMaps:
        return self._context.forward.maps.load(self._topics)

    @cached_property
    def _reverse_maps(self) -> FlowMaps:
        return self._context.forward.reverse_maps.load(self._topics)

    def count_before(
        self,
        intended: Mapping[str, int],
        started: Mapping[str, int],
        committed: Mapping[str, int],
    ) -> int:
        """Count records that a group reads again: seen before where it should have been."""
        total = 0
        for name, offset in intended.items():
            seen = min(started.get(name, offset), committed.get(name, offset))
            total += self._count(name, seen, offset)
        return total

    def count_after(self, intended: Mapping[str, int], started: Mapping[str, int]) -> int:
        """Count records that a group passed over: started after where it should have."""
        return sum(
            self._count(name, offset, started.get(name, offset))
            for name, offset in intended.items()
        )

    def any_after(self, intended: Mapping[str, int]) -> bool:
        """Whether there is a record at or after the offsets."""
        places = {TopicPartition.parse(name): offset for name, offset in intended.items()}
        ends = self._context.target.log_ends(list(places))
        return any(
            self._count_written(place, offset, ends.get(place, offset))
            for place, offset in places.items()
        )

    def _count_written(self, place: TopicPartition, start: int, end: int) -> int:
        pair = self._pairs.get(place.topic)
        if pair is None or pair.direction == "forward" or start >= end:
            return self._count(str(place), start, end)
        original = TopicPartition(pair.original, place.partition)
        return written_between(self._reverse_maps.get(original), start, end)

    def _count(self, name: str, start: int, end: int) -> int:
        place = TopicPartition.parse(name)
        pair = self._pairs.get(place.topic)
        if pair is None or start >= end:
            return 0
        original = TopicPartition(pair.original, place.partition)
        if pair.direction == "forward":
            return self._maps.get(original).records_between(start, end)
        return self._reverse_maps.get(original).source_records_between(start, end)
