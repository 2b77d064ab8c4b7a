"""Checkpoint emission with the groups spread over Spark tasks: the same engine call in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.topics import Flow
from srm.engine.checkpoints import CheckpointSummary, emit
from srm.engine.group_listing import selected_groups
from srm.spark.groups import over_groups
from srm.wiring import open_flow


def emit_spread(spark: SparkSession, config: Config, flow: Flow) -> CheckpointSummary:
    """Write a flow's checkpoints; see :func:`srm.engine.checkpoints.emit`.

    Raises:
        SrmError: a cluster does not answer before the groups are spread; afterwards the groups of
            a task that failed are in the summary's ``errors``.
    """
    with open_flow(config, flow) as context:
        # Without groups: says whether emission is on, and carries flow and time.
        start = emit(context, ())
        if start.skipped:
            return start
        groups = selected_groups(context, remember=True)
    parts, errors = over_groups(spark, config, flow, groups, emit)
    return merge(start, parts, errors)


def merge(
    start: CheckpointSummary, parts: Iterable[CheckpointSummary], errors: Mapping[str, str]
) -> CheckpointSummary:
    """Put the summaries of disjoint sets of groups together."""
    merged = replace(start, errors=dict(errors))
    for part in parts:
        merged = replace(
            merged,
            groups=merged.groups + part.groups,
            written=merged.written + part.written,
            unchanged=merged.unchanged + part.unchanged,
            states=dict(Counter(merged.states) + Counter(part.states)),
            outcomes=(*merged.outcomes, *part.outcomes),
            errors={**merged.errors, **part.errors},
        )
    return replace(
        merged,
        states=dict(sorted(merged.states.items())),
        outcomes=tuple(sorted(merged.outcomes, key=lambda o: (o.group, o.upstream))),
    )
