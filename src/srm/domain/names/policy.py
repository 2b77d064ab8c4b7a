"""Replication policies: how a topic is called on the other cluster.

Names and rules follow MirrorMaker 2's ReplicationPolicy and DefaultReplicationPolicy.
"""

from __future__ import annotations

from dataclasses import dataclass

from srm.domain.names.internal_topics import HEARTBEATS


@dataclass(frozen=True, slots=True)
class DefaultReplicationPolicy:
    """Remote topics carry the source alias as prefix: ``P.Payments`` on B is P's ``Payments``."""

    separator: str = "."

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Name on the target of a topic of ``source_alias``."""
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """Alias a remote topic came from, None for a topic without a prefix."""
        source, separator, _ = topic.partition(self.separator)
        return source if separator else None

    def upstream_topic(self, topic: str) -> str | None:
        """Name one hop upstream, None for a topic without a prefix."""
        _, separator, upstream = topic.partition(self.separator)
        return upstream if separator else None

    def original_topic(self, topic: str) -> str:
        """Name without any prefixes, however many hops it came."""
        _, _, original = topic.rpartition(self.separator)
        return original

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether this is MM2's heartbeats topic, here or replicated from anywhere."""
        return self.original_topic(topic) == HEARTBEATS

    def is_internal_topic(self, topic: str) -> bool:
        """Whether MM2 and srm keep state in this topic, or Kafka itself does: never replicated."""
        return topic.startswith(("__", ".")) or topic.endswith(
            (f"{self.separator}internal", "-internal", ".internal")
        )

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        """Whether the topic already passed through ``target_alias`` (MirrorSourceConnector)."""
        source = self.topic_source(topic)
        upstream = self.upstream_topic(topic)
        while source is not None and upstream is not None:
            if source == target_alias:
                return True
            source, upstream = self.topic_source(upstream), self.upstream_topic(upstream)
        return False


@dataclass(frozen=True, slots=True)
class RestoringPolicy(DefaultReplicationPolicy):
    """Takes a prefix off, where a copy goes back to where it came from: ``Payments`` again."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Name on the target of a copy; ``source_alias`` is of the flow, and not in the name."""
        del source_alias
        return self.upstream_topic(topic) or topic

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        """Say no: that a topic has come from the target is why it goes there."""
        del topic, target_alias
        return False
