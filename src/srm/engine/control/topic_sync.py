"""Keep the remote topics of a flow like their sources: existence, partitions, settings, ACLs.

A sync does what only adds, or follows the source's settings. A plan shows all differences, those
that stay included; nothing is deleted but ACLs, where an operator applies a plan with that choice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from typing import Any, Final

from srm.domain.flow_state.replication_records import (
    STATE_PARTITIONS,
    AssignedPartition,
    PartitionNotes,
    read_pause,
)
from srm.domain.flow_state.replication_state import decode_state, positions_by_copy
from srm.domain.names import internal_topics
from srm.domain.names.rights import Acl
from srm.domain.names.topics import TopicPartition
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.control.topic_plan import (
    Settings,
    TopicSyncPlan,
    compare_users,
    plan_acls,
    plan_remote_topics,
)
from srm.engine.flows.target_topics import StateTopic
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, ConfigError, NotFoundError, SrmError

logger = logging.getLogger(__name__)

_SAMPLES: Final = 3
"""Other topics of the target, whose settings show the defaults of its brokers."""


def plan(context: FlowContext) -> TopicSyncPlan:
    """Compare topics, settings, ACLs, quotas and users of a flow's clusters; change nothing."""
    found = _look(context)
    return found if found.skipped else compare_users(found, context.source, context.target)


def sync(context: FlowContext, *, dry_run: bool = False) -> TopicSyncPlan:
    """Create, grow and configure the remote topics of a flow and add ACLs; return that plan."""
    found = _look(context)
    for note in found.notes:
        _warn_once(str(context.config.flow), note)
    if found.skipped:
        logger.warning("%s", found.skipped)
    elif not dry_run:
        apply(context, found)
    return found


@cache
def _warn_once(flow: str, note: str) -> None:
    logger.warning("%s: %s", flow, note)


def _read_samples(context: FlowContext, topics: Collection[str]) -> Settings:
    try:
        return context.target.topic_settings(topics) if topics else {}
    except AuthorizationError:
        return {}


def _look(context: FlowContext) -> TopicSyncPlan:
    config = context.config
    # A rebuilt source has other settings at first: a shorter retention could delete the only copy.
    if read_pause(StateTopic(context.target, config.flow.source).read_commands()) is not None:
        skipped = f"{config.flow} is paused: its topics are synced when it resumes"
        return TopicSyncPlan(skipped=skipped)
    source_topics, target_topics = context.source.topics(), context.target.topics()
    selected = config.names.select(source_topics)
    remote = set(map(config.names.remote, selected))
    samples = sorted(target_topics.keys() - remote)[:_SAMPLES]
    found = plan_remote_topics(
        source_topics,
        target_topics,
        config,
        context.source.topic_settings(selected),
        {
            **context.target.topic_settings(sorted(remote & target_topics.keys())),
            **_read_samples(context, samples),
        },
    )
    if not config.sync_topic_acls_enabled:
        return found
    try:
        here = context.source.acls()
        if reason := context.target.no_fence_reason():
            raise ConfigError(reason)  # noqa: TRY301 - one answer to both
        there = context.target.acls()
    except (AuthorizationError, ConfigError) as error:
        why = f"ACLs are not synced: {error}; or set sync.topic.acls.enabled = false"
        return replace(found, notes=(why,))
    return plan_acls(found, here, there, source_topics, config)


def apply(context: FlowContext, planned: TopicSyncPlan, remove_acls: Collection[Acl] = ()) -> None:
    """Carry out a plan, removing only ``remove_acls`` of its surplus ACLs.

    A topic that fails does not stop the others; the error after all steps names all failures.
    """
    target = context.target
    steps: tuple[tuple[str, Collection[Any], Callable[[Any], None]], ...] = (
        ("creating topics", planned.create, target.create_topics),
        ("adding partitions", planned.grow, target.create_partitions),
        ("changing settings", planned.configs, target.alter_topic_configs),
        ("adding ACLs", planned.acls, target.create_acls),
        ("removing ACLs", remove_acls, target.delete_acls),
    )
    failures: list[tuple[str, SrmError]] = []
    for what, wanted, step in steps:
        try:
            if wanted:
                step(wanted)
        except SrmError as error:
            logger.warning("%s: %s failed: %s", context.config.flow, what, error)
            failures.append((what, error))
    if failures:
        text = "; ".join(f"{what}: {error}" for what, error in failures)
        raise type(failures[0][1])(f"topic sync of {context.config.flow}: {text}")


def append(
    context: FlowContext, topics: Collection[str], by: str, *, dry_run: bool = False
) -> tuple[AssignedPartition, ...]:
    """Decide that copies begin after the records of others that their remote topics hold now.

    Returns the partitions decided on: without a reported position, but with present or former
    records on the target.
    """
    config, target = context.config, context.target
    source_topics, target_topics = context.source.topics(), target.topics()
    if unknown := set(topics) - set(config.names.select(source_topics)):
        raise NotFoundError(f"the flow does not copy {', '.join(sorted(unknown))}")
    state = StateTopic(target, config.flow.source)
    reported = positions_by_copy(decode_state(state.read()).reports)
    unreported = {}
    for name in topics:
        there = target_topics.get(config.names.remote(name))
        if there is not None:
            for number in range(min(source_topics[name].partitions, there.partitions)):
                ids = source_topics[name].topic_id, there.name, there.topic_id
                assigned = AssignedPartition(name, number, *ids)
                if assigned.copy_id not in reported:
                    unreported[assigned] = TopicPartition(there.name, number)
    ends = target.high_watermarks(list(unreported.values())) if unreported else {}
    decided = tuple(sorted(one for one, place in unreported.items() if ends.get(place)))
    notes = [PartitionNotes.after_others(one, by, context.now_ms()) for one in decided]
    if notes and not dry_run:
        topic = internal_topics.replication(config.flow.source)  # no replicator may have run yet
        ensure_compacted(target, topic, STATE_PARTITIONS, config.internal_replication_factor)
        state.write({note.key(): note.value() for note in notes})
    return decided
