"""Replication policies: names of a topic on the other cluster.

Names and rules follow MirrorMaker 2's ReplicationPolicy and DefaultReplicationPolicy.
"""

from __future__ import annotations

from dataclasses import dataclass

from srm.domain.names.internal_topics import HEARTBEATS, is_internal


@dataclass(frozen=True, slots=True)
class DefaultReplicationPolicy:
    """Policy with the source alias as prefix: ``P.Payments`` on B is P's ``Payments``."""

    separator: str = "."

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name on the target of a topic of ``source_alias``."""
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """Return the alias of a remote topic's source, None for a topic without a prefix."""
        source, separator, _ = topic.partition(self.separator)
        return source if separator else None

    def upstream_topic(self, topic: str) -> str | None:
        """Return the name one hop upstream, None for a topic without a prefix."""
        _, separator, upstream = topic.partition(self.separator)
        return upstream if separator else None

    def original_topic(self, topic: str) -> str:
        """Return the name without prefixes, after any number of hops."""
        _, _, original = topic.rpartition(self.separator)
        return original

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Return True for MM2's heartbeats topic, own or replicated."""
        return self.original_topic(topic) == HEARTBEATS

    def is_internal_topic(self, topic: str) -> bool:
        """Return True for a topic with state of Kafka, MM2, Connect or srm: never replicated."""
        return is_internal(topic, self.separator)

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        """Return True if the topic came through ``target_alias`` (MirrorSourceConnector)."""
        source = self.topic_source(topic)
        upstream = self.upstream_topic(topic)
        while source is not None and upstream is not None:
            if source == target_alias:
                return True
            source, upstream = self.topic_source(upstream), self.upstream_topic(upstream)
        return False


@dataclass(frozen=True, slots=True)
class RestoringPolicy(DefaultReplicationPolicy):
    """Policy that removes the prefix, for copies that return to their origin: ``Payments``."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return a copy's name on the target; ``source_alias`` is the flow's, not in the name."""
        del source_alias
        return self.upstream_topic(topic) or topic

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        """Return False: a restored topic comes from the target on purpose."""
        del topic, target_alias
        return False
