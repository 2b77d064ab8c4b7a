"""A replication policy of a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from srm.domain.names.policy import ReplicationPolicy


@dataclass(frozen=True)
class SuffixPolicy(ReplicationPolicy):
    """Policy with the source as suffix: ``Payments-from-P``."""

    source_alias: str
    separator: str

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{topic}-from-{source_alias}"

    def topic_source(self, topic: str) -> str | None:
        name, _, source = topic.rpartition("-from-")
        return source if name else None

    def upstream_topic(self, topic: str) -> str | None:
        return topic.rpartition("-from-")[0] or None


class Merging(SuffixPolicy):
    """Policy that gives two topics one name."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return super().format_remote_topic(source_alias, topic.removesuffix("-old"))


SUFFIX_POLICY: Final = f"{__name__}:{SuffixPolicy.__name__}"
"""Value of replication.policy.class."""
