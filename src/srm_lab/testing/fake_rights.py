"""Rights on a cluster in memory, and the topics that can be created there."""

from __future__ import annotations

from typing import Final

from srm.engine.cluster_ports import TopicSpec
from srm.errors import AuthorizationError, ConfigError, SrmError, UsageError

OPERATIONS: Final = frozenset(
    {"Alter", "AlterConfigs", "Create", "Delete", "Describe", "DescribeConfigs", "Read", "Write"}
)


class FakeRights:
    """The rights of srm on topics: all that were not revoked."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()

    def take(self, operation: str, topic: str) -> None:
        """Revoke a right on a topic."""
        self._taken.add((operation, topic))

    def has(self, operation: str, topic: str) -> bool:
        """Return whether srm may perform an operation on a topic."""
        return (operation, topic) not in self._taken

    def of(self, topic: str) -> frozenset[str]:
        """Return what may be done with a topic; nothing of one that may not be described."""
        if not self.has("Describe", topic):
            return frozenset()
        return frozenset(one for one in OPERATIONS if self.has(one, topic))

    def refusal(self, spec: TopicSpec, brokers: int) -> SrmError | None:
        """Say why brokers would not create a topic, None where they would."""
        if not self.has("Create", spec.name):
            return AuthorizationError(f"creating topic {spec.name}", f"grant Create on {spec.name}")
        if spec.partitions < 1:
            return UsageError(f"creating topic {spec.name}: {spec.partitions} partitions")
        if spec.replication_factor > brokers:
            return ConfigError(
                f"creating topic {spec.name}: replication factor {spec.replication_factor} "
                f"is larger than the number of brokers, {brokers}"
            )
        return None
