"""Checkpoint emission with the groups spread over Spark tasks: the same engine call in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.groups.proof_records import FlowProof, merge_proofs
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.domain.text.reason import Reason
from srm.engine import emission
from srm.engine.groups.checkpoint_proof import ProofShare
from srm.engine.groups.checkpoints import (
    CheckpointSummary,
    Survey,
    emit,
    proof_share,
    standing_still,
)
from srm.engine.groups.group_listing import selected_groups
from srm.engine.groups.proving import keep_proof
from srm.engine.ports import FlowContext
from srm.spark.jobs.groups import over_groups
from srm.wiring import open_flow


def emit_spread(spark: SparkSession, config: Config, flow: Flow) -> CheckpointSummary:
    """Write a flow's checkpoints; see :func:`srm.engine.emission.emit`.

    Raises:
        SrmError: a cluster does not answer before the groups are spread; afterwards the groups of
            a task that failed are in the summary's ``errors``.
    """
    with open_flow(config, flow) as context:
        # Without groups: says whether emission is on, and carries flow and time.
        start = emission.emit(context, ())
        if start.skipped:
            return start
        groups = selected_groups(context, remember=True)
        share = proof_share(context)
    parts, errors = over_groups(
        spark, config, flow, groups, partial(_emit_part, share, len(groups))
    )
    merged_parts = merge(start, parts, errors)
    if merged_parts.proof is not None:
        with open_flow(config, flow) as context:
            keep_proof(context, _with_those_standing_still(context, merged_parts))
    return merged_parts


def _with_those_standing_still(context: FlowContext, summary: CheckpointSummary) -> FlowProof:
    config, proof = context.config, summary.proof or FlowProof(str(summary.flow), summary.time_ms)
    topic = internal_topics.checkpoints(config.flow.source, config.policy.separator)
    emitted = {c.key() for outcome in summary.outcomes if (c := outcome.checkpoint) is not None}
    found = Survey(summary.outcomes, {name: Reason(why) for name, why in summary.errors.items()})
    still = standing_still(context.target.compacted_topic(topic).read().keys() - emitted, found)
    return replace(proof, unread=(*proof.unread, *still))


def _emit_part(
    share: ProofShare, total: int, context: FlowContext, groups: Collection[str]
) -> CheckpointSummary:
    return emit(context, groups, share=share.of(len(groups), total))


def merge(
    start: CheckpointSummary, parts: Iterable[CheckpointSummary], errors: Mapping[str, str]
) -> CheckpointSummary:
    """Put the summaries of disjoint sets of groups together."""
    merged = replace(start, errors=dict(errors))
    parts = list(parts)
    proofs = [part.proof for part in parts if part.proof is not None]
    if start.proof is not None:
        whole = merge_proofs(proofs, start.proof)
        unread = tuple(sorted({*whole.unread, *errors}))
        merged = replace(merged, proof=replace(whole, unread=unread))
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
