"""Keep the remote topics of a flow like their sources: existence, partitions, settings.

Rules of MM2's MirrorSourceConnector: same partition count, grown but never shrunk; settings that
differ from the source's defaults, less the excluded ones; nothing is deleted. Planning is pure,
so that a dry run shows exactly what a run would do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from srm.config.model import FlowConfig
from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.pause import read_pause
from srm.domain.flow_state.replication_records import STATE_PARTITIONS, AssignedPartition
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.flow_state.reported_positions import positions_by_copy
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicDescription, TopicSpec
from srm.engine.control.compacted import ensure_compacted
from srm.engine.flows.state_topic import StateTopic
from srm.engine.ports import FlowContext
from srm.errors import NotFoundError, SrmError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicSyncPlan:
    """Changes to make on a flow's target, by name of the remote topic.

    Attributes:
        create: remote topics that are missing.
        grow: new partition counts.
        configs: settings to change, None deletes an override.
        surplus: remote topics with more partitions than their source: (source's, target's) count.
            They are not changed, since Kafka cannot shrink a topic.
        selected: number of source topics that the flow selects.
        skipped: why the sync was skipped, else empty.
    """

    create: tuple[TopicSpec, ...] = ()
    grow: Mapping[str, int] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    surplus: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    selected: int = 0
    skipped: str = ""

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        return not (self.create or self.grow or self.configs)


def plan_remote_topics(
    source_topics: Mapping[str, TopicDescription],
    target_topics: Mapping[str, TopicDescription],
    flow_config: FlowConfig,
    source_configs: Mapping[str, Mapping[str, str]],
    target_configs: Mapping[str, Mapping[str, str]] | None = None,
) -> TopicSyncPlan:
    """Plan the changes that make the remote topics like their sources; pure.

    Args:
        source_topics: topics of the source; those the flow does not select are skipped.
        target_topics: topics of the target.
        flow_config: settings of the flow, control lists included.
        source_configs: non-default settings by source topic.
        target_configs: the same by remote topic. Without it, or where sync.topic.configs.enabled is
            false, settings of existing topics are not changed.
    """
    create: list[TopicSpec] = []
    grow: dict[str, int] = {}
    configs: dict[str, Mapping[str, str | None]] = {}
    surplus: dict[str, tuple[int, int]] = {}
    names = flow_config.names
    selected = names.select(source_topics)
    for name in selected:
        remote = names.remote(name)
        wanted = _configs_to_copy(source_configs.get(name, {}), flow_config)
        partitions = source_topics[name].partitions
        found = target_topics.get(remote)
        if found is None:
            create.append(TopicSpec(remote, partitions, flow_config.replication_factor, wanted))
            continue
        if found.partitions < partitions:
            grow[remote] = partitions
        elif found.partitions > partitions:
            surplus[remote] = (partitions, found.partitions)
        if target_configs is not None and flow_config.sync_topic_configs_enabled:
            current = _configs_to_copy(target_configs.get(remote, {}), flow_config)
            if changes := _differences(wanted, current):
                configs[remote] = changes
    return TopicSyncPlan(tuple(create), grow, configs, surplus, len(selected))


def apply(context: FlowContext, plan: TopicSyncPlan) -> None:
    """Carry out a plan. A topic that fails does not stop the others.

    Raises:
        SrmError: something failed; raised after all steps, the message names all failures.
    """
    target = context.target
    steps: list[tuple[str, Callable[[], None]]] = []
    if plan.create:
        steps.append(("creating topics", lambda: target.create_topics(plan.create)))
    if plan.grow:
        steps.append(("adding partitions", lambda: target.create_partitions(plan.grow)))
    if plan.configs:
        steps.append(("changing settings", lambda: target.alter_topic_configs(plan.configs)))
    failures: list[tuple[str, SrmError]] = []
    for what, step in steps:
        try:
            step()
        except SrmError as error:
            logger.warning("%s: %s failed: %s", context.config.flow, what, error)
            failures.append((what, error))
    if failures:
        text = "; ".join(f"{what}: {error}" for what, error in failures)
        raise type(failures[0][1])(f"topic sync of {context.config.flow}: {text}")


def sync(context: FlowContext, *, dry_run: bool = False) -> TopicSyncPlan:
    """Create, grow and configure the remote topics of a flow; return what was (or would be) done.

    A paused flow is skipped: a rebuilt source has other settings at first, and a shorter retention
    could delete the only copy.

    Raises:
        SrmError: a cluster does not answer, or a part of the plan failed.
    """
    config = context.config
    if read_pause(StateTopic(context.target, config.flow.source).read_commands()) is not None:
        skipped = f"{config.flow} is paused: its topics are synced when it resumes"
        logger.warning("%s", skipped)
        return TopicSyncPlan(skipped=skipped)
    source_topics, target_topics = context.source.topics(), context.target.topics()
    names = config.names
    selected = names.select(source_topics)
    remote = set(map(names.remote, selected))
    source_configs = context.source.topic_configs(selected)
    target_configs = context.target.topic_configs(sorted(remote & target_topics.keys()))
    plan = plan_remote_topics(source_topics, target_topics, config, source_configs, target_configs)
    if not dry_run:
        apply(context, plan)
    return plan


def append(
    context: FlowContext, topics: Collection[str], by: str, *, dry_run: bool = False
) -> tuple[AssignedPartition, ...]:
    """Decide that copies begin after the records of others that their remote topics hold now.

    Args:
        context: the flow.
        topics: source topics.
        by: name of the operator, for display.
        dry_run: write nothing.

    Returns:
        The partitions decided on. Their copies have no reported position, and their remote
        partitions hold, or have held, records.

    Raises:
        NotFoundError: the flow does not copy one of the topics.
        SrmError: a cluster does not answer.
    """
    config, target = context.config, context.target
    source_topics, target_topics = context.source.topics(), target.topics()
    if unknown := set(topics) - set(config.select(source_topics)):
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


def _configs_to_copy(configs: Mapping[str, str], flow_config: FlowConfig) -> dict[str, str]:
    copied = flow_config.config_property_filter((".*",), flow_config.config_properties_exclude)
    return {name: value for name, value in sorted(configs.items()) if copied.matches(name)}


def _differences(wanted: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {
        name: value for name, value in wanted.items() if current.get(name) != value
    }
    changes.update({name: None for name in current if name not in wanted})
    return changes
