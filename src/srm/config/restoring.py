"""The settings of a flow that brings copies back: those of the opposite flow, but for its topics.

``restore.B->P`` reads and writes as ``B->P`` does: with its clients, its limits, its number of
slots. It copies all that the copies hold, headers included, and runs no other jobs.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from srm.config.model import CLIENT_KINDS, Config, FlowConfig
from srm.config.values import ClientProperties
from srm.domain.names.policy import RestoringPolicy
from srm.domain.names.record_headers import RecordSettings
from srm.domain.names.topics import Flow
from srm.domain.recovery.restore import restore_flow


def with_restore(config: Config, forward: Flow, copies: Collection[str]) -> Config:
    """Return a configuration with the flow that restores ``copies`` to a rebuilt source, too."""
    back, flow = forward.reverse, restore_flow(forward)
    policy = RestoringPolicy(config.flow(forward).policy)
    settings = replace(
        restoring(config.flow(back), copies),
        flow=flow,
        enabled=True,
        policy=policy,
        back=policy,
        groups=(),
        emit_checkpoints_enabled=False,
        sync_group_offsets_enabled=False,
        emit_heartbeats_enabled=False,
        heartbeats_replication_enabled=False,
        emit_offset_syncs_enabled=False,
        metrics_windows_continuous=False,
        records=RecordSettings(),
    )
    clients = dict(config.clients)
    for kind in CLIENT_KINDS:
        source = ClientProperties(config.client(back.source, kind, back))
        target = ClientProperties(config.client(back.target, kind, back))
        clients[flow.source, kind, None] = clients[flow.source, kind, flow] = source
        clients[flow.target, kind, flow] = target
    return replace(config, flow_configs={**config.flow_configs, flow: settings}, clients=clients)


def restoring(config: FlowConfig, copies: Collection[str]) -> FlowConfig:
    """Return the settings of a flow that copies just these topics."""
    return replace(
        config, topics=tuple(re.escape(copy) for copy in sorted(copies)), topics_exclude=()
    )
