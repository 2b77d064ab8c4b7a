"""Composition root: builds what a use case needs from the configuration, and closes it again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from srm.config.model import ClusterClients, Config, FlowConfig
from srm.domain.topics import Flow
from srm.engine import control_lists
from srm.engine.move.store import MoveContext
from srm.engine.ports import Cluster, FlowContext
from srm.engine.supervision import StateTopics, topic_on
from srm.kafka.cluster import KafkaCluster
from srm.kafka.map_reader import KafkaMapReader


def now_ms() -> int:
    """Epoch milliseconds by the system clock."""
    return time.time_ns() // 1_000_000


@contextmanager
def open_cluster(config: Config, alias: str) -> Iterator[Cluster]:
    """Give access to one cluster; connects when first used.

    Raises:
        ConfigError: the configuration does not list the alias.
    """
    with kafka_cluster(alias, config.cluster_clients(alias)) as cluster:
        yield cluster


def kafka_cluster(alias: str, clients: ClusterClients) -> KafkaCluster:
    """Return a cluster that is connected to when first used; the caller closes it."""
    return KafkaCluster(alias, clients.admin, clients.consumer, clients.producer)


@contextmanager
def open_flow(config: Config, flow: Flow) -> Iterator[FlowContext]:
    """Give access to one flow, enabled or not, with the lists of srm-control merged in.

    Raises:
        ConfigError: the flow names a cluster that the configuration does not list.
        UnavailableError: the target, which holds the lists, does not answer.
    """
    configured = config.flow(flow)
    with (
        kafka_cluster(flow.source, config.cluster_clients(flow.source, flow)) as source,
        kafka_cluster(flow.target, config.cluster_clients(flow.target, flow)) as target,
    ):
        effective = control_lists.effective(configured, control_lists.load(target, flow))
        yield flow_context(effective, source, target)


@contextmanager
def open_move(config: Config, source: str, target: str) -> Iterator[MoveContext]:
    """Give access to both flows between two clusters, for a move from source to target.

    Each cluster serves both flows, so its own client settings hold, not those of a single flow.

    Raises:
        ConfigError: the configuration does not list a cluster.
        UsageError: source and target are the same.
    """
    flow = Flow.parse(f"{source}->{target}")
    forward, reverse = config.flow(flow), config.flow(flow.reversed)
    with (
        open_cluster(config, flow.source) as from_cluster,
        open_cluster(config, flow.target) as to_cluster,
    ):
        forward = control_lists.merged_if_known(forward, to_cluster)
        reverse = control_lists.merged_if_known(reverse, from_cluster)
        yield MoveContext(
            flow_context(forward, from_cluster, to_cluster),
            flow_context(reverse, to_cluster, from_cluster),
        )


@contextmanager
def open_state_topics(config: Config, flows: Iterable[Flow]) -> Iterator[StateTopics]:
    """Give access to the state topics of flows, by which their replicators are supervised.

    Raises:
        ConfigError: the configuration does not list a flow's target.
    """
    wanted = tuple(flows)
    with ExitStack() as stack:
        clusters = {
            alias: stack.enter_context(open_cluster(config, alias))
            for alias in {flow.target for flow in wanted}
        }
        yield {flow: topic_on(clusters[flow.target], flow) for flow in wanted}


def flow_context(config: FlowConfig, source: Cluster, target: Cluster) -> FlowContext:
    """Join two open clusters into a flow; ``config`` must have the control lists merged in."""
    flow = config.flow
    return FlowContext(
        config=config,
        source=source,
        target=target,
        maps=KafkaMapReader(target, source, flow),
        reverse_maps=KafkaMapReader(source, target, flow.reversed),
        now_ms=now_ms,
    )
