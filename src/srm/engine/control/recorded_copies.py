"""Copies that replicators have recorded: a policy that keeps names does not show them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.names import internal_topics
from srm.domain.names.flow_topics import RecordedCopies
from srm.domain.names.topics import Flow
from srm.domain.recovery.restore import restore_flow
from srm.engine.cluster_ports import Cluster, Topics
from srm.engine.control import control_lists
from srm.engine.flows.supervision import driver_status
from srm.engine.flows.target_topics import StateTopic
from srm.errors import UnavailableError


def settings_now(configured: FlowConfig, source: Cluster, target: Cluster) -> FlowConfig:
    lists = control_lists.load(target, configured.flow)
    return with_recorded(control_lists.effective(configured, lists), source, target)


def with_recorded(config: FlowConfig, source: Cluster, target: Cluster) -> FlowConfig:
    """Add recorded copies if the flow or its opposite keeps names; unknown without an answer."""
    names = config.names
    if not names.keeps_name("topic") and names.replica("topic") != "topic":
        return config
    opposite, back_topics = config.flow.reverse, config.back_topics
    on_source, on_target = read_copies(source, opposite), read_copies(target, config.flow)
    if config.both_ways:
        try:
            lists = control_lists.load(source, opposite).topics
        except UnavailableError:
            on_source = None
        else:
            include, exclude = back_topics.include, back_topics.exclude
            back_topics = replace(
                back_topics, include=(*include, *lists.allow), exclude=(*exclude, *lists.deny)
            )
    return replace(config, recorded=RecordedCopies(on_source, on_target), back_topics=back_topics)


def flows_beside(flow: Flow, topics: Collection[str]) -> list[Flow]:
    """Return the flows from other sources that have a state topic among those of the target."""
    before, after = internal_topics.replication("*").split("*")
    names = (name for name in topics if name.startswith(before) and name.endswith(after))
    found = {Flow(name.removeprefix(before).removesuffix(after), flow.target) for name in names}
    return sorted(found - {flow, restore_flow(flow.reverse)})


def copies_of_others(
    target: Cluster, topics: Collection[str], config: FlowConfig, now_ms: int
) -> frozenset[str]:
    """Return the topics of a flow's target that flows from unknown sources copy into now.

    Flows from sources that the settings join do not count: they know of each other. Nor does a flow
    with a silent driver, or what a former flow left: the claim explains that. Of two that both have
    a topic, the one with copies in it keeps it, then the one with the first name.
    """
    flow = config.flow
    others = [one for one in flows_beside(flow, topics) if one.source not in config.joined]
    if not others:
        return frozenset()
    own = _ranks(StateTopic(target, flow.source).read(), flow)
    taken = set[str]()
    for other in others:
        records = StateTopic(target, other.source).read()
        driver = driver_status(records, other, now_ms)
        if driver is None or not driver.alive:
            continue
        ranks = _ranks(records, other)
        taken |= {one for one, rank in ranks.items() if one not in own or rank < own[one]}
    return frozenset(name for name, topic in target.topics().items() if topic.topic_id in taken)


def _ranks(records: Mapping[bytes, bytes], flow: Flow) -> dict[str, tuple[bool, str]]:
    """Return the ids of the topics that a flow copies into; the lowest rank keeps a topic."""
    state = decode_state(records)
    begun = {
        entry.target_topic_id
        for report in state.reports
        for entry in (*report.positions, *report.former)
        if entry.producer_id >= 0
    }
    active = (topic.target_topic_id for topic in state.copied if topic.active)
    return {one: (one not in begun, str(flow)) for one in active}


def read_copies(target: Cluster, flow: Flow) -> frozenset[str] | None:
    """Return the names of the flow's copies that exist, by topic id; None without an answer."""
    try:
        return copies_in(StateTopic(target, flow.source).read(), target.topics())
    except UnavailableError:
        return None


def copies_in(records: Mapping[bytes, bytes], topics: Topics) -> frozenset[str]:
    """Return the names of the copies in a flow's records that its target has, by topic id."""
    state = decode_state(records)
    present = {topic.topic_id: name for name, topic in topics.items()}
    ids = {entry.target_topic_id for _, entry in state.newest_assignments().values()}
    ids |= {topic.target_topic_id for topic in state.copied}
    return frozenset(present[one] for one in ids & present.keys())
