"""The source's groups that a flow selects, listed once in ``refresh.groups.interval.seconds``.

Each run is a process of its own, so what the last listing found is kept beside the flow's other
state, in the topic ``srm-replication.<SOURCE>.internal`` on the target.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final

from srm.domain.flow_state.replication_records import COMMANDS, STATE_PARTITIONS
from srm.domain.names import internal_topics
from srm.domain.names.filters import NameFilter, group_filter
from srm.engine.control.compacted import ensure_compacted
from srm.engine.ports import Cluster, FlowContext, GroupKind

GROUPS_KEY: Final = b"groups"
WITHOUT_OFFSETS: Final[frozenset[GroupKind]] = frozenset({"share", "other"})
"""Kinds of groups that keep no committed offsets of the kind that srm carries over."""

_MS: Final = timedelta(milliseconds=1)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """Groups that the patterns of a flow selected at ``time_ms`` (epoch, by srm's clock)."""

    time_ms: int
    patterns: tuple[str, ...]
    groups: tuple[str, ...]

    def value(self) -> bytes:
        """Encode the record value."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes | None) -> GroupListing | None:
        """Decode a record value; None where there is none, or none that can be read."""
        try:
            raw = json.loads(value or b"")
            return cls(raw["time_ms"], tuple(raw["patterns"]), tuple(raw["groups"]))
        except (ValueError, KeyError, TypeError):
            return None


def selected_groups(context: FlowContext, *, remember: bool = False) -> tuple[str, ...]:
    """Return the source's groups that the flow's lists select, in order.

    Changed lists count at once: they have the groups listed again before the interval is over.

    Args:
        context: the flow.
        remember: keep what is listed for the runs that follow.

    Raises:
        SrmError: a cluster does not answer.
    """
    config, now_ms = context.config, context.now_ms()
    interval = config.refresh_groups_interval
    patterns = (*config.groups, "", *config.groups_exclude)
    topic = internal_topics.replication(config.flow.source)
    table = context.target.compacted_topic(topic, COMMANDS)
    known = GroupListing.decode(table.read().get(GROUPS_KEY)) if interval else None
    if known is not None and interval is not None and known.patterns == patterns:
        age_ms = now_ms - known.time_ms
        if 0 <= age_ms < interval / _MS:
            return known.groups
    groups = _list_groups(context, group_filter(config.groups, config.groups_exclude))
    if remember and interval is not None:
        own = config.internal_replication_factor
        ensure_compacted(context.target, topic, STATE_PARTITIONS, own)
        table.write({GROUPS_KEY: GroupListing(now_ms, patterns, groups).value()})
        _logger.info("%s: %d groups are known for the next %s", config.flow, len(groups), interval)
    return groups


def groups_with_offsets(cluster: Cluster) -> tuple[str, ...]:
    """List the groups of a cluster that keep committed offsets: share groups do not.

    Raises:
        SrmError: the cluster does not answer.
    """
    found = cluster.groups().values()
    return tuple(sorted(group.name for group in found if group.kind not in WITHOUT_OFFSETS))


def _list_groups(context: FlowContext, wanted: NameFilter) -> tuple[str, ...]:
    # A broker does not list groups that srm may not see: those with a name are asked for.
    found = {*groups_with_offsets(context.source), *wanted.names}
    return tuple(sorted(name for name in found if wanted.matches(name)))
