"""Deletion of a flow's state: a driver deletes only what cannot be needed again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final

from srm.domain.flow_state.replication_records import COMMANDS
from srm.domain.flow_state.reported_positions import CopiedTopic, GoneTopics
from srm.replication.driver.discovery import Discovered
from srm.replication.driver.state_book import Key, StateBook

_EVERY_S: Final = 5.0
_AT_ONCE: Final = 1000


@dataclass
class Cleaning:
    """Follows copied topics to their end.

    A topic is written down in the transaction that first assigns it. Once it is gone, its statuses
    and notes are deleted, then what is known of its positions, then the places of groups in it and
    its map, then its own record: a driver that is killed on the way leaves the record, and the next
    one begins again.

    Discovery calls :meth:`look` in its own thread, as maps may take long; the driver the rest.
    """

    _copied: dict[bytes, CopiedTopic] = field(default_factory=dict)
    _gone: GoneTopics = field(default_factory=GoneTopics)
    _finished: tuple[CopiedTopic, ...] = ()
    _cleared: frozenset[bytes] = frozenset()
    _written_for: Discovered | None = None
    _due_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, topic: CopiedTopic) -> None:
        """Take over what an earlier driver wrote down."""
        with self._lock:
            self._copied[topic.key()] = topic

    def look(
        self,
        find_gone: Callable[[Collection[CopiedTopic]], GoneTopics],
        clear: Callable[[Collection[CopiedTopic]], None],
    ) -> None:
        """Find deleted topics, and delete their unused state.

        Args:
            find_gone: returns which of the topics are deleted.
            clear: deletes their maps, and the positions of groups in them.

        Raises:
            SrmError: a cluster does not answer.
        """
        with self._lock:
            copied, finished = tuple(self._copied.values()), self._finished
        gone = find_gone(copied)
        with self._lock:
            self._gone = gone
        if finished:
            clear(finished)
            with self._lock:
                self._cleared |= {topic.key() for topic in finished}
                self._finished = ()

    def new_topics(self, found: Discovered | None) -> list[CopiedTopic]:
        """Return the topics to write down: copied and not known as such, or copied no longer."""
        if found is None or found is self._written_for:
            return []
        topics = (
            CopiedTopic(
                *(p.topic, p.topic_id, p.target_topic, p.target_topic_id),
                *(found.source_cluster, found.target_cluster),
            )
            for p in found.partitions
            if p.partition == 0
        )
        now = {topic.key(): topic for topic in topics}
        with self._lock:
            active = {key for key, topic in self._copied.items() if topic.active}
            left = [replace(self._copied[key], active=False) for key in active - now.keys()]
        new = sorted([*(now[key] for key in now.keys() - active), *left])
        if not new:
            self._written_for = found
        return new

    def deletions(self, state: StateBook, now: float) -> list[Key]:
        """Return some records to delete now; mostly none."""
        if now < self._due_s:
            return []
        self._due_s = now + _EVERY_S
        with self._lock:
            copied, gone, cleared = tuple(self._copied.values()), self._gone, self._cleared
        names = {topic.topic for topic in copied if topic.topic_id in gone.source}
        names -= {topic.topic for topic in copied if topic.topic_id not in gone.source}
        ended = [
            topic for topic in state.finished_topics(copied, gone) if topic.key() not in cleared
        ]
        with self._lock:
            self._finished = tuple(ended)
        return [
            *state.superseded_keys(gone),
            *state.about(names, gone),
            *((COMMANDS, key) for key in cleared),
        ][:_AT_ONCE]

    def on_publish(self, new: Collection[CopiedTopic], deletions: Collection[Key]) -> None:
        """New topics are written down, and records deleted."""
        with self._lock:
            self._copied |= {topic.key(): topic for topic in new}
            ended = self._cleared & {key for partition, key in deletions if partition == COMMANDS}
            self._cleared -= ended
            for key in ended:
                self._copied.pop(key, None)
