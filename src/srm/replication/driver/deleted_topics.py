"""Copied topics that are permanently deleted, as far as a driver can know."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from srm.domain.flow_state.stale_positions import CopiedTopic, GoneTopics
from srm.engine.ports import TopicDescription

GONE_S: Final = 300.0
_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class Side:
    """One cluster at one moment.

    ``is_hidden`` checks whether srm lacks the right to see a topic: brokers omit such topics.
    """

    cluster_id: str
    topics: Mapping[str, TopicDescription]
    is_hidden: Callable[[str], bool]


@dataclass(slots=True)
class _Missed:
    since_s: float
    looks: int = 1


class GoneWatch:
    """Takes a topic for gone once its id was missing for :data:`GONE_S`, in each of several looks.

    Only looks count that a cluster has answered, and only if it is the cluster on which the topic
    was. A topic whose name has another id now was deleted; one whose name has none may be hidden.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._missed: dict[tuple[str, str], _Missed] = {}

    def look(self, known: Collection[CopiedTopic], source: Side, target: Side) -> GoneTopics:
        """Return which of the known topics are gone."""
        sources = {t.topic_id: (t.topic, t.source_cluster) for t in known}
        targets = {t.target_topic_id: (t.target_topic, t.target_cluster) for t in known}
        return GoneTopics(
            self._deleted_since("source", sources, source),
            self._deleted_since("target", targets, target),
        )

    def _deleted_since(
        self, name: str, known: Mapping[str, tuple[str, str]], side: Side
    ) -> frozenset[str]:
        now = self._clock()
        present = {topic.topic_id for topic in side.topics.values()}
        gone = set()
        for topic_id, (topic, cluster_id) in known.items():
            if topic_id in present or cluster_id != side.cluster_id:
                self._missed.pop((name, topic_id), None)
                continue
            missed = self._missed.get((name, topic_id))
            if missed is None:
                self._missed[name, topic_id] = _Missed(now)
                continue
            missed.looks += 1
            if (
                missed.looks >= _LOOKS
                and now - missed.since_s >= GONE_S
                and (topic in side.topics or not side.is_hidden(topic))
            ):
                gone.add(topic_id)
        return frozenset(gone)
