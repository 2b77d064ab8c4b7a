"""Composition root: builds the objects of a use case from the configuration and closes them."""

from __future__ import annotations

import functools
import math
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
    suppress,
)
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, cast

from srm import __version__, patience
from srm.clock import now_ms
from srm.config.model import ClusterClients, Config, FlowConfig
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Cluster, away_cluster, cluster_ids, tolerate
from srm.engine.control import control_lists
from srm.errors import ConfigError, SrmError
from srm.kafka.admin.clients import DEFAULT_TIMEOUT_S
from srm.kafka.cluster import KafkaCluster, same_clusters
from srm.kafka.wire.brokers import refusals_of

if TYPE_CHECKING:
    from srm.engine.flows.supervision import StateTopics
    from srm.engine.moves.context import MoveContext, Notary
    from srm.engine.ports import FlowContext
    from srm.replication.adoption import AdoptionContext
    from srm.replication.ports import Wire
    from srm.replication.report import Reporter
    from srm.replication.restore.topic_handover import RestoreContext
    from srm.replication.takeover import WalkedLogs

_CONDEMNED_S: Final = 5.0

_LOOK_S: Final = 6.0
_RECHECK: Final = 1.25
"""Time of a call of a partial look after which a cluster has to answer again, in first answers."""
_OPENING: Final = frozenset({"compacted_topic", "control_writer"})
"""Calls of a cluster that connect to nothing yet."""
_FLUSH_S: Final = 20.0


@contextmanager
def open_cluster(
    config: Config, alias: str, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Iterator[Cluster]:
    """Open one cluster; it connects on first use. A call takes at most ``timeout_s``."""
    with open_clusters(config, [alias], timeout_s) as opened:
        yield opened[alias]


@contextmanager
def open_clusters(
    config: Config,
    aliases: Iterable[str],
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    together: bool = False,
    kept: Collection[str] = (),
) -> Iterator[dict[str, Cluster]]:
    """Open clusters by alias; ``together``: if none answers, the errors of each name all.

    ``kept``: compacted topics that stay in memory; each read takes what is new.
    """
    ends = {alias: config.cluster_clients(alias) for alias in aliases}
    with ExitStack() as stack:
        yield _open(ends, stack, timeout_s, together=together, kept=kept)


def _open(
    ends: Mapping[str, ClusterClients],
    stack: ExitStack,
    timeout_s: float,
    *,
    together: bool,
    recheck_s: float = math.inf,
    kept: Collection[str] = (),
) -> dict[str, Cluster]:
    """Open clusters by alias; for a command, those without an answer in time get no further calls.

    A call of those raises what is wrong, see :mod:`srm.patience`. They are queried side by side.
    """
    silent = _silent(ends)
    if together and len(silent) == len(ends) > 1:  # whichever is called first, all are named
        errors = [silent[alias] for alias in sorted(silent)]
        what = "; ".join(error.what for error in errors)
        action = "; ".join(error.action for error in errors if error.action)
        silent = {alias: type(error)(what, action) for alias, error in silent.items()}
    return {
        alias: away_cluster(alias, silent[alias])
        if alias in silent
        else stack.enter_context(
            KafkaCluster(alias, clients, timeout_s, recheck_s=recheck_s, kept=kept)
        )
        for alias, clients in ends.items()
    }


def _silent(ends: Mapping[str, ClusterClients]) -> dict[str, SrmError]:
    limit = patience.current()
    if limit is None:
        return {}
    keys = {alias: (alias, of.admin.get("bootstrap.servers", "")) for alias, of in ends.items()}
    left = [alias for alias, key in keys.items() if key not in limit.known]
    found = refusals_of([(alias, ends[alias].admin) for alias in left], limit.seconds)
    for alias, error in zip(left, found, strict=True):
        limit.note(keys[alias], error)
    return {alias: error for alias, key in keys.items() if (error := limit.known[key]) is not None}


@contextmanager
def open_flow(config: Config, flow: Flow, *, partial: bool = False) -> Iterator[FlowContext]:
    """Open one flow, enabled or not, with the lists of srm-control merged in.

    A ``partial`` one opens also where the target does not answer; then there are no lists.
    """
    from srm.engine.control.recorded_copies import settings_now, with_recorded

    configured = config.flow(flow)
    with ExitStack() as stack:
        ends = {alias: config.cluster_clients(alias, flow) for alias in (flow.source, flow.target)}
        timeout_s, limit = configured.admin_timeout_ms / 1000, patience.current()
        # A cluster may die in the middle of the look.
        recheck_s = _RECHECK * limit.seconds if partial and limit is not None else math.inf
        opened = _open(ends, stack, timeout_s, together=True, recheck_s=recheck_s)
        source, target = opened[flow.source], opened[flow.target]
        if partial:
            merged = control_lists.merged_if_known(configured, target)
            effective = with_recorded(merged, source, target)
        else:
            effective = settings_now(configured, source, target)
        context = flow_context(effective, source, target, config.cluster_clients(flow.target, flow))
        # A restore flow has no opposite flow.
        yield replace(context, opposite=config.flow_configs.get(flow.reverse))


@contextmanager
def open_configured_flow(
    config: Config, flow: Flow, *, follow: bool = False
) -> Iterator[FlowContext]:
    """Open one flow by its settings alone, without lists, so no cluster has to answer yet.

    With ``follow`` the compacted topics that are read stay in memory; each read goes to their ends.
    Those of emissions are read from now on: one after another they take a second or two each.
    """
    from srm.engine.emission import tables_of

    clients = {alias: config.cluster_clients(alias, flow) for alias in (flow.source, flow.target)}
    timeout_s = config.flow(flow).admin_timeout_ms / 1000

    def open_one(alias: str) -> KafkaCluster:
        return KafkaCluster(alias, clients[alias], timeout_s, follow=follow, fresh=True)

    with open_one(flow.source) as source, open_one(flow.target) as target:
        for cluster in (source, target) if follow else ():
            for topic, partition in tables_of(config.flow(flow))[cluster.alias]:
                cluster.follow(topic, partition=partition)
        context = flow_context(config.flow(flow), source, target, clients[flow.target])
        yield replace(context, opposite=config.flow_configs.get(flow.reverse))


OpenClusters = Callable[
    [Config, Iterable[str], float], AbstractContextManager[Mapping[str, Cluster]]
]

OPEN_PAIR: Final[OpenClusters] = functools.partial(
    open_clusters, together=True, kept=(internal_topics.MOVES,)
)


@contextmanager
def open_move(
    config: Config,
    source: str,
    target: str,
    *,
    unplanned: bool = False,
    opened_by: OpenClusters = OPEN_PAIR,
) -> Iterator[MoveContext]:
    """Open both flows between two clusters, for a move from source to target.

    Each cluster serves both flows, so its own client settings apply, not those of a single flow.

    ``unplanned``: the source is abandoned; steps call it only where they do not wait for it.
    ``opened_by``: opens the clusters; a process with several moves may share them.
    """
    from srm.engine.control.recorded_copies import with_recorded

    flow = Flow.parse(f"{source}->{target}")
    forward, reverse = config.flow(flow), config.flow(flow.reverse)
    with ExitStack() as stack:
        ends = {flow.target} if unplanned else {flow.target, flow.source}
        timeout_s = forward.admin_timeout_ms / 1000
        opened = stack.enter_context(opened_by(config, ends, timeout_s))
        to_cluster = opened[flow.target]
        from_cluster = opened.get(flow.source) or away_cluster(flow.source)
        forward = control_lists.merged_if_known(forward, to_cluster)
        forward = with_recorded(forward, from_cluster, to_cluster)
        reverse = control_lists.merged_if_known(reverse, from_cluster)
        reverse = with_recorded(reverse, to_cluster, from_cluster)
        context = _move_context(config, forward, reverse, from_cluster, to_cluster)
        stack.callback(context.writers.close)
        if unplanned:
            clients = config.cluster_clients(flow.source)
            condemned = stack.enter_context(KafkaCluster(flow.source, clients, _CONDEMNED_S))
            context = replace(context, condemned=_join(condemned, to_cluster)[0])
        yield context


@contextmanager
def open_records(config: Config, source: str, target: str) -> Iterator[MoveContext]:
    """Open the records of moves on two clusters for reading; either may be dead.

    The lists of srm-control are left out, and timeouts are shorter, because an operator waits.
    """
    flow = Flow.parse(f"{source}->{target}")
    with open_clusters(config, (flow.source, flow.target), _LOOK_S) as opened:
        configs = config.flow(flow), config.flow(flow.reverse)
        context = _move_context(config, *configs, opened[flow.source], opened[flow.target])
        yield replace(context, only_look=True)


def _move_context(
    config: Config, forward: FlowConfig, reverse: FlowConfig, source: Cluster, target: Cluster
) -> MoveContext:
    from srm.engine.moves.context import MoveContext

    return MoveContext(
        flow_context(forward, source, target, config.cluster_clients(forward.flow.target)),
        flow_context(reverse, target, source, config.cluster_clients(forward.flow.source)),
        notary=notary(config),
    )


def notary(config: Config) -> Notary:
    """Return the signer of move reports, with the software versions they name."""
    from srm.engine.moves.context import Notary

    versions = {
        "srm": __version__,
        "python": platform.python_version(),
        "confluent-kafka": metadata.version("confluent-kafka"),
    }
    return Notary(config.report_key.read, versions, config.sha256)


@contextmanager
def open_return(config: Config, flow: Flow) -> Iterator[tuple[FlowContext, WalkedLogs]]:
    """Open a flow whose source has returned, and both its logs."""
    from srm.kafka.state.slot_state import MapStarts
    from srm.replication.takeover import WalkedLogs

    with open_flow(config, flow) as context:
        logs = WalkedLogs(
            context.config,
            _open_wire_of(config, flow),
            MapStarts(flow, context.target),
            lambda: cluster_ids(context.config.records, context.source, context.target),
        )
        yield context, logs


def _open_wire_of(config: Config, flow: Flow) -> Callable[[str], AbstractAsyncContextManager[Wire]]:
    """Return what connects to a cluster of a flow, to read the source and write to the target."""
    from srm.kafka.wire.cluster import open_wire

    properties = {
        flow.source: config.cluster_clients(flow.source, flow).consumer,
        flow.target: config.cluster_clients(flow.target, flow).producer,
    }
    return lambda alias: open_wire(alias, properties[alias])


@contextmanager
def _open_reporter(
    config: FlowConfig, slot: str, clients: ClusterClients
) -> Iterator[Callable[[], Reporter]]:
    """Open what reports positions of the past: MirrorMaker 2's syncs are of what is copied."""
    from srm.kafka.state.writers import KafkaStateLog
    from srm.replication.report import Reporter

    state = KafkaStateLog(config.flow.target, clients.producer)
    without_syncs = replace(config, emit_offset_syncs_enabled=False)
    yield lambda: Reporter(without_syncs, slot, state, state, now_ms)
    with suppress(SrmError):
        state.flush(_FLUSH_S)


@contextmanager
def open_adoption(config: Config, flow: Flow, by: str) -> Iterator[AdoptionContext]:
    """Open a flow whose remote topics others have filled, its logs and its state."""
    from srm.domain.recovery.adoption import SLOT
    from srm.kafka.state.slot_state import MapStarts
    from srm.replication.adoption import AdoptionContext

    clients = config.cluster_clients(flow.target, flow)
    with (
        open_flow(config, flow) as context,
        _open_reporter(context.config, SLOT, clients) as reporter,
    ):
        starts = MapStarts(flow, context.target)
        yield AdoptionContext(context, _open_wire_of(config, flow), starts, reporter, by)


@contextmanager
def open_restore(
    config: Config, forward: Flow, by: str, copy: Callable[[Collection[str]], None]
) -> Iterator[RestoreContext]:
    """Open what holds the copies of a flow, and its rebuilt source; ``copy`` brings them there."""
    from srm.config.restoring import with_restore
    from srm.domain.recovery.restore import SLOT, restore_flow
    from srm.kafka.state.slot_state import MapStarts
    from srm.kafka.wire.cluster import open_wire
    from srm.replication.restore.topic_handover import RestoreContext, RestoreLogs

    both, back = with_restore(config, forward, ()), restore_flow(forward)
    with open_clusters(config, (forward.target, forward.source)) as opened:
        intact, rebuilt = opened[forward.target], opened[forward.source]
        clients = config.cluster_clients(forward.target, forward)
        to_rebuilt = both.cluster_clients(back.target, back)
        producers = {forward.target: clients.producer, forward.source: to_rebuilt.producer}
        lists = control_lists.load(intact, forward)
        going_on = control_lists.effective(config.flow(forward), lists)
        with _open_reporter(going_on, SLOT, clients) as reporter:
            yield RestoreContext(
                forward=flow_context(going_on, rebuilt, intact, clients),
                copying=flow_context(both.flow(back), intact, rebuilt, to_rebuilt),
                clusters=config.clusters,
                logs=RestoreLogs(lambda alias: open_wire(alias, producers[alias]), forward.source),
                starts=MapStarts(forward, intact),
                reporter=reporter,
                copy=copy,
                by=by,
            )


@contextmanager
def open_state_topics(config: Config, flows: Iterable[Flow]) -> Iterator[StateTopics]:
    """Open the state topics of flows, through which replicators are supervised."""
    from srm.engine.flows.target_topics import StateTopic

    wanted = tuple(flows)
    with open_clusters(config, {flow.target for flow in wanted}) as opened:
        yield {flow: StateTopic(opened[flow.target], flow.source) for flow in wanted}


def flow_context(
    config: FlowConfig, source: Cluster, target: Cluster, target_clients: ClusterClients
) -> FlowContext:
    """Join two open clusters into a flow; ``config`` must have the control lists merged in.

    One cluster under two aliases is refused, by a command here: it may tolerate refused calls.
    """
    # The clusters have been contacted: an error is shown before these are imported.
    from srm.engine.map_reader import KafkaMapReader
    from srm.engine.ports import FlowContext
    from srm.kafka.state.driver_log import KafkaFlowSwitch
    from srm.redirect import callers

    for error in compare((source, target)) if patience.current() is not None else ():
        raise error
    flow = config.flow
    source, target = _join(source, target)
    return FlowContext(
        config=config,
        source=source,
        target=target,
        maps=KafkaMapReader(target, source, flow),
        reverse_maps=KafkaMapReader(source, target, flow.reverse),
        now_ms=now_ms,
        callers=callers(config.redirect),
        switch=KafkaFlowSwitch(flow, target, target_clients),
    )


class _Joined:
    """A cluster of a flow; its calls are refused if the other one is the same cluster.

    Each call compares, as another cluster may get an address; an unavailable one has no id yet.
    """

    def __init__(self, cluster: KafkaCluster, other: KafkaCluster) -> None:
        self.alias, self._cluster, self._other = cluster.alias, cluster, other

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)
        if not callable(found) or name in _OPENING:
            return found

        @functools.wraps(found)
        def call(*args: Any, **more: Any) -> Any:
            self._cluster.cluster_id()
            for error in same_clusters((self._cluster, self._other)):
                raise error
            return found(*args, **more)

        return call


def compare(clusters: Iterable[Cluster]) -> list[ConfigError]:
    """Return an error for each cluster with several aliases, of those that answer."""
    real = [cluster for cluster in clusters if isinstance(cluster, KafkaCluster)]
    for cluster in real:
        tolerate(cluster.cluster_id, f"the id of cluster {cluster.alias} is not compared", SrmError)
    return [*same_clusters(real)]


def require_two_clusters(config: Config, flows: Collection[Flow]) -> None:
    """Raise ConfigError if a cluster of the flows has two aliases, or if settings stop each flow.

    One that is silent for some seconds is compared when its flows run: it stops no other flow.
    """
    aliases = {alias for flow in flows for alias in (flow.source, flow.target)}
    limit_s = patience.DEFAULT_S
    with patience.limit(limit_s) as first, open_clusters(config, aliases, limit_s) as opened:
        for error in compare(opened.values()):
            raise error
        known = {} if first is None else first.known
    wrong = {alias: error for (alias, _), error in known.items() if isinstance(error, ConfigError)}
    if flows and all(wrong.keys() & {flow.source, flow.target} for flow in flows):
        raise next(iter(wrong.values()))


def _join(source: Cluster, target: Cluster) -> tuple[Cluster, Cluster]:
    if not (isinstance(source, KafkaCluster) and isinstance(target, KafkaCluster)):
        return source, target  # an unavailable one
    return cast("Cluster", _Joined(source, target)), cast("Cluster", _Joined(target, source))
