"""Replication policies: names of a topic on the other cluster.

Names and rules follow MirrorMaker 2's ReplicationPolicy and its two implementations. Only
:mod:`srm.domain.names.flow_topics` calls them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from srm.domain.names.internal_topics import HEARTBEATS, is_internal


class ReplicationPolicy(ABC):
    """Names of remote topics; the methods are those of MirrorMaker 2's interface.

    A policy of your own derives from it and is named ``module:Class`` in
    ``replication.policy.class``. The class is called with the alias of the flow's source and the
    separator. Its instances are compared and pickled.
    :func:`srm.domain.names.conformance.check_policy` checks the rest.

    Attributes:
        separator: part of the names of MirrorMaker 2's own topics, ``P.checkpoints.internal``.
    """

    separator: str = "."

    @abstractmethod
    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name on the target of a topic of ``source_alias``."""

    @abstractmethod
    def topic_source(self, topic: str) -> str | None:
        """Return the alias of a remote topic's source, None if it is not a remote topic."""

    @abstractmethod
    def upstream_topic(self, topic: str) -> str | None:
        """Return the name one hop upstream, None if it is not a remote topic."""

    def original_topic(self, topic: str) -> str:
        """Return the name on the first cluster, after any number of hops."""
        while (upstream := self.upstream_topic(topic)) is not None and upstream != topic:
            topic = upstream
        return topic

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Return True for MM2's heartbeats topic, own or replicated."""
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints_topic(self, topic: str) -> bool:
        """Return True for a topic with MM2's checkpoints."""
        return topic.endswith(f"{self.separator}checkpoints{self.separator}internal")

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """Return True for a topic with state of MM2."""
        return topic.endswith(f"{self.separator}internal")

    def is_internal_topic(self, topic: str) -> bool:
        """Return True for a topic with state of Kafka, MM2, Connect or srm: never replicated."""
        return is_internal(topic, self.separator)


@dataclass(frozen=True, slots=True)
class DefaultReplicationPolicy(ReplicationPolicy):
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


@dataclass(frozen=True, slots=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Policy without prefixes: ``Payments`` on B is P's ``Payments``.

    Heartbeats keep their prefix. A name does not show whether a topic is a copy, so the source of
    each is the configured one, as in MirrorMaker 2.
    """

    source_alias: str = ""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name of the topic; that of heartbeats with the prefix."""
        if _is_like_heartbeats(topic):
            return f"{source_alias}{self.separator}{topic}"
        return topic

    def topic_source(self, topic: str) -> str | None:
        """Return the configured source; for heartbeats, the prefix."""
        source, separator, _ = topic.partition(self.separator)
        if _is_like_heartbeats(topic):
            return source if separator else None
        return self.source_alias or None

    def upstream_topic(self, topic: str) -> str | None:
        """Return the name of the topic; that of heartbeats one hop upstream."""
        _, separator, upstream = topic.partition(self.separator)
        if _is_like_heartbeats(topic):
            return upstream if separator else None
        return topic


def _is_like_heartbeats(topic: str) -> bool:
    return topic.endswith(HEARTBEATS)


@dataclass(frozen=True, slots=True)
class RestoringPolicy(ReplicationPolicy):
    """Policy that undoes another one, for copies that return to their origin.

    To it no topic is a remote one, so it sees no cycle in a copy that returns.
    """

    undone: ReplicationPolicy

    @property
    def separator(self) -> str:  # type: ignore[override] # no caller sets it
        """Separator of the other policy."""
        return self.undone.separator

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name of a copy's original; ``source_alias`` is the flow's, not in the name."""
        del source_alias
        return self.undone.upstream_topic(topic) or topic

    def topic_source(self, topic: str) -> str | None:
        """Return None."""
        del topic
        return None

    def upstream_topic(self, topic: str) -> str | None:
        """Return None."""
        del topic
        return None
