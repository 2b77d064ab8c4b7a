"""Group offset sync with the groups spread over Spark tasks: the same engine call in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.groups.group_listing import selected_groups
from srm.engine.groups.group_sync import GroupSyncSummary, sync
from srm.spark.jobs.groups import over_groups
from srm.wiring import open_flow


def sync_spread(spark: SparkSession, config: Config, flow: Flow) -> GroupSyncSummary:
    """Bring a flow's idle groups on; see :func:`srm.engine.groups.group_sync.sync`."""
    with open_flow(config, flow) as context:
        # Without groups: says whether the sync is on, and carries flow and time.
        start = sync(context, ())
        if start.skipped:
            return start
        groups = selected_groups(context, remember=True)
    parts, errors = over_groups(spark, config, flow, groups, sync)
    return merge(start, parts, errors)


def merge(
    start: GroupSyncSummary, parts: Iterable[GroupSyncSummary], errors: Mapping[str, str]
) -> GroupSyncSummary:
    """Put the summaries of disjoint sets of groups together."""
    merged = replace(start, errors=dict(errors))
    for part in parts:
        merged = replace(
            merged,
            actions=dict(Counter(merged.actions) + Counter(part.actions)),
            applied=merged.applied + part.applied,
            decisions=(*merged.decisions, *part.decisions),
            errors={**merged.errors, **part.errors},
        )
    return replace(
        merged,
        actions=dict(sorted(merged.actions.items())),
        decisions=tuple(sorted(merged.decisions, key=lambda d: (d.group, d.partition))),
    )
