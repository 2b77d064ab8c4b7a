"""Composition root: builds what a use case needs from the configuration, and closes it again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from srm.config.model import ClientKind, Config, FlowConfig
from srm.domain.topics import Flow
from srm.engine import control_lists
from srm.engine.move.store import MoveContext
from srm.engine.ports import Cluster, FlowContext
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
    with _cluster(alias, partial(config.client, alias)) as cluster:
        yield cluster


def _cluster(alias: str, properties: Callable[[ClientKind], dict[str, str]]) -> KafkaCluster:
    return KafkaCluster(alias, properties("admin"), properties("consumer"), properties("producer"))


@contextmanager
def open_flow(config: Config, flow: Flow) -> Iterator[FlowContext]:
    """Give access to one flow, enabled or not, with the lists of srm-control merged in.

    Raises:
        ConfigError: the flow names a cluster that the configuration does not list.
        UnavailableError: the target, which holds the lists, does not answer.
    """
    configured = config.flow(flow)
    with (
        _cluster(flow.source, partial(config.flow_client, flow, flow.source)) as source,
        _cluster(flow.target, partial(config.flow_client, flow, flow.target)) as target,
    ):
        effective = control_lists.effective(configured, control_lists.load(target, flow))
        yield flow_context(effective, source, target)


@contextmanager
def open_move(config: Config, source: str, target: str) -> Iterator[MoveContext]:
    """Give access to both flows between two clusters, for a move from source to target.

    Raises:
        ConfigError: the configuration does not list a cluster.
        UsageError: source and target are the same.
    """
    flow = Flow.parse(f"{source}->{target}")
    forward, reverse = config.flow(flow), config.flow(flow.reversed)
    with (
        open_cluster(config, flow.source) as left,
        open_cluster(config, flow.target) as taken,
    ):
        yield MoveContext(
            flow_context(control_lists.merged_if_known(forward, taken), left, taken),
            flow_context(control_lists.merged_if_known(reverse, left), taken, left),
        )


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
