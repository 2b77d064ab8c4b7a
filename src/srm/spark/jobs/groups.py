"""Checkpoints and group sync for fleets too large for one process: an engine call per task."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.groups.proof_records import FlowProof, merge_proofs
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.domain.text.reason import Reason
from srm.engine import emission
from srm.engine.groups.checkpoints import (
    CheckpointSummary,
    Survey,
    emit,
    proof_share,
    standing_still,
)
from srm.engine.groups.group_listing import selected_groups
from srm.engine.groups.group_sync import GroupSyncSummary, sync
from srm.engine.groups.proving import ProofShare, keep_proof
from srm.engine.ports import FlowContext
from srm.errors import SrmError
from srm.spark.jobs.spread import cores, spread
from srm.wiring import open_flow

logger = logging.getLogger(__name__)

_S = TypeVar("_S")
_Summary = TypeVar("_Summary", CheckpointSummary, GroupSyncSummary)
_TASKS_PER_CORE = 2
_GROUPS_PER_TASK = 20


def emit_spread(spark: SparkSession, config: Config, flow: Flow) -> CheckpointSummary:
    """Write a flow's checkpoints, as :func:`srm.engine.emission.emit` does."""
    with open_flow(config, flow) as context:
        # Without groups: says whether emission is on, and carries flow and time.
        start = emission.emit(context, ())
        if start.skipped:
            return start
        groups = selected_groups(context, remember=True)
        share = proof_share(context)
    call = partial(_emit_part, share, len(groups))
    found = merge_checkpoints(start, *over_groups(spark, config, flow, groups, call))
    if found.proof is not None:
        with open_flow(config, flow) as context:
            keep_proof(context, _with_those_standing_still(context, found))
    return found


def sync_spread(spark: SparkSession, config: Config, flow: Flow) -> GroupSyncSummary:
    """Write offsets of idle groups, as :func:`srm.engine.groups.group_sync.sync` does."""
    with open_flow(config, flow) as context:
        # Without groups: says whether the sync is on, and carries flow and time.
        start = sync(context, ())
        if start.skipped:
            return start
        groups = selected_groups(context, remember=True)
    return merge_syncs(start, *over_groups(spark, config, flow, groups, sync))


def _emit_part(
    share: ProofShare, total: int, context: FlowContext, groups: Collection[str]
) -> CheckpointSummary:
    return emit(context, groups, share=share.of(len(groups), total))


def _with_those_standing_still(context: FlowContext, summary: CheckpointSummary) -> FlowProof:
    config, proof = context.config, summary.proof or FlowProof(str(summary.flow), summary.time_ms)
    topic = internal_topics.checkpoints(config.flow.source, config.policy.separator)
    emitted = {c.key() for outcome in summary.outcomes if (c := outcome.checkpoint) is not None}
    found = Survey(summary.outcomes, {name: Reason(why) for name, why in summary.errors.items()})
    still = standing_still(context.target.compacted_topic(topic).read().keys() - emitted, found)
    return replace(proof, unread=(*proof.unread, *still))


def merge_checkpoints(
    start: CheckpointSummary, parts: Collection[CheckpointSummary], errors: Mapping[str, str]
) -> CheckpointSummary:
    """Put the summaries of disjoint sets of groups together, and their proofs."""
    merged = _merge(start, parts, errors, ("groups", "written", "unchanged"), "states")
    outcomes = (outcome for part in parts for outcome in part.outcomes)
    merged = replace(merged, outcomes=tuple(sorted(outcomes, key=lambda o: (o.group, o.upstream))))
    if start.proof is None:
        return merged
    proof = merge_proofs([part.proof for part in parts if part.proof is not None], start.proof)
    return replace(merged, proof=replace(proof, unread=tuple(sorted({*proof.unread, *errors}))))


def merge_syncs(
    start: GroupSyncSummary, parts: Collection[GroupSyncSummary], errors: Mapping[str, str]
) -> GroupSyncSummary:
    """Put the summaries of disjoint sets of groups together."""
    merged = _merge(start, parts, errors, ("applied",), "actions")
    decisions = (decision for part in parts for decision in part.decisions)
    by_group = sorted(decisions, key=lambda d: (d.group, d.partition))
    return replace(merged, decisions=tuple(by_group))


def _merge(
    start: _Summary,
    parts: Collection[_Summary],
    errors: Mapping[str, str],
    sums: Iterable[str],
    counts: str,
) -> _Summary:
    """Add up counts, alone or by name, and unite the errors."""
    found: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in sums}
    by_name = Counter[str]()
    for part in parts:
        by_name.update(getattr(part, counts))
        errors = {**errors, **part.errors}
    return replace(start, **found | {counts: dict(sorted(by_name.items()))}, errors=dict(errors))


def deal(groups: Collection[str], hands: int) -> list[tuple[str, ...]]:
    """Deal groups out like cards, so that neighbours by name (often alike in size) are spread."""
    ordered = sorted(groups)
    return [tuple(ordered[hand::hands]) for hand in range(min(hands, len(ordered)))]


def over_groups(
    spark: SparkSession,
    config: Config,
    flow: Flow,
    groups: Collection[str],
    call: Callable[[FlowContext, Collection[str]], _S],
) -> tuple[list[_S], dict[str, str]]:
    """Run an importable engine call on the groups in Spark tasks, each with its own clients.

    Returns the results of the tasks, and for each group of a task that failed the reason.
    """
    if not groups:
        return [], {}
    wanted = max(1, len(groups) // _GROUPS_PER_TASK)
    hands = deal(groups, min(_TASKS_PER_CORE * cores(spark), wanted))
    logger.info("%s: %d groups in %d Spark tasks", flow, len(groups), len(hands))

    def run(part: Iterable[tuple[str, ...]]) -> Iterator[tuple[_S | None, dict[str, str]]]:
        for hand in part:
            yield run_hand(config, flow, hand, call)

    done = spread(spark, hands, run, tasks=len(hands))
    errors = {group: reason for _, failed in done for group, reason in failed.items()}
    return [result for result, _ in done if result is not None], errors


def run_hand(
    config: Config,
    flow: Flow,
    groups: tuple[str, ...],
    call: Callable[[FlowContext, Collection[str]], _S],
) -> tuple[_S | None, dict[str, str]]:
    """Run the call on one task's groups: its result, or the reason for each group."""
    try:
        with open_flow(config, flow) as context:
            return call(context, groups), {}
    except SrmError as error:
        return None, dict.fromkeys(groups, str(error))
