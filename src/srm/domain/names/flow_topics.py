"""Topics of a flow: their names on both clusters, and which of them it copies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from srm.domain.names.internal_topics import HEARTBEATS
from srm.domain.names.policy import NameFilter, ReplicationPolicy
from srm.domain.names.topics import Flow

Refusal = Literal["internal", "cycle", "denied", "not-listed", "filtered", "taken"]
"""Reason for not copying a topic: it is internal, has been on the target, by the lists, by
``topic.filter.class``, or its copy has the name of another topic's."""


@dataclass(frozen=True, slots=True)
class RecordedCopies:
    """Topics recorded as copies, by a name-keeping flow or its opposite; None if not known."""

    on_source: frozenset[str] | None = None
    on_target: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class FlowTopics:
    """Names of a flow P->B, for ``Payments`` of P and its copy ``P.Payments`` on B.

    ``B.Payments`` on P is the replica of B's ``Payments``, by the opposite flow. A policy may keep
    names; then what replicators have ``recorded`` shows whether a topic is a copy. ``listed``
    filters by the lists, ``opposite`` by those of the opposite flow, if both are enabled and keep
    names. ``back`` is the opposite flow's policy, by default the same. ``aliases``: all known ones.
    """

    flow: Flow
    policy: ReplicationPolicy
    listed: NameFilter = field(default_factory=NameFilter)
    heartbeats: bool = True
    back: ReplicationPolicy | None = None
    recorded: RecordedCopies = field(default_factory=RecordedCopies)
    opposite: NameFilter = field(default_factory=NameFilter)
    aliases: frozenset[str] = frozenset()

    def remote(self, topic: str) -> str:
        return self.policy.format_remote_topic(self.flow.source, topic)

    def original(self, name: str) -> str | None:
        """Return the source's topic that a topic of the target is a copy of, None if of none."""
        original = self._upstream(self.policy, name, self.flow.source)
        if original != name:
            return original
        there = self.recorded.on_target
        return name if (self.selects(name) if there is None else name in there) else None

    def replica(self, topic: str) -> str:
        """Return the name on the source of the copy of a topic of the target."""
        return (self.back or self.policy).format_remote_topic(self.flow.target, topic)

    def origin(self, name: str) -> str | None:
        """Return the target's topic that a topic of the source is a replica of, None if of none."""
        origin = self._upstream(self.back or self.policy, name, self.flow.target)
        return None if origin == name and name not in (self.recorded.on_source or ()) else origin

    def is_replica(self, name: str) -> bool:
        return self.origin(name) is not None

    def is_original(self, topic: str) -> bool:
        """Return True if a flow copies a topic of its source that is not a copy itself."""
        return (
            self.selects(topic)
            and self.came_from(topic) not in {self.flow.source, self.flow.target}
            and not self.is_heartbeats(topic)
        )

    def came_from(self, name: str) -> str | None:
        """Return the alias in the name of a copy, None where the name does not show one."""
        upstream = self.policy.upstream_topic(name)
        return None if upstream in {None, name} else self.policy.topic_source(name)

    def is_internal(self, name: str) -> bool:
        return self.policy.is_internal_topic(name)

    def is_heartbeats(self, name: str) -> bool:
        """Return True for MM2's heartbeats topic, own or of known aliases, not ``x.heartbeats``."""
        known = {self.flow.source, self.flow.target, *self.aliases}
        while name != HEARTBEATS and self.came_from(name) in known:
            name = self.policy.upstream_topic(name) or ""
        return name == HEARTBEATS

    def is_cycle(self, topic: str) -> bool:
        """Return True if a topic of the source came through the target (MM2's isCycle).

        Each hop in its name may be by either flow's policy. A copy by the opposite flow under its
        own name is a cycle, too, unless both flows keep names: then records show what returns.
        """
        names = [topic]
        for name in names:  # both policies may reach one name, by many ways
            if self.origin(name) == name and not self.keeps_name(name):
                return True
            for policy in (self.policy, self.back or self.policy):
                upstream = policy.upstream_topic(name)
                if upstream is None or upstream == name:
                    continue
                if policy.topic_source(name) == self.flow.target:
                    return True
                names += [upstream] if upstream not in names else []
        return False

    def refusal(self, topic: str) -> Refusal | None:
        """Return why a topic is not copied, None if it is (MM2's shouldReplicateTopic)."""
        if self.is_internal(topic) or self.is_internal(self.remote(topic)):
            return "internal"
        if self.is_cycle(topic):
            return "cycle"
        if (self.heartbeats and self.is_heartbeats(topic)) or self.listed.matches(topic):
            is_own = self.policy.upstream_topic(self.remote(topic)) in {None, topic}
            return None if is_own else "taken"
        if self.listed.excluded_by(topic) is not None:
            return "denied"
        return "not-listed" if self.listed.included_by(topic) is None else "filtered"

    def selects(self, topic: str) -> bool:
        return self.refusal(topic) is None

    def select(self, topics: Collection[str]) -> tuple[str, ...]:
        return tuple(filter(self.selects, sorted(topics)))

    def keeps_name(self, topic: str) -> bool:
        return self.remote(topic) == topic

    def is_shared(self, topic: str) -> bool:
        """Return True unless this flow alone copies into this name, as is known.

        Without the map of an opposite flow that copies it, or has, a group would skip records.
        """
        recorded = self.recorded.on_source
        is_known_alone = recorded is not None and topic not in recorded
        if is_known_alone and not self.opposite.matches(topic):
            return False
        return self.keeps_name(topic) and self.selects(topic)

    def _upstream(self, policy: ReplicationPolicy, name: str, alias: str) -> str | None:
        # P.checkpoints.internal is MM2's own, and no copy of a topic checkpoints.internal.
        if policy.topic_source(name) != alias or self.is_internal(name):
            return None
        found = policy.upstream_topic(name)
        # A table of a user may still read names that it does not give any more.
        is_given = found is not None and policy.format_remote_topic(alias, found) == name
        return found if is_given else None
