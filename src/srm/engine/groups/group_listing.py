"""The source's groups that a flow selects, listed once in ``refresh.groups.interval.seconds``.

Each run is a separate process, so the last listing is stored with the flow's state, in the topic
``__srm-replication.<SOURCE>`` on the target.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from srm.domain.flow_state.replication_records import COMMANDS, STATE_PARTITIONS
from srm.domain.names import internal_topics
from srm.domain.names.filters import NameFilter
from srm.domain.text.json_records import JsonRecord
from srm.engine.cluster_ports import Cluster, GroupKind
from srm.engine.control.compacted import ensure_compacted
from srm.engine.ports import FlowContext
from srm.errors import IntegrityError

GROUPS_KEY: Final = b"groups"
WITHOUT_OFFSETS: Final[frozenset[GroupKind]] = frozenset({"other"})
"""Kinds of groups without offsets that srm can translate."""

_MS: Final = timedelta(milliseconds=1)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupListing(JsonRecord):
    """Groups that the patterns of a flow selected at ``time_ms`` (epoch, by srm's clock)."""

    KIND = "stored listing of groups"
    time_ms: int
    patterns: tuple[str, ...]
    groups: tuple[str, ...]


def _last_listing(records: Mapping[bytes, bytes]) -> GroupListing | None:
    try:
        return GroupListing.decode(records[GROUPS_KEY]) if GROUPS_KEY in records else None
    except IntegrityError:
        return None


def selected_groups(context: FlowContext, *, remember: bool = False) -> tuple[str, ...]:
    """Return the source's groups that present lists select, in order; ``remember`` stores them."""
    config, now_ms = context.config, context.now_ms()
    interval = config.refresh_groups_interval
    patterns = (*config.groups, "", *config.groups_exclude)
    topic = internal_topics.replication(config.flow.source)
    table = context.target.compacted_topic(topic, COMMANDS)
    known = _last_listing(table.read()) if interval else None
    if known is not None and interval is not None and known.patterns == patterns:
        age_ms = now_ms - known.time_ms
        if 0 <= age_ms < interval / _MS:
            return known.groups
    groups = _list_groups(context, config.group_names)
    if remember and interval is not None:
        own = config.internal_replication_factor
        ensure_compacted(context.target, topic, STATE_PARTITIONS, own)
        table.write({GROUPS_KEY: GroupListing(now_ms, patterns, groups).value()})
        _logger.info("%s: listed %d groups, valid for %s", config.flow, len(groups), interval)
    return groups


def groups_with_offsets(cluster: Cluster) -> tuple[str, ...]:
    """Return the groups of a cluster with offsets that srm can translate."""
    found = cluster.groups().values()
    return tuple(sorted(group.name for group in found if group.kind not in WITHOUT_OFFSETS))


def _list_groups(context: FlowContext, wanted: NameFilter) -> tuple[str, ...]:
    # A broker does not list groups that srm may not see, so groups selected by name are added.
    found = {*groups_with_offsets(context.source), *wanted.names}
    return tuple(sorted(name for name in found if wanted.matches(name)))
