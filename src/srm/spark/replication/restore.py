"""A restore with all it needs: both clusters, their logs, and a replicator that copies back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from srm.clock import now_ms
from srm.config.model import Config
from srm.config.restoring import with_restore
from srm.domain.flow_state.replication_records import DUTIES
from srm.domain.names.topics import Flow
from srm.domain.recovery.restore import SLOT, restore_flow
from srm.engine.control import control_lists
from srm.errors import SrmError
from srm.kafka.state.driver_log import KafkaFlowSwitch
from srm.kafka.state.slot_state import MapStarts
from srm.kafka.state.writers import KafkaStateLog
from srm.kafka.wire.cluster import open_wire
from srm.replication.report import Reporter
from srm.replication.restore.topic_handover import RestoreContext, RestoreLogs
from srm.spark.replication.replicator import Replicator
from srm.wiring import flow_context, open_clusters

_FLUSH_S = 20.0


@contextmanager
def open_restore(
    config: Config,
    forward: Flow,
    by: str,
    run: Callable[[Replicator], None],
    master: str | None = None,
) -> Iterator[RestoreContext]:
    """Give access to a restore; Spark starts when something is copied, and ``run`` catches up."""
    both, back = with_restore(config, forward, ()), restore_flow(forward)

    def copy(copies: Collection[str]) -> None:
        run(
            Replicator(with_restore(config, forward, copies), [back], master=master, without=DUTIES)
        )

    with open_clusters(config, (forward.target, forward.source)) as opened:
        intact, rebuilt = opened[forward.target], opened[forward.source]
        lists = control_lists.load(intact, forward)
        clients = config.cluster_clients(forward.target, forward)
        to_rebuilt = both.cluster_clients(back.target, back)
        producers = {forward.target: clients.producer, forward.source: to_rebuilt.producer}
        going_on = control_lists.effective(config.flow(forward), lists)
        # What is handed over are positions of the past: MirrorMaker's syncs are of what is copied.
        telling = replace(going_on, emit_offset_syncs_enabled=False)
        state = KafkaStateLog(forward.target, clients.producer)

        def reporter() -> Reporter:
            return Reporter(telling, SLOT, state, state, now_ms)

        yield RestoreContext(
            forward=flow_context(going_on, rebuilt, intact, clients),
            copying=flow_context(both.flow(back), intact, rebuilt, to_rebuilt),
            switch=KafkaFlowSwitch(forward, intact, clients.consumer, clients.producer),
            own_switch=KafkaFlowSwitch(back, rebuilt, to_rebuilt.consumer, to_rebuilt.producer),
            clusters=config.clusters,
            logs=RestoreLogs(lambda alias: open_wire(alias, producers[alias]), forward.source),
            starts=MapStarts(forward, intact),
            reporter=reporter,
            copy=copy,
            by=by,
        )
        with suppress(SrmError):
            state.flush(_FLUSH_S)
